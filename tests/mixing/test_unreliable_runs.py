"""Hyper-gradients, bounds, certificates and training over links that lose and delay messages."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close, identity_rtol

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
        est = hgp.hypergradient(
            problem, x, lam, (hgp.RobustPushSum if robust else hgp.PushSum)(net, 3), eta=0.5, iterations=12
        )
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
        est = hgp.hypergradient(problem, x, lam, avg, eta=eta, iterations=M)
    P, _ = avg.connect().matrices(S, M)
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
        together = hgp.hypergradient(problem, x, lam, averagings, eta=0.3, iterations=20)
        for r, net in enumerate(nets):
            alone = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 6, debias=debias), eta=0.3, iterations=20)
            assert_close(together.value[r], alone.value, RTOL)
            assert together.traffic.of_run(r) == alone.traffic


@pytest.mark.parametrize("delay", [0, 5])
def test_tracking_over_running_sums_has_no_floor(delay):
    """One step a call: sums are conserved with what is in flight, so that y = 0 is still the only limit."""
    problem, x, lam = quadratic(n=5)
    net = Unreliable(RandomDirected(5, seed=1), loss=0.1, delay=delay, sleep=0.1, seed=3)
    truth = exact.hypergradient(problem, x, lam)
    tracking = hgp.methods.Tracking(None if delay == 0 else 0.1)
    est = hgp.hypergradient(
        problem, x, lam, hgp.RobustPushSum(net, 1), method=tracking, iterations=1200 if delay == 0 else 2400
    )
    assert np.abs(est.value - truth).max() < 1e-9 * np.abs(truth).max()
    with pytest.raises(ValueError, match="avg must conserve sums.* PushSum.* lose messages; use RobustPushSum"):
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
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 2), method=hgp.methods.Tracking(eta), iterations=M)
    assert_close(est.w, w, RTOL)


def test_refined_tracking_begins_anew_without_what_is_under_way():
    """Restarts drop the old vectors; their y, added to the new one, would leave an error of its size."""
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=3, seed=3)
    method = hgp.methods.Refined(hgp.methods.Tracking(0.1), cycles=3, steps=60)
    est = hgp.hypergradient(problem, x, lam, [hgp.RobustPushSum(net, 1)] * 2, method=method, iterations=750)
    truth = exact.hypergradient(problem, x, lam)
    assert np.abs(est.value - truth).max() < 1e-6 * np.abs(truth).max()


def test_what_is_under_way_cannot_be_resumed():
    """At the end of a tracking run part of y is in flight: continuing without it would converge elsewhere."""
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=3, seed=3)
    avg, tracking = hgp.RobustPushSum(net, 1), hgp.methods.Tracking(0.1)
    est = hgp.hypergradient(problem, x, lam, avg, method=tracking, iterations=40)
    with pytest.raises(
        ValueError,
        match="resume must be .* that holds the state .* in flight at the end.*pass w0=est.w",
    ):
        hgp.hypergradient(problem, x, lam, avg, method=tracking, iterations=40, resume=est)
    series = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 30), eta=0.3, iterations=40)
    hgp.hypergradient(
        problem, x, lam, hgp.RobustPushSum(net.after(1200), 30), eta=0.3, iterations=40, resume=series
    )  # nothing is


@pytest.mark.parametrize("by_clients", [False, True])
def test_plans_are_made_and_met_over_links_that_lose(by_clients):
    problem, _, lam = quadratic(n=4)
    x = exact.inner_solution(problem, lam)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.1, delay=2, seed=3)
    outcome = hgp.plan(problem, x, lam, net, target=1e-3).run(by_clients=by_clients)
    truth = exact.hypergradient(problem, x, lam)
    assert outcome.met and np.linalg.norm(outcome.value - truth) <= 1e-3 * np.linalg.norm(truth)
    assert isinstance(outcome.averaging, hgp.RobustPushSum)


def test_the_outer_loop_over_links_that_lose():
    problem, _, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.1, delay=1, seed=3)
    with pytest.warns(RuntimeWarning, match="^sgp: ") as said:
        path = hgp.bilevel.optimise(
            problem,
            lam,
            net,
            outer_steps=2,
            train=hgp.training.SGP(300, 0.1, (0.6, 0.8)),
            estimate=hgp.bilevel.Estimator(30, 40, eta=1.0),
        )
    assert path.outer_cost[-1] < path.outer_cost[0]
    assert {(w.filename, str(w.message)[:5]) for w in said} == {(__file__, "sgp: ")}
    assert len({str(w.message) for w in said}) == 1  # the same words: Python shows them once


def test_pushed_rows_are_refused():
    net = Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=3, seed=3)
    rows = np.ones((4, 2))
    mixer = hgp.mixing.start_averaging([hgp.RobustPushSum(net, 1)], 4, rows, 10)

    def routine():
        yield [hgp.mixing.SumPreserving(rows)]

    with pytest.raises(ValueError, match="avg must have reliable links to conserve sums.* got RobustPushSum"):
        hgp.mixing.run_round(mixer, routine())


def test_certificates_of_clients_need_running_sums():
    problem, x, lam = quadratic(n=4)
    net = Unreliable(RandomDirected(4, seed=1), loss=0.1, delay=1, seed=1)
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 40), eta=0.5, iterations=100)
    with pytest.raises(
        ValueError,
        match="avg must be a RobustPushSum on this network, got PushSum.*: C3 and C4 need all of the clients",
    ):
        hgp.certify(problem, x, lam, est, hgp.PushSum(net, 40))


def certified(count, first=0):
    """Errors, decentralised bounds and those from the centre of random runs at inner solutions."""
    for net, problem, _, lam, S, M, eta in settings(count, first):
        if net.is_reliable or net.loss > 0.6 or (isinstance(net.sleep, float) and net.sleep > 0.5):
            continue  # clients that nothing reaches within the limit for flooding
        x = exact.inner_solution(problem, lam)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, S), eta=eta, iterations=M)
        found = hgp.certify(problem, x, lam, est, hgp.RobustPushSum(net, 3 * S))
        error = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
        yield error, found.decentralised_bound, found.bound


def test_certificates_of_clients_cover_runs_over_running_sums():
    runs = list(certified(40))
    assert len(runs) > 10
    assert all(np.all(error <= own) and np.all(error <= central) for error, own, central in runs)


@pytest.mark.slow
def test_certificates_of_clients_cover_many_runs_over_running_sums():
    runs = list(certified(200, first=2000))
    assert len(runs) > 60 and all(np.all(error <= own) for error, own, _ in runs)


def test_certificates_with_many_steps_are_as_tight_as_over_reliable_links():
    problem, _, lam = logistic(n=5)
    inner = RandomDirected(5, seed=1)
    x = exact.inner_solution(problem, lam)
    net = Unreliable(inner, loss=0.1, delay=3, seed=1)
    est = hgp.hypergradient(problem, x, lam, hgp.RobustPushSum(net, 20), eta=0.5, iterations=60)
    over, reliable = (hgp.certify(problem, x, lam, est, avg).decentralised_bound for avg in
                      (hgp.RobustPushSum(net, 100), hgp.PushSum(inner, 40)))  # fmt: skip
    assert np.all(over <= 1.01 * reliable)


def test_the_mean_may_lie_outside_of_averages_but_not_of_the_boxes():
    """Why the averages of the last step are not enough for C3 and C4, and what is."""
    outside = 0
    for seed in range(60):
        net = Unreliable(RandomDirected(4, seed=seed), loss=0.3, delay=2, seed=seed)
        u = np.random.default_rng(seed).normal(size=(4, 2))
        avg = hgp.RobustPushSum(net, 4)
        y, channel = avg.apply(u), avg.connect()
        low, high = channel.interval_mean(u, 4)
        outside += not np.all((y.min(axis=0) <= u.mean(axis=0)) & (u.mean(axis=0) <= y.max(axis=0)))
        assert np.all(low <= y + 1e-14) and np.all(y <= high + 1e-14)
        assert np.all((low.min(axis=0) <= u.mean(axis=0)) & (u.mean(axis=0) <= high.max(axis=0)))
        sent = sum(net.edges(s)[0].size - 4 for s in range(1, 5))
        flood = sum(net.edges(s)[0].size - 4 for s in range(5, channel.step + 1))
        assert channel.traffic == hgp.Traffic(sent + flood, 4 * sent + flood, 8 * (4 * sent + flood), channel.step)
    assert outside > 5


@pytest.mark.parametrize("S", [1, 5, 12])
def test_boxes_begin_with_the_oldest_share_under_way(S):
    """Shares one by one, in the order of the augmented state: what is in a buffer at the end was sent since."""
    net = Unreliable(RandomOut(4, 2, seed=2), loss=0.4, delay=3, seed=S)
    u = np.random.default_rng(0).normal(size=(4, 3))
    averages, oldest = [u], S
    state = np.zeros((4 + 12 * 4, 4))
    state[:4] = np.concatenate([u, np.ones((4, 1))], axis=1)
    for s in range(1, S + 1):
        buffers = exact.augmented_matrix(net, s)[4:, :4] @ state[:4]  # what is sent at step s alone
        for r in range(s + 1, S + 1):
            buffers = exact.augmented_matrix(net, r)[4:, 4:] @ buffers  # and has not arrived
        oldest = min(oldest, s - 1) if buffers[:, 3].sum() > 0 else oldest
        state = exact.augmented_matrix(net, s) @ state
        averages.append(state[:4, :3] / state[:4, 3:])
    low, high = hgp.RobustPushSum(net, S).connect().interval_mean(u, S)
    assert_close(low, np.min(averages[oldest:], axis=0), RTOL)
    assert_close(high, np.max(averages[oldest:], axis=0), RTOL)


@pytest.mark.parametrize(("problem", "variant"), [("logistic", "assran"), ("quadratic", "nedic")])
def test_training_converges_over_links_that_lose(problem, variant):
    """As over reliable links, the distance to the solution falls with the rate; plain Push-Sum does not come near."""
    problem, _, lam = PROBLEMS[problem](n=5)
    solution = exact.inner_solution(problem, lam)
    inner = RandomDirected(5, seed=1)
    net = Unreliable(inner, loss=0.1, delay=2, sleep=[(3, 100, 200)], seed=1)
    run = hgp.training.SGP(lr=0.1, milestones=(1500, 1900, 2200), steps=2500, variant=variant)
    with pytest.warns(
        RuntimeWarning, match="sgp: the links of net .* training uses RobustPushSum.*conserve.* smaller lr"
    ):
        fit = hgp.train(problem, lam, net, run)
    over_reliable = hgp.train(problem, lam, inner, run)
    off, least = (np.abs(x - solution).max() for x in (fit.x, over_reliable.x))
    assert off < 4 * least + 1e-3 * np.abs(solution).max()
    assert fit.traffic.rounds == 2500 and fit.traffic.floats == fit.traffic.messages * (problem.dim_x + 1)


def test_training_with_too_large_steps_raises():
    problem, _, lam = quadratic(n=5)
    net = Unreliable(OnePeerExponential(5), loss=0.5, delay=5, seed=1)
    with pytest.warns(RuntimeWarning, match="sgp:"), pytest.raises(hgp.DivergenceError, match="take a smaller lr"):
        hgp.sgp(problem, lam, net, steps=2000, lr=1.0, milestones=(0.6, 0.8))
