"""The price of an error: chosen settings, rounds after each iteration, plans in random settings."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev, Refined, Tracking
from verification import plans
from verification.choices import NETWORKS, PROBLEM_SEED, chosen, stored
from verification.communication import CONSTANT, STREAM
from verification.price import Trial, cycle_steps, prices, rounds_after
from verification.run import Run
from verification.three_problems import three_problems

PROBLEMS = three_problems(PROBLEM_SEED)


@pytest.mark.parametrize("name", PROBLEMS)
def test_stored_choices_are_those_of_the_grid(name):
    """A grid that has changed since would show other settings than were chosen."""
    written = stored()["problems"][name]
    trials = chosen(name, PROBLEMS[name])
    assert {kind: trial.description for kind, trial in trials.items()} == {
        k: one["settings"] for k, one in written.items()
    }
    assert all(trial.kind == kind for kind, trial in trials.items()) and CONSTANT in trials


def test_nothing_is_shown_on_networks_that_settings_were_chosen_on():
    assert len(stored()["chosen by"]["network seeds"]) == NETWORKS
    assert not set(stored()["chosen by"]["network seeds"]) & set(Run().seeds(10, stream=STREAM))


@pytest.mark.parametrize("restarts", [9, (7, 11)])
def test_rounds_are_those_that_the_channel_counts(restarts):
    priced = PROBLEMS["P1"]
    net = priced.network(5)
    for trial in (
        Trial("refined", Refined(Chebyshev(0.1, 0.3), 3, restarts), cycle_steps(5, 4, 3), 12),
        Trial("plain", Chebyshev(0.1, 0.3), (4, 3, 2), 6),
    ):
        avg = hgp.PushSum(net, trial.steps)
        est = priced.case.estimate(avg, method=trial.method, iterations=trial.iterations)
        assert rounds_after(trial, avg)[-1] == est.traffic.rounds


def test_the_price_is_where_the_error_first_falls_below_the_target():
    priced = PROBLEMS["P1"]
    nets = [priced.network(k) for k in (1, 2)]
    trial = Trial("tracking", Tracking(2.0), 1, 150)
    price = prices(priced.case, trial, nets)
    limit = 1e-6 * np.linalg.norm(priced.case.truth)
    for net, cost in zip(nets, price, strict=True):
        est = priced.case.estimate(hgp.PushSum(net, 1), method=trial.method, iterations=150, history=True)
        errors = priced.case.errors(est)
        m = int(cost) // 2  # two vectors a round
        assert errors[m - 1] < limit <= errors[: m - 1].min()


def test_claims_of_plans_are_judged(monkeypatch):
    """A plan that claims what is not so is seen, as is one that misses without a word."""
    good = plans.Attempt("", "relative", True, 1e-7, 2e-7, 1e-6, "")
    for attempt, verdict in ((good, True), (plans.Attempt("", "relative", True, 1e-3, 2e-7, 1e-6, ""), False),
                           (plans.Attempt("", "relative", True, 1e-7, 1e-5, 1e-6, ""), False),
                           (plans.Attempt("", "relative", False, 1e-3, 1e-3, 1e-6, ""), False),
                           (plans.Attempt("", "relative", False, 1e-3, 1e-3, 1e-6, "said"), True)):  # fmt: skip
        monkeypatch.setattr(plans, "random_plan", lambda rng, k, attempt=attempt: attempt)
        assert not any(row.failed for row in plans.verify(Run(quick=True)).rows) == verdict
