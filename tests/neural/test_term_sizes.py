"""Term sizes of neural and transformed problems: float32 against float64, float64 against many digits, kinks."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import neural, problems
from hgp_ref.problems import neural_sizes
from hgp_ref.problems.term_sizes import allowance
from hgp_ref.problems.transforms import InnerGradientProblem, WeightedClients

from . import problem_cases
from .problem_cases import CLASSES

KINDS = [kind for kind in problem_cases.KINDS if kind != "temperature"]
EPS32 = float(np.finfo(np.float32).eps)


def evaluated(problem, x, lam, u):
    """Everything that has a size, by name."""
    linear, (f_x, f_lam) = problem.linearize(x, lam), problem.outer_grad(x, lam)
    return {
        "inner_cost": problem.inner_cost(x, lam), "inner_grad": problem.inner_grad(x, lam),
        "outer_cost": problem.outer_cost(x, lam), "f_x": f_x, "f_lam": f_lam,
        "hvp": linear.hvp(u), "cross": linear.cross(u),
    }  # fmt: skip


def sizes_of(problem, x, lam, u):
    sizes = problem.term_sizes(x, lam)
    by_name = {
        "inner_cost": sizes.inner_cost, "inner_grad": sizes.inner_grad, "outer_cost": sizes.outer_cost,
        "f_x": sizes.outer_grad[0], "f_lam": sizes.outer_grad[1], "hvp": sizes.hvp(u), "cross": sizes.cross(u),
    }  # fmt: skip
    return by_name, allowance(sizes.roundings, float(np.finfo(x.dtype).eps))


def shares(problem, x, lam, u, wider=None):
    """error/bound of float32 against float64, the largest of each quantity; every result rounds at least once."""
    double = problem.to("numpy", "float64") if wider is None else wider
    found = evaluated(problem, x, lam, u)
    exact = evaluated(double, *(a.astype(np.float64) for a in (x, lam, u)))
    by_name, unit = sizes_of(problem, x, lam, u)
    worst = {}
    for name, value in found.items():
        size = by_name[name]
        assert size.shape == value.shape and size.dtype == value.dtype, name
        assert np.all(unit * size >= 0.49 * EPS32 * np.abs(value)) and np.all(np.isfinite(size)), name
        error, bound = np.abs(value.astype(np.float64) - exact[name]), unit * size.astype(np.float64)
        assert np.all(error <= bound), name
        worst[name] = float(np.max(error / np.where(bound > 0, bound, 1.0)))
    return worst


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_within_the_sizes(kind, smooth, seed):
    case = problem_cases.make(kind, smooth, seed, "float32")
    worst = shares(case.problem, case.x, case.lam, case.u)
    assert max(worst.values()) > 2e-4, "a bound, and one of use"


def wide(seed, *layers, dtype="float32", N=7, shape=(2, 7, 6), kind="bias", scale=1.0):
    """A problem on images, some of them blank in part, with given layers."""
    rng = np.random.default_rng(seed)
    model = neural.Sequential(shape, *layers)
    X = (scale * rng.standard_normal((2, N, *shape))).astype(dtype)
    X[:, ::2, :, :4] = 0
    y = rng.integers(0, CLASSES, (2, N))
    make = {"bias": problems.PersonalBias, "mask": problems.PersonalMask}[kind]
    problem = make(model, X, y, l2=0.03, outer_l2=0.07)
    x = (model.init(2, seed, same_for_all=False) + 0.2 * rng.standard_normal((2, model.dim))).astype(dtype)
    return problem, x, rng.standard_normal((2, CLASSES)).astype(dtype), rng.standard_normal(x.shape).astype(dtype)


STACKS = {
    "same padding": lambda: (neural.Conv2d(2, 3, 3, padding="same"), neural.Softplus(), neural.AvgPool2d((3, 2)),
                             neural.Flatten(), neural.Linear(18, CLASSES)),
    "strides": lambda: (neural.Conv2d(2, 4, (3, 2), stride=(2, 1)), neural.ReLU(), neural.MaxPool2d(2, stride=1),
                        neural.Flatten(), neural.Linear(32, CLASSES)),
    "two convolutions": lambda: (neural.Conv2d(2, 3, 2), neural.ReLU(), neural.Conv2d(3, 4, 2), neural.Tanh(),
                                 neural.MaxPool2d(2), neural.Flatten(), neural.Linear(16, CLASSES)),
    "dense": lambda: (neural.Flatten(), neural.Linear(84, 9), neural.Softplus(), neural.Linear(9, 8), neural.Tanh(),
                      neural.Linear(8, CLASSES)),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STACKS)
def test_every_layer(name, seed):
    shares(*wide(seed, *STACKS[name]()))
    shares(*wide(seed, *STACKS[name](), kind="mask", scale=30.0))  # saturated softmax, large logits


@pytest.mark.parametrize("seed", range(5))
def test_sums_that_cancel(seed):
    """Hidden units in pairs, whose contributions of 1e3 cancel to 1: errors far beyond those relative to results."""
    rng = np.random.default_rng(seed)
    model = neural.Sequential((5,), neural.Linear(5, 6), neural.Tanh(), neural.Linear(6, CLASSES))
    X, y = rng.standard_normal((1, 8, 5)).astype(np.float32), rng.integers(0, CLASSES, (1, 8))
    problem = problems.PersonalBias(model, X, y, l2=0.1)
    W, b, V, c = rng.normal(size=(6, 5)), rng.normal(size=6), 1e3 * rng.normal(size=(CLASSES, 6)), np.zeros(CLASSES)
    W[3:], b[3:] = W[:3], b[:3]
    V[:, 3:] = -V[:, :3] + rng.normal(size=(CLASSES, 3))
    x = np.concatenate([W.ravel(), b, V.ravel(), c])[None].astype(np.float32)
    u, lam = rng.standard_normal(x.shape).astype(np.float32), rng.standard_normal((1, CLASSES)).astype(np.float32)
    shares(problem, x, lam, u)
    exact = evaluated(problem.to("numpy", "float64"), *(a.astype(np.float64) for a in (x, lam, u)))
    found = evaluated(problem, x, lam, u)
    beyond = [np.max(np.abs(found[k] - exact[k]) / np.abs(exact[k])) / EPS32 for k in ("inner_grad", "hvp", "cross")]
    assert min(beyond) > 20


# ---- float64 against many digits


def cost_in_digits(w, X, y, lam, l2):
    """Linear, Tanh, Linear and cross-entropy of shifted logits, by hand in mpmath."""
    at, total = iter(w), mp.mpf(0)
    W, b = [[next(at) for _ in range(2)] for _ in range(3)], [next(at) for _ in range(3)]
    V, c = [[next(at) for _ in range(3)] for _ in range(2)], [next(at) for _ in range(2)]
    for row, label in zip(X, y, strict=True):
        h = [mp.tanh(sum(a * mp.mpf(float(v)) for a, v in zip(W[k], row, strict=True)) + b[k]) for k in range(3)]
        z = [sum(a * v for a, v in zip(V[k], h, strict=True)) + c[k] + lam[k] for k in range(2)]
        total += mp.log(sum(mp.exp(v) for v in z)) - z[label]
    return total / len(X) + mp.mpf(l2) / 2 * sum(v * v for v in w)


def test_float64_against_many_digits():
    rng = np.random.default_rng(0)
    X, y, l2 = rng.standard_normal((1, 3, 2)), rng.integers(0, 2, (1, 3)), 0.1
    model = neural.Sequential((2,), neural.Linear(2, 3), neural.Tanh(), neural.Linear(3, 2))
    problem = problems.PersonalBias(model, X, y, l2=l2)
    x, lam, u = rng.standard_normal((1, model.dim)), rng.standard_normal((1, 2)), rng.standard_normal((1, model.dim))
    by_name, unit = sizes_of(problem, x, lam, u)
    found = evaluated(problem, x, lam, u)
    with mp.workdps(80):
        w, lams, h = [mp.mpf(float(v)) for v in x[0]], [mp.mpf(float(v)) for v in lam[0]], mp.mpf(10) ** -20

        def value(w, lams):
            return cost_in_digits(w, X[0], y[0], lams, l2)

        def gradient(w, lams):
            shifted = ([v + s * h if k == j else v for k, v in enumerate(w)] for j in range(len(w)) for s in (1, -1))
            return [(value(up, lams) - value(next(shifted), lams)) / (2 * h) for up in shifted]

        up, down = ([v + s * h * mp.mpf(float(t)) for v, t in zip(w, u[0], strict=True)] for s in (1, -1))
        exact = {
            "inner_cost": [value(w, lams)],
            "inner_grad": gradient(w, lams),
            "hvp": [(a - b) / (2 * h) for a, b in zip(gradient(up, lams), gradient(down, lams), strict=True)],
        }
        for name, truth in exact.items():
            for computed, size, t in zip(found[name].ravel(), by_name[name].ravel(), truth, strict=True):
                assert abs(mp.mpf(float(computed)) - t) <= unit * float(size) <= 1e-11 * (1 + abs(t)), name


# ---- choices


def kinked(gap, dtype):
    """One hidden unit whose input is 1 + `gap` − 1, in terms of 1024: float32 sees nothing of a gap below 6e-5."""
    model = neural.Sequential((3,), neural.Linear(3, 1), neural.ReLU(), neural.Linear(1, 2))
    X, y = np.array([[[1024.0, -1024.0, gap]]], dtype=dtype), np.array([[1]])
    problem = problems.PersonalBias(model, X, y, l2=0.0)
    x = np.array([[1.0, 1.0, 1.0, 0.0, 0.5, -0.5, 0.0, 0.0]], dtype=dtype)
    return problem, x, np.zeros((1, 2), dtype=dtype), np.ones((1, 8), dtype=dtype)


def test_a_relu_that_rounding_may_have_switched():
    problem, x, lam, u = kinked(1e-5, np.float32)
    by_name, unit = sizes_of(problem, x, lam, u)
    gradient = problem.to("numpy", "float64").inner_grad(*(a.astype(np.float64) for a in (x, lam)))
    assert np.all(unit * by_name["inner_grad"][0, :2] >= np.abs(gradient[0, :2])), "it might as well be 0"
    problem, x, lam, u = kinked(1.0, np.float32)
    by_name, unit = sizes_of(problem, x, lam, u)
    assert np.all(unit * by_name["inner_grad"][0, :2] < 0.1 * np.abs(problem.inner_grad(x, lam)[0, :2])), (
        "no doubt here"
    )


@pytest.mark.parametrize("gap", [-1e-4, -1e-6, 0.0, 1e-6, 1e-4])
def test_float32_and_float64_may_choose_differently(gap):
    rng = np.random.default_rng(5)
    problem, x, lam, u = kinked(gap, np.float32)
    for _ in range(20):
        scaled_x = (x * (1 + 1e-6 * rng.standard_normal(x.shape))).astype(np.float32)
        shares(problem, scaled_x, lam, u)


def test_equal_pixels_of_blank_images_are_no_doubt():
    """MaxPool on windows that are equal and exact; a doubt would be of the size of the gradient over γ."""
    rng = np.random.default_rng(1)
    model = neural.Sequential((1, 8, 8), neural.Conv2d(1, 2, 3), neural.ReLU(), neural.MaxPool2d(2), neural.Flatten(),
                              neural.Linear(18, 3))  # fmt: skip
    X = np.zeros((1, 4, 1, 8, 8))
    X[..., 2:5, 2:5] = rng.uniform(size=(1, 4, 1, 3, 3))
    problem = problems.PersonalBias(model, X, np.array([[0, 1, 2, 1]]))
    x, lam = model.init(1, 3), np.zeros((1, 3))
    x[:, 18:20] = 0.1  # biases that reach the pooling
    by_name, unit = sizes_of(problem, x, lam, np.ones_like(x))
    assert unit * np.max(by_name["inner_grad"]) < 1e-11 and unit * np.max(by_name["hvp"]) < 1e-11


# ---- what has no sizes


class OwnCost(problems.neural_costs.ShiftedCrossEntropy):
    pass


class OwnLayer(neural.ReLU):
    pass


def test_what_is_not_of_this_package_has_no_sizes():
    X, y = np.ones((2, 3, 4)), np.array([[0, 1, 2]] * 2)
    plain, own = (neural.Sequential((4,), neural.Linear(4, 3), layer()) for layer in (neural.ReLU, OwnLayer))
    cost, shifted = OwnCost(3, 3), problems.neural_costs.ShiftedCrossEntropy(3, 3)
    assert problems.NeuralProblem(plain, shifted, X, y).term_sizes is not None
    for problem in (
        problems.NeuralProblem(plain, cost, X, y), problems.NeuralProblem(plain, shifted, X, y, outer=cost),
        problems.NeuralProblem(own, shifted, X, y), problem_cases.make("temperature").problem,
        problems.NeuralProblem(neural.Ensemble(own, 2), problems.neural_costs.MixedCrossEntropy(3, 2), X, y),
    ):  # fmt: skip
        assert problem.term_sizes is None
        assert problems.as_problem(problem).term_sizes is None
        assert problems.LogRates(problem).term_sizes is None
        assert problems.as_problem(WeightedClients(problem, np.ones(problem.n_clients))).term_sizes is None
        assert InnerGradientProblem(problem).term_sizes is None

    class Overrides(problems.PersonalBias):
        def inner_grad(self, x, lam, batch=None):
            return 2 * super().inner_grad(x, lam, batch)

    assert problems.as_problem(Overrides(plain, X, y)).term_sizes is None
    assert problems.as_problem(problems.PersonalBias(plain, X, y)).term_sizes is not None


# ---- wrappers


def linear(dtype):
    data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
    arrays = [np.asarray(a)[:, :20].astype(dtype) for a in (data.X, data.y, data.X_val, data.y_val)]
    return arrays


def rates(dtype):
    return problems.LogisticRegression(*linear(dtype))


def cleaning(dtype):
    X, y, X_val, y_val = linear(dtype)
    return problems.HyperCleaning(X, y, X_val, y_val, l2=0.1)


def quadratic(dtype):
    return problems.Quadratic.random(3, 4, 2, seed=1).to("numpy", dtype)


def mask(dtype):
    return problem_cases.make("mask", True, 1, dtype).problem


WRAPPED = {
    "log rates": lambda dtype: problems.LogRates(rates(dtype)),
    "log rates of a quadratic": lambda dtype: problems.LogRates(quadratic(dtype)),
    "log rates of a network": lambda dtype: problems.LogRates(mask(dtype)),
    "cleaning": cleaning,
    "weighed": lambda dtype: WeightedClients(rates(dtype), np.array([0.3, 1.1, 7.7])),
    "weighed network": lambda dtype: WeightedClients(mask(dtype), np.array([0.3, 1.1, 7.7])),
    "stationarity": lambda dtype: InnerGradientProblem(quadratic(dtype)),
    "stationarity of a network": lambda dtype: InnerGradientProblem(mask(dtype)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers(name):
    narrow, double = (WRAPPED[name](dtype) for dtype in ("float32", "float64"))
    rng = np.random.default_rng(2)
    for _ in range(5):
        x = rng.standard_normal((3, narrow.dim_x)).astype(np.float32)
        lam = rng.uniform(-4, 1, (3, narrow.dim_lam)).astype(np.float32)
        u = rng.standard_normal(x.shape).astype(np.float32)
        scaled_x = x if "stationarity" in name else x * np.float32(10)
        shares(problems.as_problem(narrow), scaled_x, lam, u, problems.as_problem(double))


def test_wrappers_follow_the_chain_rule():
    problem, c = mask("float64"), np.array([0.3, 1.1, 7.7])
    rng = np.random.default_rng(2)
    x, theta = rng.standard_normal((3, problem.dim_x)), rng.uniform(-1, 1, (3, problem.dim_lam))
    u, lam = rng.standard_normal(x.shape), np.exp(theta)
    plain, _ = sizes_of(problem, x, lam, u)
    log, _ = sizes_of(problems.LogRates(problem), x, theta, u)
    ratio, along = log["cross"] / (lam * plain["cross"]), log["f_lam"] / (lam * plain["f_lam"])
    assert np.all(ratio >= 11) and np.all(ratio <= 14), "10 more roundings, and λ was rounded"
    assert np.all(along >= 1) and np.all(along <= 3)
    assert np.all(log["hvp"] >= plain["hvp"]) and np.any(log["hvp"] > plain["hvp"]), "λ was rounded"
    values, (weighed, _) = evaluated(problem, x, lam, u), sizes_of(WeightedClients(problem, c), x, lam, u)
    for name in ("inner_cost", "inner_grad", "hvp", "cross"):
        once = plain[name] if name in ("hvp", "cross") else np.abs(values[name]) / 64
        np.testing.assert_allclose(weighed[name].T, c * (plain[name] + 3 * once).T, rtol=1e-12)
    assert np.array_equal(weighed["f_x"], plain["f_x"]) and np.array_equal(weighed["outer_cost"], plain["outer_cost"])
    still, _ = sizes_of(InnerGradientProblem(problem), x, lam, u)
    assert np.array_equal(still["f_x"], plain["inner_grad"]) and not np.any(still["f_lam"])
    assert np.array_equal(still["outer_cost"], plain["inner_cost"])


def test_rates_by_their_logarithms_round_their_terms_more_often():
    """Only the terms with λ: those of the loss stay as they are."""
    problem, rng = rates("float64"), np.random.default_rng(4)
    x, u = rng.standard_normal((2, 3, problem.dim_x))
    theta = np.full((3, problem.dim_lam), -1.0)
    plain, _ = sizes_of(problem, x, np.exp(theta), u)
    log, _ = sizes_of(problems.LogRates(problem), x, theta, u)
    none, _ = sizes_of(problem, x, 0 * theta, u)
    for name in ("inner_cost", "inner_grad", "hvp"):
        np.testing.assert_allclose(log[name], plain[name] + 16 * (plain[name] - none[name]), rtol=1e-6)
    assert np.all(log["f_x"] <= plain["f_x"] * (1 + 1e-12)), "no λ in it"

    class Own:
        """A problem of a user's, of which nothing else is known: λ may be in every term."""

        def __init__(self):
            for name in ("n_clients", "dim_x", "dim_lam", "inner_cost", "inner_grad", "outer_cost", "outer_grad",
                         "linearize", "term_sizes"):  # fmt: skip
                setattr(self, name, getattr(problem, name))

    other, _ = sizes_of(problems.LogRates(Own()), x, theta, u)
    np.testing.assert_allclose(other["inner_grad"], 17 * plain["inner_grad"], rtol=1e-6)


# ---- blocks, libraries, repeated products


@pytest.mark.parametrize("kind", ["weights", "mask", "mixture"])
def test_blocks_of_instances(kind, monkeypatch):
    case = problem_cases.make(kind, False, 3, "float32")
    whole, _ = sizes_of(case.problem, case.x, case.lam, case.u)
    monkeypatch.setattr(neural_sizes, "BLOCK_BYTES", 1)
    monkeypatch.setattr(neural_sizes, "STORED_BYTES", 0)
    shares(case.problem, case.x, case.lam, case.u)
    parts, _ = sizes_of(case.problem, case.x, case.lam, case.u)
    for name, size in whole.items():
        assert np.all(parts[name] >= 0.99 * size) and np.all(parts[name] <= 3 * size + 1e-30), name


def test_products_do_not_depend_on_those_before():
    case = problem_cases.make("mask", False, 3)
    sizes = case.problem.term_sizes(case.x, case.lam)
    first, Ju = sizes.hvp(case.u), sizes.cross(case.u)
    x, lam = case.x.copy(), case.lam.copy()
    case.x[:], case.lam[:] = 0, 0  # a caller may go on to change them
    for _ in range(3):
        np.testing.assert_allclose(sizes.hvp(case.u), first, rtol=1e-9)
        np.testing.assert_allclose(sizes.cross(case.u), Ju, rtol=1e-9)
    np.testing.assert_allclose(case.problem.term_sizes(x, lam).hvp(case.u), first, rtol=1e-9)
    with pytest.raises(ValueError, match="u"):
        sizes.hvp(case.u[:1])


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "log rates of a network", "weighed network", "cleaning"])
def test_sizes_of_products_are_linear_in_absolute_values(kind, smooth):
    if kind in KINDS:
        case = problem_cases.make(kind, smooth, 3)
        problem, x, lam, u = case.problem, case.x, case.lam, case.u
    else:
        problem, rng = WRAPPED[kind]("float64"), np.random.default_rng(0)
        x, u = rng.standard_normal((2, 3, problem.dim_x))
        lam = rng.uniform(-2, 1, (3, problem.dim_lam))
    sizes = problem.term_sizes(x, lam)
    for product in (sizes.hvp, sizes.cross):
        parts = product(np.maximum(u, 0)) + product(np.maximum(-u, 0))
        np.testing.assert_allclose(product(u), parts, rtol=1e-9)
        np.testing.assert_allclose(product(-3 * u), 3 * parts, rtol=1e-9)
        columns = sum(product(np.eye(x.shape[1])[[k] * 3] * u) for k in range(x.shape[1]))
        np.testing.assert_allclose(columns, parts, rtol=1e-9)


@pytest.mark.parametrize("library", ["torch", "array_api_strict", pytest.param("jax.numpy", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["weights", "mixture"])
def test_other_libraries(kind, library):
    pytest.importorskip(library.partition(".")[0])
    from hgp_ref.backend import get_backend, to_host

    case = problem_cases.make(kind, False, 2, "float32")
    backend = get_backend({"jax.numpy": "jax"}.get(library, library))
    there = case.problem.to(backend.name)
    x, lam, u = (backend.asarray(a) for a in (case.x, case.lam, case.u))
    here, _ = sizes_of(case.problem, case.x, case.lam, case.u)
    sizes = there.term_sizes(x, lam)
    assert type(sizes.inner_grad) is type(x)
    for name, size in {"inner_grad": sizes.inner_grad, "f_lam": sizes.outer_grad[1], "hvp": sizes.hvp(u),
                       "cross": sizes.cross(u), "inner_cost": sizes.inner_cost}.items():  # fmt: skip
        np.testing.assert_allclose(to_host(size), here[name], rtol=1e-4)
