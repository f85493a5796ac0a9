"""`check_derivatives` accepts right problems, built-in and user-defined, and finds mistakes that were put into one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.libraries import open_library

import hgp_ref as hgp
from hgp_ref.problems import Comparison, DerivativeCheck, check_derivatives

from .cases import KINDS, make
from .own_ridge import Ridge, RidgeAt


def ridge(kind=Ridge, at=RidgeAt, n=5, N=6, d=4, seed=0):
    rng = np.random.default_rng(seed)
    problem = kind(*(rng.normal(size=shape) for shape in ((n, N, d), (n, N)) * 2))
    if at is not RidgeAt:
        problem.linearize = lambda x, lam, batch=None: at(problem, x, lam, batch)
    return problem, rng.normal(size=(n, d)), rng.normal(size=(n, d)) / 2


def verdicts(result):
    return {row.quantity: row.verdict for row in result.rows}


def test_a_complete_problem_of_the_user_passes_every_comparison():
    for dtype in ("float64", "float32"):
        problem, x, lam = ridge()
        result = check_derivatives(problem, x.astype(dtype), lam.astype(dtype))
        assert result.ok and result.failed == (), str(result)
        skipped = [row.quantity for row in result.rows if row.verdict == "skipped"]
        assert skipped == ([] if dtype == "float64" else ["float32"])
        assert len(result.rows) == 21


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_built_in_problems_pass(kind, dtype):
    for d in (2, 9):
        c = make(kind, d, dtype=dtype)
        result = check_derivatives(c.problem, c.x, c.lam)
        assert result.ok, str(result)


@pytest.mark.parametrize("point", ["at the inner solution", "at zero", "large", "small"])
def test_no_false_alarm(point):
    problem, x, lam = ridge()
    if point == "at the inner solution":
        x = hgp.exact.inner_solution(problem, lam)
    else:
        x = {"at zero": 0.0, "large": 1e3, "small": 1e-6}[point] * x
    for seed in range(10):
        result = check_derivatives(problem, x, lam, seed=seed)
        assert result.ok, str(result)


def test_neural_problems_pass():
    model = hgp.neural.Sequential((3,), hgp.neural.Linear(3, 4), hgp.neural.Tanh(), hgp.neural.Linear(4, 2))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 5, 3)), rng.integers(0, 2, (3, 5))
    problem = hgp.problems.NeuralInstanceWeights(model, X, y, X, y, l2=0.1)
    result = check_derivatives(problem, rng.normal(size=(3, problem.dim_x)), np.ones((3, 5)))
    assert result.ok, str(result)


# ---------------------------------------------------------------------------------------------------- planted mistakes


def wrong(method):
    """A class whose `method` is replaced by the decorated function(right, self, *arguments)."""

    def decorate(function):
        base = RidgeAt if method in ("hvp", "cross", "products") else Ridge
        right = getattr(base, method)
        replaced = type(
            "Wrong", (base,), {method: lambda self, *given, **named: function(right, self, *given, **named)}
        )
        return ridge(at=replaced) if base is RidgeAt else ridge(replaced)

    return decorate


def modifies_u(right, self, u):
    u *= 1.0
    return right(self, u)


def modifies_x(right, self, x, lam, batch=None):
    x += 0.0
    return right(self, x, lam, batch)


def other_batch(right, self, x, batch):
    """The instances of a batch are taken from the next client."""
    if batch is None:
        return right(self, x, None)
    X, y, mean = right(self, x, batch)
    return np.roll(X, 1, axis=-3), np.roll(y, 1, axis=-2), mean


def summed(right, self, x, batch):
    """The sum over a batch is divided by the number of all instances."""
    X, y, mean = right(self, x, batch)
    return X, y, mean if batch is None else (batch >= 0) / X.dtype.type(self.counts[0])


def padded(right, self, x, batch):
    """Padding counts as an instance."""
    X, y, mean = right(self, x, batch)
    return X, y, mean if batch is None else np.full(y.shape, 1 / y.shape[-1], dtype=x.dtype)


ROTATION = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))[0]
MISTAKES = {
    "sign of the gradient": ("inner_grad", lambda right, *given: -right(*given), "inner_grad"),
    "factor 2 of the gradient": ("inner_grad", lambda right, *given: 2 * right(*given), "inner_grad"),
    "factor 1 + 1e-5": ("inner_grad", lambda right, *given: (1 + 1e-5) * right(*given), "inner_grad"),
    "one entry of one client": (
        "inner_grad",
        lambda right, *given: right(*given) * np.where(np.arange(20).reshape(5, 4) == 13, 0.9, 1.0),
        "inner_grad",
    ),
    "sign of hvp": ("hvp", lambda right, self, u: -right(self, u), "hvp"),
    "hvp without the rate": ("hvp", lambda right, self, u: right(self, u) - self.rate * u, "hvp"),
    "factor of hvp": ("hvp", lambda right, self, u: right(self, u) / 6, "hvp"),
    "sign of cross": ("cross", lambda right, self, u: -right(self, u), "cross"),
    "cross without exp": ("cross", lambda right, self, u: self.x * u, "cross"),
    "outer gradient along x": ("outer_grad", lambda right, *at: (-right(*at)[0], right(*at)[1]), "outer_grad[0]"),
    "outer gradient along lam": ("outer_grad", lambda right, *given: (right(*given)[0], 0 * given[2]), "outer_grad[1]"),
    "batch not averaged": ("rows", summed, "mean over two batches"),
    "padding counted": ("rows", padded, "batch of all instances"),
    "batch ignored": ("rows", lambda right, self, x, batch: right(self, x, None), "mean over two batches"),
    "batch of another client": ("rows", other_batch, "batch of all instances"),
    "row of another client": (
        "inner_grad",
        lambda right, self, x, lam, *batch: right(self, x, np.roll(lam, 1, axis=-2), *batch),
        "every client",
    ),
    "mean over clients": ("hvp", lambda right, self, u: right(self, u) + u.mean(-2, keepdims=True), "every client"),
    "row of u of client 0": ("cross", lambda right, self, u: right(self, u[..., :1, :]), "every client"),
    "float64 results": ("outer_cost", lambda right, *given: right(*given).astype("float64"), "float32"),
    "float64 products": ("hvp", lambda right, self, u: right(self, u).astype("float64"), "float32"),
    "float32 results": ("inner_grad", lambda right, *given: right(*given).astype("float32"), "inner_grad"),
    "x modified": ("inner_grad", modifies_x, "inner_grad"),
    "u modified": ("hvp", modifies_u, "hvp"),
    "hessian": ("hessian", lambda right, *given: right(*given) + np.eye(4), "hessian"),
    "jacobian": ("jacobian", lambda right, *given: right(*given) @ ROTATION, "jacobian"),
    "products": ("products", lambda right, self, u: (right(self, u)[0], 2 * right(self, u)[1]), "products"),
    "restrict in another order": (
        "restrict",
        lambda right, self, clients: right(self, sorted(clients)),
        "restrict",
    ),
    "run axis": (
        "outer_cost",
        lambda right, self, x, lam: np.broadcast_to(right(self, x, lam).ravel()[:5], x.shape[:-1]),
        "run axis",
    ),
    "norms of jacobians": ("jacobian_norms", lambda right, *given: right(*given) / 9, "jacobian_norms"),
    "lipschitz constants": ("lipschitz", lambda right, *given: right(*given) | {"nu_J": 1e-3}, "lipschitz"),
    "NaN": ("outer_cost", lambda right, *given: right(*given) * np.nan, "outer_grad[0]"),
    "an exception": ("inner_cost", lambda right, *given: 1 / 0, "inner_grad"),
    "a wrong shape": ("inner_cost", lambda right, *given: right(*given)[..., None], "inner_grad"),
    "random results": (
        "hvp",
        lambda right, self, u: right(self, u) * (1 + 1e-9 * np.random.default_rng().normal()),
        "every method",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name):
    method, function, row = MISTAKES[name]
    problem, x, lam = wrong(method)(function)
    result = check_derivatives(problem, x, lam)
    assert not result.ok
    assert verdicts(result)[row] == "wrong", str(result)


def test_a_transposed_mixed_derivative_is_found():
    """J of the quadratic problem is (2, 4) or square; its transpose is found, too, where both have the same shape."""
    right = hgp.problems.Quadratic.random(3, 4, 4, seed=1)

    class Transposed:
        n_clients, dim_x, dim_lam = 3, 4, 4
        inner_cost, inner_grad = right.inner_cost, right.inner_grad
        outer_cost, outer_grad = right.outer_cost, right.outer_grad

        def linearize(self, x, lam, batch=None):
            lin, J = right.linearize(x, lam), right.jacobian(x, lam)
            return SimpleNamespace(hvp=lin.hvp, cross=lambda u: (np.swapaxes(J, 1, 2) @ u[..., None])[..., 0])

    result = check_derivatives(Transposed(), np.ones((3, 4)), np.ones((3, 4)))
    assert [row.quantity for row in result.failed] == ["cross"]


def test_a_problem_in_float64_alone_is_noted_and_not_wrong():
    class Float64(Ridge):
        def rows(self, x, batch):
            return super().rows(x.astype("float64"), batch)

        def outer_cost(self, x, lam):
            return super().outer_cost(x.astype("float64"), lam)

        def outer_grad(self, x, lam):
            return super().outer_grad(x.astype("float64"), lam)

    problem, x, lam = ridge(Float64)
    result = check_derivatives(problem, x, lam)
    assert result.ok
    assert [row.note for row in result.rows if row.quantity == "float32"] == ["results are float64, not float32"]
    assert not check_derivatives(problem, x.astype("float32"), lam.astype("float32")).ok


def test_a_kink_is_reported_as_unclear():
    """|x| at a point that differences cross: neither value of the derivative is right."""

    class Kink(Ridge):
        def inner_cost(self, x, lam, batch=None):
            return super().inner_cost(x, lam, batch) + np.abs(np.sin(1e7 * x)).sum(axis=-1)

    problem, x, lam = ridge(Kink)
    assert verdicts(check_derivatives(problem, x, lam))["inner_grad"] in ("wrong", "unclear")


def test_values_that_hide_their_slope_in_rounding_are_unclear():
    class Shifted(Ridge):
        def inner_cost(self, x, lam, batch=None):
            return super().inner_cost(x, lam, batch) + 1e14

    problem, x, lam = ridge(Shifted)
    result = check_derivatives(problem, x, lam)
    assert not result.ok
    assert verdicts(result)["inner_grad"] == "unclear"


def test_the_table():
    problem, x, lam = wrong("hvp")(lambda right, self, u: -right(self, u))
    result = check_derivatives(problem, x, lam)
    lines = str(result).splitlines()
    assert lines[0].startswith("derivatives of Ridge: ") and lines[0].endswith(" of 17 comparisons failed")
    assert lines[2].split()[:5] == ["hvp", "differences", "of", "inner_grad", "along"] and "wrong" in lines[2]
    assert lines[2].endswith(result.rows[1].note) and result.rows[1].note.startswith("client ")
    assert all(len(line) < 160 for line in lines)


def test_a_result_survives_a_file(tmp_path):
    problem, x, lam = ridge()
    result = check_derivatives(problem, x, lam)
    assert hgp.load(result.save(tmp_path / "check.npz")) == result
    assert isinstance(result, DerivativeCheck) and isinstance(result.rows[0], Comparison)


def test_the_seed_selects_the_directions():
    problem, x, lam = ridge()
    errors = [[row.error for row in check_derivatives(problem, x, lam, seed=seed).rows] for seed in (0, 0, 1)]
    np.testing.assert_array_equal(errors[0], errors[1])
    assert errors[0][:3] != errors[2][:3]


def test_one_client_and_one_instance():
    problem, x, lam = ridge(n=1, N=1)
    result = check_derivatives(problem, x, lam)
    assert result.ok, str(result)
    assert verdicts(result)["every client"] == "skipped"


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_points_of_other_libraries(library):
    xp, c = open_library(library), make("logistic", 3)
    x, lam = map(xp.asarray, (c.x, c.lam))
    result = check_derivatives(c.problem.to(x), x, lam, directions=1)
    assert result.ok, str(result)


def test_bad_arguments():
    problem, x, lam = ridge()
    with pytest.raises(ValueError, match=r"x must have shape \(5, 4\) = \(n, d_x\), got \(2, 5, 4\)"):
        check_derivatives(problem, np.stack([x, x]), lam)
    with pytest.raises(ValueError, match="lam must not contain NaN"):
        check_derivatives(problem, x, lam * np.nan)
    with pytest.raises(ValueError, match="directions must be an integer from 1 to 1000, got 0"):
        check_derivatives(problem, x, lam, directions=0)
    with pytest.raises(TypeError, match="problem must have the members of hgp_ref.problems.Problem, got int"):
        check_derivatives(3, x, lam)


def test_a_problem_without_costs_is_compared_without_them():
    """Functions that need no costs take such a problem, so that its products can be checked as well."""

    class Costless(Ridge):
        inner_cost = outer_cost = restrict = None

        def inner_grad(self, x, lam, batch=None):
            return super().inner_grad(x, lam, batch).astype(np.float64)

    for kind in (Costless, wrong_cross(Costless)):
        result = check_derivatives(*ridge(kind))
        found = verdicts(result)
        assert found["inner_grad"] == found["outer_grad[0]"] == found["outer_grad[1]"] == "skipped"
        assert found["hvp"] == found["every client"] == "ok" and found["float32"] == "skipped"
        assert result.ok == (kind is Costless) == (found["cross"] == "ok")
    assert "the problem has no inner_cost" in str(result)


def wrong_cross(kind):
    class Wrong(kind):
        def linearize(self, x, lam, batch=None):
            at = super().linearize(x, lam, batch)
            return SimpleNamespace(hvp=at.hvp, cross=lambda u: 2 * at.cross(u))

    return Wrong


def test_damped_curvature_is_compared_with_its_damping():
    problem, x, lam = ridge()
    twice = hgp.problems.Damped(hgp.problems.Damped(problem, 0.2), 0.3)
    result = check_derivatives(twice, x, lam)
    assert result.ok, str(result)
    assert "differences of inner_grad along x, + 0.5 u" in str(result)
    twice.mu = 0.4  # the inner problem's products are then those of another μ
    twice.linearize = lambda x, lam, batch=None: hgp.problems.Damped(problem, 0.5).linearize(x, lam, batch)
    assert verdicts(check_derivatives(twice, x, lam))["hvp"] == "wrong"


def test_gauss_newton_products_are_not_compared_with_differences():
    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((2,), hgp.neural.Linear(2, 3), hgp.neural.Tanh(), hgp.neural.Linear(3, 2))
    X, y = rng.normal(size=(2, 4, 2)), rng.integers(0, 2, (2, 4))
    problem = hgp.problems.NeuralInstanceWeights(model, X, y, X, y, curvature="gauss-newton")
    result = check_derivatives(problem, model.init(2, seed=0), np.ones((2, 4)))
    assert result.ok and verdicts(result)["hvp"] == verdicts(result)["hvp on a batch"] == "skipped", str(result)
    assert "curvature='gauss-newton'" in str(result)


def test_costs_of_float64_data_with_derivatives_of_the_dtype_of_x_are_noted():
    """As JAX gives them."""
    problem, x, lam = ridge()
    grad, outer = problem.inner_grad, problem.outer_grad
    problem.inner_grad = lambda x, lam, batch=None: grad(x, lam, batch).astype(x.dtype)
    problem.outer_grad = lambda x, lam: tuple(a.astype(x.dtype) for a in outer(x, lam))
    problem.restrict = None  # it would be a problem without these changes
    for name in ("inner_cost", "outer_cost"):
        cost = getattr(problem, name)
        setattr(problem, name, lambda *a, cost=cost, **o: cost(*a, **o).astype(np.float64))
    result = check_derivatives(problem, x, lam)
    assert result.ok and verdicts(result)["float32"] == "skipped", str(result)


# ------------------------------------------------------------------------------------------ single validation losses


class Validated(Ridge):
    """With the members for influence on single validation losses."""

    @property
    def validation_counts(self):
        return np.full(self.n_clients, self.y_val.shape[1])

    def validation_grad(self, x, lam, batch):
        rows = np.arange(self.n_clients)[:, None]
        valid = (batch >= 0).astype(x.dtype)
        X, y = self.X_val[rows, batch].astype(x.dtype), self.y_val[rows, batch].astype(x.dtype)
        r = valid * ((X @ x[..., None])[..., 0] - y) / valid.sum(axis=1, keepdims=True)
        return (r[:, None, :] @ X)[:, 0]


WRONG_VALIDATION = {
    "sign": lambda right, self, x, lam, batch: -right(self, x, lam, batch),
    "sum": lambda right, self, x, lam, batch: right(self, x, lam, batch) * (batch >= 0).sum(axis=1, keepdims=True),
    "padding counted": lambda right, self, x, lam, batch: right(self, x, lam, np.abs(batch)),
    "batch ignored": lambda right, self, x, lam, batch: right(self, x, lam, np.zeros_like(batch)),
    "shape": lambda right, self, x, lam, batch: right(self, x, lam, batch)[:, :1],
    "training instances": lambda right, self, x, lam, batch: self.inner_grad(x, lam, batch),
}  # fmt: skip


def test_gradients_of_validation_losses_are_compared_with_the_outer_gradient():
    for dtype in ("float64", "float32"):
        problem, x, lam = ridge(Validated)
        result = check_derivatives(problem, x.astype(dtype), lam.astype(dtype))
        assert result.ok and verdicts(result)["validation_grad"] == "ok", str(result)


@pytest.mark.parametrize("name", WRONG_VALIDATION)
def test_wrong_gradients_of_validation_losses_are_found(name):
    right, mistake = Validated.validation_grad, WRONG_VALIDATION[name]
    kind = type("Wrong", (Validated,), {"validation_grad": lambda self, *given: mistake(right, self, *given)})
    result = check_derivatives(*ridge(kind))
    assert [row.quantity for row in result.failed] == ["validation_grad"], str(result)


def test_squares_that_underflow_hide_no_mistake():
    problem, x, lam = wrong("cross")(lambda right, self, u: -right(self, u))
    assert verdicts(check_derivatives(problem, 1e-150 * x, lam))["cross"] != "ok"
