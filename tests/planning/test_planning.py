"""Plans: their measurements, choices and claims, and how they continue when they miss the target."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import LIBRARIES, assert_close, need_factorisations, open_library

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import Chebyshev, Refined, Tracking
from hgp_ref.planning.planner import rates

push_sum_plan = functools.partial(hgp.plan, methods=("Neumann", "Chebyshev", "Tracking"))  # without trees


def relative_error(problem, x, lam, est):
    truth = exact.hypergradient(problem, x, lam)
    return np.linalg.norm(est.value - truth) / np.linalg.norm(truth)


def conditioned(condition, n=6, d=12, seed=0):
    problem = hgp.problems.Quadratic.random(n, d, 3, seed=seed, condition=condition, heterogeneity=0.2)
    rng = np.random.default_rng(seed)
    return problem, rng.normal(size=(n, d)), rng.normal(size=(n, 3))


CASES = {
    "logistic": (logistic, hgp.networks.RandomDirected(3, seed=1)),
    "sparse": (lambda: quadratic(n=6, d=5), hgp.networks.RandomDirected(6, low=0.2, high=0.4, seed=3)),
    "condition 100": (lambda: conditioned(100.0), hgp.networks.RandomDirected(6, seed=2)),
    "everybody": (lambda: conditioned(30.0), hgp.networks.FullyConnected(6)),
    "finite time": (lambda: quadratic(n=4), hgp.networks.OnePeerExponential(4)),
    "alone": (lambda: quadratic(n=1), hgp.networks.SelfLoops(1)),
    "one number": (lambda: quadratic(n=3, d=1, d_lam=1), hgp.networks.RandomDirected(3, seed=1)),
}


@pytest.mark.parametrize("target", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("case", CASES)
def test_a_plan_meets_its_target(case, target):
    make, net = CASES[case]
    problem, x, lam = make()
    plan = hgp.plan(problem, x, lam, net, target=target)
    out = plan.run(against="x")
    assert out.met and out.bound <= target and relative_error(problem, x, lam, out) <= out.bound
    assert plan.error <= target and plan.iterations >= 1 and plan.target == target
    assert out.traffic.rounds >= plan.diagnostics.traffic.rounds
    assert isinstance(out, hgp.Estimate) and np.all(np.isfinite(out.certificate.bound))
    text = str(plan)
    assert f"error of {target:.1e}" in text and repr(plan.method) in text and 5 <= len(text.splitlines()) <= 7


def test_expected_and_true_traffic_are_of_one_size():
    for case in ("logistic", "sparse", "condition 100"):
        make, net = CASES[case]
        problem, x, lam = make()
        plan = hgp.plan(problem, x, lam, net, target=1e-6)
        out = plan.run(against="x")
        assert 0.3 < out.traffic.floats / plan.traffic.floats < 3
        assert plan.compared[0][1] <= plan.compared[-1][1]


def test_constants_are_counted_and_the_run_begins_after_them():
    problem, x, lam = conditioned(100.0)
    net = hgp.networks.RandomDirected(6, seed=2)
    plan = push_sum_plan(problem, x, lam, net, target=1e-5, refine=True)
    found, H = plan.diagnostics, exact.hessians(problem, x, lam)
    assert found.products >= 2 and found.traffic.rounds > 6
    sent = sum(net.edges(s)[0].size - 6 for s in range(1, found.graphs + 1))
    assert found.traffic.messages == sent
    mean = np.linalg.eigvalsh(H.mean(axis=0))
    assert 0.3 * mean[0] < found.low < 2 * mean[0] and mean[-1] * 0.9 < found.high < 1.3 * mean[-1]
    without = push_sum_plan(problem, x, lam, net, target=1e-5, refine=False).diagnostics
    assert without.products == 0 and without.traffic.floats < found.traffic.floats
    assert without.low <= np.linalg.eigvalsh(H)[:, 0].mean() * (1 + 1e-9), "certain: a mean of clients' own"
    est = hgp.hypergradient(problem, x, lam, plan.averaging, method=plan.method, iterations=plan.iterations)
    once = plan.run(certify=False)
    assert_close(once.value, est.value, 1e-12)
    assert once.met is None and once.traffic == found.traffic + est.traffic
    assert plan.averaging.net.edges(1)[0].tolist() == net.edges(found.graphs + 1)[0].tolist()


def test_no_client_need_be_convex():
    rng = np.random.default_rng(3)
    apart = rng.normal(size=(5, 4, 4))
    apart = apart + np.swapaxes(apart, 1, 2)
    A = np.diag(np.linspace(0.5, 1.0, 4)) + 0.3 * (apart - apart.mean(axis=0))
    assert np.linalg.eigvalsh(A).min() < -0.3
    problem = hgp.problems.Quadratic(A, rng.normal(size=(5, 4)), rng.normal(size=(5, 2, 4)), rng.normal(size=(5, 4)))
    x, lam, net = rng.normal(size=(5, 4)), rng.normal(size=(5, 2)), hgp.networks.RandomDirected(5, seed=2)
    out = hgp.plan(problem, x, lam, net, target=1e-6).run(against="x")
    assert out.met and relative_error(problem, x, lam, out) <= 1e-6
    with pytest.raises(
        ValueError, match="problem: the mean inner cost must be strongly convex at x, got no positive lower bound"
    ):
        hgp.plan(problem, x, lam, net, target=1e-6, refine=False)


@pytest.mark.parametrize(("case", "budgets"), [("logistic", (1500, 2500)), ("condition 100", (6e4, 1.2e5))])
def test_absolute_targets_and_budgets(case, budgets):
    make, net = CASES[case]
    problem, x, lam = make()
    truth = exact.hypergradient(problem, x, lam)
    out = push_sum_plan(problem, x, lam, net, target=1e-5, relative=False).run(against="x")
    assert out.met and out.bound <= 1e-5 and np.linalg.norm(out.value - truth) <= out.bound
    small, large = (push_sum_plan(problem, x, lam, net, budget=b) for b in budgets)
    assert large.error < small.error
    for plan, budget in zip((small, large), budgets, strict=True):
        assert plan.traffic.floats <= budget
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the certified error", RuntimeWarning)  # expected is not certain
            assert plan.run(against="x").traffic.floats <= 1.2 * budget, "graphs have more edges or fewer than expected"
        assert "within" in str(plan)
    with pytest.raises(ValueError, match=r"budget must be at least about .*, got 100; the probe alone used \d+ floats"):
        push_sum_plan(problem, x, lam, net, budget=100)


@pytest.mark.parametrize("case", ["logistic", "condition 100"])
def test_a_run_that_misses_its_target_continues(case):
    make, net = CASES[case]
    problem, x, lam = make()
    plan = push_sum_plan(problem, x, lam, net, target=1e-7)
    assert isinstance(plan.method, Tracking if case == "logistic" else Refined)
    whole = plan.run(against="x")
    if case == "logistic":
        short = dataclasses.replace(plan, iterations=8)
    else:
        short = dataclasses.replace(plan, method=plan.method.method, iterations=25, steps=6)
    out = short.run(against="x")
    assert out.continued >= 1 and out.met and relative_error(problem, x, lam, out) <= 1e-7
    first = short.run(certify=False)
    assert first.traffic.floats < out.traffic.floats < first.traffic.floats + 1.5 * whole.traffic.floats


def test_a_diverged_run_restarts_with_gentler_settings():
    problem, x, lam = quadratic(n=6, d=5)
    net = hgp.networks.RandomDirected(6, low=0.2, high=0.4, seed=3)
    plan = hgp.plan(problem, x, lam, net, target=1e-5)
    wild = dataclasses.replace(plan, method=Tracking(6.0), steps=1, iterations=60)
    out = wild.run(against="x")
    assert out.met and relative_error(problem, x, lam, out) <= 1e-5
    assert out.method.step_size < 6.0
    narrow = dataclasses.replace(plan, method=Chebyshev(0.19, 0.2), steps=12, iterations=60)
    assert narrow.run(against="x").met


def test_clients_certify_the_run_themselves():
    make, net = CASES["logistic"]
    problem, x, lam = make()
    plan = hgp.plan(problem, x, lam, net, target=1e-4)
    out, centre = plan.run(by_clients=True, against="x"), plan.run(against="x")
    assert out.met and out.certificate.decentralised is not None
    assert relative_error(problem, x, lam, out) <= out.bound
    assert out.traffic.floats > centre.traffic.floats


def test_unreachable_targets_warn_with_numbers():
    make, net = CASES["logistic"]
    problem, x, lam = make()
    plan = hgp.plan(problem, x, lam, net, target=1e-6)
    beyond = dataclasses.replace(plan, target=1e-17)
    with pytest.warns(RuntimeWarning, match=r"certified error \d.*e-1\d exceeds the 1.00e-17 that was requested"):
        assert beyond.run(against="x").met is False


def test_nothing_to_do():
    problem = hgp.problems.Quadratic(np.stack([np.eye(2)] * 3), np.ones((3, 2)), np.ones((3, 1, 2)), np.ones((3, 2)))
    x, lam = np.ones((3, 2)), np.zeros((3, 1))  # ∂_x f = 0 at the target
    out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(3, seed=1), target=1e-6).run(against="x")
    assert out.met and not np.any(out.value)


@pytest.mark.parametrize("library", [lib for lib in LIBRARIES if lib not in ("numpy", "jax")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_library(library, dtype):
    lib = open_library(library)
    need_factorisations(lib)
    problem, x, lam = quadratic()
    net = hgp.networks.RandomDirected(3, seed=1)
    there = problem.to(lib.backend, dtype=dtype, device=lib.device)
    x_there, lam_there = (lib.asarray(a, dtype=dtype) for a in (x, lam))
    target = 1e-8 if dtype == "float64" else 1e-2
    plan = hgp.plan(there, x_there, lam_there, net, target=target)
    here = hgp.plan(problem, x, lam, net, target=target)
    assert type(plan.method) is type(here.method) and plan.diagnostics.tau == pytest.approx(
        here.diagnostics.tau, rel=1e-3
    )
    out = plan.run(against="x")
    assert out.met
    truth = exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(lib.to_numpy(out.value) - truth) <= 2 * target * np.linalg.norm(truth)


def test_the_model_of_tracking_is_exact_for_two_clients():
    for tau in (0.0, 0.3, 0.7):
        W = np.array([[1 + tau, 1 - tau], [1 - tau, 1 + tau]]) / 2
        net = hgp.networks.Schedule([W])
        for lam, zeta in ((1.0, 0.0), (1.0, 0.4), (0.3, 0.6)):
            H = np.array([lam + zeta, lam - zeta]).reshape(2, 1, 1)
            for step in (0.1, 0.5):
                model = rates(np.array([step]), lam, lam, zeta, tau, phases=(0.0,))[0]
                both = max(exact.tracking_rate(h, net, step) for h in (H, np.full((2, 1, 1), lam)))
                assert model == pytest.approx(both, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": 0.0}, ValueError, "target must be a finite number > 0, got 0.0"),
        ({"target": 1e-3, "budget": 1e4}, ValueError, "budget and target cannot both be given, got budget=10000.0"),
        ({"budget": -1.0}, ValueError, "budget must be a finite number > 0, got -1.0"),
        ({"refine": 1}, TypeError, "refine must be True or False, got 1"),
        ({"relative": None}, TypeError, "relative must be True or False, got None"),
        ({"net": 3}, TypeError, "net must be a network"),
        ({"x": np.ones((3, 7))}, ValueError, r"x must have shape \(3, 4\) = .*, got \(3, 7\)"),
    ],
)
def test_bad_input_is_named(options, error, message):
    problem, x, lam = quadratic()
    arguments = {"problem": problem, "x": x, "lam": lam, "net": hgp.networks.RandomDirected(3, seed=1)} | options
    with pytest.raises(error, match=message):
        hgp.plan(**arguments)


def test_plans_and_outcomes_are_results(tmp_path):
    problem, x, lam = quadratic()
    plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(3, seed=1), target=1e-3)
    again = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(3, seed=1), target=1e-3)
    assert plan.diagnostics == again.diagnostics and plan.steps == again.steps
    out = plan.run(against="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(hgp.load(out.save(tmp_path / "out.npz")).value, out.value, 0.0)


def test_slow_networks_are_known_to_be_slow():
    """A ring of 19: a round leaves cos(π/19), and what was seen over 100 rounds outweighs what was believed before."""
    n = 19
    ring = hgp.networks.Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n)
    problem, x, lam = conditioned(20.0, n=n, d=8)
    plan = push_sum_plan(problem, x, lam, ring, target=1e-5)
    assert plan.diagnostics.tau == pytest.approx(np.cos(np.pi / n), abs=0.02)
    out = plan.run(against="x")
    assert out.met and relative_error(problem, x, lam, out) <= 1e-5


def test_no_relative_bound_if_the_hyper_gradient_may_be_zero():
    target = np.array([[1e16], [4.0], [-1e16]])
    problem = hgp.problems.Quadratic(np.ones((3, 1, 1)), np.zeros((3, 1)), np.ones((3, 1, 1)), target)
    plan = hgp.plan(problem, np.zeros((3, 1)), np.zeros((3, 1)), hgp.networks.RandomDirected(3, seed=1), target=1e-6)
    with pytest.warns(RuntimeWarning, match="the certified error inf exceeds"):
        assert plan.run(against="x").met is False


@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e155])
def test_bounds_do_not_under_or_overflow(scale):
    problem = hgp.problems.Quadratic.random(5, 6, 3, seed=1, condition=20.0)
    x, lam = np.ones((5, 6)), np.zeros((5, 3))

    class Scaled:
        def __getattr__(self, name):
            return getattr(problem, name)

        def outer_grad(self, x, lam):
            return tuple(scale * a for a in problem.outer_grad(x, lam))

    out = push_sum_plan(Scaled(), x, lam, hgp.networks.RandomDirected(5, seed=1), target=1e-4).run(against="x")
    assert out.met and 1e-7 < out.bound <= 1e-4
    assert relative_error(problem, x, lam, dataclasses.replace(out, value=out.value / scale)) <= out.bound


def test_a_plan_copies_its_point_and_names_bad_options(tmp_path):
    problem, x, lam = quadratic()
    net = hgp.networks.RandomDirected(3, seed=1)
    start = x.copy()
    plan = hgp.plan(problem, start, lam, net, target=1e-4)
    start[:] = 5.0
    assert_close(plan.x, x, 0.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        plan.run(foo=1)
    with pytest.raises(ValueError, match="plan was read from a file"):
        hgp.load(plan.save(tmp_path / "plan.npz")).run()
    with pytest.raises(ValueError, match="net must have 3 clients like the problem, got 4"):
        hgp.plan(problem, x, lam, hgp.networks.FullyConnected(4), target=1e-4)
    tiny = hgp.plan(problem, x, lam, net, target=5e-324)
    assert tiny.iterations < 2000, "no run gets below rounding"
    with pytest.warns(RuntimeWarning, match="that was requested"):
        assert tiny.run(against="x").met is False


def test_a_certificate_without_convexity_is_refused_before_the_run():
    rng = np.random.default_rng(3)
    apart = rng.normal(size=(5, 4, 4))
    apart = apart + np.swapaxes(apart, 1, 2)
    A = np.diag(np.linspace(0.5, 1.0, 4)) + 0.3 * (apart - apart.mean(axis=0))
    problem = hgp.problems.Quadratic(A, rng.normal(size=(5, 4)), rng.normal(size=(5, 2, 4)), rng.normal(size=(5, 4)))
    x, lam, net = rng.normal(size=(5, 4)), rng.normal(size=(5, 2)), hgp.networks.RandomDirected(5, seed=2)
    plan = hgp.plan(problem, x, lam, net, target=1e-4)
    assert plan.diagnostics.client_low < 0 < plan.diagnostics.low
    with pytest.raises(
        ValueError, match="by_clients must be False without strong_convexity=: clients' smallest .* average to -"
    ):
        plan.run(by_clients=True, against="x")
    assert plan.run(
        by_clients=True, against="x", strong_convexity=float(np.linalg.eigvalsh(A.mean(axis=0))[0]) * 0.99
    ).met


def test_budgets_are_spent_where_a_run_falls_short():
    make, net = CASES["condition 100"]
    problem, x, lam = make()
    plan = hgp.plan(problem, x, lam, net, budget=3e5)
    short = dataclasses.replace(
        plan, method=Chebyshev(plan.diagnostics.low, plan.diagnostics.high), iterations=15, steps=4
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the certified error", RuntimeWarning)
        once, out = short.run(certify=False), short.run(against="x")
    assert out.continued >= 1 and once.traffic.floats < out.traffic.floats <= 1.1 * 3e5
    assert relative_error(problem, x, lam, out) < 0.1 * relative_error(problem, x, lam, once)
