"""Gradient tracking against an explicit loop, its rate against eigenvalues, and the runs it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import Neumann, Tracking
from hgp_ref.methods.spectrum import measure_mixing
from hgp_ref.methods.tracking import safe_step

RTOL = 1e-12
NET = hgp.networks.RandomDirected(n=3, seed=1)


def ring(n):
    return hgp.networks.Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n)


def written_out(problem, x, lam, products, step, *, w0=None, omega=None, batches=None):
    """w after each call, client by client."""
    f_x = exact.outer_gradients(problem, x, lam)[0]
    n, d = f_x.shape
    full = exact.hessians(problem, x, lam)
    w0 = np.zeros((n, d)) if w0 is None else w0
    omega = np.ones(n) if omega is None else omega
    u = [omega[i] * w0[i] for i in range(n)]
    y = [full[i] @ w0[i] - f_x[i] for i in range(n)]
    w, bent, seen = w0.copy(), np.zeros((n, d)), []
    for m, P in enumerate(products):
        H = full if batches is None else exact.hessians(problem, x, lam, batches[m])
        u = [sum(P[i, j] * (u[j] - step * y[j]) for j in range(n)) for i in range(n)]
        y = [sum(P[i, j] * y[j] for j in range(n)) for i in range(n)]
        omega = P @ omega
        for i in range(n):
            w[i] = u[i] / omega[i]
            new = H[i] @ (w[i] - w0[i])
            y[i] = y[i] + new - bent[i]
            bent[i] = new
        seen.append(w.copy())
    return np.stack(seen)


def values(problem, x, lam, w):
    return exact.outer_gradients(problem, x, lam)[1] - np.einsum("nij,mnj->mni", exact.jacobians(problem, x, lam), w)


def products_of(net, steps):
    W = iter(net.mixing_matrices(1, sum(steps)))
    made = []
    for S in steps:
        P = np.eye(net.n)
        for _ in range(S):
            P = next(W) @ P
        made.append(P)
    return made


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("steps", [1, 3, (4, 2, 2, 1)], ids=str)
def test_tracking_equals_explicit_loops(steps, mode):
    problem, x, lam = logistic()
    avg, M = hgp.PushSum(NET, steps, mode=mode), 9
    each = avg.steps_of(0, M)
    expected = values(problem, x, lam, written_out(problem, x, lam, products_of(NET, each), 0.4))
    est = hgp.hypergradient(problem, x, lam, avg, method=Tracking(0.4), iterations=M, history=True)
    assert_close(est.history, expected, RTOL)
    sent = sum(NET.edges(s)[0].size - 3 for s in range(1, sum(each) + 1))
    assert est.traffic == hgp.Traffic(sent, sent * 9, sent * 72, sum(each)) == avg.traffic
    seen = []
    stopped = hgp.hypergradient(
        problem, x, lam, avg, method=Tracking(0.4), iterations=M, callback=lambda m, v: seen.append(v) or m == 4
    )
    assert stopped.stopped == "callback" and stopped.iterations == 4
    assert_close(np.stack(seen), expected[:4], RTOL)


def test_without_weights_and_with_exact_averages():
    problem, x, lam = quadratic()
    for avg, P in (
        (hgp.ExactAverage(3), [np.full((3, 3), 1 / 3)] * 6),
        (hgp.Gossip(hgp.networks.OnePeerExponential(3), 2), products_of(hgp.networks.OnePeerExponential(3), [2] * 6)),
    ):
        est = hgp.hypergradient(problem, x, lam, avg, method=Tracking(0.5), iterations=6, history=True)
        assert_close(est.history, values(problem, x, lam, written_out(problem, x, lam, P, 0.5)), RTOL)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_runs_with_different_averagings_equal_single_runs(mode):
    problem, x, lam = quadratic()
    averagings = [hgp.PushSum(NET, 2, mode=mode), hgp.ExactAverage(3), hgp.PushSum(NET, 1, mode=mode)]
    many = hgp.hypergradient(problem, x, lam, averagings, method=Tracking(0.3), iterations=12)
    for r, avg in enumerate(averagings):
        alone = hgp.hypergradient(problem, x, lam, avg, method=Tracking(0.3), iterations=12)
        assert_close(many.value[r], alone.value, RTOL)
        assert many.traffic.of_run(r) == alone.traffic
    safe = hgp.hypergradient(problem, x, lam, averagings, method=Tracking(), iterations=1500)
    truth = exact.hypergradient(problem, x, lam)
    assert_close(safe.value, np.broadcast_to(truth, safe.value.shape), 1e-10)


def test_an_unequal_first_guess_is_averaged():
    problem, x, lam = quadratic()
    w0 = np.random.default_rng(0).normal(size=(3, 4))
    avg = hgp.PushSum(NET, 2)
    est = hgp.hypergradient(problem, x, lam, avg, method=Tracking(0.3), iterations=9, w0=w0, history=True)
    P = products_of(NET, [2] * 10)
    omega = P[0].sum(axis=1)
    start = P[0] @ w0 / omega[:, None]
    expected = written_out(problem, x, lam, P[1:], 0.3, w0=start, omega=omega)
    assert_close(est.history, values(problem, x, lam, expected), RTOL)
    end = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), method=Tracking(0.3), iterations=800, w0=w0)
    assert_close(end.value, exact.hypergradient(problem, x, lam), RTOL)


def test_mini_batches():
    problem, x, lam = logistic()
    M = 6
    draws = hgp.problems.sample_batches(problem.counts, 5, 7, 0, M, stream=1)
    w = written_out(problem, x, lam, products_of(NET, [2] * M), 0.4, batches=draws)
    options = {"method": Tracking(0.4), "iterations": M, "batches": hgp.MiniBatches(5, seed=7)}
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), **options)
    assert_close(est.w, w[-1], RTOL)
    full = {**options, "batches": hgp.MiniBatches(5, seed=7, full_jacobian=True)}
    whole = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), history=True, **full)
    assert_close(whole.history, values(problem, x, lam, w), RTOL)
    seen = []
    hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), callback=lambda m, v: seen.append(v), **full)
    assert_close(np.stack(seen), values(problem, x, lam, w), RTOL)
    both = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(NET, 2), **{**options, "batches": hgp.MiniBatches(5, seed=[7, 8])}
    )
    assert_close(both.w[0], w[-1], RTOL)


def nonconvex(n=5, d=4, seed=3):
    """Clients with eigenvalues down to about −1, a mean Hessian with eigenvalues from 0.5 to 1."""
    rng = np.random.default_rng(seed)
    apart = rng.normal(size=(n, d, d))
    apart = apart + np.swapaxes(apart, 1, 2)
    A = np.diag(np.linspace(0.5, 1.0, d)) + 0.4 * (apart - apart.mean(axis=0))
    problem = hgp.problems.Quadratic(A, rng.normal(size=(n, d)), rng.normal(size=(n, 2, d)), rng.normal(size=(n, d)))
    assert np.linalg.eigvalsh(A).min() < -0.8
    return problem, rng.normal(size=(n, d)), rng.normal(size=(n, 2))


@pytest.mark.parametrize("case", ["logistic", "non-convex"])
def test_no_floor_where_the_series_stops_at_a_hundredth(case):
    problem, x, lam = logistic() if case == "logistic" else nonconvex()
    n = problem.n_clients
    avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=2), 1)
    truth = exact.hypergradient(problem, x, lam)
    tracked = hgp.hypergradient(problem, x, lam, avg, method=Tracking(), iterations=900)
    assert np.linalg.norm(tracked.value - truth) < 1e-12 * np.linalg.norm(truth)
    assert np.all(np.linalg.norm(tracked.value - truth, axis=1) <= hgp.certify(problem, x, lam, tracked).bound)
    if case == "logistic":
        series = hgp.hypergradient(problem, x, lam, avg, method=Neumann(1.0), iterations=900)
        assert np.linalg.norm(series.value - truth) > 1e-2 * np.linalg.norm(truth)


@pytest.mark.parametrize(("net", "steps"), [(ring(4), 1), (ring(4), 3), ("periodic", 2), ("periodic", 3)], ids=str)
def test_the_rate_is_the_spectral_radius_of_a_period(net, steps):
    if net == "periodic":
        edges = [(np.array([0, 1]), np.array([1, 2])), (np.array([2, 3, 0]), np.array([3, 0, 2]))]
        net = hgp.networks.Schedule(edges, n=4)
    problem = hgp.problems.Quadratic.random(4, 3, 2, seed=1, condition=4.0)
    x, lam = np.ones((4, 3)), np.zeros((4, 2))
    H = exact.hessians(problem, x, lam)
    for step in (0.1, 0.3):
        rate = exact.tracking_rate(H, net, step, steps)
        assert 0 < rate < 1
        M = int(np.ceil(np.log(1e-11) / np.log(rate)))
        w0 = 10 * np.random.default_rng(0).normal(size=(4, 3))  # in which every mode has its share
        est = hgp.hypergradient(
            problem, x, lam, hgp.PushSum(net, steps), method=Tracking(step), iterations=M, history=True, w0=w0
        )
        errors = np.linalg.norm(est.history - exact.hypergradient(problem, x, lam), axis=(1, 2))
        later = np.arange(M // 3, M)
        measured = np.exp(np.polyfit(later, np.log(errors[later]), 1)[0])
        assert abs(measured - rate) < 4e-3, f"step {step}: {measured} against {rate}"


def test_the_rate_tends_to_one_minus_eta_alpha():
    problem, x, lam = nonconvex()
    H = exact.hessians(problem, x, lam)
    lowest = np.linalg.eigvalsh(H.mean(axis=0))[0]
    for step in (1e-3, 1e-4):
        assert abs(exact.tracking_rate(H, ring(5), step) - (1 - step * lowest)) < 20 * step**2


def test_instability_is_reported_and_a_safe_step_is_found():
    """On a ring of ten, 0.1/L diverges: the spectral radius says so, and so does the run."""
    problem = hgp.problems.Quadratic.random(10, 4, 2, seed=1, condition=3.0)
    x, lam, net = np.ones((10, 4)), np.zeros((10, 2)), ring(10)
    H = exact.hessians(problem, x, lam)
    step = 0.1 / np.linalg.eigvalsh(H).max()
    assert exact.tracking_rate(H, net, step) > 1
    for M in (100, 2000):
        with pytest.raises(hgp.DivergenceError, match=r"Tracking\(step=.*: take a smaller step"):
            hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), method=Tracking(step), iterations=M)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), method=Tracking(), iterations=6000)
    truth = exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(est.value - truth) < 1e-2 * np.linalg.norm(truth)


def uneven():
    """Networks whose Push-Sum weights differ by a lot: a chain with returns to its first client, and a heavy hub."""
    n = 8
    chain = ([*range(n - 1), *range(1, n)], [*range(1, n), *[0] * (n - 1)])
    hub = np.array([[0.95, 0.3, 0.3], [0.025, 0.7, 0.0], [0.025, 0.0, 0.7]])
    return {"chain": hgp.networks.Schedule([chain], n=n), "hub": hgp.networks.Schedule([hub])}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("kind", ["chain", "hub"])
def test_the_step_is_safe_where_weights_are_uneven(kind, steps):
    net = uneven()[kind]
    n = net.n
    H = np.linspace(0.2, 1.0, n).reshape(n, 1, 1)
    problem = hgp.problems.Quadratic(H, np.zeros((n, 1)), np.ones((n, 1, 1)), np.ones((n, 1)))
    x = np.zeros((n, 1))
    mean = hgp.mixing.start_averaging([hgp.PushSum(net, steps)], n, x, 1)
    seen = measure_mixing(mean, x)
    omega = np.linalg.matrix_power(net.mixing_matrix(1), 10_000).sum(axis=1)
    assert 0.3 * omega.min() < seen.smallest_weight < 1.5 * omega.min() and 0 < seen.tau < 1
    assert exact.tracking_rate(H, net, safe_step(mean, problem.linearize(x, x), x), steps) < 1
    M = 3000 if kind == "chain" else 600
    est = hgp.hypergradient(problem, x, x, hgp.PushSum(net, steps), method=Tracking(), iterations=M)
    assert_close(est.value, exact.hypergradient(problem, x, x), 1e-3)


def test_sparse_graphs_have_a_step_and_converged_runs_are_returned():
    """Five clients that hear little: weights fall to a hundredth now and then, y to rounding."""
    n = 5
    A, target = np.linspace(0.5, 1, n)[:, None, None], np.arange(1.0, n + 1)[:, None]
    problem = hgp.problems.Quadratic(A, np.zeros((n, 1)), np.ones((n, 1, 1)), target)
    x = np.zeros((n, 1))
    truth = exact.hypergradient(problem, x, x)
    for seed in (2, 14, 27):
        avg = hgp.PushSum(hgp.networks.RandomDirected(n, low=0.1, high=0.3, seed=seed), 1)
        est = hgp.hypergradient(problem, x, x, avg, method=Tracking(), iterations=2500)
        assert_close(est.value, truth, 1e-10)


@pytest.mark.filterwarnings("ignore:.*strongly connected")
def test_two_clients_without_messages_for_six_rounds_have_a_step():
    problem = hgp.problems.Quadratic(np.ones((2, 1, 1)), np.zeros((2, 1)), np.ones((2, 1, 1)), np.ones((2, 1)))
    x = np.zeros((2, 1))
    for seed in range(12):
        net = hgp.networks.RandomDirected(2, low=0.1, high=0.3, seed=seed)
        mean = hgp.mixing.start_averaging([hgp.PushSum(net, 1)], 2, x, 1)
        assert 0.5 < measure_mixing(mean, x).tau < 1
        assert safe_step(mean, problem.linearize(x, x), x) > 0


@pytest.mark.parametrize("M", [700, 701, 1000])
def test_rounding_in_a_weak_direction_is_no_divergence(M):
    """w* is κ times what H w* is, and so is its rounding."""
    H = np.diag([1.0, 1 / 300])
    problem = hgp.problems.Quadratic(
        np.stack([H] * 3), np.zeros((3, 2)), np.ones((3, 1, 2)), np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    )
    x, lam = np.zeros((3, 2)), np.zeros((3, 1))
    net = hgp.networks.Schedule([np.full((3, 3), 0.2) + 0.4 * np.eye(3)])
    truth = exact.hypergradient(problem, x, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 2), method=Tracking(1.0), iterations=20 * M)
    assert_close(est.value, truth, 1e-10)


def test_clients_measure_the_contraction_of_their_network():
    for net, tau in ((ring(3), 0.5), (ring(10), np.cos(np.pi / 10)), (hgp.networks.FullyConnected(4), 0.0)):
        avg = hgp.PushSum(net, 1)
        mean = hgp.mixing.start_averaging([avg], net.n, np.ones((net.n, 2)), 1)
        assert measure_mixing(mean, np.ones((net.n, 2))).tau == pytest.approx(tau, abs=0.05)
    assert (
        measure_mixing(hgp.mixing.start_averaging([hgp.ExactAverage(1)], 1, np.ones((1, 2)), 1), np.ones((1, 2))).tau
        == 0
    )


def pair(*shares, then=40):
    """Two clients, of whose difference a round leaves each of `shares`; after them all is averaged for a while."""
    rounds = [np.array([[1 + share, 1 - share], [1 - share, 1 + share]]) / 2 for share in (*shares, *[0.0] * then)]
    return hgp.mixing.start_averaging([hgp.PushSum(hgp.networks.Schedule(rounds), 1)], 2, np.ones((2, 2)), 1)


@pytest.mark.filterwarnings("ignore:.*strongly connected")
def test_a_window_without_messages_counts_over_the_whole_run():
    """Windows of the first 6 rounds that left everything say nothing of a round: 0.02 is left after all 12."""
    seen = measure_mixing(pair(*[1.0] * 6), np.ones((2, 2)))
    assert seen.rounds == 12 and seen.tau == pytest.approx(0.02 ** (1 / 12), rel=1e-12)


@pytest.mark.parametrize("share", [0.7, 0.9, 0.999, 1 - 1e-4])
def test_contraction_of_windows_is_measured(share):
    """Of 6 rounds with τ the long run remembers nothing once all is averaged; a window of 2 rounds leaves τ²."""
    seen = measure_mixing(pair(*[share] * 6), np.ones((2, 2)))
    assert seen.rounds == 12 and seen.tau == pytest.approx(share, rel=1e-9)


def test_windows_count_by_their_mean():
    seen = measure_mixing(pair(0.9, 0.9, 0.6, 0.6, 0.3, 0.3), np.ones((2, 2)))
    assert seen.tau == pytest.approx(((0.9**2 + 0.6**2 + 0.3**2) / 3) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), "0.1"])
def test_bad_steps_are_named(step):
    with pytest.raises((TypeError, ValueError), match="step must be a finite number > 0, got"):
        Tracking(step)


def test_flat_clients_need_a_step():
    problem = hgp.problems.Quadratic(np.zeros((3, 2, 2)), np.ones((3, 2)), np.ones((3, 1, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="step must be given: "):
        hgp.hypergradient(problem, np.ones((3, 2)), np.zeros((3, 1)), hgp.PushSum(NET, 2), method=Tracking())
