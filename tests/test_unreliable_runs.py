"""Hyper-gradients, bounds, certificates and training over links that lose and delay messages."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import assert_close, identity_rtol
from kinds import logistic, quadratic

import hgp_ref as hgp
from hgp_ref import bounds, exact
from hgp_ref.networks import OnePeerExponential, RandomDirected, RandomOut, Schedule, StaticUndirected, Unreliable

RTOL = identity_rtol("float64")
PROBLEMS = {"logistic": logistic, "quadratic": quadratic}


def ring_with_weights(n):
    """A static directed ring whose clients keep 0.7 and send 0.3."""
    return Schedule([0.7 * np.eye(n) + 0.3 * np.roll(np.eye(n), 1, axis=0)])


INNER = (
    lambda n, seed: RandomDirected(n, seed=seed),
    lambda n, seed: RandomOut(n, min(2, n - 1), seed=seed),
    lambda n, seed: OnePeerExponential(n),
    lambda n, seed: StaticUndirected(n, 0.6, seed=seed),
    lambda n, seed: ring_with_weights(n),
)


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_hypergradients_come_within_1e8_of_the_truth_at_ten_percent_loss(problem, delay):
    problem, x, lam = PROBLEMS[problem](n=5)
    net = Unreliable(RandomDirected(5, seed=1), loss=0.1, delay=delay, seed=1)
    truth = exact.hypergradient(problem, x, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 100), eta=0.9, iterations=400)
    assert np.abs(est.value - truth).max() < 1e-8 * np.abs(truth).max()
    with pytest.warns(RuntimeWarning, match="loses mass"):
        plain = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 100), eta=0.9, iterations=400)
    assert np.abs(plain.value - truth).max() > 1e-3 * np.abs(truth).max()


@pytest.mark.parametrize("robust", [False, True])
def test_hypergradient_is_the_explicit_formula_with_augmented_matrices(robust):
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomOut(4, 2, seed=1), loss=0.3, delay=3, sleep=0.2, seed=1)
    matrices, _ = exact.push_sum_matrices(net, 3, 12, robust=robust)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PushSum over")
        est = hgp.hypergradient(problem, x, lam, (hgp.RobustPushSum if robust else hgp.PushSum)(net, 3), 0.5, 12)
    assert_close(est.value, exact.estimate(problem, x, lam, matrices, 0.5), RTOL)


def settings(count, first=0):
    """Random settings of links, clients and problems, the hard ones among them."""
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 7))
        rule = dict(loss=rng.choice([0.0, 0.05, 0.1, 0.3, 0.6, 0.9]), delay=int(rng.choice([0, 1, 3, 5, 12])))
        rule |= dict(sleep=float(rng.choice([0.0, 0.2, 0.9])), stretch=int(rng.choice([1, 7])), seed=seed)
        net = Unreliable(INNER[seed % len(INNER)](n, seed), **rule)
        problem, x, lam = (logistic, quadratic)[seed // 5 % 2](n=n, seed=seed)
        yield net, problem, x, lam, int(rng.integers(1, 13)), int(rng.integers(1, 40)), float(rng.uniform(0.1, 1.2))


def check_bounds(net, problem, x, lam, S, M, eta, robust=True):
    """How many of A and B applied; neither may be below the error by more than rounding."""
    avg = (hgp.RobustPushSum if robust else hgp.PushSum)(net, S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that clients are cut off, or a run too short, is no matter
        est = hgp.hypergradient(problem, x, lam, avg, eta, M)
    P, _ = avg.connect().matrices((S,) * M)
    f_x, f_lam = exact.outer_gradients(problem, x, lam)
    c = bounds.realised_constants(
        exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam), f_x, eta,
        list(P / P.sum(axis=2, keepdims=True)), f_lam=f_lam, steps=S,
    )  # fmt: skip
    error = est.value - exact.hypergradient(problem, x, lam)
    applied = 0
    for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
        assert bound.applicable, bound.why  # K ≥ 0 and K1 = 1 whatever the links do
        applied += 1
        assert np.linalg.norm(error) <= bound.total * (1 + 1e-9) + c.rounding, bound
        assert np.all(np.linalg.norm(error, axis=1) <= bound.per_client * (1 + 1e-9) + c.rounding), bound
    return applied


@pytest.mark.parametrize("robust", [False, True])
def test_bounds_a_and_b_hold_with_the_realised_matrices(robust):
    assert sum(check_bounds(*setting, robust) for setting in settings(40)) == 80


@pytest.mark.slow
def test_bounds_a_and_b_hold_in_two_hundred_settings():
    assert sum(check_bounds(*setting) for setting in settings(200, first=1000)) == 400


def test_runs_side_by_side_are_the_runs_alone():
    problem, x, lam = quadratic(n=4)
    nets = [Unreliable(RandomDirected(4, seed=k), loss=0.1 * k, delay=k, seed=k) for k in (1, 2, 3)]
    for debias in ("reset", "conserve"):
        averagings = [hgp.RobustPushSum(net, 6, debias=debias) for net in nets]
        together = hgp.hypergradient(problem, x, lam, averagings, 0.3, 20)
        for r, net in enumerate(nets):
            alone = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 6, debias=debias), 0.3, 20)
            assert_close(together.value[r], alone.value, RTOL)
            assert together.traffic.of_run(r) == alone.traffic


@pytest.mark.parametrize("delay", [0, 5])
def test_tracking_over_running_sums_has_no_floor(delay):
    """One step a call: sums are conserved with what is under way, so that y = 0 is still the only limit."""
    problem, x, lam = quadratic(n=5)
    net = Unreliable(RandomDirected(5, seed=1), loss=0.1, delay=delay, sleep=0.1, seed=3)
    truth = exact.hypergradient(problem, x, lam)
    tracking = hgp.methods.Tracking(None if delay == 0 else 0.1)
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 1), method=tracking, iterations=4000)
    assert np.abs(est.value - truth).max() < 1e-12 * np.abs(truth).max()
    with pytest.raises(ValueError, match="avg: PushSum.* lose messages .* needed RobustPushSum"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), method=tracking, iterations=9)


def test_tracking_is_the_recursion_with_augmented_matrices():
    problem, x, lam = quadratic(n=3)
    n, d, eta, M = 3, problem.dim_x, 0.05, 7
    net = Unreliable(RandomOut(n, 1, seed=1), loss=0.3, delay=2, seed=1)
    H, (f_x, _) = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)
    size = n + n * (n - 1) * 3
    u, y, omega, w = np.zeros((size, d)), np.zeros((size, d)), np.zeros(size), np.zeros((n, d))
    y[:n], omega[:n] = -f_x, 1.0
    for m in range(M):
        A = exact.augmented_product(net, 2 * m + 1, 2)
        u[:n] -= eta * y[:n]
        u, y, omega, before = A @ u, A @ y, A @ omega, w
        w = u[:n] / omega[:n, None]
        y[:n] += np.einsum("nij,nj->ni", H, w - before)
        assert_close(y.sum(axis=0), (np.einsum("nij,nj->ni", H, w) - f_x).sum(axis=0), RTOL)  # the invariant
    est = hgp.hypergradient(
        problem, x, lam, hgp.RobustPushSum(net, 2), method=hgp.methods.Tracking(eta), iterations=M
    )  # fmt: skip
    assert_close(est.w, w, RTOL)


@pytest.mark.parametrize("runs", [False, True])
def test_refined_tracking_begins_anew_without_what_is_under_way(runs):
    """Restarts drop the old vectors; their y, added to the new one, would leave an error of its size."""
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=3, seed=3)
    avg = hgp.RobustPushSum(net, 1)
    method = hgp.methods.Refined(hgp.methods.Tracking(0.1), cycles=3, steps=60)
    est = hgp.hypergradient(problem, x, lam, [avg] * 2 if runs else avg, method=method, iterations=2400)
    truth = exact.hypergradient(problem, x, lam)
    assert np.abs(est.value - truth).max() < 1e-11 * np.abs(truth).max()


def test_pushed_rows_are_refused():
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=3, seed=3)
    descent = hgp.methods.Descent("tracking", 0.1)
    with pytest.raises(ValueError, match="avg: RobustPushSum.* needed others for rows that are pushed"):
        hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 1), method=descent, iterations=5)


def test_certificates_of_clients_are_refused_with_the_reason():
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.1, delay=1, seed=1)
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 40), 0.5, 100)
    for avg in (hgp.RobustPushSum(net, 40), hgp.PushSum(net, 40)):
        with pytest.raises(ValueError, match="C3 and C4 take the true mean .* the mean may lie outside"):
            hgp.certify(problem, x, lam, est, avg)
    error = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    assert np.all(error <= hgp.certify(problem, x, lam, est).bound)


def test_the_mean_does_lie_outside():
    """Why C3 and C4 are refused: running sums under way at the end of a call hold part of the mean."""
    outside = 0
    for seed in range(40):
        net = Unreliable(RandomDirected(4, seed=seed), loss=0.3, delay=2, seed=seed)
        u = np.random.default_rng(seed).normal(size=(4, 1))
        y = hgp.RobustPushSum(net, 4).apply(u)
        outside += not y.min() <= u.mean() <= y.max()
    assert outside > 0


@pytest.mark.parametrize("variant", ["assran", "nedic"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_training_converges_over_links_that_lose(problem, variant):
    """As over reliable links, the distance to the solution falls with the rate; plain Push-Sum does not come near."""
    problem, _, lam = PROBLEMS[problem](n=5)
    solution = exact.inner_solution(problem, lam)
    inner = RandomDirected(5, seed=1)
    net = Unreliable(inner, loss=0.1, delay=2, sleep=[(3, 100, 200)], seed=1)
    run = dict(lr=0.1, milestones=(1500, 1900, 2200), steps=2500, variant=variant)
    with pytest.warns(
        RuntimeWarning, match="sgp: Unreliable.* training goes over RobustPushSum.*conserve.* smaller lr"
    ):
        fit = hgp.sgp(problem, net, lam, **run)
    over_reliable = hgp.sgp(problem, inner, lam, **run)
    off, least = (np.abs(x - solution).max() for x in (fit.x, over_reliable.x))
    assert off < 4 * least + 1e-3 * np.abs(solution).max()
    assert fit.traffic.rounds == 2500 and fit.traffic.floats == fit.traffic.messages * (problem.dim_x + 1)


def test_training_that_steps_too_far_says_so():
    problem, _, lam = quadratic(n=5)
    net = Unreliable(OnePeerExponential(5), loss=0.5, delay=5, seed=1)
    with pytest.warns(RuntimeWarning, match="sgp:"), pytest.raises(hgp.DivergenceError, match="take a smaller lr"):
        hgp.sgp(problem, net, lam, steps=2000, lr=1.0)
