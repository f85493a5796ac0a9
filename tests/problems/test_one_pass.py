"""One compiled pass over the data against the formula X^T (s (X u)) + r u by matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref import _numba
from hgp_ref.problems import InstanceWeights, LogisticRegression, SoftmaxRegression, linear


def arrays(shape, dtype, seed=0):
    *lead, N, d = shape
    rng = np.random.default_rng(seed)
    X, s, u = rng.normal(size=shape), rng.random((*lead, N, 1)), rng.normal(size=(*lead, d))
    return X.astype(dtype), s.astype(dtype), u.astype(dtype)


def tolerance(X, s, u):
    """Rounding of both products, in any order of their sums."""
    N, d = X.shape[-2:]
    sizes = np.swapaxes(np.abs(X), -1, -2) @ (s * (np.abs(X) @ np.abs(u)[..., None]))
    return 2 * (N + d + 2) * np.finfo(X.dtype).eps * sizes[..., 0]


def eps(a):
    return np.finfo(a.dtype).eps * np.abs(a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15])  # all remainders of four rows
@pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=["clients", "runs"])
def test_one_pass_is_two_products(lead, N, dtype):
    X, s, u = arrays((*lead, N, 37), dtype)
    exact = X.astype(np.float64)
    expected = np.swapaxes(exact, -1, -2) @ (s * (exact @ u.astype(np.float64)[..., None]))
    for r in (0.5, np.abs(u), np.full((*u.shape[:-1], 1), 0.25, dtype)):  # a number, one per coordinate, one per client
        assert np.all(
            np.abs(linear.fused_hvp(X, s, r, u) - expected[..., 0] - r * u) <= tolerance(X, s, u) + 2 * eps(r * u)
        )


def test_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(_numba, "GRAIN", 1)
    X, s, u = arrays((11, 9, 50), "float64")
    results = []
    for number in (1, 2, 5):
        with _numba.limited(number):
            results.append(linear.fused_hvp(X, s, 0.1, u))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_infinite_values_pass_through():
    X, s, u = arrays((2, 8, 16), "float64")
    u[1, 3] = np.inf
    Hu = linear.fused_hvp(X, s, 0.1, u)
    assert np.all(np.isfinite(Hu[0])) and not np.any(np.isfinite(Hu[1]))


def problem(kind, dtype="float64"):
    rng = np.random.default_rng(5)
    n, N, d = 4, 12, 30  # fewer instances than features: no Hessian is kept
    X, X_val = rng.normal(size=(2, n, N, d)).astype(dtype)
    y, y_val = rng.integers(0, 2, size=(2, n, N))
    if kind == "weights":
        return InstanceWeights(X, y, X_val, y_val, l2=0.1)
    return (LogisticRegression if kind == "logistic" else SoftmaxRegression)(X, y, X_val, y_val)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["logistic", "weights"])
@pytest.mark.parametrize("batch", [None, "batch", "batch with runs"])
def test_problems_give_the_same_with_and_without(kind, batch, dtype, monkeypatch):
    p = problem(kind, dtype)
    rng = np.random.default_rng(7)
    lead = (3,) if batch == "batch with runs" else ()
    x, lam = rng.normal(size=(4, p.dim_x)).astype(dtype), np.full((4, p.dim_lam), 0.1, dtype=dtype)
    u = rng.normal(size=(*lead, 4, p.dim_x)).astype(dtype)
    index = None if batch is None else rng.integers(-1, 12, size=(*lead, 4, 6))
    passes = []
    whole = linear.fused_hvp
    monkeypatch.setattr(linear, "fused_hvp", lambda *a: passes.append(1) or whole(*a))
    text = p.linearize(x, lam, batch=index).hvp(u)
    assert passes == []  # small data: the text
    monkeypatch.setattr(linear, "SMALLEST", 0)
    one_pass = p.linearize(x, lam, batch=index).hvp(u)
    assert passes == [1]
    assert one_pass.dtype == text.dtype and one_pass.shape == text.shape
    np.testing.assert_allclose(one_pass, text, rtol=0, atol=200 * np.finfo(dtype).eps * np.abs(text).max())


def test_several_logits_or_runs_over_shared_data_take_the_text(monkeypatch):
    monkeypatch.setattr(linear, "SMALLEST", 0)
    monkeypatch.setattr(linear, "fused_hvp", None)  # a call would raise TypeError
    for kind, lead in (("softmax", ()), ("logistic", (2,))):
        p = problem(kind)
        u = np.ones((*lead, 4, p.dim_x))
        p.linearize(np.zeros((4, p.dim_x)), np.zeros((4, p.dim_lam))).hvp(u)
