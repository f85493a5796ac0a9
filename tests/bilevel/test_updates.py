"""Updates and projections against a few independent lines, and the arguments they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.libraries import assert_close, assert_same, open_library

from hgp_ref.bilevel import Adam, Box, GradientDescent, NonNegative, Simplex


def adam(lam, gradients, lr, b1, b2, eps):
    """Entry by entry, in Python's numbers."""
    out = np.array(lam)
    for place in np.ndindex(*lam.shape):
        m = s = 0.0
        for t, v in enumerate((float(g[place]) for g in gradients), start=1):
            m, s = b1 * m + (1 - b1) * v, b2 * s + (1 - b2) * v**2
            out[place] -= lr * (m / (1 - b1**t)) / (math.sqrt(s / (1 - b2**t)) + eps)
    return out


def simplex(row, total):
    """By sorting: the largest k for which the k-th largest entry stays positive."""
    u, best = sorted(row, reverse=True), 0.0
    for k in range(1, len(u) + 1):
        tau = (math.fsum(u[:k]) - total) / k
        if u[k - 1] > tau:
            best = tau
    return [max(a - best, 0.0) for a in row]


PAIRS = [("numpy", "float64"), ("array_api_strict", "float32"), ("cupy", "float64"), ("torch", "float32")]
PAIRS += [pytest.param(("jax", "float64"), marks=pytest.mark.slow)]


@pytest.fixture(params=PAIRS, ids=str)
def library(request):
    name, dtype = request.param
    return open_library(name), dtype


def test_adam(library):
    lib, dtype = library
    rng = np.random.default_rng(0)
    lam, gradients = rng.normal(size=(3, 2)).astype(dtype), rng.normal(size=(6, 3, 2)).astype(dtype)
    update = Adam(0.2, (0.7, 0.95), 1e-3)
    found, state = lib.asarray(lam), update.start(lib.asarray(lam))
    for g in gradients:
        found, state = update.step(state, found, lib.asarray(g))
    assert_same(found, adam(lam.astype(float), gradients, 0.2, 0.7, 0.95, 1e-3).astype(dtype), lib)
    assert state[0] == 6


def test_gradient_descent(library):
    lib, dtype = library
    lam, v = np.random.default_rng(1).normal(size=(2, 3, 2)).astype(dtype)
    update = GradientDescent(0.3)
    found, state = update.step(update.start(lib.asarray(lam)), lib.asarray(lam), lib.asarray(v))
    assert_same(found, (lam - np.asarray(0.3, dtype) * v).astype(dtype), lib)
    assert state == ()


def test_projections(library):
    lib, dtype = library
    lam = (2 * np.random.default_rng(2).normal(size=(4, 5))).astype(dtype)
    assert_same(Box(-0.5, 1.5)(lib.asarray(lam)), np.clip(lam, -0.5, 1.5), lib)
    assert_same(NonNegative()(lib.asarray(lam)), np.maximum(lam, 0), lib)
    expected = np.array([simplex(row.tolist(), 2.0) for row in lam], dtype=dtype)
    assert_same(Simplex(2.0)(lib.asarray(lam)), expected, lib)


def test_a_box_may_be_one_point(library):
    lib, dtype = library
    lam = np.array([[-2.0, 1.0, 3.0]], dtype=dtype)
    assert_same(Box(1, 1)(lib.asarray(lam)), np.ones_like(lam), lib)
    assert (Box(1, 1).low, Box(1, 1).high) == (1.0, 1.0)


rows = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8)


@settings(max_examples=200)
@given(rows, st.floats(1e-3, 1e3))
def test_the_simplex_by_sorting(row, total):
    found = Simplex(total)(np.array([row]))[0]
    scale = max(map(abs, row)) + total
    assert_close(found, np.array(simplex(row, total)), 1e-12 * scale / max(found.max(), 1e-300))
    assert found.min() >= 0 and abs(found.sum() - total) <= 1e-12 * len(row) * scale


@settings(max_examples=100)
@given(rows, rows.map(np.array))
def test_the_simplex_projection_is_the_nearest_point(row, other):
    """⟨λ − Πλ, μ − Πλ⟩ ≤ 0 for every μ of the set: the corners will do."""
    lam = np.array(row)
    nearest = Simplex()(lam[None])[0]
    corners = np.eye(len(row))
    assert np.all((corners - nearest) @ (lam - nearest) <= 1e-12 * (1 + np.abs(lam).max()) * len(row))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(-1.0), "^lr must be a finite number > 0, got -1.0"),
        (lambda: Adam(0.1, (0.9, 1.0)), r"^betas must be two numbers in \[0, 1\), got \(0.9, 1.0\)"),
        (lambda: Adam(0.1, 0.9), "betas must be two numbers in .*, got 0.9"),
        (lambda: Adam(0.1, eps=0.0), "^eps must be a finite number > 0, got 0.0"),
        (lambda: GradientDescent(0), "^lr must be a finite number > 0, got 0"),
        (lambda: Box(1, 0), "^low must be <= high, got low=1, high=0"),
        (lambda: Box(0, math.inf), "^high must be a finite number, got inf"),
        (lambda: Simplex(0), "^total must be a finite number > 0, got 0"),
        (lambda: Simplex()(np.full((2, 2), np.nan)), "lam must not contain NaN or infinite values"),
        (
            lambda: Simplex(5e-324)(np.zeros((1, 2))),
            "total must be a sum that entries of lam .* can have, got 4.94066e-324",
        ),
        (lambda: Simplex(1e39)(np.zeros((1, 2), dtype=np.float32)), r"entries of lam \(float32\) can have, got 1e\+39"),
        (lambda: Simplex()([[1.0, 2.0]]), "^lam must be an array, got builtins.list"),
        (lambda: Box(0, 1)(np.ones(3)), r"lam must have shape \(..., n, d_lam\), got \(3,\)"),
    ],
)
def test_refusals(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize("total", [1e-300, 1.0, 1e300])
def test_differences_beyond_floating_point_do_not_spoil_a_projection(total):
    found = Simplex(total)(np.array([[-1e308, 1e308, 0.0, 1e-308], [-1.7e308, 1.7e308, 1.7e308, -1.7e308]]))
    np.testing.assert_array_equal(found, total * np.array([[0, 1, 0, 0], [0, 0.5, 0.5, 0]]))
