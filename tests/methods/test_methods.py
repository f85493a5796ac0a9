"""Methods against loops with explicit matrices; a user's method and a user's channel in a few lines."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import bounds, exact
from hgp_ref.methods import Chebyshev, Method, Neumann, Start
from hgp_ref.methods.series import NeumannState
from hgp_ref.methods.spectrum import extremes, start_rows
from hgp_ref.mixing import Channel, WeightRule, connect
from hgp_ref.mixing.channel import max_consensus

RTOL = 1e-12
NET = hgp.networks.RandomDirected(n=3, seed=1)


class Richardson(Method):
    """A method of one's own: Algorithm 2 with a step that falls, η / √m."""

    def __init__(self, eta):
        self.scale = eta

    def init(self, start):
        return 1, start.residual

    def step(self, state, mixer, derivatives):
        m, r = state
        r = mixer.average(r)
        p = self.scale / m**0.5 * r
        return p, (m + 1, mixer.carry(r) - derivatives.hvp(p))


class Slow(hgp.networks.RandomDirected):
    """A kind of network that gets a channel of its own."""


class OwnChannel(Channel):
    """One product with the mixing matrix a step."""

    def __init__(self, net):
        super().__init__(net.n)
        self.net = net

    def mix(self, z, steps, weight_rule=WeightRule.RESET):
        omega = self.weights if weight_rule == WeightRule.CARRY and self.weights is not None else np.ones((self.n, 1))
        for _ in range(steps):
            self.step += 1
            W = self.net.mixing_matrix(self.step)
            z, omega = W.astype(z.dtype) @ z, W @ omega
            self.count(np.count_nonzero(W) - self.n, z, weight_rule)
        self.weights = omega.astype(z.dtype)
        return z

    def max_consensus(self, values, like, max_rounds=None):
        top, rounds, messages = max_consensus(self.net, values, self.step + 1, max_rounds)
        self.step += rounds
        self.count(messages, like[..., :1], WeightRule.NONE, rounds)
        return top


connect.register(Slow, lambda net, mode="auto": OwnChannel(net))


def explicit(problem, x, lam, matrices, method, batches=None):
    """v after each iteration of `method`, its averages taken by explicit matrices and its products by Hessians."""
    f_x, f_lam = exact.outer_gradients(problem, x, lam)
    w, values = np.zeros_like(f_x), []

    class Averages:
        def __init__(self):
            self.calls = 0

        def average(self, u):
            self.calls += 1
            return matrices[self.calls - 1] @ u

        def carry(self, ubar):
            return ubar

    class At:
        def __init__(self, batch):
            self.H = exact.hessians(problem, x, lam, batch)

        def hvp(self, u):
            return np.einsum("nij,nj->ni", self.H, u)

    mixer, v = Averages(), f_lam
    state = method.init(Start(f_x, w, mixer, At(None), len(matrices)))
    for m in range(len(matrices)):
        for_v, for_w = (None, None) if batches is None else (batches[0][m], batches[1][m])
        p, state = method.step(state, mixer, At(for_w))
        w = w + p
        v = v - np.einsum("nij,nj->ni", exact.jacobians(problem, x, lam, for_v), p)
        values.append(v)
    return np.stack(values)


METHODS = {
    "Neumann": lambda: Neumann(0.5),
    "Chebyshev": lambda: Chebyshev(0.1, 1.2),
    "Chebyshev, a point": lambda: Chebyshev(1.0, 1.0),
    "own": lambda: Richardson(0.6),
}


@pytest.mark.parametrize("own_channel", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_feature_of_the_driver_for_every_method(method, own_channel):
    """History, callback, runs, mini-batches, traffic, tolerance, first guess: one driver serves them all."""
    problem, x, lam = logistic()
    net = (Slow if own_channel else hgp.networks.RandomDirected)(n=3, seed=1)
    make, avg, M = METHODS[method], hgp.PushSum(net, 3), 9
    expected = explicit(problem, x, lam, exact.push_sum_matrices(net, 3, M)[0], make())
    est = hgp.hypergradient(problem, x, lam, avg, method=make(), iterations=M, history=True)
    assert_close(est.history, expected, RTOL)
    assert_close(est.value, expected[-1], RTOL)
    sent = sum(net.edges(s)[0].size - 3 for s in range(1, 3 * M + 1))
    assert est.traffic == hgp.Traffic(sent, sent * 5, sent * 40, 3 * M) == avg.traffic

    seen = []
    stopped = hgp.hypergradient(
        problem, x, lam, avg, method=make(), iterations=M, callback=lambda m, v: seen.append(v) or m == 4
    )
    assert stopped.stopped == "callback" and stopped.iterations == 4 and stopped.traffic.rounds == 12
    assert_close(np.stack(seen), expected[:4], RTOL)

    options = {"method": make(), "iterations": M}
    mini = hgp.hypergradient(problem, x, lam, avg, batches=hgp.MiniBatches(5, seed=7), **options)
    draws = [hgp.problems.sample_batches(problem.counts, 5, 7, 0, M, stream=s) for s in (0, 1)]
    matrices = exact.push_sum_matrices(net, 3, M)[0]
    assert_close(mini.value, explicit(problem, x, lam, matrices, make(), draws)[-1], RTOL)
    shared = hgp.hypergradient(problem, x, lam, avg, batches=hgp.MiniBatches(5, seed=7, share=True), **options)
    assert_close(shared.value, explicit(problem, x, lam, matrices, make(), [draws[0]] * 2)[-1], RTOL)

    runs = hgp.hypergradient(problem, x, lam, [avg, hgp.ExactAverage(3)], method=make(), iterations=M)
    assert_close(runs.value[0], est.value, RTOL)
    assert runs.traffic.of_run(0) == est.traffic and runs.residual_ratio.shape == (2,)

    loose = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 30), method=make(), iterations=500, tol=1e-3)
    assert loose.stopped == "tolerance" and loose.iterations < 500 and loose.residual_ratio <= 1e-3

    far = hgp.PushSum(net, 60)
    start = hgp.hypergradient(problem, x, lam, far, method=make(), iterations=6)
    again = hgp.hypergradient(problem, x, lam, far, method=make(), iterations=500, w0=start.w, tol=1e-3)
    truth = exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(again.value - truth) < 0.05 * np.linalg.norm(start.value - truth)
    f_lam, J = exact.outer_gradients(problem, x, lam)[1], exact.jacobians(problem, x, lam)
    assert_close(again.value, f_lam - np.einsum("nij,nj->ni", J, again.w), RTOL)
    assert again.traffic.rounds == 60 * (again.iterations + 1), "averaging the first guess is one more call"


def test_mini_batches_start_from_a_first_guess_with_its_full_batch_jacobian():
    problem, x, lam = logistic()
    w0 = np.random.default_rng(0).normal(size=(1, 4)).repeat(3, axis=0)
    est = hgp.hypergradient(
        problem, x, lam, hgp.ExactAverage(3), iterations=2, w0=w0, eta=0.5, batches=hgp.MiniBatches(4, seed=3)
    )
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    f_x, f_lam = exact.outer_gradients(problem, x, lam)
    u, v = f_x - np.einsum("nij,nj->ni", H, w0), f_lam - np.einsum("nij,nj->ni", J, w0)
    draws = [hgp.problems.sample_batches(problem.counts, 4, 3, 0, 2, stream=s) for s in (0, 1)]
    for m in range(2):
        p = np.tile(0.5 * u.mean(axis=0), (3, 1))
        v = v - np.einsum("nij,nj->ni", exact.jacobians(problem, x, lam, draws[0][m]), p)
        u = p / 0.5 - np.einsum("nij,nj->ni", exact.hessians(problem, x, lam, draws[1][m]), p)
    assert_close(est.value, v, RTOL)


@pytest.mark.parametrize("condition", [4.0, 100.0])
def test_chebyshev_meets_its_bound_with_exact_averaging(condition):
    problem = hgp.problems.Quadratic.random(4, 8, 3, seed=2, condition=condition)
    x, lam = np.ones((4, 8)), np.zeros((4, 3))
    H = exact.hessians(problem, x, lam)
    eigenvalues = np.linalg.eigvalsh(H.mean(axis=0))
    truth = exact.hypergradient(problem, x, lam)
    w_star = np.linalg.solve(H.mean(axis=0), exact.outer_gradients(problem, x, lam)[0].mean(axis=0))
    beta = np.sqrt((np.linalg.norm(exact.jacobians(problem, x, lam), 2, axis=(1, 2)) ** 2).sum())
    kappa = eigenvalues[-1] / eigenvalues[0]
    q = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    for M in (1, 3, 10, 25):
        method = Chebyshev(eigenvalues[0], eigenvalues[-1])
        est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(4), method=method, iterations=M)
        limit = beta * 2 * q**M / (1 + q ** (2 * M)) * np.linalg.norm(w_star)
        assert np.linalg.norm(est.value - truth) <= limit * (1 + 1e-9) + 1e-12
    assert bounds.chebyshev is not None


def test_chebyshev_finds_its_interval_over_the_network_and_counts_it():
    problem = hgp.problems.Quadratic.random(5, 40, 2, seed=3, condition=50.0)
    x, lam = np.ones((5, 40)), np.zeros((5, 2))
    net = hgp.networks.RandomDirected(n=5, seed=2)
    avg, M = hgp.PushSum(net, 20), 60
    est = hgp.hypergradient(problem, x, lam, avg, method=Chebyshev(), iterations=M)
    truth = exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(est.value - truth) < 1e-3 * np.linalg.norm(truth)
    neumann = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M)
    assert np.linalg.norm(neumann.value - truth) > 20 * np.linalg.norm(est.value - truth)
    flooded = est.traffic.rounds - 20 * M
    assert 1 <= flooded <= 10
    extra = sum(net.edges(s)[0].size - 5 for s in range(1, flooded + 1))  # flooding comes before the first call
    sent = sum(net.edges(s)[0].size - 5 for s in range(flooded + 1, flooded + 20 * M + 1))
    assert est.traffic.floats == 2 * extra + 41 * sent
    certificate = hgp.certify(problem, x, lam, est, avg, first_call=1000)
    assert np.all(np.linalg.norm(est.value - truth, axis=1) <= certificate.bound)


def test_chebyshev_needs_low_where_a_client_is_not_convex():
    A = np.stack([np.diag([-0.2, 1.0]), np.diag([1.0, 1.0])])
    problem = hgp.problems.Quadratic(A, np.ones((2, 2)), np.ones((2, 1, 2)), np.zeros((2, 2)))
    x, lam, avg = np.ones((2, 2)), np.zeros((2, 1)), hgp.ExactAverage(2)
    with pytest.raises(ValueError, match="low must be given.* eigenvalues from -0.2.*Damped"):
        hgp.hypergradient(problem, x, lam, avg, method=Chebyshev(), iterations=5)
    est = hgp.hypergradient(problem, x, lam, avg, method=Chebyshev(low=0.4), iterations=60)
    assert_close(est.value, exact.hypergradient(problem, x, lam), RTOL)


@pytest.mark.parametrize("d", [1, 2, 5, 60])
def test_extremes_lie_inside_the_spectrum_and_near_its_ends(d):
    rng = np.random.default_rng(d)
    B = rng.normal(size=(4, d, d))
    A = B + B.swapaxes(1, 2)
    low, high = extremes(lambda u: np.einsum("nij,nj->ni", A, u), start_rows(np.empty((4, d))))
    eigenvalues = np.linalg.eigvalsh(A)
    width = eigenvalues[:, -1] - eigenvalues[:, 0] + 1e-12
    for got, end, sign in ((low, eigenvalues[:, 0], 1), (high, eigenvalues[:, -1], -1)):
        assert np.all(sign * (got - end) >= -1e-10) and np.all(sign * (got - end) <= 0.01 * width + 1e-10)


def test_both_products_of_a_vector_are_one_call():
    problem, x, lam = quadratic()
    asked = []

    class Counting:
        n_clients, dim_x, dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        inner_cost, inner_grad = problem.inner_cost, problem.inner_grad
        outer_cost, outer_grad = problem.outer_cost, problem.outer_grad

        def linearize(self, x, lam, batch=None):
            own = problem.linearize(x, lam)

            class At:
                def hvp(self, u):
                    asked.append("hvp")
                    return own.hvp(u)

                def cross(self, u):
                    asked.append("cross")
                    return own.cross(u)

                def products(self, u):
                    asked.append("products")
                    return own.hvp(u), own.cross(u)

            return At()

    with_callback = hgp.hypergradient(
        Counting(), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=7, callback=lambda m, v: None
    )
    assert asked == ["products"] * 8  # the first for the fingerprint
    asked.clear()
    deferred = hgp.hypergradient(Counting(), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=7)
    assert asked == ["products"] + ["hvp"] * 7 + ["cross"]
    assert_close(with_callback.value, deferred.value, RTOL)


def test_a_later_run_goes_on_with_later_graphs_and_batches():
    """after(t) and offset: two halves of a run are the run, graph for graph and batch for batch."""
    problem, x, lam = logistic()
    options = {"batches": hgp.MiniBatches(4, seed=5, offset=3), "eta": 0.5, "iterations": 3}
    draws = [hgp.problems.sample_batches(problem.counts, 4, 5, 3, 3, stream=s) for s in (0, 1)]
    later = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET.after(6), 2), **options)
    matrices = [exact.push_sum_matrix(NET, 2, call) for call in (3, 4, 5)]
    assert_close(later.value, explicit(problem, x, lam, matrices, Neumann(0.5), draws)[-1], RTOL)
    options = {"steps": 8, "lr": 0.3, "milestones": (), "batches": hgp.MiniBatches(4, seed=2)}
    whole = hgp.sgp(problem, lam, NET, **options)
    first = hgp.sgp(problem, lam, NET, callback=lambda s, z: s == 5, **options)
    assert first.stopped == "callback" and first.steps == 5 and whole.stopped == "steps"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "chebyshev"}, TypeError, "method must be a method"),
        ({"method": Neumann(1.0), "eta": 0.5}, ValueError, "eta=0.5 and method=.* cannot both be given"),
        ({"tol": 0.0}, ValueError, "tol must be .*, got 0.0"),
        ({"tol": float("nan")}, ValueError, "tol must be .*, got nan"),
        ({"w0": np.ones((3, 5))}, ValueError, r"w0 must have shape \(3, 4\) = \(..., n, d_x\), got \(3, 5\)"),
        ({"w0": np.full((3, 4), np.inf)}, ValueError, "w0 must not contain NaN"),
        ({"batches": 1.5}, TypeError, "batches must be None, a size or hgp.MiniBatches.*got 1.5"),
    ],
)
def test_bad_arguments_are_named(options, error, message):
    problem, x, lam = logistic()
    with pytest.raises(error, match=message):
        hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), **{"iterations": 3, **options})
    for low, high in ((2.0, 1.0), (-1.0, 1.0), (0.0, None)):
        with pytest.raises(ValueError, match="low must be a finite number > 0, got|low must be at most high, got low="):
            Chebyshev(low, high)


class Twice(Neumann):
    """Algorithm 2 with two averages an iteration."""

    def step(self, state, mixer, derivatives):
        return super().step(NeumannState(mixer.average(state.residual)), mixer, derivatives)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("many", [False, True])
def test_a_method_may_average_more_often_than_once_an_iteration(mode, many):
    problem, x, lam = quadratic()
    net = hgp.networks.OnePeerExponential(n=3)

    def run(method, steps):
        avg = hgp.Gossip(net, steps, mode=mode)
        return hgp.hypergradient(problem, x, lam, [avg, avg] if many else avg, method=method, iterations=7)

    twice, once = run(Twice(0.5), 2), run(Neumann(0.5), 4)  # without weights, 2 + 2 steps are 4
    assert_close(twice.value, once.value, rtol=RTOL)
    assert twice.traffic == once.traffic


class Flooding(Neumann):
    """Algorithm 2 with a max-consensus between the average and the next residual."""

    def step(self, state, mixer, derivatives):
        r = mixer.average(state.residual)
        weights = mixer.channel.weights
        mixer.channel.max_consensus(np.arange(3.0)[:, None], r)
        np.testing.assert_array_equal(mixer.channel.weights, weights)
        p = self.eta * r
        return p, NeumannState(mixer.carry(r) - derivatives.hvp(p))


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("many", [False, True])
def test_flooding_leaves_the_weights_as_they_are(mode, many):
    problem, x, lam = quadratic()
    avg = hgp.PushSum(NET, 5, debias="conserve", mode=mode)
    est = hgp.hypergradient(problem, x, lam, [avg, avg] if many else avg, method=Flooding(0.5), iterations=100)
    assert_close(est.value, np.broadcast_to(exact.hypergradient(problem, x, lam), est.value.shape), rtol=0.05)


def test_chebyshev_finds_its_interval_on_full_batches_for_any_number_of_seeds():
    problem, x, lam = logistic(n=3)
    avg = hgp.PushSum(NET, 3)
    spectrum = np.linalg.eigvalsh(exact.hessians(problem, x, lam))
    given = Chebyshev(spectrum.min(), 1.05 * spectrum.max())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # five terms of mini-batches of two
        found = hgp.hypergradient(
            problem, x, lam, avg, Chebyshev(), iterations=5, batches=hgp.MiniBatches(2, seed=[3, 4])
        )
        flooded = int(found.traffic.rounds[0]) - 15
        later = hgp.PushSum(NET.after(flooded), 3)
        for r, seed in enumerate((3, 4)):
            batches = hgp.MiniBatches(2, seed=seed)
            expected = hgp.hypergradient(problem, x, lam, later, given, iterations=5, batches=batches)
            assert_close(found.value[r], expected.value, 1e-10)


class Wrong(Method):
    """A method whose step returns a given value."""

    def __init__(self, make):
        self.make = make

    def init(self, start):
        return start.residual

    def step(self, state, mixer, derivatives):
        return self.make(mixer.average(state), state)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p, s: (p[:1], s), ValueError, r"method.step must return shape \(3, 4\), got \(1, 4\)"),
        (lambda p, s: (p[0], s), ValueError, r"method.step must return shape \(3, 4\), got \(4,\)"),
        (lambda p, s: (p.astype("float32"), s), TypeError, "method.step must return float64 like x, got float32"),
        (lambda p, s: (1.0, s), TypeError, "method.step must return an array of shape .*, got float"),
        (lambda p, s: p, TypeError, "method.step must return a tuple of the increment and the state, got ndarray"),
    ],
)
def test_increments_of_a_wrong_form_are_refused(make, error, message):
    problem, x, lam = quadratic()
    with pytest.raises(error, match=message):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), method=Wrong(make), iterations=3)
