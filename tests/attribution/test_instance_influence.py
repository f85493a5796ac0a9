"""Influence on single losses: against dense solutions, differences of retrained losses, and runs with one loss each."""

from __future__ import annotations

import time

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.attribution import influence, lds, random_removals, retrain, scores, spearman
from hgp_ref.problems.transforms import Transformed

SIZES, VALIDATION = (5, 9, 7), (4, 3, 6)
LOSSES = {"binary": {}, "softmax": {"loss": "softmax", "n_classes": 3}}
NET = hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1)
PAIRS = [(i, k) for i, size in enumerate(VALIDATION) for k in range(size)]
TRAINING = [(i, k) for i, size in enumerate(SIZES) for k in range(size)]


def weighted(loss: str = "binary", d: int = 3, sizes=SIZES, validation=VALIDATION, seed: int = 0):
    """A problem with clients of unequal size, weights and the exact inner solution."""
    rng, classes = np.random.default_rng(seed), 3 if loss == "softmax" else 2
    X, X_val = ([rng.standard_normal((k, d)) for k in part] for part in (sizes, validation))
    y, y_val = ([rng.integers(0, classes, k) for k in part] for part in (sizes, validation))
    problem = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.3, **LOSSES[loss])
    lam = 0.7 + 0.3 * rng.random((problem.n_clients, problem.dim_lam))
    return problem, lam, hgp.exact.inner_solution(problem, lam), (X, y, X_val, y_val)


def converged(problem, x, lam, **options):
    return influence(problem, x, lam, hgp.ExactAverage(problem.n_clients), eta=0.5, iterations=300, **options)


def own_loss(x, features, label):
    """Cross-entropy of one instance, written out; x is (d, C) row by row, with a class 0 of logit 0 if C is 1."""
    a = features @ x.reshape(len(features), -1)
    a = np.concatenate([[0.0], a]) if a.size == 1 else a
    return np.log(np.sum(np.exp(a))) - a[label]


def slopes(function, x, t=1e-6):
    return np.array([(function(x + t * e) - function(x - t * e)) / (2 * t) for e in np.eye(x.size)])


def dense_predictions(problem, lam, x, gradient):
    """−λ_ik d/dλ_ik of a loss with this gradient at one client, by a dense solve."""
    H = np.sum(problem.hessian(x, lam), axis=0)
    return lam * (problem.jacobian(x, lam) @ np.linalg.solve(H, gradient))


@pytest.mark.parametrize("loss", LOSSES)
def test_predictions_for_validation_instances_are_those_of_a_dense_solve(loss):
    problem, lam, x, (_, _, X_val, y_val) = weighted(loss)
    found = converged(problem, x, lam, on="instances")
    assert found.per_instance.shape == (len(PAIRS), 3, max(SIZES)) and found.groups == tuple((p,) for p in PAIRS)
    for r, (i, k) in enumerate(PAIRS):
        gradient = slopes(lambda z, i=i, k=k: own_loss(z, X_val[i][k], y_val[i][k]), x[i])
        expected = dense_predictions(problem, lam, x, gradient)
        valid = np.arange(max(SIZES)) < np.array(SIZES)[:, None]
        assert np.max(np.abs(found.per_instance[r] - np.where(valid, expected, 0))) <= 1e-8 * np.max(np.abs(expected))


def test_groups_are_means_and_those_of_all_clients_add_up_to_the_total():
    problem, lam, x, _ = weighted()
    each, total = converged(problem, x, lam, on="instances"), converged(problem, x, lam)
    clients = [tuple(pair for pair in PAIRS if pair[0] == i) for i in range(3)]
    mixed = [((0, 1), (2, 3), (2, 0)), (1, 2), *clients]
    found = converged(problem, x, lam, on=mixed)
    for r, group in enumerate(found.groups):
        mean = np.mean([each.per_instance[PAIRS.index(pair)] for pair in group], axis=0)
        assert np.allclose(found.per_instance[r], mean, rtol=1e-12, atol=1e-15)
    assert np.allclose(np.sum(found.per_instance[2:], axis=0), total.per_instance, rtol=1e-12, atol=1e-15)
    removals = [(0, 1), ((1, 2), (2, 3))]
    assert np.allclose(np.sum(found.predict(removals)[2:], axis=0), total.predict(removals), rtol=1e-12)
    assert found.per_client.shape == (5, 3) and found.predicted.shape == (5, sum(SIZES))
    assert found.of(1).most_harmful(2) == converged(problem, x, lam, on=[(1, 2)]).of(0).most_harmful(2)


@pytest.mark.parametrize("loss", LOSSES)
def test_self_influence_is_the_slope_of_the_own_loss_after_retraining(loss):
    """Without the share t of its weight the loss of an instance changes by t · prediction + O(t²)."""
    problem, lam, x, (X, y, _, _) = weighted(loss)
    found = converged(problem, x, lam, on="self")
    assert found.per_instance.shape == (3, max(SIZES)) and np.all(found.predicted > 0)  # λ J H⁻¹ Jᵀ
    t = 1e-4
    for i, k in TRAINING[::4]:
        changed = []
        for sign in (1, -1):
            weights = lam.copy()
            weights[i, k] *= 1 - sign * t
            changed.append(own_loss(hgp.exact.inner_solution(problem, weights, x0=x[0])[0], X[i][k], y[i][k]))
        slope = (changed[0] - changed[1]) / (2 * t)
        assert found.per_instance[i, k] == pytest.approx(slope, rel=1e-5)


# ---- The same as runs with one loss each


class OneCost(Transformed):
    """The problem with the outer cost of one group, by the member of the problem that tests compare elsewhere."""

    trusted = True
    term_sizes = None

    def __init__(self, inner, pair):
        super().__init__(inner)
        self.pair = pair

    def outer_grad(self, x, lam):
        batch = np.full((self.n_clients, 1), -1)
        batch[self.pair[0]] = self.pair[1]
        return self._inner.wrapped.validation_grad(x, lam, batch), np.zeros_like(lam)

    def _term_sizes(self, x, lam):
        raise NotImplementedError


AVERAGINGS = {
    "PushSum": lambda n: hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), steps=6),
    "stepping": lambda n: hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), steps=6, mode="stepping"),
    "conserve": lambda n: hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), steps=6, debias="conserve"),
    "ExactAverage": hgp.ExactAverage,
    "lossy": lambda n: hgp.RobustPushSum(
        hgp.networks.Unreliable(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), loss=0.2, delay=2, seed=3), steps=9
    ),
}
METHODS = {
    "Neumann": hgp.methods.Neumann(0.4),
    "found": None,
    "Chebyshev": hgp.methods.Chebyshev(),
    "Tracking": hgp.methods.Tracking(),
    "Refined": hgp.methods.Refined(hgp.methods.Chebyshev(), cycles=2, steps=12),
}


def assert_as_one_by_one(problem, lam, x, avg, pairs, **options):
    """Values bit for bit, and traffic: as many messages and rounds, R d numbers and the weight in each."""
    together = hgp.influence(problem, x, lam, avg(), on=pairs, **options)
    traffic, R, d = together.estimate.traffic, len(pairs), problem.dim_x
    for r, pair in enumerate(pairs):
        alone = hgp.hypergradient(OneCost(problem, pair), x, lam, avg(), **options)
        assert np.array_equal(together.estimate.value[r], alone.value)
        assert np.array_equal(together.estimate.w[r], alone.w)
        assert np.array_equal(together.estimate.residual_norms[:, r], alone.residual_norms)
    assert (traffic.messages, traffic.rounds) == (alone.traffic.messages, alone.traffic.rounds)
    return together, alone, R, d


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("kind", AVERAGINGS)
@pytest.mark.parametrize("name", METHODS)
def test_many_losses_are_as_many_single_runs_bit_for_bit(name, kind):
    problem, lam, x, _ = weighted("softmax")
    if (name, kind) == ("Tracking", "conserve"):
        pytest.skip("Tracking conserves by itself")
    avg = lambda: AVERAGINGS[kind](3)  # noqa: E731
    assert_as_one_by_one(problem, lam, x, avg, PAIRS[::3], method=METHODS[name], iterations=12)


@pytest.mark.parametrize("batches", [hgp.MiniBatches(2, seed=3), hgp.MiniBatches(2, seed=3, share=True),
                                     hgp.MiniBatches(3, full_jacobian=True)])  # fmt: skip
def test_with_mini_batches(batches):
    problem, lam, x, _ = weighted()
    options = {"eta": 0.3, "iterations": 10, "batches": batches}
    assert_as_one_by_one(problem, lam, x, lambda: hgp.PushSum(NET, 5), PAIRS[:4], **options)


@pytest.mark.parametrize(
    ("d", "sizes"),
    [(3, (40, 41, 42)), (6, (4, 9, 5)), (20, (4, 5, 6)), (60, (300, 80, 20)), (700, (20, 30, 25))],
    ids=["by Hessian", "some by Hessian", "matrix-free", "all three ways", "one pass"],
)
def test_in_every_way_of_computing_a_product(d, sizes):
    problem, lam, x, _ = weighted(d=d, sizes=sizes)
    options = {"eta": 0.02, "iterations": 8}
    assert_as_one_by_one(problem, lam, x, lambda: hgp.PushSum(NET, 5), PAIRS[:5], **options)


@pytest.mark.parametrize("d", [2, 9])
def test_whether_graphs_are_composed_does_not_depend_on_the_number_of_losses(d):
    n = 40
    problem, lam, x, _ = weighted(d=d, sizes=(3,) * n, validation=(2,) * n)
    net = hgp.networks.RandomOut(n, k=3, seed=0)
    pairs = [(i, 1) for i in range(0, n, 2)]
    assert_as_one_by_one(problem, lam, x, lambda: hgp.PushSum(net, 8), pairs, eta=0.3, iterations=6)


@pytest.mark.parametrize("kind", AVERAGINGS)
def test_one_message_carries_all_vectors_and_one_weight(kind):
    problem, lam, x, _ = weighted()
    avg = lambda: AVERAGINGS[kind](3)  # noqa: E731
    together, alone, R, d = assert_as_one_by_one(problem, lam, x, avg, PAIRS, eta=0.3, iterations=7)
    traffic, weight = together.estimate.traffic, 0 if kind == "ExactAverage" else 1
    assert traffic.floats == traffic.messages * (R * d + weight) and traffic.bytes == 8 * traffic.floats
    assert alone.traffic.floats == traffic.messages * (d + weight)


def test_exact_means_and_trees():
    problem, lam, x, _ = weighted()
    options = {"method": hgp.methods.ConjugateGradient(), "iterations": 3}
    assert_as_one_by_one(problem, lam, x, lambda: hgp.ExactAverage(3), PAIRS[:4], **options)
    tree = lambda: hgp.mixing.TreeAverage(NET)  # noqa: E731
    together, alone, R, d = assert_as_one_by_one(problem, lam, x, tree, PAIRS[:4], eta=0.3, iterations=3)
    sent = 3 * 2 * (problem.n_clients - 1)  # in each iteration one vector up and one down each edge of the tree
    assert together.estimate.traffic.floats - alone.traffic.floats == sent * (R - 1) * d


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("method", [hgp.methods.ConjugateGradient(), hgp.methods.DirectSolve()], ids=repr)
@pytest.mark.parametrize("loss", LOSSES)
def test_methods_for_trees_send_the_vectors_of_all_losses_in_one_message(loss, method, iterations):
    """The Hessians of a direct solve travel once, with the vectors of all losses."""
    problem, lam, x, _ = weighted(loss)
    tree = lambda: hgp.mixing.TreeAverage(NET)  # noqa: E731
    options = {"method": method, "iterations": iterations}
    together, alone, R, d = assert_as_one_by_one(problem, lam, x, tree, PAIRS[:4], **options)
    numbers = 2 * d + 1 if isinstance(method, hgp.methods.ConjugateGradient) else 2 * d  # up and down, in an iteration
    start = 2 * d if isinstance(method, hgp.methods.ConjugateGradient) else 0
    more = together.estimate.traffic.floats - alone.traffic.floats
    assert more == (problem.n_clients - 1) * (R - 1) * (start + iterations * numbers)
    own = influence(problem, x, lam, tree(), method, on="self", iterations=problem.dim_x + 2)
    dense = converged(problem, x, lam, on="self")
    assert np.allclose(own.per_instance, dense.per_instance, rtol=1e-6, atol=1e-12)


def test_preconditioned_tracking_agrees_up_to_rounding():
    problem, lam, x, _ = weighted("softmax")
    options = {"method": hgp.methods.PreconditionedTracking(), "iterations": 12}
    found = influence(problem, x, lam, hgp.PushSum(NET, 4), on=PAIRS[::4], **options)
    for r, pair in enumerate(PAIRS[::4]):
        alone = hgp.hypergradient(OneCost(problem, pair), x, lam, hgp.PushSum(NET, 4), **options)
        assert np.allclose(found.estimate.value[r], alone.value, rtol=1e-10, atol=1e-14)


def test_a_step_size_that_clients_find_costs_the_traffic_of_one_loss():
    """The measurements before the first step do not depend on the right-hand sides."""
    problem, lam, x, _ = weighted()
    options = {"method": hgp.methods.Tracking(), "iterations": 1}
    together, alone, R, d = assert_as_one_by_one(problem, lam, x, lambda: hgp.PushSum(NET, 4), PAIRS, **options)
    of_a_step = together.estimate.traffic.floats - alone.traffic.floats
    assert of_a_step % (2 * (R - 1) * d) == 0 and of_a_step // (2 * (R - 1) * d) < alone.traffic.messages


def test_resumed_is_uninterrupted_and_other_losses_are_refused():
    problem, lam, x, _ = weighted()
    avg, options = hgp.ExactAverage(3), {"eta": 0.3, "on": PAIRS[:3]}
    half = influence(problem, x, lam, avg, iterations=6, **options)
    whole = influence(problem, x, lam, avg, iterations=12, **options)
    resumed = influence(problem, x, lam, avg, iterations=6, resume=half.estimate, **options)
    assert np.array_equal(resumed.per_instance, whole.per_instance)
    with pytest.raises(ValueError, match="^resume must be an estimate at the same problem"):
        influence(problem, x, lam, avg, eta=0.3, iterations=6, resume=half.estimate, on=[*PAIRS[:2], PAIRS[4]])


def test_a_tolerance_is_met_by_all_losses_and_a_callback_stops():
    problem, lam, x, _ = weighted()
    found = influence(problem, x, lam, hgp.ExactAverage(3), eta=0.5, on="instances", tol=1e-6)
    assert found.estimate.stopped == "tolerance" and np.all(found.estimate.residual_ratio <= 1e-6)
    seen = []
    influence(
        problem,
        x,
        lam,
        hgp.ExactAverage(3),
        eta=0.5,
        on=PAIRS[:2],
        callback=lambda m, v: seen.append(v.shape) or m == 3,
    )
    assert seen == [(2, 3, max(SIZES))] * 3


def test_divergence_names_the_outer_cost():
    problem, lam, x, _ = weighted()
    with pytest.raises(hgp.DivergenceError, match="for outer cost 0 the largest term"):
        influence(problem, x, lam, hgp.ExactAverage(3), eta=30.0, on=PAIRS[:2], iterations=50)


def neural():
    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((3,), hgp.neural.Linear(3, 4), hgp.neural.Tanh(), hgp.neural.Linear(4, 3))
    data = [rng.standard_normal((k, 3)) for k in (*SIZES, *VALIDATION)]
    labels = [rng.integers(0, 3, k) for k in (*SIZES, *VALIDATION)]
    problem = hgp.problems.NeuralInstanceWeights(model, data[:3], labels[:3], data[3:], labels[3:], l2=0.5)
    return problem, np.ones((3, problem.dim_lam)), np.repeat(model.init(1, seed=2), 3, axis=0), model, data, labels


def test_a_network_bit_for_bit_and_its_gradients_by_differences():
    problem, lam, x, model, data, labels = neural()
    assert_as_one_by_one(problem, lam, x, lambda: hgp.PushSum(NET, 5), PAIRS[::4], eta=0.3, iterations=5)
    i, k = 2, 4
    batch = np.array([[-1], [-1], [k]])

    def loss(z):
        a = model.logits(z[None], data[3 + i][k][None, None])[0, 0]
        return np.log(np.sum(np.exp(a))) - a[labels[3 + i][k]]

    found = problem.validation_grad(x, lam, batch)
    assert np.allclose(found[i], slopes(loss, x[i]), atol=1e-8) and not found[:2].any()


def test_a_module_of_torch_has_the_gradients_of_single_losses():
    torch = pytest.importorskip("torch")
    *_, data, labels = neural()
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()
    cross_entropy = torch.nn.functional.cross_entropy

    def loss(outputs, y, lam):
        return lam[y[:, 1]] * cross_entropy(outputs, y[:, 0], reduction="none")

    numbered = [np.stack([y, np.arange(len(y))], axis=1) for y in labels]
    problem = hgp.problems.from_torch(
        module, loss, data[:3], numbered[:3], data[3:], numbered[3:], dim_lam=max(SIZES),
        outer_loss=lambda outputs, y, lam: cross_entropy(outputs, y[:, 0], reduction="none"),
        penalty=lambda x, lam: 0.25 * (x**2).sum(), outer_penalty=lambda x, lam: (x**2).sum())  # fmt: skip
    x, lam = problem.parameters().clone(), torch.ones(3, max(SIZES)).double()
    options = {"eta": 0.3, "iterations": 4}
    found = {on: influence(problem, x, lam, hgp.ExactAverage(3), on=on, **options) for on in ("instances", "self")}

    def gradient(inputs, label):
        module.zero_grad()
        cross_entropy(module(torch.tensor(inputs)[None]), torch.tensor([int(label)])).backward()
        return torch.cat([p.grad.ravel() for p in module.parameters()]).numpy()

    linearization = problem.linearize(x, lam)
    for on, pairs, first in (("instances", PAIRS, 3), ("self", TRAINING, 0)):
        for r, (i, k) in list(enumerate(pairs))[::5]:
            u, w = torch.zeros_like(x), torch.zeros_like(x)
            u[i] = torch.tensor(gradient(data[first + i][k], labels[first + i][k]))
            for _ in range(4):  # Algorithm 2 with exact averages
                mean = u.mean(dim=0, keepdim=True).repeat(3, 1)
                w, u = w + 0.3 * mean, mean - linearization.hvp(0.3 * mean)
            expected = linearization.cross(w).numpy()
            at = (r,) if on == "instances" else (i, k)
            expected = expected if on == "instances" else expected[i, k]
            assert np.allclose(found[on].per_instance[at], expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("on", "error", "message"),
    [
        ("each", ValueError, "^on must be 'total', 'instances', 'self' or a list of groups of pairs, got 'each'"),
        ([], ValueError, "^on must have at least one group, got none"),
        ([()], ValueError, r"^on\[0\] must have at least one pair"),
        ([(0, 4)], ValueError, r"^on\[0\]: instance of client 0 must be an integer from 0 to 3, got 4"),
        ([((0, 1), (0, 1))], ValueError, r"^on\[0\] must not contain an instance twice"),
        (3, TypeError, r"^on must be a list, got 3"),
    ],
)
def test_wrong_targets_are_refused(on, error, message):
    problem, lam, x, _ = weighted()
    with pytest.raises(error, match=message):
        converged(problem, x, lam, on=on)


class Wrapped:
    """A problem of a user: the members of a built-in one, in a class without a parent."""

    def __init__(self, problem, **replaced):
        self.n_clients, self.dim_x, self.dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        names = "counts inner_cost inner_grad outer_cost outer_grad linearize validation_counts validation_grad"
        vars(self).update({name: getattr(problem, name) for name in names.split()} | replaced)


@pytest.mark.parametrize(
    ("replaced", "error", "message"),
    [
        ({"validation_grad": None}, ValueError, "^on must be 'total' or 'self' for Wrapped, which has no"),
        ({"validation_grad": lambda x, lam, batch: x[:, :1]}, ValueError, r"must return shape \(3, 3\), got \(3, 1\)"),
        ({"validation_grad": lambda x, lam, batch: None}, TypeError, "must return an array of shape"),
        ({"validation_grad": lambda x, lam, batch: x.astype("f4")}, TypeError, "must return float64 like x"),
        ({"validation_grad": lambda x, lam, batch: x.__imul__(2)}, ValueError, "must not modify its arguments"),
        ({"validation_counts": [4, 3]}, TypeError, r"^problem.validation_counts must be \(3,\) integers"),
        ({"validation_counts": [4, 0, 6]}, ValueError, "^problem.validation_counts must be >= 1, got 0 for client 1"),
    ],
)
def test_validation_members_of_a_user_are_checked(replaced, error, message):
    problem, lam, x, _ = weighted()
    for damped in (False, True):
        own = Wrapped(problem, **replaced)
        with pytest.raises(error, match=message.replace("Wrapped", "Damped" if damped else "Wrapped")):
            converged(hgp.problems.Damped(own, 0.1) if damped else own, x, lam, on="instances")
    expected = converged(problem, x, lam, on="instances").predicted
    assert np.array_equal(
        converged(Wrapped(problem, validation_counts=[4, 3, 6]), x, lam, on="instances").predicted, expected
    )


def test_an_averaging_of_other_clients_is_named():
    problem, lam, x, _ = weighted()
    for on in ("total", "instances"):
        with pytest.raises(ValueError, match="^avg must average the problem's 3 clients, got .* for 4$"):
            influence(problem, x, lam, hgp.PushSum(hgp.networks.Ring(4), 2), eta=0.5, iterations=2, on=on)


def test_self_influence_of_costs_that_ignore_batches_is_refused():
    problem, lam, x, _ = weighted()
    own = Wrapped(problem)
    assert np.array_equal(converged(own, x, lam, on="self").predicted, converged(problem, x, lam, on="self").predicted)
    for penalty in (0.0, 1e6):
        own.inner_grad = lambda x, lam, batch=None, mu=penalty: problem.inner_grad(x, lam, batch) + mu * x
        converged(own, x, lam, on="self")
        own.inner_grad = lambda x, lam, batch=None, mu=penalty: problem.inner_grad(x, lam) + mu * x
        with pytest.raises(ValueError, match="does the inner cost use batch"):
            converged(own, x, lam, on="self")
    converged(own, x, lam, on="total")  # needs no mini-batches


def test_what_needs_one_cost_says_so():
    problem, lam, x, _ = weighted()
    each, own = converged(problem, x, lam, on="instances"), converged(problem, x, lam, on="self")
    with pytest.raises(ValueError, match="^needs predictions for one cost, got 13 groups of validation instances"):
        each.most_harmful(1)
    with pytest.raises(ValueError, match="^predict needs an influence on one cost, got on='self'"):
        own.predict([(0, 0)])
    with pytest.raises(ValueError, match="^of.group. needs an influence on groups"):
        own.of(0)
    assert "losses of 13 validation instances" in str(each) and "its own training loss" in str(own)


def test_results_are_saved_and_read(tmp_path):
    problem, lam, x, _ = weighted()
    found = converged(problem, x, lam, on=PAIRS[:2])
    assert hgp.load(found.save(tmp_path / "influence.npz")) == found


@pytest.mark.slow
def test_a_hundred_losses_take_at_most_eight_times_as_long_as_one():
    """CPU time, the shortest of a few runs; measured 5 to 6."""
    clients = hgp.data.breast_cancer(n_clients=8)
    problem = hgp.problems.InstanceWeights(*clients.train, *clients.validation, l2=0.01)
    lam = np.ones((8, problem.dim_lam))
    x = hgp.exact.inner_solution(problem, lam)
    pairs = [(i, k) for i, size in enumerate(problem.validation_counts) for k in range(size)][:100]
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=8, seed=0), steps=20)

    def seconds(on):
        spans = []
        for _ in range(5):
            start = time.process_time()
            influence(problem, x, lam, avg, on=on, eta=0.1, iterations=500)
            spans.append(time.process_time() - start)
        return min(spans)

    assert seconds(pairs) <= 8 * seconds(pairs[:1])


# ---- Linear datamodeling score


def test_random_removals_follow_the_seed_and_take_a_share_of_each_client():
    problem, *_ = weighted()
    drawn = random_removals(problem, 40, fraction=0.4, seed=3)
    assert drawn == random_removals(problem, 40, fraction=0.4, seed=3) != random_removals(problem, 40, 0.4, seed=4)
    assert all([sum(i == j for i, _ in removal) for j in range(3)] == [2, 4, 3] for removal in drawn)
    assert {pair for removal in drawn for pair in removal} == set(TRAINING) and len(set(drawn)) == 40
    part = random_removals(problem.restrict([2]), 40, fraction=0.4, seed=3)
    assert part == tuple(tuple((0, k) for i, k in removal if i == 2) for removal in drawn)
    assert random_removals(problem, 1, fraction=0.0) == ((),)


def test_lds_is_the_mean_rank_correlation_with_retrained_losses():
    problem, lam, x, (_, _, X_val, y_val) = weighted()
    removals = random_removals(problem, 25, fraction=0.3, seed=0)
    retrained = retrain(problem, lam, removals)
    found = converged(problem, x, lam, on=PAIRS[:4])
    losses = [[own_loss(z[i], X_val[i][k], y_val[i][k]) for z in retrained.x] for i, k in PAIRS[:4]]
    actual = np.array(losses) - np.array([[own_loss(x[i], X_val[i][k], y_val[i][k])] for i, k in PAIRS[:4]])
    predicted = found.predict(removals)
    score = lds(actual, predicted)
    assert score == pytest.approx(np.mean([spearman(a, p) for a, p in zip(actual, predicted, strict=True)]), rel=1e-12)
    assert score > 0.8 > abs(lds(actual, predicted[:, ::-1]))  # of the right subsets only
    total = converged(problem, x, lam).predict(removals)
    assert scores(retrained.actual, total, subsets=(retrained.actual, total)).lds == spearman(retrained.actual, total)
    assert np.isnan(scores(retrained.actual, total).lds)


@pytest.mark.parametrize(
    ("actual", "predicted", "message"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), r"^predicted must have the shape \(2, 3\) of actual, got \(3, 2\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "^actual must have at least one cost, got none"),
    ],
)
def test_wrong_changes_are_refused(actual, predicted, message):
    with pytest.raises(ValueError, match=message):
        lds(actual, predicted)
