"""Every number of a built-in problem is within its rounding bound of 80 exact digits."""

from decimal import localcontext

import mpmath as mp
import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.problems.term_sizes import allowance
from verification.exact_numbers import DIGITS, decimals, exact

DTYPES = ("float64", "float32")
LINEAR = ("logistic", "client rate", "softmax", "weights", "softmax weights", "squares", "squares weights")


def linear(kind, X, y, X_val, y_val):
    if kind == "logistic":
        return hgp.problems.LogisticRegression(X, y, X_val, y_val)
    if kind == "client rate":
        return hgp.problems.LogisticRegression(X, y, X_val, y_val, regularization="client")
    if kind == "softmax":
        return hgp.problems.SoftmaxRegression(X, y, X_val, y_val, n_classes=3)
    if kind == "squares":
        return hgp.problems.LeastSquares(X, y, X_val, y_val)
    losses = {"softmax weights": {"loss": "softmax", "n_classes": 3}, "squares weights": {"loss": "squared"}}
    options = losses.get(kind, {})
    return hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.1, **options)


def quadratic(rng, dtype, *, offset=1.0, n=2, d=3, k=2):
    A = rng.normal(size=(n, d, d))
    Q = rng.normal(size=(n, d, d))
    parts = {
        "A": A @ A.swapaxes(1, 2) + np.eye(d), "b": offset * rng.normal(size=(n, d)), "C": rng.normal(size=(n, k, d)),
        "target": rng.normal(size=(n, d)), "outer_hessian": Q + Q.swapaxes(1, 2),
        "coupling": rng.normal(size=(n, k, d)),
    }  # fmt: skip
    A, b, C, t, Q, D = (a.astype(dtype) for a in parts.values())
    return hgp.problems.Quadratic(A, b, C, t, outer_hessian=Q, coupling=D, outer_reg=0.3)


def shares(problem, x, lam, u, same=None):
    """Largest |computed − exact|/allowance of each quantity; `same` is an equal problem with dense features."""
    sizes, truth = problem.term_sizes(x, lam), exact(same or problem, x, lam)
    factor = allowance(sizes.roundings, float(np.finfo(x.dtype).eps))
    linear, (f_x, f_lam) = problem.linearize(x, lam), problem.outer_grad(x, lam)
    with localcontext(prec=DIGITS):
        H_u, J_u = (np.stack([A @ v for A, v in zip(M, decimals(u), strict=True)]) for M in (truth.H, truth.J))
        pairs = {
            "inner_cost": (problem.inner_cost(x, lam), sizes.inner_cost, truth.inner_cost),
            "inner_grad": (problem.inner_grad(x, lam), sizes.inner_grad, truth.inner_grad),
            "outer_cost": (problem.outer_cost(x, lam), sizes.outer_cost, truth.outer_cost),
            "f_x": (f_x, sizes.outer_grad[0], truth.f_x),
            "f_lam": (f_lam, sizes.outer_grad[1], truth.f_lam),
            "hvp": (linear.hvp(u), sizes.hvp(u), H_u),
            "cross": (linear.cross(u), sizes.cross(u), J_u),
        }
        found = {}
        for name, (computed, size, true) in pairs.items():
            assert size.shape == computed.shape and size.dtype == computed.dtype
            off = np.array([float(abs(e)) for e in (decimals(computed) - true).ravel()])
            allowed = factor * size.astype(np.float64).ravel()
            assert np.all(off <= allowed), (name, float(np.max(off / np.maximum(allowed, 1e-320))))
            found[name] = float(np.max(off / np.maximum(allowed, 1e-320)))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LINEAR)
def test_linear_models_stay_within_their_allowance(kind, dtype):
    rng = np.random.default_rng([1, LINEAR.index(kind), DTYPES.index(dtype)])
    for _ in range(6):
        n, N, d = 2, int(rng.integers(1, 14)), int(rng.integers(1, 5))
        X, X_val = rng.normal(size=(2, n, N, d)).astype(dtype)
        X[..., 0] += dtype_of(10 ** rng.uniform(0, 3), dtype)
        y = rng.integers(0, 2, (n, N)).astype(dtype)
        problem = linear(kind, X, y, X_val, y)
        x, u = rng.normal(size=(2, n, problem.dim_x)) * 10 ** rng.uniform(-3, 2)
        lam = rng.uniform(-1, 1, size=(n, problem.dim_lam))
        shares(problem, x.astype(dtype), lam.astype(dtype), u.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LINEAR)
def test_logits_that_cancel_are_part_of_the_error_of_slopes_and_curvatures(kind, dtype):
    """X x = offset − offset + O(1): the error of l' and l'' is that of the logits, far above an ulp of themselves."""
    rng = np.random.default_rng([2, LINEAR.index(kind), DTYPES.index(dtype)])
    eps = float(np.finfo(dtype).eps)
    most = dict.fromkeys(("inner_cost", "inner_grad", "outer_cost", "f_x", "hvp"), 0.0)
    for _ in range(8):
        n, N, C = 2, 6, 3 if "softmax" in kind else 1
        offset = 1e-4 / eps  # the logits are known to some 1e-4
        X = rng.normal(size=(n, N, 3))
        X[..., :2] += offset
        X = X.astype(dtype)
        problem = linear(kind, X, rng.integers(0, 2, (n, N)).astype(dtype), X, rng.integers(0, 2, (n, N)).astype(dtype))
        U = rng.normal(size=(n, 3, C))
        U[:, 1] = -U[:, 0]
        x, u = U.reshape(n, -1).astype(dtype), rng.normal(size=(n, 3 * C)).astype(dtype)
        lam = np.full((n, problem.dim_lam), 0.5, dtype)
        for name, share in shares(problem, x, lam, u).items():
            most[name] = max(most.get(name, 0.0), share)
    assert min(most[name] for name in ("inner_cost", "outer_cost", "f_x")) > 0.02, most  # and not far below it


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_one_class_whose_logit_cancels_is_enough(dtype, label):
    """Class 0 of softmax alone has large terms in its logit, once as the label and once as another class."""
    rng = np.random.default_rng([7, DTYPES.index(dtype)])
    X = rng.normal(size=(2, 8, 3))
    X[..., :2] += 1e-4 / float(np.finfo(dtype).eps)
    X, y = X.astype(dtype), np.full((2, 8), label, dtype)
    problem = linear("softmax", X, y, X, y)
    U = np.zeros((2, 3, 3))
    U[:, :, 0] = rng.normal(size=(2, 3))
    U[:, 1, 0] = -U[:, 0, 0]
    x, lam = U.reshape(2, -1).astype(dtype), np.full((2, 9), 0.5, dtype)
    found = shares(problem, x, lam, rng.normal(size=(2, 9)).astype(dtype))
    assert min(found["outer_cost"], found["f_x"]) > 0.003, found


@pytest.mark.parametrize("dtype", DTYPES)
def test_quadratic_costs_stay_within_their_allowance_where_everything_cancels(dtype):
    rng = np.random.default_rng([3, DTYPES.index(dtype)])
    most = {}
    for offset in (1.0, 1e3, 1e9):
        for _ in range(10):
            problem = quadratic(rng, dtype, offset=offset)
            lam = rng.normal(size=(2, 2)).astype(dtype)
            rhs = (problem._b - np.einsum("nkd,nk->nd", problem._C, lam)).astype(np.float64)
            x = np.linalg.solve(problem._A.astype(np.float64), rhs[..., None])[..., 0].astype(dtype)  # ∂g = 0
            shares(problem, 1e-9 / dtype_of(offset, dtype) * x, 0 * lam, x)  # b alone, beside which A x is nothing
            shares(problem, x, dtype_of(1e6 * offset, dtype) * lam, x)  # terms with λ, beside which others are nothing
            for name, share in shares(problem, x, lam, rng.normal(size=x.shape).astype(dtype)).items():
                most[name] = max(most.get(name, 0.0), share)
    assert all(share > 0.05 for share in most.values()), most  # no allowance is loose


def test_unequal_clients_and_many_instances():
    rng = np.random.default_rng(4)
    for kind in ("logistic", "softmax", "weights"):
        X, y = [rng.normal(size=(N, 2)) for N in (1, 9)], [rng.integers(0, 2, N).astype(float) for N in (1, 9)]
        problem = linear(kind, X, y, X, y)
        x, u = rng.normal(size=(2, 2, problem.dim_x))
        found = shares(problem, x, rng.uniform(0, 1, (2, problem.dim_lam)), u)
        assert found["hvp"] > 0.01
    assert np.all(problem.term_sizes(x, np.ones((2, 9))).cross(u)[0, 1:] < 1e-300)  # padding has no error


@pytest.mark.parametrize("kind", LINEAR)
def test_logits_known_to_nothing_keep_finite_sizes(kind):
    """With 1e20 in x the logits are known to 1e4: slopes to no more than 1."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2, 6, 3))
    X[..., 1] = -X[..., 0] * (1 + 1e-15 * rng.normal(size=(2, 6)))
    problem = linear(kind, X, np.tile([0.0, 1.0], (2, 3)), X, np.tile([0.0, 1.0], (2, 3)))
    x = np.full((2, problem.dim_x), 1e18) * np.repeat([1.0, 1.0, 0.0], problem.dim_x // 3)
    shares(problem, x, np.full((2, problem.dim_lam), 1e-3), rng.normal(size=x.shape))
    assert np.all(np.isfinite(problem.term_sizes(x, np.full((2, problem.dim_lam), 1e-3)).outer_grad[0]))


@pytest.mark.parametrize("library", ["torch", "array_api_strict", pytest.param("jax", marks=pytest.mark.slow)])
def test_sizes_are_the_same_on_other_libraries(library):
    pytest.importorskip(library)
    rng = np.random.default_rng(6)
    X, X_val = rng.normal(size=(2, 2, 8, 2)).astype("float32")
    y = rng.integers(0, 2, (2, 8)).astype("float32")
    problems = [linear(kind, X, y, X_val, y) for kind in ("logistic", "softmax weights")]
    for problem in (*problems, quadratic(rng, "float32")):
        x = rng.normal(size=(2, problem.dim_x)).astype("float32")
        lam = rng.uniform(0, 1, size=(2, problem.dim_lam)).astype("float32")
        moved = problem.to(library)
        there = [hgp.backend.from_host(a, like=moved._like()) for a in (x, lam)]
        here, sizes = problem.term_sizes(x, lam), moved.term_sizes(*there)
        assert sizes.roundings == here.roundings
        for a, b in (
            (here.inner_cost, sizes.inner_cost), (here.inner_grad, sizes.inner_grad),
            (here.outer_cost, sizes.outer_cost), (here.outer_grad[0], sizes.outer_grad[0]),
            (here.hvp(x), sizes.hvp(there[0])), (here.cross(x), sizes.cross(there[0])),
        ):  # fmt: skip
            assert hgp.backend.array_namespace(b) is hgp.backend.array_namespace(there[0])
            np.testing.assert_allclose(hgp.backend.to_host(b), a, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rates_and_weights_among_subnormal_numbers(dtype):
    kind = np.finfo(dtype)
    theta = np.log(np.array([[1e2, 0.3, 1e-3, 1e-9]])) + float(np.log(kind.smallest_normal))  # φ(θ) is not normal
    theta, x = theta.astype(dtype), np.array([[3e5, -2e7, 1e3, 7e6]], dtype)
    X, y = np.full((1, 2, 4), 1e-20, dtype), np.array([[0, 1]], dtype)
    rates = hgp.problems.LogRates(linear("logistic", X, y, X, y))
    sizes, linearized = rates.term_sizes(x, theta), rates.linearize(x, theta)
    factor = factor_of(sizes, kind)
    for u in (np.ones_like(x), 1e9 * x):
        products = zip(linearized.cross(u)[0], theta[0], x[0], u[0], sizes.cross(u)[0], strict=True)
        for found, at, a, b, size in products:
            exact = mp.exp(mp.mpf(float(at))) * mp.mpf(float(a)) * mp.mpf(float(b))
            assert abs(mp.mpf(float(found)) - exact) <= factor * mp.mpf(float(size))
    cleaning = hgp.problems.HyperCleaning(1e15 + 0 * X, y, X, y, n_classes=2)
    x, weights = np.zeros((1, 8), dtype), theta[:, 1:3]
    sizes, u = cleaning.term_sizes(x, weights), np.tile(np.array([1e5, -1e5], dtype), (1, 4))
    for k, found in enumerate(cleaning.linearize(x, weights).cross(u)[0]):
        slope = 1 / (2 + mp.exp(-mp.mpf(float(weights[0, k]))) + mp.exp(mp.mpf(float(weights[0, k]))))
        exact = slope * (-4e20 if k == 0 else 4e20) / 2
        assert abs(mp.mpf(float(found)) - exact) <= factor_of(sizes, kind) * mp.mpf(float(sizes.cross(u)[0, k]))


def factor_of(sizes, kind):
    return mp.mpf(allowance(sizes.roundings, float(kind.eps)))


def test_run_axes_are_refused():
    problem = hgp.problems.Quadratic.random(2, 3, 2)
    with pytest.raises(ValueError, match="run axes"):
        problem.term_sizes(np.ones((4, 2, 3)), np.ones((2, 2)))
    model = linear("logistic", *(np.ones((2, 3, 1)), np.ones((2, 3))) * 2)
    with pytest.raises(ValueError, match="run axes"):
        model.term_sizes(np.ones((4, 2, 1)), np.ones((2, 1)))


def test_an_allowance_counts_roundings_and_ends_where_nothing_is_known():
    assert allowance(100, 2**-52) == pytest.approx(100 * 2**-53, rel=1e-12)
    assert allowance(100, 2**-52) > 100 * 2**-53
    assert allowance(2**20, 2**-23) > 2**-4
    assert allowance(2**23, 2**-23) == np.inf


@pytest.mark.parametrize("method", ["inner_cost", "inner_grad", "outer_cost", "outer_grad", "linearize"])
def test_inherited_sizes_are_ignored_where_a_method_is_given_anew(method):
    def anew(self, *given, **named):
        return getattr(super(kind, self), method)(*given, **named)

    kind = type("Own", (hgp.problems.Quadratic,), {method: anew})
    problem = hgp.problems.Quadratic.random(2, 3, 2)
    own = kind(problem._A, problem._b, problem._C, problem._t)
    assert hgp.problems.as_problem(problem).term_sizes is not None
    assert hgp.problems.as_problem(own).term_sizes is None


def dtype_of(value, dtype):
    return np.dtype(dtype).type(value)
