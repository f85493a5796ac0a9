"""Costs written in PyTorch or JAX, as problems: the same numbers as the built-in logistic regression."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers import assert_same, open_library

from hgp_ref.problems import Problem, from_jax, from_torch

from .cases import make


def costs(lib, problem):
    """Client-wise logistic regression (coordinate-wise rates) in the library's own words."""
    f = lib.xp
    train, val = problem._train, problem._val

    def mean_loss(data, i, x, rows):
        X, s = lib.asarray(data.all.features)[i], lib.asarray(data.all.targets)[i, :, 0]
        X, s = (X[: data.counts[i]], s[: data.counts[i]]) if rows is None else (X[rows], s[rows])
        return f.mean(f.log1p(f.exp(-s * (X @ x))))

    def inner(i, x, lam, batch):
        return mean_loss(train, i, x, batch) + 0.5 * f.sum(lam * x * x)

    return inner, lambda i, x, lam: mean_loss(val, i, x, None)


@pytest.fixture(params=["torch", "jax"])
def adapted(request):
    lib = open_library(request.param)
    c = make("logistic")
    inner, outer = costs(lib, c.problem)
    make_problem = from_torch if request.param == "torch" else from_jax
    sizes = c.problem.n_clients, c.problem.dim_x, c.problem.dim_lam
    return lib, c, make_problem, (inner, outer, *sizes)


@pytest.mark.parametrize("mini", [False, True])
def test_the_same_as_the_built_in_problem(adapted, mini):
    lib, c, make_problem, given = adapted
    problem = make_problem(*given, counts=c.problem.counts)
    assert isinstance(problem, Problem)
    x, lam, u = map(lib.asarray, (c.x, c.lam, c.u))
    host, batch = (c.batch, lib.asarray(c.batch)) if mini else (None, None)
    expected = c.problem.linearize(c.x, c.lam, host)
    assert_same(problem.inner_cost(x, lam, batch), c.problem.inner_cost(c.x, c.lam, host), lib)
    assert_same(problem.inner_grad(x, lam, batch), c.problem.inner_grad(c.x, c.lam, host), lib)
    assert_same(problem.outer_cost(x, lam), c.problem.outer_cost(c.x, c.lam), lib)
    for actual, value in zip(problem.outer_grad(x, lam), c.problem.outer_grad(c.x, c.lam), strict=True):
        assert_same(actual, value, lib)
    lin = problem.linearize(x, lam, batch)
    for _ in range(2):  # the graph outlives its first use
        assert_same(lin.hvp(u), expected.hvp(c.u), lib)
        assert_same(lin.cross(u), expected.cross(c.u), lib)


def test_derivatives_that_do_not_exist_are_zero(adapted):
    lib, c, make_problem, (_, _, *sizes) = adapted
    problem = make_problem(lambda i, x, lam, batch: lib.xp.sum(x), lambda i, x, lam: lib.xp.sum(lam), *sizes)
    x, lam = lib.asarray(c.x), lib.asarray(c.lam)
    lin = problem.linearize(x, lam)
    assert_same(lin.hvp(x), np.zeros_like(c.x), lib)
    assert_same(lin.cross(x), np.zeros_like(c.lam), lib)
    along_x, along_lam = problem.outer_grad(x, lam)
    assert_same(along_x, np.zeros_like(c.x), lib)
    assert_same(along_lam, np.ones_like(c.lam), lib)


def test_bad_input(adapted):
    lib, c, make_problem, given = adapted
    inner, outer, n, d_x, d_lam = given
    x, lam = lib.asarray(c.x), lib.asarray(c.lam)
    problem = make_problem(*given)
    with pytest.raises(ValueError, match="batch: given, but the problem was made without counts"):
        problem.inner_grad(x, lam, lib.asarray(c.batch))
    with pytest.raises(ValueError, match=r"x: shape \(3, 1\) given, needed \(3, 2\)"):
        problem.inner_grad(x[:, :1], lam)
    with pytest.raises(ValueError, match=r"u: shape \(3, 1\) given, needed \(3, 2\)"):
        problem.linearize(x, lam).hvp(x[:, :1])
    with pytest.raises(TypeError, match="mixed array libraries: x is numpy|lam is"):
        problem.inner_grad(c.x, lam)
    with pytest.raises(ValueError, match=r"inner_cost: client 0 returned shape \(2,\), needed a scalar"):
        make_problem(lambda i, x, lam, batch: x, outer, n, d_x, d_lam).inner_cost(x, lam)
    with pytest.raises(TypeError, match="outer_cost: int given, needed a function"):
        make_problem(inner, 3, n, d_x, d_lam)
    with pytest.raises(ValueError, match="dim_lam: 0 given, needed an integer of at least 1"):
        make_problem(inner, outer, n, d_x, 0)
    with pytest.raises(ValueError, match=r"counts: shape \(2,\) given, needed \(3,\)"):
        make_problem(*given, counts=[1, 2])
    with pytest.raises(ValueError, match=r"batch: shape \(3, 0\) given, needed \(3, b\) with b >= 1"):
        make_problem(*given, counts=[5, 8, 6]).inner_grad(x, lam, lib.asarray(c.batch[:, :0]))


def test_torch_without_recording_still_differentiates():
    torch = pytest.importorskip("torch")
    problem = from_torch(lambda i, x, lam, b: torch.sum(lam * x**3), lambda i, x, lam: torch.sum(x), 1, 2, 2)
    x = torch.tensor([[1.0, 2.0]])
    with torch.no_grad():
        lin = problem.linearize(x, x)
        assert lin.hvp(torch.ones_like(x)).tolist() == [[6.0, 24.0]]  # 6 lam x
        assert problem.inner_grad(x, x).tolist() == [[3.0, 24.0]]


@pytest.mark.parametrize(("make_problem", "library"), [(from_torch, "torch"), (from_jax, "jax")])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, make_problem, library):
    monkeypatch.setitem(sys.modules, library, None)  # importing it now raises ImportError
    with pytest.raises(ImportError, match=rf"'{library}' is not installed: pip install 'hgp_ref\[{library}\]'"):
        make_problem(len, len, 1, 1, 1)
