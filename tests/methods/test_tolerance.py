"""A tolerance that is not met gives one warning, at the line of the caller."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp

NET = hgp.networks.RandomDirected(n=3, seed=1)


def recorded(function):
    """What the call warned of, all of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        function()
    return said


def weighted():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 4, 2))
    y, y_val = (rng.integers(0, 2, a.shape[:2]) for a in (X, X_val))
    return hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.1)


def estimate(**given):
    problem, x, lam = quadratic()
    avg = [hgp.PushSum(NET, 10)] * given.pop("runs") if "runs" in given else hgp.PushSum(NET, 10)
    return hgp.hypergradient(problem, x, lam, avg, **given)


def train(**given):
    problem, _, lam = logistic()
    return hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), lr=0.1, **given)


def retrain():
    return hgp.attribution.retrain_over_network(
        weighted(), np.ones((3, 6)), NET, hgp.training.SGP(20, lr=0.1), [(0, 0)], tol=1e-9
    )


UNMET = {
    "series": (lambda: estimate(iterations=7, tol=1e-9), "tol=1e-09 was not met in 7 iterations"),
    "tracking": (
        lambda: estimate(iterations=7, tol=1e-9, method=hgp.methods.Tracking()),
        "tol=1e-09 was not met in 7 iterations",
    ),
    "two runs": (lambda: estimate(iterations=7, tol=1e-9, runs=2), "tol=1e-09 was not met in 7 iterations"),
    "training": (lambda: train(steps=40, tol=1e-6), "tol=1e-06 was not met in 40 steps"),
    "training that was never looked at": (lambda: train(steps=5, tol=1e-6), "tol=1e-06 was not met in 5 steps"),
    "retraining": (retrain, "tol=1e-09 was not met in 20 steps"),
}


@pytest.mark.parametrize("case", UNMET)
def test_an_unmet_tolerance_warns_once_where_the_user_called(case):
    call, message = UNMET[case]
    said = recorded(call)
    assert [(w.category, w.filename) for w in said] == [(hgp.ConvergenceWarning, __file__)]
    assert str(said[0].message).startswith("not converged: ") and message in str(said[0].message)


def test_the_warning_states_the_remaining_residual():
    problem, x, lam = quadratic()
    with pytest.warns(hgp.ConvergenceWarning) as said:
        est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=7, tol=1e-9)
    assert f"the residual is still {est.residual_ratio:.2g} times the first" in str(said[0].message)
    with pytest.warns(hgp.ConvergenceWarning) as said:
        fit = train(steps=40, tol=1e-6)
    problem, _, lam = logistic()
    first = np.linalg.norm(problem.inner_grad(np.zeros((3, 4)), lam).mean(axis=0))
    assert f"the mean gradient is still {fit.grad_norm / first:.2g} times the first" in str(said[0].message)


MET = {
    "series": lambda: estimate(iterations=500, tol=1e-6),
    "at the last iteration": lambda: estimate(iterations=estimate(iterations=500, tol=1e-6).iterations, tol=1e-6),
    "callback": lambda: estimate(iterations=50, tol=1e-9, callback=lambda m, v: m == 3),
    "no tolerance": lambda: estimate(iterations=7),
    "training": lambda: train(steps=5000, tol=1e-3),
    "between two looks": lambda: train(steps=5000 // 32 * 32 + 1, tol=1e-3),
    "training with a callback": lambda: train(steps=50, tol=1e-9, callback=lambda s, z: s == 3),
    "training without": lambda: train(steps=7),
}


@pytest.mark.parametrize("case", MET)
def test_no_warning_if_the_tolerance_is_met_or_the_user_stops_the_run(case):
    assert recorded(MET[case]) == []


def test_sums_are_divided_by_their_weights_before_they_are_compared_with_a_tolerance():
    problem, x, lam = quadratic()
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 2, debias="conserve")
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=4)
    omega = hgp.exact.push_sum_weights(avg.net, 2, 3)
    assert np.ptp(omega) > 0.1
    norms = np.linalg.norm(est.state.residual / omega[:, None], axis=1)
    assert est.residual_norms[-1] == pytest.approx(norms.max(), rel=1e-12)


def test_a_tolerance_met_after_the_last_check_is_met():
    """Training checks every 32 steps, and at the end of a run."""
    problem, _, lam = logistic()
    tol = 2.0 * float(train(steps=5).grad_norm)
    tol /= float(np.linalg.norm(problem.inner_grad(np.zeros((3, 4)), lam).mean(axis=0)))
    assert recorded(lambda: train(steps=5, tol=tol)) == []


def test_a_run_that_does_not_shrink_warns_once_although_it_has_a_tolerance():
    A = np.tile(np.diag([0.0, 1.0]), (3, 1, 1))  # singular: a share of the residual stays
    problem = hgp.problems.Quadratic(A, np.ones((3, 2)), np.ones((3, 1, 2)), np.zeros((3, 2)))
    x, lam = np.ones((3, 2)), np.zeros((3, 1))
    said = recorded(lambda: hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.5, iterations=50, tol=1e-6))
    assert [(w.category, w.filename) for w in said] == [(hgp.ConvergenceWarning, __file__)]
    assert "do not shrink" in str(said[0].message)


def test_a_tolerance_met_before_the_last_cycle_is_not_met():
    """7 iterations in 5 cycles of 2 end in the fourth: what is left there is of the equation of that cycle."""
    method = hgp.methods.Refined(hgp.methods.Neumann(1.0), 5, 3)
    with pytest.warns(hgp.ConvergenceWarning, match="7 iterations: the run ended before the last cycle of the method"):
        est = estimate(iterations=7, tol=0.99, method=method)
    assert est.residual_ratio <= 0.99 and est.stopped == "iterations" and "(tol=0.99 was not met)" in str(est)


def optimise(**given):
    problem, _, lam = quadratic()
    train = hgp.bilevel.Trainer(hgp.training.SGP(20, 0.1), tol=1e-9)
    given = {"train": train, "estimate": hgp.bilevel.Estimator(3, 4, eta=1.0, tol=1e-9), **given}
    return hgp.bilevel.optimise(problem, lam, hgp.networks.FullyConnected(3), outer_steps=3, **given)


def test_optimise_warns_once_of_all_its_runs():
    said = recorded(optimise)
    assert [(w.category, w.filename) for w in said] == [(hgp.ConvergenceWarning, __file__)]
    message = str(said[0].message)
    assert "7 runs did not meet their tol" in message and "20 steps" in message  # 4 trainings, 3 estimates


def test_optimise_counts_the_runs_of_a_function_of_the_users_own():
    def own(problem, lam, net, x0, first_batch, outer_step):
        return hgp.sgp(problem, lam, net, steps=20, lr=0.1, tol=1e-9, x0=x0, milestones=(0.6, 0.8))

    said = recorded(lambda: optimise(train=own, estimate=hgp.bilevel.Estimator(3, 4, eta=1.0)))
    assert [w.category for w in said] == [hgp.ConvergenceWarning] and "4 runs" in str(said[0].message)
    problem, _, lam = quadratic()
    assert len(recorded(lambda: own(problem, lam, NET, None, 0, 0))) == 1  # outside the loop it warns by itself


def test_a_plan_does_not_warn_of_its_inner_tolerances():
    problem, x, lam = quadratic()
    plan = replace(hgp.plan(problem, x, lam, NET, target=1e-6), method=hgp.methods.Tracking(), iterations=2)
    assert [w for w in recorded(plan.run) if issubclass(w.category, hgp.ConvergenceWarning)] == []


def test_the_warning_can_be_made_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error", hgp.ConvergenceWarning)
        with pytest.raises(hgp.ConvergenceWarning):
            estimate(iterations=7, tol=1e-9)
    assert issubclass(hgp.ConvergenceWarning, RuntimeWarning)
