"""Neural problems: derivatives against differences, parts of clients, restriction, mini-batches, accuracy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.libraries import assert_close, assert_same, identity_rtol, open_library

import hgp_ref as hgp
from hgp_ref import neural
from hgp_ref.problems import NeuralInstanceWeights, PersonalMask, PersonalMixture, Problem
from hgp_ref.problems import neural as neural_parts

from .problem_cases import CLASSES, COUNTS, KINDS, VAL_COUNTS, build, instances, make, methods, network

STEP, RTOL = np.finfo(float).eps ** (1 / 3), 1e-6


def slope(function, point, direction):
    return (function(point + STEP * direction) - function(point - STEP * direction)) / (2 * STEP)


@pytest.mark.parametrize("mini", [False, True], ids=["full", "mini"])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_against_differences(kind, mini):
    c = make(kind)
    p, batch = c.problem, c.batch if mini else None
    assert isinstance(p, Problem)
    lin = p.linearize(c.x, c.lam, batch)
    along = slope(lambda x: p.inner_cost(x, c.lam, batch), c.x, c.u)
    assert_close(np.sum(p.inner_grad(c.x, c.lam, batch) * c.u, axis=1), along, RTOL)
    assert_close(lin.hvp(c.u), slope(lambda x: p.inner_grad(x, c.lam, batch), c.x, c.u), RTOL)
    units = np.eye(p.dim_lam)
    crossed = [np.sum(slope(lambda q: p.inner_grad(c.x, q, batch), c.lam, unit) * c.u, axis=1) for unit in units]
    assert_close(lin.cross(c.u), np.stack(crossed, axis=1), RTOL)
    along_x, along_lam = p.outer_grad(c.x, c.lam)
    assert_close(np.sum(along_x * c.u, axis=1), slope(lambda x: p.outer_cost(x, c.lam), c.x, c.u), RTOL)
    moved = [slope(lambda q: p.outer_cost(c.x, q), c.lam, unit) for unit in units]
    expected = np.stack(moved, axis=1)
    np.testing.assert_allclose(along_lam, expected, atol=RTOL * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("mini", [False, True], ids=["full", "mini"])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_hvp_and_cross_and_hessians_are_symmetric(kind, mini):
    c = make(kind, smooth=False)
    lin = c.problem.linearize(c.x, c.lam, c.batch if mini else None)
    hvp, cross = lin.products(c.u)
    np.testing.assert_array_equal(hvp, lin.hvp(c.u))
    np.testing.assert_array_equal(cross, lin.cross(c.u))
    v = c.u[::-1].copy()
    left, right = np.sum(hvp * v, axis=1), np.sum(c.u * lin.hvp(v), axis=1)
    size = np.linalg.norm(hvp, axis=1) * np.linalg.norm(v, axis=1)
    assert np.all(np.abs(left - right) <= identity_rtol("float64") * np.maximum(size, size.max()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_library_gives_the_same_numbers(xp, kind):
    if xp.name == "jax" and kind not in ("weights", "mixture"):
        pytest.skip("JAX compiles every shape anew; two problems are enough")
    c = make(kind, smooth=False)
    for mini in (False, True):
        batch = c.batch if mini else None
        expected = methods(c.problem, c.x, c.lam, c.u, batch)
        moved = c.problem.to(xp.asarray(c.x))
        placed = None if batch is None else xp.asarray(batch)
        for actual, value in zip(methods(moved, *map(xp.asarray, (c.x, c.lam, c.u)), placed), expected, strict=True):
            assert_same(actual, value, xp, 1e-12)


def test_no_method_transfers_anything(counted):
    lib = open_library("cupy")
    for kind in KINDS:
        c = make(kind)
        moved, batch = c.problem.to(lib.asarray(c.x)), lib.asarray(c.batch)
        point = [lib.asarray(a) for a in (c.x, c.lam, c.u)]
        counted.reset()
        methods(moved, *point, batch)
        assert counted.to_device == counted.to_host == 0, kind


@pytest.mark.parametrize("clients", [slice(1, 3), [2, 0], [1]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_restricted_clients_give_the_same_bits(kind, clients):
    """So do clients of a problem that was made without the others, and so is shorter."""
    c = make(kind, smooth=False)
    rng = np.random.default_rng(0)
    given = (*instances(rng, COUNTS), *instances(rng, (4, 1, 3)))
    chosen = np.arange(3)[clients]
    alone = build(kind, network(False), tuple([part[i] for i in chosen] for part in given))
    part = c.problem.restrict(clients)
    assert part.counts.tolist() == c.problem.counts[clients].tolist() and part.n_clients == len(chosen)
    for batch in (None, c.batch):
        whole = methods(c.problem, c.x, c.lam, c.u, batch)
        own = [c.x[clients], c.lam[clients], c.u[clients], None if batch is None else batch[clients]]
        for actual, expected in zip(methods(part, *own), whole, strict=True):
            np.testing.assert_array_equal(actual, expected[clients])
        own[1] = own[1][:, : alone.dim_lam]
        for actual, expected in zip(methods(alone, *own), whole, strict=True):
            np.testing.assert_array_equal(
                actual, expected[clients][..., : actual.shape[-1]] if actual.ndim > 1 else expected[clients]
            )


def test_trailing_padding_changes_no_bit():
    """A batch that others made longer gives a client the bits of its own batch."""
    c = make("mask", smooth=False)
    short = np.array([[1, 2], [0, 7], [4, 3]])
    long = np.concatenate([short, np.full((3, 5), -1)], axis=1)
    for a, b in zip(*(methods(c.problem, c.x, c.lam, c.u, batch) for batch in (short, long)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_and_the_budget_change_no_bit(kind, monkeypatch):
    c = make(kind, smooth=False, counts=(5, 5, 5))
    for batch in (None, c.batch):
        whole = methods(c.problem, c.x, c.lam, c.u, batch)
        assert c.problem.linearize(c.x, c.lam, batch)._stored is not None
        with monkeypatch.context() as patch:
            patch.setattr(neural_parts, "CHUNK_BYTES", 1)
            patch.setattr(neural_parts, "LINEARIZATION_BYTES", 0)
            assert c.problem.linearize(c.x, c.lam, batch)._stored is None
            for actual, expected in zip(methods(c.problem, c.x, c.lam, c.u, batch), whole, strict=True):
                np.testing.assert_array_equal(actual, expected)


def test_chunks_hold_the_stated_bytes(monkeypatch):
    c = make("mask", counts=(5, 5, 5, 4, 4))
    parts = c.problem._enter(c.x, c.lam)
    one = 5 * c.problem.model.floats_per_instance(temporary=True) * 8
    for size, expected in ((2**30, [3, 2]), (2 * one, [2, 1, 2]), (2 * one - 1, [1, 1, 1, 2]), (1, [1] * 5)):
        monkeypatch.setattr(neural_parts, "CHUNK_BYTES", size)
        assert [part.clients.stop - part.clients.start for part in parts] == expected
        assert [part.images.shape[1] for part in parts][-1] == 4


def test_a_linearization_does_not_follow_later_changes(monkeypatch):
    for budget in (2**31, 0):
        monkeypatch.setattr(neural_parts, "LINEARIZATION_BYTES", budget)
        c = make("mask")
        lin = c.problem.linearize(c.x, c.lam)
        expected = c.problem.linearize(c.x.copy(), c.lam.copy()).products(c.u)
        c.x[...] = 0
        c.lam[...] = 0
        for actual, value in zip(lin.products(c.u), expected, strict=True):
            np.testing.assert_array_equal(actual, value)


def test_means_over_mini_batches_are_the_full_cost():
    """Batches of one instance each, averaged: the unbiasedness that the protocol asks for."""
    for kind in KINDS:
        c = make(kind, counts=(5, 5, 5))
        grads = [c.problem.inner_grad(c.x, c.lam, np.full((3, 1), k)) for k in range(5)]
        crosses = [c.problem.linearize(c.x, c.lam, np.full((3, 1), k)).cross(c.u) for k in range(5)]
        assert_close(np.mean(grads, axis=0), c.problem.inner_grad(c.x, c.lam), 1e-12)
        assert_close(np.mean(crosses, axis=0), c.problem.linearize(c.x, c.lam).cross(c.u), 1e-12)


def test_a_batch_of_padding_has_no_data_term_and_a_wrong_index_is_refused():
    c = make("mask")
    batch = np.full((3, 2), -1)
    assert_close(c.problem.inner_grad(c.x, c.lam, batch), 0.1 * c.x, 1e-15)
    with pytest.raises(ValueError, match="batch must hold indices from 0 to 4 .* for client 0, got 5"):
        c.problem.inner_grad(c.x, c.lam, np.array([[5], [0], [0]]))


def test_elsewhere_a_wrong_index_makes_that_client_nan():
    lib, c = open_library("array_api_strict"), make("weights")
    moved = c.problem.to(lib.asarray(c.x))
    batch = lib.asarray(np.array([[5, 0], [0, 7], [0, -1]]))
    grad = lib.to_numpy(moved.inner_grad(lib.asarray(c.x), lib.asarray(c.lam), batch))
    assert np.isnan(grad).all(axis=1).tolist() == [True, False, False] and np.isfinite(grad[1:]).all()


def test_accuracy_by_hand():
    model = neural.Sequential((2,), neural.Linear(2, 2))
    x = np.array([[1.0, 0, 0, 1, 0, 0]])  # logits are the inputs
    X, y = np.array([[[3.0, 1], [1, 3], [2, 1], [1, 2]]]), np.array([[0, 1, 1, 1]])
    mask = PersonalMask(model, X, y)
    assert mask.scale == 2 and mask.accuracy(x, np.zeros((1, 2))).tolist() == [0.75]
    assert mask.accuracy(x, np.array([[0.0, 1.0]])).tolist() == [1.0]  # the second logit counts e = 2.7 times
    assert mask.accuracy(x, np.array([[0.0, 2.0]])).tolist() == [0.75]  # 7.4 times
    assert mask.accuracy(x, np.zeros((1, 2)), X[:, :2], y[:, :2]).tolist() == [1.0]
    mixture = PersonalMixture(model, X, y, components=2)
    both = np.concatenate([x, -x], axis=1)
    assert mixture.accuracy(both, np.array([[9.0, 0.0]])).tolist() == [0.75]
    assert mixture.accuracy(both, np.array([[0.0, 9.0]])).tolist() == [0.25]
    assert NeuralInstanceWeights(model, X, y, X[:, :1], y[:, :1]).accuracy(x, np.ones((1, 4))).tolist() == [1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_accuracy_of_other_clients_is_refused(kind):
    """Rows of clients without instances would be whatever was in memory."""
    c = make(kind)
    X, y = (list(part) for part in instances(np.random.default_rng(0), VAL_COUNTS))
    for few in (1, 2):
        with pytest.raises(ValueError, match=f"X must have 3 clients like the problem, got {few}"):
            c.problem.accuracy(c.x, c.lam, X[:few], y[:few])
    with pytest.raises(ValueError, match="X must have 1 clients like the problem, got 3"):
        c.problem.restrict([1]).accuracy(c.x[1:2], c.lam[1:2], X, y)
    with pytest.raises(ValueError, match="X and y must be passed together, got X=None"):
        c.problem.accuracy(c.x, c.lam, None, y)


def test_zero_lam_leaves_logits_alone_and_one_component_is_cross_entropy():
    c = make("mask")
    rng = np.random.default_rng(0)
    X, y = instances(rng, COUNTS)
    plain = NeuralInstanceWeights(network(True), X, y, X, y, l2=0.1)
    expected = plain.inner_grad(c.x, np.ones((3, 8)))
    assert_close(c.problem.inner_grad(c.x, np.zeros_like(c.lam)), expected, 1e-12)
    single = PersonalMixture(network(True), X, y, components=1, l2=0.1)
    assert_close(single.inner_grad(c.x, np.ones((3, 1))), expected, 1e-12)
    equal = PersonalMixture(network(True), X, y, components=2, l2=0.0)
    twice = np.concatenate([c.x, c.x], axis=1)
    assert_close(
        equal.inner_cost(twice, c.lam[:, :2]),
        plain.inner_cost(0 * c.x, np.zeros((3, 8))) + plain.outer_cost(c.x, np.ones((3, 8))),
        1e-12,
    )


def test_the_mixture_is_stable_where_probabilities_underflow():
    model = neural.Sequential((1,), neural.Linear(1, 2))
    problem = PersonalMixture(model, np.ones((1, 1, 1)), np.array([[0]]), components=2, l2=0.0)
    x = np.array([[-2000.0, 2000, 0, 0, -3000, 3000, 0, 0]])  # log-likelihoods -4000 and -6000
    lam = np.zeros((1, 2))
    assert_close(problem.inner_cost(x, lam), np.array([4000 + np.log(2)]), 1e-12)
    grad = problem.inner_grad(x, lam)
    assert_close(grad, np.array([[-1.0, 1, -1, 1, 0, 0, 0, 0]]), 1e-12)


@pytest.mark.parametrize("kind", ["weights", "mask", "temperature"])
def test_hyper_gradients_of_a_convex_network_are_exact(kind):
    """The matrix-free estimate with exact averaging equals the explicit reference, for a λ of one's own too."""
    rng = np.random.default_rng(0)
    model = neural.Sequential((1, 6, 5), neural.Flatten(), neural.Linear(30, CLASSES))
    problem = build(kind, model, (*instances(rng, COUNTS), *instances(rng, (4, 1, 3))))
    problem.l2 = 1.0
    x = np.tile(0.1 * rng.standard_normal(problem.dim_x), (3, 1))
    lam = rng.uniform(0.2, 0.5, (3, problem.dim_lam))
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.1, iterations=200)
    assert_close(est.value, hgp.exact.hypergradient(problem, x, lam), 1e-7)  # (1 - eta l2)^200 = 7e-10


def test_problems_survive_pickling_and_moving():
    for kind in KINDS:
        c = make(kind)
        again = pickle.loads(pickle.dumps(c.problem)).to("numpy")
        np.testing.assert_array_equal(again.inner_grad(c.x, c.lam), c.problem.inner_grad(c.x, c.lam))
        low = c.problem.to("numpy", dtype="float32")
        x, lam, u = (a.astype("float32") for a in (c.x, c.lam, c.u))
        for actual in methods(low, x, lam, u, c.batch):
            assert actual.dtype == np.float32


MODEL = network(True)
X, Y = np.ones((2, 3, 1, 6, 5)), np.zeros((2, 3), dtype=int)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: PersonalMask(MODEL, X[:, :, 0], Y),
            ValueError,
            "X must have shape (n, N, 1, 6, 5) as the model's input, got shape (2, 3, 6, 5)",
        ),
        (
            lambda: PersonalMask(MODEL, [X[0, :, 0]], [Y[0]]),
            ValueError,
            "X[0] must have shape (N_i, 1, 6, 5) as the model's input, got shape (3, 6, 5)",
        ),
        (lambda: PersonalMask(MODEL, X, Y + 3), ValueError, "from 0 to 2, got 3.0"),
        (lambda: PersonalMask(MODEL, X, Y[:1]), ValueError, "y must have 2 clients like X, got 1"),
        (lambda: PersonalMask(MODEL, X, Y, X), ValueError, "got y_val=None"),
        (lambda: PersonalMask(MODEL, X, Y, X[:1], Y[:1]), ValueError, "X_val must have 2 clients like X, got 1"),
        (lambda: PersonalMask(MODEL, X, Y, l2=-1.0), ValueError, "l2 must be a finite number >= 0, got -1.0"),
        (lambda: PersonalMask(MODEL, X, Y, scale=0.0), ValueError, "scale must be a finite number > 0, got 0.0"),
        (lambda: PersonalMask("cnn", X, Y), TypeError, "model must be a hgp_ref.neural.Sequential, got str"),
        (
            lambda: PersonalMask(neural.Sequential((1, 6, 5), neural.Conv2d(1, 2, 2)), X, Y),
            ValueError,
            "logits of C >= 2 classes",
        ),
        (lambda: PersonalMixture(MODEL, X, Y, components=0), ValueError, "components must be an integer >= 1, got 0"),
        (lambda: NeuralInstanceWeights(MODEL, [], [], X, Y), ValueError, "got list without instances"),
        (
            lambda: PersonalMask(MODEL, X, Y).restrict([2]),
            ValueError,
            "clients[0] must be an integer from 0 to 1, got 2",
        ),
        (
            lambda: PersonalMask(MODEL, X, Y).restrict(slice(2, 2)),
            ValueError,
            "at least one of the 2 clients",
        ),
        (lambda: PersonalMask(MODEL, X, Y).restrict("all"), TypeError, "must be a slice or a sequence of indices"),
        (
            lambda: PersonalMask(MODEL, X, Y).inner_grad(np.ones((4, 2, MODEL.dim)), np.ones((2, 3))),
            ValueError,
            "x must have no leading run axes, got (4,)",
        ),
        (
            lambda: NeuralInstanceWeights(MODEL, X, Y, X, Y).validation_grad(
                np.ones((2, MODEL.dim)), np.ones((2, 3)), np.zeros((4, 2, 1), dtype=int)
            ),
            ValueError,
            "batch must have no leading run axes, got (4,)",
        ),
        (
            lambda: PersonalMask(MODEL, X, Y).inner_grad(np.ones((2, 5)), np.ones((2, 3))),
            ValueError,
            "dim_x), got (2, 5)",
        ),
    ],
)
def test_errors_name_the_argument(call, error, says):
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)


class Bias(hgp.problems.NeuralCost):
    """λ added to the logits; each answer goes through `spoil` of its name."""

    spoil = {}  # noqa: RUF012

    def value(self, z, lam, view, xp):
        return self._result("value", self.loss.value(z + lam[:, None, :], view.targets, xp=xp))

    def slope(self, z, lam, view, xp):
        return self._result("slope", self.loss.slope(z + lam[:, None, :], view.targets, xp=xp))

    def curvature(self, z, lam, view, z_dot, xp):
        return self._result("curvature", self.softmax_curvature(z + lam[:, None, :], z_dot, xp))

    def along_lam(self, z, lam, view, xp):
        each = self.loss.slope(z + lam[:, None, :], view.targets, xp=xp)
        return self._result("along_lam", xp.sum(view.mean[..., None] * each, axis=1))

    def cross(self, z, lam, view, z_dot, xp):
        each = self.softmax_curvature(z + lam[:, None, :], z_dot, xp)
        return self._result("cross", xp.sum(view.mean[..., None] * each, axis=1))

    def scores(self, z, lam, xp):
        return self._result("scores", z + lam[:, None, :])

    def _result(self, name, answer):
        return self.spoil.get(name, lambda a: a)(answer)


SPOILT = {
    "one client's": lambda a: a[0],
    "of one entry": lambda a: a[..., :1],
    "a number": lambda a: float(a.sum()),
    "a scalar": lambda a: a.sum(),
    "short floats": lambda a: a.astype(np.float32),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("name", ["value", "slope", "curvature", "along_lam", "cross", "scores"])
def test_results_of_a_wrong_shape_or_kind_are_refused(name, how):
    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    cost = Bias(3, 3)
    problem = hgp.problems.NeuralProblem(
        model, cost, rng.standard_normal((3, 6, 4)), rng.integers(0, 3, (3, 6)), l2=0.1
    )
    x, lam = model.init(3), np.zeros((3, 3))
    calls = {
        "value": problem.inner_cost, "slope": problem.inner_grad, "along_lam": problem.outer_grad,
        "curvature": lambda x, lam: problem.linearize(x, lam).hvp(x), "scores": problem.accuracy,
        "cross": lambda x, lam: problem.linearize(x, lam).cross(x),
    }  # fmt: skip
    calls[name](x, lam)
    cost.spoil = {name: SPOILT[how]}
    with pytest.raises((ValueError, TypeError), match=rf"^Bias\.{name} must return .*, got"):
        calls[name](x, lam)


def test_a_cost_cannot_write_into_what_it_is_given():
    class Writes(Bias):
        def slope(self, z, lam, view, xp):
            z += lam[:, None, :]
            return self.loss.slope(z, view.targets, xp=xp)

    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    problem = hgp.problems.NeuralProblem(model, Writes(3, 3), rng.random((2, 6, 4)), rng.integers(0, 3, (2, 6)))
    with pytest.raises(ValueError, match="read-only"):
        problem.inner_grad(model.init(2), np.ones((2, 3)))
