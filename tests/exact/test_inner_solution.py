"""inner_solution: starting points, units, and problems without a minimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hgp_ref import exact
from hgp_ref.problems import InstanceWeights, LogisticRegression


@dataclass(frozen=True)
class Scaled:
    """g(x) = offset + s Σ_k w_k log cosh((x_k − t_k)/r) + s/20 Σ_k ((x_k − t_k)/r)²: minimum t, units s and r."""

    t: np.ndarray
    s: float = 1.0
    r: float = 1.0
    offset: float = 0.0
    wrong: float = 1.0  # factor of the Hessian
    n_clients = 2
    dim_lam = 1

    @property
    def dim_x(self):
        return len(self.t)

    def _z(self, x):
        return (x - self.t) / self.r

    def inner_cost(self, x, lam, batch=None):
        z = self._z(x)
        return self.offset + self.s * np.sum(np.logaddexp(z, -z) - np.log(2) + z**2 / 20, axis=-1)

    def inner_grad(self, x, lam, batch=None):
        z = self._z(x)
        return self.s / self.r * (np.tanh(z) + z / 10)

    def outer_cost(self, x, lam):
        return np.sum(x, axis=-1)

    def outer_grad(self, x, lam):
        return np.ones_like(x), np.zeros_like(lam)

    def hessian(self, x, lam, batch=None):
        curvature = self.wrong * self.s / self.r / self.r * (1 - np.tanh(self._z(x)) ** 2 + 0.1)
        return curvature[..., None] * np.eye(self.dim_x)

    def linearize(self, x, lam, batch=None):
        raise AssertionError("not needed: the Hessian is there")


LAM = np.zeros((2, 1))
TARGET = np.array([3.0, -2.0, 0.5])


@pytest.mark.parametrize("r", [1e-100, 1e-10, 1.0, 1e100])
@pytest.mark.parametrize("s", [1e-100, 1.0, 1e100])
def test_units_do_not_matter(s, r):
    x = exact.inner_solution(Scaled(TARGET * r, s, r), LAM)
    assert np.max(np.abs(x / r - TARGET)) <= 1e-14


@pytest.mark.parametrize("r", [1e-10, 1.0])
def test_a_cost_whose_offset_hides_every_decrease(r):
    x = exact.inner_solution(Scaled(TARGET * r, 1.0, r, offset=1e16), LAM)
    assert np.max(np.abs(x / r - TARGET)) <= 1e-14


def test_a_minimum_at_zero_is_found_from_any_start():
    zero = np.zeros(3)
    for start in (None, np.full(3, 5.0), np.full(3, 1e-17)):
        assert np.max(np.abs(exact.inner_solution(Scaled(zero), LAM, x0=start))) <= 1e-15


def test_a_hessian_that_contradicts_the_gradient_is_no_convergence():
    with pytest.raises((RuntimeError, ValueError), match="stalled|positive definite"):
        exact.inner_solution(Scaled(TARGET, wrong=-1.0), LAM)

    class Turned(Scaled):
        def inner_grad(self, x, lam, batch=None):
            return -super().inner_grad(x, lam, batch)

    with pytest.raises(RuntimeError, match="stalled.* do inner_grad and hvp .* belong to its inner_cost"):
        exact.inner_solution(Turned(TARGET), LAM, x0=TARGET + 1)


def test_the_start_may_be_one_point_or_one_for_each_client():
    problem = Scaled(TARGET)
    expected = exact.inner_solution(problem, LAM)
    for start in ([1.0, 1.0, 1.0], np.ones(3), np.ones((2, 3)), np.ones(3, dtype=np.float32)):
        np.testing.assert_allclose(exact.inner_solution(problem, LAM, x0=start), expected, rtol=1e-14)


BAD_START = {
    "wrong length": (np.ones(2), ValueError, r"x0 must have shape \(3,\) = \(d_x,\).*, got \(2,\)"),
    "rows differ": (np.arange(6.0).reshape(2, 3), ValueError, r"x0 must have shape .*, got \(2, 3\) with unequal rows"),
    "three clients": (np.ones((3, 3)), ValueError, r"x0 must have shape .*\(2, 3\) = \(n, d_x\).*, got \(3, 3\)"),
    "NaN": (np.array([1.0, np.nan, 0]), ValueError, "x0 must not contain NaN"),
    "text": ("here", TypeError, "x0 must have shape .*, got str"),
}


@pytest.mark.parametrize("name", BAD_START)
def test_bad_starts_are_refused(name):
    start, error, message = BAD_START[name]
    with pytest.raises(error, match=message):
        exact.inner_solution(Scaled(TARGET), LAM, x0=start)


@pytest.mark.parametrize(
    "lam, error",
    [(None, TypeError), (np.zeros((3, 1)), ValueError), (np.full((2, 1), np.nan), ValueError), (0.0, TypeError)],
    ids=["None", "three clients", "NaN", "a number"],
)
def test_bad_lam(lam, error):
    with pytest.raises(error, match="lam"):
        exact.inner_solution(Scaled(TARGET), lam)


@pytest.mark.parametrize("kind", ["rates", "weights"])
@pytest.mark.parametrize("features", [1, 2])
def test_separable_data_without_regularisation_have_their_minimum_at_infinity(kind, features):
    X = np.array([[[-2.0, 0.3], [-1.0, -0.2], [1.0, 0.1], [2.0, -0.4]]])[..., :features]
    y = np.array([[0, 0, 1, 1]])
    if kind == "rates":
        problem, lam = LogisticRegression(X, y, X, y), np.zeros((1, features))
    else:
        problem, lam = InstanceWeights(X, y, X, y), np.ones((1, 4))
    with pytest.raises((RuntimeError, ValueError), match="minimum lies at infinity.* separable .* positive rate"):
        exact.inner_solution(problem, lam)
