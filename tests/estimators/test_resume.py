"""A run that goes on where another has ended is the longer run."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_close
from kinds import logistic, quadratic

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import Chebyshev, Neumann, Refined, Tracking

NET = hgp.networks.RandomDirected(n=3, seed=1)


def halves(method, first, more, steps=3, **options):
    """Two runs, the second over later graphs."""
    problem, x, lam = options.pop("case")
    start = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, steps), method=method, iterations=first, **options)
    later = hgp.PushSum(NET.after(int(np.max(start.traffic.rounds))), steps)
    if "batch_size" in options:
        options["first_batch"] = first
    return hgp.hypergradient(problem, x, lam, later, method=method, iterations=more, resume=start, **options)


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"seed": [1, 2]}], ids=str)
def test_the_series_goes_on_as_if_nothing_had_happened(options):
    problem, x, lam = case = logistic()
    whole = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), method=Neumann(0.5), iterations=9, **options)
    assert_close(halves(Neumann(0.5), 4, 5, case=case, **options).value, whole.value, 1e-12)


@pytest.mark.parametrize("method", [Tracking(0.3), Chebyshev(0.1, 1.1), Refined(Neumann(0.8), 2, 40)], ids=repr)
def test_other_methods_lose_little(method):
    problem, x, lam = case = quadratic()
    truth = exact.hypergradient(problem, x, lam)
    resumed = halves(method, 12, 12, 40, case=case)
    first = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 40), method=method, iterations=12)
    end, begin = (np.linalg.norm(e.value - truth) for e in (resumed, first))
    assert end < 0.5 * begin
    assert_close(resumed.value, exact.outer_gradients(problem, x, lam)[1]
                 - np.einsum("nij,nj->ni", exact.jacobians(problem, x, lam), resumed.w), 1e-12)  # fmt: skip
    if isinstance(method, Tracking):  # no floor, whatever the weights were
        assert_close(halves(method, 300, 500, case=case).value, truth, 1e-12)


def test_bad_input_is_named():
    problem, x, lam = quadratic()
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), method=Tracking(0.3), iterations=5)
    for options, message in (
        ({"resume": est, "method": Neumann(0.5)}, "resume: an estimate by Tracking"),
        ({"resume": est, "method": Tracking(0.1), "w0": x}, "w0: given beside resume"),
        ({"resume": x, "method": Tracking(0.1)}, "(?s)resume=.* needed Estimate"),
        ({"resume": est, "method": Tracking(0.1), "seed": [1, 2]}, "resume.w: shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), iterations=3, **options)


def test_an_estimate_of_another_point_is_refused():
    problem, x, lam = quadratic()
    net, method = hgp.networks.RandomDirected(3, seed=1), hgp.methods.Tracking(0.1)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 3), method=method, iterations=10)
    later = hgp.PushSum(net.after(30), 3)
    with pytest.raises(ValueError, match="resume: what it carries misses .* needed an estimate at the same point"):
        hgp.hypergradient(problem, 3 * x, lam, later, method=method, resume=est, iterations=5)
    refined = hgp.methods.Refined(method, cycles=2, steps=5)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 3), method=refined, iterations=10)
    hgp.hypergradient(problem, x, lam, later, method=refined, resume=est, iterations=5)
    with pytest.raises(ValueError, match="resume: what it carries misses"):
        hgp.hypergradient(problem, 3 * x, lam, later, method=refined, resume=est, iterations=5)
