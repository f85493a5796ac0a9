"""The expected cost of each method, against an independent derivation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import Chebyshev, Neumann, Refined, Tracking
from hgp_ref.mixing import Traffic
from hgp_ref.planning.execution import refinement_cycle
from hgp_ref.planning.planner import candidates
from hgp_ref.planning.probe import Diagnostics


def known(low, high, tau=0.3, zeta=0.0):
    return Diagnostics(low, high, high, zeta, tau, None, 0, Traffic(), low)


def split(offers):
    """(the series, Chebyshev by the number of cycles, tracking)."""
    series = [c for c in offers if isinstance(c.method, Neumann)]
    cycles = {getattr(c.method, "cycles", 1): c for c in offers if isinstance(c.method, Refined | Chebyshev)}
    return series[0], cycles, [c for c in offers if isinstance(c.method, Tracking)]


def damping(method, spectrum, M):
    """The largest |p_M(λ)| of the residual polynomial: the method on diagonal Hessians, exact averages."""
    d = len(spectrum)
    problem = hgp.problems.Quadratic(np.diag(spectrum)[None], np.zeros((1, d)), np.eye(d)[None], -np.ones((1, d)))
    x = np.zeros((1, d))
    est = hgp.hypergradient(problem, x, np.zeros((1, d)), hgp.ExactAverage(1), method=method, iterations=M)
    truth = exact.hypergradient(problem, x, np.zeros((1, d)))
    return np.max(np.abs(est.value - truth) / np.abs(truth))


@pytest.mark.parametrize("target", [1e-2, 1e-5])
@pytest.mark.parametrize(("low", "high"), [(0.1, 1.0), (0.3, 2.7), (0.02, 0.5)])
def test_steps_and_lengths_are_the_best_for_the_interval(low, high, target):
    """No other step does better at the ends of the interval, and one iteration less would miss the aim."""
    series, chebyshev, _ = split(candidates(known(low, high), target))
    spectrum = np.linspace(low, high, 41)
    rate = np.max(np.abs(1 - series.method.eta * spectrum))
    for other in (0.99, 1.01):
        assert np.max(np.abs(1 - other * series.method.eta * spectrum)) > rate
    M = series.iterations
    assert 2 * rate**M <= 0.25 * target * (1 + 1e-9) < 2 * rate ** (M - 1) * (1 + 2e-9)
    assert damping(series.method, spectrum, M) == pytest.approx(rate**M, rel=1e-6)
    assert set(chebyshev) == set(range(1, 9))
    for c, offer in chebyshev.items():
        inner = offer.method if c == 1 else offer.method.method
        assert (inner.low, inner.high) == (low, high) and offer.iterations % c == 0
        M, goal = offer.iterations // c, (0.25 * target) ** (1 / c)
        assert damping(inner, spectrum, M) <= goal * (1 + 1e-6)
        q = (math.sqrt(high) - math.sqrt(low)) / (math.sqrt(high) + math.sqrt(low))
        assert 2 * q**M <= goal * (1 + 1e-9) and (M == 1 or 2 * q ** (M - 1) > goal * (1 - 1e-9))
        assert c == 1 or offer.method.cycles == c


def test_rounds_follow_from_tau():
    """S_0 leaves goal/5 of a disagreement (goal, within cycles), restarts the (k+1)-th power; all are counted."""
    target = 1e-4
    for tau in (0.2, 0.7):
        series, chebyshev, _ = split(candidates(known(0.1, 1.0, tau), target))
        for offer in (series, chebyshev[1]):
            goal = 0.25 * target
            assert tau ** offer.steps[0] <= goal / 5 < tau ** (offer.steps[0] - 1)
            assert offer.rounds == sum(offer.steps) and offer.steps == hgp.falling_steps(
                offer.steps[0], offer.iterations
            )
        for c in range(2, 9):
            offer, goal = chebyshev[c], (0.25 * target) ** (1 / c)
            assert offer.steps[0] == max(1, math.ceil(math.log(min(goal, 0.5)) / math.log(tau)))
            restarts = np.atleast_1d(offer.method.steps)
            for k, S in enumerate(restarts, start=2):
                assert tau**S <= goal**k / 5 * (1 + 1e-9) < tau ** (S - 1) * (1 + 1e-9)
            assert len(restarts) == c - 1 or len(set(restarts)) == 1
            assert len(offer.steps) == offer.iterations - (c - 1)
            assert offer.rounds == sum(offer.steps) + 2 * sum(offer.method.steps)


def test_what_is_sent_is_what_was_counted():
    """A first run over a complete network sends what its candidate says, message by message."""
    problem = hgp.problems.Quadratic.random(4, 6, 2, seed=1, condition=10.0)
    x, lam, net = np.ones((4, 6)), np.zeros((4, 2)), hgp.networks.FullyConnected(4)
    for offer in candidates(known(0.05, 1.0), 1e-3):
        avg = hgp.PushSum(net, steps=offer.steps)
        est = hgp.hypergradient(problem, x, lam, avg, method=offer.method, iterations=offer.iterations)
        assert est.traffic.rounds == offer.rounds
        assert est.traffic.floats == offer.rounds * 12 * (offer.vectors * 6 + 1)
        assert offer.floats(6) == pytest.approx(offer.margin * est.traffic.floats / 12)
        assert offer.margin == (1.0 if isinstance(offer.method, Tracking) else 1.3)


def test_continuation_rounds_are_those_of_a_refinement_cycle():
    """The cycle of a continuation: an average of w and one of what is left, then falling S; M by the rate."""
    found = known(0.1, 1.0, tau=0.5)
    q = (math.sqrt(10) - 1) / (math.sqrt(10) + 1)
    for continued in (0, 2):
        steps, M = refinement_cycle(found, Chebyshev(0.1, 1.0), 0.1, 1e-4, continued)
        assert 2 * q**M <= 0.1 < 2 * q ** (M - 1) and len(steps) == M + 1
        restart = math.ceil(math.log2(5e4)) * (2 + continued) // 2
        first = math.ceil(math.log2(50)) * (2 + continued) // 2
        assert steps == (restart, restart, *hgp.falling_steps(first, M)[1:])
    eta = 2 / 1.1
    _, M = refinement_cycle(found, Neumann(eta), 0.1, 1e-4, 0)
    assert 2 * (9 / 11) ** M <= 0.1 * (1 + 1e-9) < 2 * (9 / 11) ** (M - 1)
    series, chebyshev, (tracking,) = split(candidates(found, 1e-4))
    assert (
        chebyshev[1].continuation_rounds
        == chebyshev[5].continuation_rounds
        == sum(refinement_cycle(found, Chebyshev(0.1, 1.0), 0.1, 1e-4, 0)[0])
    )
    assert series.continuation_rounds == sum(refinement_cycle(found, Neumann(eta), 0.1, 1e-4, 0)[0])
    share = math.log(10) / math.log(2 / 1e-4)  # of the decades that all iterations gain
    assert tracking.continuation_rounds == tracking.steps * math.ceil(share * tracking.iterations)


@pytest.mark.parametrize(
    "found",
    [
        known(0.0, 1.0), known(-1.0, 1.0), known(1.0, 0.5), known(0.1, math.inf), known(math.nan, 1.0),
        known(5e-324, 1.0), known(1e-320, 1e-319), known(1e307, 1.5e308), known(1e-40, 1.0), known(0.1, -1.0),
    ],
)  # fmt: skip
def test_no_candidates_without_a_positive_lower_bound(found):
    assert candidates(found, 1e-3) == []


def test_no_candidate_exceeds_the_iteration_limit():
    for low in (1e-4, 1e-7, 1e-9):
        offers = candidates(known(low, 1.0), 1e-8)
        assert offers and max(c.iterations for c in offers) <= 10**6
        assert any(isinstance(c.method, Neumann) for c in offers) == (low > 1e-6)
