"""Without a step size the clients find one: its value, what they send for it, and that it is reported."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import quadratic

import hgp_ref as hgp

NET = hgp.networks.Ring(5)
PROBLEM, X, LAM = quadratic(n=5)
L = 1.05 * max(np.abs(np.linalg.eigvalsh(H)).max() for H in hgp.exact.hessians(PROBLEM, X, LAM))
DISTANCE = 2  # between two clients of a ring of five
SENT = 2 * NET.n  # messages of one round, two numbers each: both ends of the spectrum


@pytest.mark.parametrize(
    ("method", "net", "added"),
    [
        (hgp.training.SGP(steps=4), NET, 0.0),
        (hgp.training.SGP(steps=4, weight_decay=0.5), NET, 0.5),
        (hgp.training.LocalRounds(rounds=4, lr=None), hgp.Gossip(NET, 1), 0.0),
        (hgp.training.LocalRounds(rounds=4, lr=None, weight_decay=0.5, prox=0.25), hgp.PushSum(NET, 1), 0.75),
    ],
    ids=repr,
)
def test_training(method, net, added):
    from dataclasses import replace

    fit = hgp.train(PROBLEM, LAM, net, method)
    assert fit.rates == pytest.approx(np.full(4, 1 / (L + added)), rel=1e-10)
    assert f"learning rate  {1 / (L + added):.3g}, found by the clients" in str(fit)
    given = hgp.train(PROBLEM, LAM, net, replace(method, lr=float(fit.rates[0])))
    search = fit.traffic - given.traffic
    assert 1 <= search.rounds <= DISTANCE
    assert (search.messages, search.floats) == (SENT * search.rounds, 2 * SENT * search.rounds)
    np.testing.assert_allclose(fit.x, given.x, rtol=1e-12)
    assert "learning rate" not in str(given)


def test_local_rounds_through_a_server():
    fit = hgp.training.local_rounds(PROBLEM, LAM, hgp.mixing.ServerAverage(5), rounds=300, lr=None)
    assert fit.rates[0] == pytest.approx(1 / L, rel=1e-10) and fit.traffic.rounds == 301
    assert fit.grad_norm < 1e-3


def test_hypergradient():
    est = hgp.hypergradient(PROBLEM, X, LAM, hgp.PushSum(NET, 3), iterations=5)
    assert est.eta == pytest.approx(1 / L, rel=1e-10) and f"eta={est.eta!r}"[:10] in str(est)
    given = hgp.hypergradient(PROBLEM, X, LAM, hgp.PushSum(NET, 3), eta=est.eta, iterations=5)
    search = est.traffic - given.traffic
    assert 1 <= search.rounds <= DISTANCE and search.floats == 2 * SENT * search.rounds
