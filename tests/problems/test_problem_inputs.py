"""Bad input: every error names the argument, what was given and what is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hgp_ref.problems import InstanceWeights, LogisticRegression, Quadratic, SoftmaxRegression

from .cases import KINDS, LINEAR, make

X = np.random.default_rng(0).standard_normal((2, 4, 3))
Y = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
NAN = np.where(np.arange(3) == 1, np.nan, X)

DATA = {
    "X of two axes": ((X[0], Y, X, Y), ValueError, r"X: shape \(4, 3\) given, needed \(n, N, d\) or a list"),
    "X a number": ((3, Y, X, Y), ValueError, r"X: int without arrays given, needed \(n, N, d\) or a list"),
    "X of nested lists": ((X.tolist(), Y, X, Y), TypeError, r"X\[0\] must be an array"),
    "no client": (([], Y, X, Y), ValueError, r"X: list without arrays given, needed \(n, N, d\) or a list"),
    "X of integers": ((Y[..., None], Y, X, Y), TypeError, "X must hold real floating-point numbers, got int64"),
    "X with NaN": ((NAN, Y, X, Y), ValueError, "X must not contain NaN or infinite values"),
    "X_val with infinity": ((X, Y, np.full_like(X, np.inf), Y), ValueError, "X_val must not contain NaN"),
    "features that differ": (([X[0], X[1][:, :2]], Y, X, Y), ValueError, r"X\[1\]: shape \(4, 2\) given, needed"),
    "X_val of other width": ((X, Y, X[..., :2], Y), ValueError, "X_val: 2 features given, needed 3 as in X"),
    "X_val of fewer clients": ((X, Y, X[:1], Y[:1]), ValueError, "X_val: 1 clients given, needed 2 as in X"),
    "X_val of another dtype": (
        (X, Y, X.astype("float32"), Y),
        TypeError,
        "mixed dtypes: X is float64, X_val is float32",
    ),
    "list of mixed dtypes": (([X[0], X[1].astype("float32")], Y, X, Y), TypeError, r"mixed dtypes: X\[0\] is float64"),
    "empty client": (([X[0], X[1][:0]], [Y[0], Y[1][:0]], X, Y), ValueError, "X: client 1 has no instances, needed"),
    "empty validation": ((X, Y, X[:, :0], Y[:, :0]), ValueError, "X_val: client 0 has no instances, needed"),
    "labels of fewer clients": ((X, Y[:1], X, Y), ValueError, "y: labels of 1 clients given, needed 2 as in X"),
    "too few labels": ((X, [Y[0], Y[1][:3]], X, Y), ValueError, "y: client 1 has 3 labels, needed 4 as in X"),
    "labels of three axes": ((X, X, X, Y), ValueError, r"y: shape \(2, 4, 3\) given, needed \(n, N\) or a list"),
    "label 2": ((X, Y + 1, X, Y), ValueError, r"y: label 2\.0 given, needed 0 or 1"),
    "label -1": ((X, 2 * Y - 1, X, Y), ValueError, r"y: label -1\.0 given, needed 0 or 1"),
    "label one half": ((X, Y, X, Y / 2), ValueError, r"y_val: label 0\.5 given, needed 0 or 1"),
    "NaN label": ((X, np.where(Y == 1, np.nan, 0.0), X, Y), ValueError, "y must not contain NaN"),
    "labels as a nested list": ((X, Y.tolist(), X, Y), TypeError, "y: arrays must be arrays of a library"),
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
    with pytest.raises(ValueError, match="loss must be one of 'binary', 'softmax', got 'hinge'"):
        InstanceWeights(X, Y, X, Y, loss="hinge")
    with pytest.raises(ValueError, match=r"l2 must be a finite number >= 0, got -1"):
        InstanceWeights(X, Y, X, Y, l2=-1)
    with pytest.raises(ValueError, match=r'n_classes: 3 given, needed 2 or None with loss="binary"'):
        InstanceWeights(X, Y, X, Y, n_classes=3)
    with pytest.raises(ValueError, match="n_classes must be an integer >= 2, got 1"):
        SoftmaxRegression(X, Y, X, Y, n_classes=1)
    with pytest.raises(ValueError, match="y, y_val: all labels are 0, needed at least two classes, or n_classes"):
        SoftmaxRegression(X, 0 * Y, X, 0 * Y)
    with pytest.raises(ValueError, match=r"y: label 3\.0 given, needed whole numbers from 0 to 2"):
        SoftmaxRegression(X, 3 * Y, X, Y, n_classes=3)
    assert SoftmaxRegression(X, Y, X, 4 * Y).n_classes == 5


QUADRATIC = {
    "A not square": ({"A": np.ones((2, 3, 2))}, ValueError, r"A: shape \(2, 3, 2\) given, needed \(n, d_x, d_x\)"),
    "A not symmetric": ({"A": X[:, :3]}, ValueError, r"A: \|A - A\^T\| is up to .* needed a symmetric matrix"),
    "A with NaN": ({"A": np.full((2, 3, 3), np.nan)}, ValueError, "A must not contain NaN"),
    "b too short": ({"b": np.ones((2, 2))}, ValueError, r"b: shape \(2, 2\) given, needed \(2, 3\)"),
    "C of two axes": ({"C": np.ones((2, 3))}, ValueError, r"C: shape \(2, 3\) given, needed \(2, d_lam, 3\)"),
    "target of one client": ({"target": np.ones((1, 3))}, ValueError, r"target: shape \(1, 3\) given, needed \(2, 3\)"),
    "Q not symmetric": ({"outer_hessian": X[:, :3]}, ValueError, "outer_hessian: .* needed a symmetric matrix"),
    "D of other size": ({"coupling": np.ones((2, 5, 3))}, ValueError, r"coupling: shape .* needed \(2, 4, 3\)"),
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
        "condition": (0.5, "condition=0.5 given, needed a number >= 1"),
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
        message = re.escape(f"x: shape {(n, d_x + 1)} given, needed (..., {n}, {d_x}) = (..., n_clients, dim_x)")
        with pytest.raises(ValueError, match=message):
            method(np.ones((n, d_x + 1)), c.lam)
        message = re.escape(f"lam: shape {(d_lam,)} given, needed (..., {n}, {d_lam}) = (..., n_clients, dim_lam)")
        with pytest.raises(ValueError, match=message):
            method(c.x, c.lam[0])
        with pytest.raises(TypeError, match="x: dtype float32 given, needed the problem's dtype float64"):
            method(c.x.astype("float32"), c.lam)
        with pytest.raises(TypeError, match="lam: arrays must be arrays of a library"):
            method(c.x, c.lam.tolist())
        with pytest.raises(ValueError, match=r"run axes do not broadcast: x has \(2,\), lam has \(3,\)"):
            method(np.stack([c.x] * 2), np.stack([c.lam] * 3))
    lin = c.problem.linearize(c.x, c.lam)
    for apply in (lin.hvp, lin.cross):
        with pytest.raises(ValueError, match=re.escape(f"u: shape {(n, d_x + 2)} given, needed")):
            apply(np.ones((n, d_x + 2)))
        with pytest.raises(TypeError, match="u: dtype float32 given"):
            apply(c.u.astype("float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_libraries(kind):
    strict = pytest.importorskip("array_api_strict")
    c = make(kind)
    for method in methods(c):
        with pytest.raises(TypeError, match=r"x: array_api_strict.* given, needed numpy.ndarray as the problem's data"):
            method(strict.asarray(c.x), c.lam)


def test_mixed_devices():
    strict = pytest.importorskip("array_api_strict")
    c = make("logistic")
    problem = c.problem.to("array_api_strict")
    with pytest.raises(TypeError, match="x: on device .*CPU_DEVICE.*, needed the problem's device .*device1"):
        problem.inner_cost(strict.asarray(c.x), strict.asarray(c.lam))


@pytest.mark.parametrize("kind", LINEAR)
def test_bad_batches(kind):
    c = make(kind)  # clients of 5, 8 and 6 instances
    p = c.problem
    for method in (p.inner_cost, p.inner_grad, p.linearize, p.hessian, p.jacobian):
        with pytest.raises(ValueError, match=r"batch: shape \(3, 0\) given, needed \(\.\.\., 3, b\) .* with b >= 1"):
            method(c.x, c.lam, np.zeros((3, 0), dtype=int))
        with pytest.raises(ValueError, match=r"batch: shape \(2, 4\) given, needed \(\.\.\., 3, b\)"):
            method(c.x, c.lam, np.zeros((2, 4), dtype=int))
        with pytest.raises(TypeError, match="batch: dtype float64 given, needed signed integers"):
            method(c.x, c.lam, np.zeros((3, 4)))
        with pytest.raises(TypeError, match="batch: arrays must be arrays of a library"):
            method(c.x, c.lam, [[0], [0], [0]])
        with pytest.raises(
            ValueError, match="batch: client 0 has 5 instances, needed indices from 0 to 4 or -1 .* got 5"
        ):
            method(c.x, c.lam, np.array([[5], [7], [5]]))  # 5 exists in the padding of client 0
        with pytest.raises(ValueError, match="batch: client 2 has 6 instances, .* got -2"):
            method(c.x, c.lam, np.array([[4], [7], [-2]]))


def test_a_quadratic_has_no_batches():
    c = make("quadratic")
    assert not hasattr(c.problem, "counts")
    for method in (c.problem.inner_cost, c.problem.inner_grad, c.problem.linearize, c.problem.hessian):
        with pytest.raises(ValueError, match="batch: given, but a Quadratic has no instances; needed None"):
            method(c.x, c.lam, np.zeros((3, 1), dtype=int))
