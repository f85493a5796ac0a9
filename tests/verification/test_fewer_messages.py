"""Floats of plans in random combinations, and the lower bound on rounds."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import hgp_ref as hgp
from verification import fewer_messages, lower_bound
from verification.run import Run


def test_a_plan_that_has_stalled_continues_by_another_method_and_meets_its_target():
    """Combination 9: preconditioned tracking stops gaining 1.5 times above the target."""
    case, net, target = fewer_messages.combination(Run(), 9)
    floats, method = fewer_messages.sent(case, net, target, fewer_messages.NO_TREE)
    assert method == "PreconditionedTracking" and floats < 5e5


def test_plans_that_miss_their_target_need_infinitely_many_floats(monkeypatch):
    case, net, target = fewer_messages.combination(Run(), 20)
    outcome = SimpleNamespace(met=True, traffic=SimpleNamespace(floats=7), value=case.truth)
    plan = SimpleNamespace(method=None, run=lambda against: outcome)
    monkeypatch.setattr(hgp, "plan", lambda *args, **options: plan)
    assert fewer_messages.sent(case, net, target, None)[0] == 7.0
    outcome.met = False
    assert fewer_messages.sent(case, net, target, None)[0] == math.inf
    outcome.met, outcome.value = True, case.truth * (1 + 2 * target)
    assert fewer_messages.sent(case, net, target, None)[0] == math.inf
    assert fewer_messages.extent([3.0, math.inf, 1.0, 2.0]) == (1.0, 2.5, math.inf)


def test_errors_must_stay_below_the_target():
    good, bad = fewer_messages.TARGET / 2, 2 * fewer_messages.TARGET
    assert fewer_messages._first_below([bad, good, bad, good, good]) == 4
    assert fewer_messages._first_below([good, good]) == 1
    assert fewer_messages._first_below([good, bad]) == fewer_messages._first_below([good, math.nan]) == math.inf


@pytest.mark.parametrize("condition", [3.0, 100.0])
def test_the_hard_problem_is_that_of_the_page(condition):
    """w* = (q, q², …) in as many dimensions as there are; each client's Hessian has blocks of size 2 that alternate."""
    (problem, x, lam), q = lower_bound.hard_problem(4, condition)
    w = hgp.exact.hypergradient(problem, x, lam)[0]
    np.testing.assert_allclose(w[1:] / w[:-1], q, rtol=1e-9)
    H = hgp.exact.hessians(problem, x, lam)
    spectrum = np.linalg.eigvalsh(H.mean(axis=0))
    assert 1 / condition <= spectrum[0] * (1 + 1e-12) and spectrum[-1] <= 1
    off = [np.flatnonzero(np.diag(H_i, 1)).tolist() for H_i in H]
    d = H.shape[1]
    assert off == [list(range(1, d - 1, 2)), [], list(range(0, d - 1, 2)), []]


def test_no_vector_that_a_client_can_hold_is_below_the_bound(monkeypatch):
    rng = np.random.default_rng(5)
    found = [lower_bound.excess(rng) for _ in range(150)]
    assert -1e-2 < max(found) <= 0  # and one is close
    joined = lower_bound.hard_hessians
    monkeypatch.setattr(lower_bound, "hard_hessians", lambda n, condition, d, a, b: joined(n, condition, d, a, a))
    assert max(lower_bound.excess(rng) for _ in range(150)) > 0  # both halves at one client


def test_methods_stay_above_the_bound():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = lower_bound.verify(Run(quick=True))
    assert {row.verdict for row in result.rows} == {"holds"} and len(result.rows) == 5
