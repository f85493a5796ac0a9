"""Bad input: every error names the argument, the condition and the value."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hgp_ref.problems import InstanceWeights, LeastSquares, LogisticRegression, Quadratic, SoftmaxRegression

from .cases import KINDS, LINEAR, make

X = np.random.default_rng(0).standard_normal((2, 4, 3))
Y = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
NAN = np.where(np.arange(3) == 1, np.nan, X)

DATA = {
    "X of two axes": ((X[0], Y, X, Y), ValueError, r"X must have shape \(n, N, d\) or a list .*, got \(4, 3\)"),
    "X a number": ((3, Y, X, Y), ValueError, r"X must be \(n, N, d\) or a list .*, got int without arrays"),
    "X of nested lists": ((X.tolist(), Y, X, Y), TypeError, r"X\[0\] must be an array, got builtins.list"),
    "no client": (([], Y, X, Y), ValueError, r"X must be \(n, N, d\) or a list .*, got list without arrays"),
    "X of integers": ((Y[..., None], Y, X, Y), TypeError, "X must hold real floating-point numbers, got int64"),
    "X with NaN": ((NAN, Y, X, Y), ValueError, "X must not contain NaN or infinite values"),
    "X_val with infinity": ((X, Y, np.full_like(X, np.inf), Y), ValueError, "X_val must not contain NaN"),
    "features that differ": (
        ([X[0], X[1][:, :2]], Y, X, Y),
        ValueError,
        r"X must have shape .*, got \(4, 2\) in X\[1\]",
    ),
    "X_val of other width": ((X, Y, X[..., :2], Y), ValueError, "X_val must have 3 features as X, got 2"),
    "X_val of fewer clients": ((X, Y, X[:1], Y[:1]), ValueError, "X_val must have 2 clients like X, got 1"),
    "X_val of another dtype": (
        (X, Y, X.astype("float32"), Y),
        TypeError,
        "mixed dtypes: X is float64, X_val is float32",
    ),
    "list of mixed dtypes": (([X[0], X[1].astype("float32")], Y, X, Y), TypeError, r"mixed dtypes: X\[0\] is float64"),
    "empty client": (
        ([X[0], X[1][:0]], [Y[0], Y[1][:0]], X, Y),
        ValueError,
        "X must have at least one instance .*, got none for client 1",
    ),
    "empty validation": (
        (X, Y, X[:, :0], Y[:, :0]),
        ValueError,
        "X_val must have at least one instance .*, got none for client 0",
    ),
    "labels of fewer clients": ((X, Y[:1], X, Y), ValueError, "y must have 2 clients like X, got 1"),
    "too few labels": ((X, [Y[0], Y[1][:3]], X, Y), ValueError, "y must have 4 labels of client 1 as X, got 3"),
    "labels of three axes": ((X, X, X, Y), ValueError, r"y must have shape \(n, N\) or a list .*, got \(2, 4, 3\)"),
    "label 2": ((X, Y + 1, X, Y), ValueError, r"y must hold labels that are 0 or 1, got 2\.0"),
    "label -1": ((X, 2 * Y - 1, X, Y), ValueError, r"y must hold labels that are 0 or 1, got -1\.0"),
    "label one half": ((X, Y, X, Y / 2), ValueError, r"y_val must hold labels that are 0 or 1, got 0\.5"),
    "NaN label": ((X, np.where(Y == 1, np.nan, 0.0), X, Y), ValueError, "y must not contain NaN"),
    "labels as a nested list": ((X, Y.tolist(), X, Y), TypeError, "y must be an array, got builtins.list"),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("kind", [LogisticRegression, InstanceWeights])
def test_bad_data(kind, name):
    given, error, message = DATA[name]
    with pytest.raises(error, match=message):
        kind(*given)


def test_bad_options():
    with pytest.raises(ValueError, match="regularization must be one of 'coordinate', 'client', got 'both'"):
        LogisticRegression(X, Y, X, Y, regularization="both")
    with pytest.raises(ValueError, match="loss must be one of 'binary', 'softmax', 'squared', got 'hinge'"):
        InstanceWeights(X, Y, X, Y, loss="hinge")
    with pytest.raises(ValueError, match=r"l2 must be a finite number >= 0, got -1"):
        InstanceWeights(X, Y, X, Y, l2=-1)
    with pytest.raises(ValueError, match=r'n_classes must be 2 or None with loss="binary", got 3'):
        InstanceWeights(X, Y, X, Y, n_classes=3)
    with pytest.raises(ValueError, match=r'n_classes must be None with loss="squared", got 2'):
        InstanceWeights(X, Y, X, Y, loss="squared", n_classes=2)
    with pytest.raises(ValueError, match="y must not contain NaN or infinite values"):
        LeastSquares(X, np.where(Y == 1, np.inf, 0.5), X, Y)
    with pytest.raises(ValueError, match="n_classes must be an integer >= 2, got 1"):
        SoftmaxRegression(X, Y, X, Y, n_classes=1)
    with pytest.raises(
        ValueError, match="y, y_val must have labels of at least two classes, got only 0; or pass n_classes"
    ):
        SoftmaxRegression(X, 0 * Y, X, 0 * Y)
    with pytest.raises(ValueError, match=r"y must hold labels that are whole numbers from 0 to 2, got 3\.0"):
        SoftmaxRegression(X, 3 * Y, X, Y, n_classes=3)
    assert SoftmaxRegression(X, Y, X, 4 * Y).n_classes == 5


QUADRATIC = {
    "A not square": ({"A": np.ones((2, 3, 2))}, ValueError, r"A must have shape \(n, d_x, d_x\), got \(2, 3, 2\)"),
    "A not symmetric": ({"A": X[:, :3]}, ValueError, r"A must be symmetric .*, got \|A - A\^T\| up to"),
    "A with NaN": ({"A": np.full((2, 3, 3), np.nan)}, ValueError, "A must not contain NaN"),
    "b too short": ({"b": np.ones((2, 2))}, ValueError, r"b must have shape \(2, 3\), got \(2, 2\)"),
    "C of two axes": ({"C": np.ones((2, 3))}, ValueError, r"C must have shape \(2, d_lam, 3\) .*, got \(2, 3\)"),
    "target of one client": ({"target": np.ones((1, 3))}, ValueError, r"target must have shape \(2, 3\), got \(1, 3\)"),
    "Q not symmetric": ({"outer_hessian": X[:, :3]}, ValueError, "outer_hessian must be symmetric .*, got"),
    "D of other size": ({"coupling": np.ones((2, 5, 3))}, ValueError, r"coupling must have shape \(2, 4, 3\), got"),
    "mu infinite": ({"outer_reg": np.inf}, ValueError, "outer_reg must be a finite number, got inf"),
    "b in float32": ({"b": np.ones((2, 3), "float32")}, TypeError, "mixed dtypes: .*b is float32"),
}


@pytest.mark.parametrize("name", QUADRATIC)
def test_bad_quadratic(name):
    change, error, message = QUADRATIC[name]
    given = {"A": np.stack([np.eye(3)] * 2), "b": np.ones((2, 3)), "C": np.ones((2, 4, 3)), "target": np.ones((2, 3))}
    assert Quadratic(**given).dim_lam == 4
    with pytest.raises(error, match=message):
        Quadratic(**{**given, **change})


def test_bad_random_quadratic():
    bad = {
        "n": (0, "n must be an integer >= 1, got 0"),
        "condition": (0.5, "condition must be a number >= 1, got 0.5"),
        "heterogeneity": (2, r"heterogeneity must be a number in \[0, 1\], got 2"),
    }
    for name, (value, message) in bad.items():
        with pytest.raises(ValueError, match=message):
            Quadratic.random(**{"n": 2, "dim_x": 2, "dim_lam": 2, name: value})


def methods(c):
    """Every public method that takes a point."""
    p = c.problem
    return [p.inner_cost, p.inner_grad, p.outer_cost, p.outer_grad, p.linearize, p.hessian, p.jacobian]


@pytest.mark.parametrize("kind", KINDS)
def test_bad_points(kind):
    c = make(kind)
    n, d_x, d_lam = c.problem.n_clients, c.problem.dim_x, c.problem.dim_lam
    for method in methods(c):
        message = re.escape(f"x must have shape (..., {n}, {d_x}) = (..., n_clients, dim_x), got {(n, d_x + 1)}")
        with pytest.raises(ValueError, match=message):
            method(np.ones((n, d_x + 1)), c.lam)
        message = re.escape(f"lam must have shape (..., {n}, {d_lam}) = (..., n_clients, dim_lam), got {(d_lam,)}")
        with pytest.raises(ValueError, match=message):
            method(c.x, c.lam[0])
        with pytest.raises(TypeError, match="x must have the problem's dtype float64, got float32"):
            method(c.x.astype("float32"), c.lam)
        with pytest.raises(TypeError, match="lam: arrays must be arrays of a library .* got builtins.list"):
            method(c.x, c.lam.tolist())
        with pytest.raises(ValueError, match=r"run axes must broadcast, got: x has \(2,\), lam has \(3,\)"):
            method(np.stack([c.x] * 2), np.stack([c.lam] * 3))
    lin = c.problem.linearize(c.x, c.lam)
    for apply in (lin.hvp, lin.cross):
        with pytest.raises(ValueError, match=rf"u must have shape .*, got \({n}, {d_x + 2}\)"):
            apply(np.ones((n, d_x + 2)))
        with pytest.raises(TypeError, match="u must have the problem's dtype float64, got float32"):
            apply(c.u.astype("float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_libraries(kind):
    strict = pytest.importorskip("array_api_strict")
    c = make(kind)
    for method in methods(c):
        with pytest.raises(TypeError, match=r"x must be a numpy.ndarray as the problem's data, got array_api_strict"):
            method(strict.asarray(c.x), c.lam)


def test_mixed_devices():
    strict = pytest.importorskip("array_api_strict")
    c = make("logistic")
    problem = c.problem.to("array_api_strict")
    with pytest.raises(TypeError, match="x must be on the problem's device .*device1.*, got .*CPU_DEVICE"):
        problem.inner_cost(strict.asarray(c.x), strict.asarray(c.lam))


@pytest.mark.parametrize("kind", LINEAR)
def test_bad_batches(kind):
    c = make(kind)  # clients of 5, 8 and 6 instances
    p = c.problem
    for method in (p.inner_cost, p.inner_grad, p.linearize, p.hessian, p.jacobian):
        with pytest.raises(ValueError, match=r"batch must have shape \(\.\.\., 3, b\) .*, b >= 1, got \(3, 0\)"):
            method(c.x, c.lam, np.zeros((3, 0), dtype=int))
        with pytest.raises(ValueError, match=r"batch must have shape \(\.\.\., 3, b\) .*, got \(2, 4\)"):
            method(c.x, c.lam, np.zeros((2, 4), dtype=int))
        with pytest.raises(TypeError, match="batch must hold signed integers .*, got float64"):
            method(c.x, c.lam, np.zeros((3, 4)))
        with pytest.raises(TypeError, match="batch: arrays must be arrays of a library .* got builtins.list"):
            method(c.x, c.lam, [[0], [0], [0]])
        with pytest.raises(
            ValueError, match="batch must hold indices from 0 to 4 or -1 for padding for client 0, got 5"
        ):
            method(c.x, c.lam, np.array([[5], [7], [5]]))  # 5 exists in the padding of client 0
        with pytest.raises(
            ValueError, match="batch must hold indices from 0 to 5 or -1 for padding for client 2, got -2"
        ):
            method(c.x, c.lam, np.array([[4], [7], [-2]]))


def test_a_quadratic_has_no_batches():
    c = make("quadratic")
    assert c.problem.counts is None
    for method in (c.problem.inner_cost, c.problem.inner_grad, c.problem.linearize, c.problem.hessian):
        with pytest.raises(ValueError, match="batch must be None for a Quadratic, which has no instances, got"):
            method(c.x, c.lam, np.zeros((3, 1), dtype=int))
