"""Preconditioned tracking: exact limits, local solves, the rule for shifts and steps."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import JAX_SLOW, assert_close, identity_rtol, open_library

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import PreconditionedTracking, Refined, curvature
from hgp_ref.methods.curvature import Factorised, Polynomial

NET = hgp.networks.RandomDirected(n=3, seed=1)
EPS = float(np.finfo(np.float64).eps)


def written_out(problem, x, lam, matrices, shift, step):
    """w after each call, by explicit matrices."""
    H, f_x = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
    u, y, omega, history = np.zeros_like(f_x), -f_x, np.ones(len(f_x)), []
    w = u
    for P in matrices:
        p = np.stack([np.linalg.solve(H[i] + shift * np.eye(H.shape[1]), y[i] / omega[i]) for i in range(len(H))])
        u, omega = P @ (u - step * omega[:, None] * p), P @ omega
        after = u / omega[:, None]
        y = P @ y + np.einsum("nij,nj->ni", H, after - w)
        w = after
        history.append(w)
    return np.stack(history)


def of_w(problem, x, lam, w):
    return exact.outer_gradients(problem, x, lam)[1] - np.einsum(
        "nij,...nj->...ni", exact.jacobians(problem, x, lam), w
    )


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_recurrence_equals_explicit_matrices(steps, mode):
    problem, x, lam = quadratic()
    est = hgp.hypergradient(
        problem,
        x,
        lam,
        hgp.PushSum(NET, steps, mode=mode),
        PreconditionedTracking(0.3, 0.5),
        iterations=8,
        history=True,
    )
    W = [NET.mixing_matrix(s) for s in range(1, 8 * steps + 1)]
    matrices = [np.linalg.multi_dot(W[k : k + steps][::-1]) if steps > 1 else W[k] for k in range(0, 8 * steps, steps)]
    assert_close(est.history, of_w(problem, x, lam, written_out(problem, x, lam, matrices, 0.3, 0.5)), 1e-12)
    messages = sum(np.count_nonzero(w) - 3 for w in W)
    assert (est.traffic.messages, est.traffic.floats) == (messages, messages * (2 * problem.dim_x + 1))


def indefinite(n=6, d=4, seed=3):
    """Clients with negative curvature whose mean is positive definite."""
    rng = np.random.default_rng(seed)
    E = rng.normal(size=(n, d, d))
    E = E + np.swapaxes(E, 1, 2)
    A = np.diag(np.geomspace(0.1, 1, d)) + 0.2 * (E - E.mean(axis=0))
    assert np.linalg.eigvalsh(A)[:, 0].min() < 0 < np.linalg.eigvalsh(A.mean(axis=0))[0]
    problem = hgp.problems.Quadratic(A, rng.normal(size=(n, d)), rng.normal(size=(n, 2, d)), rng.normal(size=(n, d)))
    return problem, np.zeros((n, d)), np.zeros((n, 2))


@pytest.mark.parametrize("degree", [None, 16])
@pytest.mark.parametrize("case", ["quadratic", "logistic", "indefinite", "unit vectors"])
def test_the_limit_is_exact_with_one_step_per_call(case, degree):
    problem, x, lam = {"quadratic": quadratic, "indefinite": indefinite}.get(case, logistic)()
    truth = exact.hypergradient(problem, x, lam)
    if case == "unit vectors":
        problem = SimpleNamespace(**{name: getattr(problem, name) for name in
                                     ("n_clients", "dim_x", "dim_lam", "outer_grad", "linearize")})  # fmt: skip
    net = hgp.networks.RandomDirected(n=x.shape[0], seed=1)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), PreconditionedTracking(degree=degree), iterations=700)
    assert_close(est.value, truth, 1e-11)
    assert est.state.degree == (degree or 0)


def complementary(n=4, seed=5):
    """Clients with nothing in common, whose steps are cut again and again."""
    rng = np.random.default_rng(seed)
    A = np.stack([np.diag(np.where(np.arange(n) == i, n, 1e-3)) for i in range(n)])
    problem = hgp.problems.Quadratic(A, rng.normal(size=(n, n)), rng.normal(size=(n, 2, n)), rng.normal(size=(n, n)))
    return problem, rng.normal(size=(n, n)), np.zeros((n, 2))


RING = hgp.networks.Schedule([(np.arange(4), (np.arange(4) + 1) % 4)], n=4)


class ClientRule:
    """Shift and step of one client with the Hessian H, as the docstring of `Adaptation` says; numbers, one by one."""

    def __init__(self, H, seen):
        values = np.linalg.eigvalsh(H)
        self.H, self.high, self.seen = H, np.abs(values).max(), seen
        self.base = max(0.0, -1.1 * values[0])
        self.unit = max(abs(values[0]), 3e-3 * np.abs(values).mean())
        self.shift, self.step, self.z, self.t, self.since, self.r = self.base + self.unit, 0.45, None, 0, 0, None

    def direction(self, z):
        p = np.linalg.solve(self.H + self.shift * np.eye(len(z)), z)
        s = z @ p
        if self.z is None:
            self.best = s
        else:
            self.since += 1
            c = min(max(self.z @ p / np.sqrt(self.s * s), -1.0), 1.0)
            h = (0.3 + 0.8**self.t) * (0.5 - c)
            if h < 0 and s > 1.5 * self.best:
                h, _ = 0.0, self.seen.add("frozen")
            grown, factor = s > 16 * self.best and self.since >= 4, np.exp(h)
            if grown:
                self.seen.add("cut")
                self.step, factor, self.since, self.best = 0.7 * self.step, 2 * factor, 0, s
            self.best = min(self.best, s)
            above = (self.shift - self.base) * factor
            self.seen |= {"least"} if above < 1e-3 * self.unit else {"most"} if above > 10 * self.high else set()
            self.shift = self.base + min(max(above, 1e-3 * self.unit), 10 * self.high)
        self.z, self.s, self.t = z, s, self.t + 1
        return p

    def compare(self, z, dw):
        a, P = z - self.z - self.H @ dw, self.H + self.shift * np.eye(len(z))
        length = max(dw @ self.H @ dw, -0.9 * self.shift * dw @ dw) + self.shift * dw @ dw
        r = np.sqrt(max(a @ np.linalg.solve(P, a), 0.0) / length)
        both = r if self.r is None else min(r, self.r)
        if both > 1:
            self.seen.add("different" if both < 20 else "very different")
            above = (self.shift - self.base) * min(both, 20.0) ** 0.2
            self.seen |= {"most"} if above > 10 * self.high else set()
            self.shift = self.base + min(above, 10 * self.high)
        self.r = r


@pytest.mark.filterwarnings("ignore:not converged:RuntimeWarning")  # the last run has passed its peak, not ended
def test_shifts_and_steps_follow_their_rule():
    """Every branch of the rule occurs in these runs: equal clients, similar ones, and clients that differ much."""
    seen: set[str] = set()
    equal = np.stack([np.diag(np.geomspace(0.1, 1, 4))] * 3)
    data = np.random.default_rng(6).normal(size=(4, 3, 4))
    same = hgp.problems.Quadratic(equal, data[0], data[1:3].swapaxes(0, 1), data[3]), data[0], np.zeros((3, 2))
    six = hgp.networks.RandomDirected(n=6, seed=1)
    runs = [(logistic(), NET, 40), (indefinite(), six, 60), (indefinite(6, 2), six.after(9), 40),
            (same, hgp.networks.FullyConnected(3), 45), (complementary(), RING, 30)]  # fmt: skip
    for (problem, x, lam), net, M in runs:
        H, f_x = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
        clients = [ClientRule(H_i, seen) for H_i in H]
        u = w = np.zeros_like(f_x)
        y, omega = -f_x, np.ones(len(f_x))
        est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), PreconditionedTracking(), iterations=M)
        for s in range(1, M + 1):
            W = net.mixing_matrix(s)
            p = np.stack([client.direction(y[i] / omega[i]) for i, client in enumerate(clients)])
            steps = np.array([client.step for client in clients])
            u, omega = W @ (u - (steps * omega)[:, None] * p), W @ omega
            before, w = w, u / omega[:, None]
            y = W @ y + np.einsum("nij,nj->ni", H, w - before)
            for i, client in enumerate(clients):
                client.compare(y[i] / omega[i], w[i] - before[i])
        for name, values in (("shift", est.state.adaptation.shift), ("step", est.state.adaptation.step)):
            np.testing.assert_allclose(values[:, 0], [getattr(client, name) for client in clients], rtol=1e-6)
        assert_close(est.w, w, 1e-9)
        np.testing.assert_allclose(est.state.residual, -y / omega[:, None], rtol=0, atol=1e-9 * np.abs(f_x).max())
    assert seen == {"frozen", "cut", "least", "most", "different", "very different"}


@pytest.mark.parametrize("avg", [hgp.PushSum(NET, 1), hgp.PushSum(NET, 2, debias="conserve"), hgp.ExactAverage(3)])
def test_sums_are_tracked_whatever_the_preconditioners_are(avg):
    problem, x, lam = logistic()
    H, f_x = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
    for M in (1, 2, 7, 30):
        est = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(), iterations=M)
        expected = (np.einsum("nij,nj->ni", H, est.w) - f_x).sum(axis=0)
        np.testing.assert_allclose(est.state.y.sum(axis=0), expected, rtol=0, atol=100 * EPS * np.abs(f_x).max())
    assert np.ptp(est.state.adaptation.shift) > 0  # every client has its own


def test_shifts_that_are_held_do_not_fall():
    """Newton tracking holds the shifts of clients whose step was damped."""
    z = np.ones((2, 3))
    solver = Factorised(np.stack([np.eye(3)] * 2), z)
    first = curvature.adapt(curvature.first_adaptation(solver, z, None, None), solver, z, True, True)[1]
    held = curvature.adapt(first, solver, z / 2, True, True, hold=np.array([[True], [False]]))[1]
    assert held.shift[0, 0] == first.shift[0, 0] and held.shift[1, 0] < first.shift[1, 0]


def test_runs_and_first_guesses():
    problem, x, lam = logistic()
    truth = exact.hypergradient(problem, x, lam)
    averagings = [hgp.PushSum(NET, 1), hgp.PushSum(NET.after(9), 2), hgp.ExactAverage(3)]
    options = {"method": PreconditionedTracking(), "iterations": 25, "w0": np.cos(x)}
    many = hgp.hypergradient(problem, x, lam, averagings, **options)
    assert many.state.adaptation.shift.shape == (3, 3, 1)
    for avg, value in zip(averagings, many.value, strict=True):
        assert_close(hgp.hypergradient(problem, x, lam, avg, **options).value, value, 1e-11)
    end = hgp.hypergradient(problem, x, lam, averagings, **{**options, "iterations": 400})
    assert_close(end.value, np.broadcast_to(truth, end.value.shape), 1e-11)


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_two_runs_equal_one_bit_for_bit(mode, runs, tmp_path):
    problem, x, lam = logistic()

    def averaging(t):
        several = [hgp.PushSum(NET.after(t), 2, mode=mode), hgp.PushSum(NET.after(5 + t), 2, mode=mode)]
        return several if runs else several[0]

    method = PreconditionedTracking()
    whole = hgp.hypergradient(problem, x, lam, averaging(0), method, iterations=30)
    first = hgp.hypergradient(problem, x, lam, averaging(0), method, iterations=13)
    first = hgp.load(first.save(tmp_path / "first.npz"))
    second = hgp.hypergradient(problem, x, lam, averaging(26), method, iterations=17, resume=first)
    for name in ("value", "w", "state"):
        a, b = getattr(second, name), getattr(whole, name)
        assert (a == b) if name == "state" else np.array_equal(a, b), name


def test_a_client_depends_on_its_own_data_and_messages_only():
    """Clients 0 and 1 send to each other and to nobody else; what the others hold does not reach them."""
    problem, x, lam = logistic(n=5)
    W = np.eye(5)
    W[:2, :2] = [[0.5, 0.3], [0.5, 0.7]]
    W[2:, 2:] = 1 / 3
    net = hgp.networks.Schedule([W])
    data = [
        np.concatenate([np.asarray(a)[:2], np.asarray(b)[2:]]) for a, b in zip(parts(5, 0), parts(5, 9), strict=True)
    ]
    changed = hgp.problems.LogisticRegression(*data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the graphs do not connect all clients
        ests = [hgp.hypergradient(p, x, lam, hgp.PushSum(net, 1, mode="stepping"), PreconditionedTracking(degree=K),
                                  iterations=12) for p in (problem, changed) for K in (None, 9)]  # fmt: skip
    for one, another in ((ests[0], ests[2]), (ests[1], ests[3])):
        assert np.array_equal(one.w[:2], another.w[:2]) and not np.array_equal(one.w[2:], another.w[2:])
        assert np.array_equal(one.state.adaptation.shift[:2], another.state.adaptation.shift[:2])


def parts(n, seed, N=12, d=4):
    """The data of `logistic`."""
    rng = np.random.default_rng(seed)
    X, X_val = rng.uniform(-1, 1, (2, n, N, d))
    y, y_val = rng.integers(0, 2, (2, n, N))
    return X, y, X_val, y_val


@pytest.mark.parametrize("degree", [None, 8])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", JAX_SLOW)
def test_libraries_agree(name, dtype, degree):
    lib = open_library(name)
    problem, x, lam = logistic()
    expected = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(degree=degree), iterations=10
    )
    there = problem.to(lib.backend, dtype=dtype)
    est = hgp.hypergradient(there, lib.asarray(x, dtype), lib.asarray(lam, dtype), hgp.PushSum(NET, 1),
                            PreconditionedTracking(degree=degree), iterations=10)  # fmt: skip
    assert_close(lib.to_numpy(est.value), expected.value, 10 * identity_rtol(dtype))
    for array in (est.state.y, est.state.adaptation.shift):
        assert str(array.dtype).endswith(dtype)
    long = hgp.hypergradient(there, lib.asarray(x, dtype), lib.asarray(lam, dtype), hgp.PushSum(NET, 2),
                             PreconditionedTracking(degree=degree), iterations=150)  # fmt: skip
    assert_close(lib.to_numpy(long.value), exact.hypergradient(problem, x, lam), identity_rtol(dtype))


def test_iterations_transfer_nothing_that_grows_with_d(counted):
    lib = open_library("cupy")
    counts = {}
    for d in (3, 40):
        for M in (20, 60):
            host = hgp.problems.Quadratic.random(3, d, 2, seed=1)
            there = host.to(lib.backend)
            x, lam = lib.asarray(np.ones((3, d))), lib.asarray(np.zeros((3, 2)))
            for K in (None, 8):
                counted.reset()
                hgp.hypergradient(there, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(degree=K), iterations=M)
                counts[d, M, K] = counted.nbytes
    for K in (None, 8):
        assert counts[3, 60, K] - counts[3, 20, K] == counts[40, 60, K] - counts[40, 20, K]


@pytest.mark.parametrize("delay", [0, 1])
def test_lost_messages_do_not_change_the_limit(delay):
    problem, x, lam = logistic(n=4)
    net = hgp.networks.Unreliable(hgp.networks.RandomDirected(n=4, seed=1), loss=0.1, delay=delay, seed=2)
    for w0 in (None, np.cos(x)):  # its average leaves messages in flight, which the run must not receive
        options = {"iterations": 250, "w0": w0}
        avg = hgp.RobustPushSum(net, 4, debias="reset" if w0 is None else "conserve")
        est = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(), **options)
        assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-12)
    with pytest.raises(ValueError, match="use RobustPushSum"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 4), PreconditionedTracking(), iterations=9)


def test_tolerance_refinement_mini_batches_and_certificates():
    problem, _, lam = logistic()
    x = exact.inner_solution(problem, lam)
    truth = exact.hypergradient(problem, x, lam)
    avg = hgp.PushSum(NET, 2)
    est = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(), iterations=400, tol=1e-9)
    assert est.stopped == "tolerance" and est.iterations < 100
    certificate = hgp.certify(problem, x, lam, est, hgp.PushSum(NET, 30))
    error = np.linalg.norm(est.value - truth, axis=1)
    assert (error <= certificate.bound).all() and certificate.bound.max() < 1e-6
    refined = Refined(PreconditionedTracking(), cycles=3, steps=20)
    noisy = hgp.hypergradient(problem, x, lam, avg, refined, iterations=240, batches=hgp.MiniBatches(8, seed=1))
    assert_close(noisy.value, truth, 0.05)
    assert_close(hgp.hypergradient(problem, x, lam, avg, refined, iterations=240).value, truth, 1e-9)


def test_weights_that_are_kept_apply_to_the_first_guess():
    """debias="conserve": the average of w0 leaves weights ω, and u starts from ω w."""
    problem, x, lam = logistic()
    H, f_x = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
    first, second = NET.mixing_matrix(1), NET.mixing_matrix(2)
    omega = first.sum(axis=1)
    w = first @ np.cos(x) / omega[:, None]
    y = np.einsum("nij,nj->ni", H, w) - f_x
    p = np.linalg.solve(H + 0.3 * np.eye(4), (y / omega[:, None])[..., None])[..., 0]
    expected = second @ (omega[:, None] * (w - 0.5 * p)) / (second @ omega)[:, None]
    avg = hgp.PushSum(NET, 1, debias="conserve")
    with pytest.warns(hgp.ConvergenceWarning):
        est = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(0.3, 0.5), iterations=1, w0=np.cos(x))
    assert_close(est.w, expected, 1e-12)


def test_restarts_keep_shifts_and_forget_residuals():
    seen = []

    class Recorded(PreconditionedTracking):
        def init(self, start):
            state = super().init(start)
            seen.append((start.previous, state.adaptation))
            return state

    problem, x, lam = logistic()
    hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), Refined(Recorded(), 2, 9), iterations=20)
    (none, _), (before, after) = seen
    assert none is None and np.array_equal(after.shift, before.adaptation.shift)
    assert after.z is after.size is after.best is after.since is after.difference is None


def test_solves_of_runs_with_mini_batches_use_full_batches():
    """A polynomial of high degree is as good as a factorisation, which is of the full Hessian."""
    problem, x, lam = logistic()
    options = {"iterations": 5, "batches": hgp.MiniBatches(3, seed=2)}
    ests = [hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(0.3, 0.4, degree), **options)
            for degree in (None, 120)]  # fmt: skip
    assert_close(ests[1].w, ests[0].w, 1e-10)


# Local solves and their errors


def test_local_solves_equal_explicit_inverses():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 3, 7, 7))
    H = A @ np.swapaxes(A, -1, -2) - 0.3 * np.eye(7)
    z, shift = rng.normal(size=(2, 3, 7)), rng.uniform(1, 2, (2, 3, 1))
    expected = np.linalg.solve(H + shift[..., None] * np.eye(7), z[..., None])[..., 0]
    assert_close(Factorised(H, z).solve(z, shift), expected, 1e-12)
    values = np.linalg.eigvalsh(H)
    low, high = values[..., :1], values[..., -1:]

    def polynomial(K):
        return Polynomial(lambda u: np.einsum("...ij,...j->...i", H, u), low, high, K)

    assert_close(polynomial(200).solve(z, shift), expected, 1e-10)
    for K in (3, 8, 20):  # the error in the norm of P_i, and definiteness
        kappa = ((high + shift) / (low + shift)).max()
        unit = np.broadcast_to(np.eye(7)[:, None, None, :], (7, 2, 3, 7))
        Q = np.moveaxis(polynomial(K).solve(unit, shift), 0, -1)
        product = np.linalg.eigvals(Q @ (H + shift[..., None] * np.eye(7))).real
        assert np.abs(1 - product).max() <= 2 * np.exp(-2 * K / np.sqrt(kappa)) + 1e-12
        assert np.linalg.eigvalsh((Q + np.swapaxes(Q, -1, -2)) / 2).min() > 0


def test_a_polynomial_is_that_of_chebyshev_on_the_shifted_spectrum():
    """1 − λ q(λ) = T_K((θ − λ)/ς) / T_K(θ/ς); and the smallest shift for which b/a <= K²."""
    ends = np.array([[-0.5, 1.0], [-3.0, 1.0], [1e-4, 2.0], [0.3, 1.0]])
    low, high = ends[:, :1], ends[:, 1:]
    values = low + (high - low) * np.linspace(0, 1, 9)
    for K in (2, 3, 8):
        solver = Polynomial(lambda u: values * u, low, high, K)
        np.testing.assert_array_equal(solver.high, np.abs(ends).max(axis=1, keepdims=True))
        assert np.all(solver.least >= 0) and solver.least[3] == 0
        ratio = (solver.high + solver.least) / (low + solver.least)
        np.testing.assert_allclose(ratio[:2], K**2, rtol=1e-12)
        assert np.all((ratio > 0) & (ratio <= K**2 * (1 + 1e-12)))
        shift = solver.least + 0.1
        theta, spread = (solver.low + solver.high) / 2 + shift, (solver.high - solver.low) / 2
        chebyshev = np.polynomial.Chebyshev.basis(K)
        residual = chebyshev((theta - values - shift) / spread) / chebyshev(theta / spread)
        assert_close((values + shift) * solver.solve(np.ones_like(values), shift), 1 - residual, 1e-12)


def test_a_factorisation_knows_its_spectrum():
    H = np.stack([np.diag([-3.0, 0.5, 1.0]), np.diag([0.25, 0.5, 1.5])])
    solver = Factorised(H, np.ones((2, 3)))
    found = np.concatenate([solver.low, solver.high, solver.mean, solver.least], axis=-1)
    np.testing.assert_allclose(found, [[-3, 3, 1.5, 3], [0.25, 1.5, 0.75, 0]], rtol=1e-14, atol=0)


def test_a_large_dimension_falls_back_to_the_polynomial(monkeypatch):
    problem, x, lam = logistic()
    avg, method = hgp.PushSum(NET, 1), PreconditionedTracking()
    monkeypatch.setattr(curvature, "FACTORISED", 3)
    est = hgp.hypergradient(problem, x, lam, avg, method, iterations=300)
    assert est.state.degree == curvature.DEGREE
    assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-11)
    for most, entries, degree in ((4, 48, 0), (4, 47, curvature.DEGREE), (3, 48, curvature.DEGREE)):
        monkeypatch.setattr(curvature, "FACTORISED", most)
        monkeypatch.setattr(curvature, "MOST_ENTRIES", entries)
        assert hgp.hypergradient(problem, x, lam, avg, method, iterations=5).state.degree == degree


def test_ranks_count_the_entries_of_all_clients(monkeypatch):
    """Three of twelve clients in this process: the choice is that of a single process."""
    linearization = SimpleNamespace(hvp=lambda u: 2 * u)
    channel = SimpleNamespace(n=12, any_rank=bool, clients=slice(3, 6))
    for entries, degree in ((192, 0), (191, curvature.DEGREE)):
        monkeypatch.setattr(curvature, "MOST_ENTRIES", entries)
        hessians = lambda: np.stack([2 * np.eye(4)] * 3)  # noqa: E731
        assert curvature.local_solver(linearization, hessians, np.ones((3, 4)), channel, None).degree == degree


def test_polynomials_are_for_an_interval_that_contains_the_spectrum():
    """Lanczos finds the ends of spectra of 80 eigenvalues from inside."""
    rng = np.random.default_rng(2)
    Q = np.linalg.qr(rng.normal(size=(3, 80, 80)))[0]
    H = Q @ (rng.uniform(-1, 2, (3, 80))[..., None] * np.swapaxes(Q, 1, 2))
    linearization = SimpleNamespace(hvp=lambda u: np.einsum("nij,nj->ni", H, u))
    solver = curvature.local_solver(linearization, None, np.ones((3, 80)), hgp.PushSum(NET, 1).connect(), 8)
    values = np.linalg.eigvalsh(H)
    assert np.all(solver.low <= values[:, :1]) and np.all(solver.high >= values[:, -1:])


def own_problem(H):
    n, d = H.shape[:2]
    rng = np.random.default_rng(1)
    f_x, C = rng.normal(size=(n, d)), rng.normal(size=(n, 2, d))
    products = SimpleNamespace(
        hvp=lambda u: np.einsum("nij,nj->ni", H, u), cross=lambda u: np.einsum("nij,nj->ni", C, u)
    )
    return SimpleNamespace(n_clients=n, dim_x=d, dim_lam=2, outer_grad=lambda x, lam: (f_x + 0 * x, lam + 0.0),
                           linearize=lambda x, lam, batch=None: products)  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize("degree", [None, 8])
def test_a_client_without_curvature_takes_part(degree, scale):
    """H_0 = 0: its shift is all there is of P_0."""
    H = scale * np.stack([np.zeros((3, 3)), np.diag([1, 0.5, 0.2]), np.diag([1, 0.3, 0.9])])
    data = np.random.default_rng(1).normal(size=(4, 3, 3))
    problem = hgp.problems.Quadratic(H, data[0], data[1:3].swapaxes(0, 1), data[3])
    x, lam = np.zeros((3, 3)), np.zeros((3, 2))
    method = PreconditionedTracking(degree=degree)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), method, iterations=700)
    assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-9)
    fit = hgp.train(problem, lam, NET, hgp.training.NewtonTracking(700, degree=degree))
    assert_close(fit.x, exact.inner_solution(problem, lam), 1e-9)


def test_a_client_with_far_less_curvature_than_the_others_needs_a_shift():
    H = np.stack([1e-4 * np.diag([1, 0.5, 0.8]), np.diag([1, 0.5, 0.2]), np.diag([1, 0.3, 0.9])])
    data = np.random.default_rng(1).normal(size=(4, 3, 3))
    problem = hgp.problems.Quadratic(H, data[0], data[1:3].swapaxes(0, 1), data[3])
    x, lam, avg = np.zeros((3, 3)), np.zeros((3, 2)), hgp.PushSum(NET, 1)
    with pytest.raises(hgp.DivergenceError, match="take a larger shift"):
        hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(), iterations=400)
    with pytest.raises(hgp.DivergenceError, match="step size 0.45: take a larger shift"):
        hgp.train(problem, lam, NET, hgp.training.NewtonTracking(400))
    est = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(shift=0.3), iterations=400)
    assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-9)
    fit = hgp.train(problem, lam, NET, hgp.training.NewtonTracking(400, shift=0.3))
    assert_close(fit.x, exact.inner_solution(problem, lam), 1e-9)
    plan = hgp.plan(problem, x, lam, NET, target=1e-6, methods=["PreconditionedTracking"])
    assert isinstance(plan.method, PreconditionedTracking) and plan.run(against="x").met


@pytest.mark.parametrize("degree", [None, 8])
def test_refused_hessians_and_shifts_are_named(degree):
    H = np.stack([np.eye(4)] * 3)
    x, lam, avg = np.zeros((3, 4)), np.zeros((3, 2)), hgp.PushSum(NET, 1)

    def run(H, shift=None):
        return hgp.hypergradient(
            own_problem(H), x, lam, avg, PreconditionedTracking(shift, degree=degree), iterations=9
        )

    run(H)
    skew = H.copy()
    skew[1, 0, 3] += 1e-3
    with pytest.raises(ValueError, match="the Hessian of client 1 must be symmetric"):
        run(skew)
    negative = H.copy()
    negative[2] = np.diag([-0.5, 1, 1, 1])
    match = "for client 2, whose Hessian has the eigenvalue -0.5" if degree is None else "for client 2"
    for shift in (0.0, 0.3, 0.5):
        with pytest.raises(ValueError, match=match):
            run(negative, shift)
    run(negative, 0.8)
    nan = H.copy()
    nan[0, 0, 0] = np.nan
    with pytest.raises(ArithmeticError, match="finite"):
        run(nan)


def test_a_singular_mean_is_diagnosed():
    H = np.stack([np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.5, -0.1]), np.diag([1.0, 0.5, -0.1])])
    x, lam = np.zeros((3, 3)), np.zeros((3, 2))
    for M in (50, 400):
        with pytest.raises((hgp.DivergenceError, hgp.ConvergenceWarning), match="mean Hessian"):
            with warnings.catch_warnings():
                warnings.simplefilter("error", hgp.ConvergenceWarning)
                hgp.hypergradient(own_problem(H), x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(), iterations=M)


def test_a_run_that_is_resumed_takes_the_given_shift_and_step():
    problem, x, lam = quadratic()
    first = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(), iterations=4)
    options = {"iterations": 2, "resume": first}
    rest = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(0.7, 0.2), **options)
    assert np.all(rest.state.adaptation.shift == 0.7) and np.all(rest.state.adaptation.step == 0.2)
    assert not np.any(first.state.adaptation.shift == 0.7)


def test_a_shift_given_to_a_resumed_run_is_checked():
    problem, x, lam = indefinite()
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=6, seed=1), 1)
    with pytest.warns(hgp.ConvergenceWarning):
        first = hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(), iterations=4)
    with pytest.raises(ValueError, match="shift must be above"):
        hgp.hypergradient(problem, x, lam, avg, PreconditionedTracking(0.01), iterations=2, resume=first)


def test_a_given_step_that_is_too_large_is_reported():
    problem, x, lam = quadratic()
    with pytest.raises(hgp.DivergenceError, match=r"PreconditionedTracking\(.*: take a larger shift, a smaller step"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), PreconditionedTracking(0.0, 3.0), iterations=60)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift": -1.0}, "shift must be"),
        ({"step": 0.0}, "step must be"),
        ({"degree": 1}, "degree must be an integer >= 2"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        PreconditionedTracking(**settings)
