"""Costs written in PyTorch or JAX, as problems: the same numbers as the built-in logistic regression."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.libraries import assert_same, open_library

import hgp_ref as hgp
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
    lib, c, make_problem, arguments = adapted
    problem = make_problem(*arguments, counts=c.problem.counts)
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
    lib, c, make_problem, arguments = adapted
    inner, outer, n, d_x, d_lam = arguments
    x, lam = lib.asarray(c.x), lib.asarray(c.lam)
    problem = make_problem(*arguments)
    with pytest.raises(ValueError, match="batch must be None for a problem without counts, got an array"):
        problem.inner_grad(x, lam, lib.asarray(c.batch))
    with pytest.raises(ValueError, match=r"x must have shape \(3, 2\), got \(3, 1\)"):
        problem.inner_grad(x[:, :1], lam)
    with pytest.raises(ValueError, match=r"u must have shape \(3, 2\), got \(3, 1\)"):
        problem.linearize(x, lam).hvp(x[:, :1])
    with pytest.raises(TypeError, match="mixed array libraries: x is numpy|lam is"):
        problem.inner_grad(c.x, lam)
    with pytest.raises(
        ValueError, match=r"inner_cost must return a scalar array of shape \(\), got shape \(2,\) for client 0"
    ):
        make_problem(lambda i, x, lam, batch: x, outer, n, d_x, d_lam).inner_cost(x, lam)
    for call in (lambda: problem.inner_grad(c.x, c.lam), lambda: problem.linearize(c.x, c.lam),
                 lambda: hgp.hypergradient(problem, c.x, c.lam, hgp.ExactAverage(3), iterations=2)):  # fmt: skip
        with pytest.raises(
            TypeError, match=r"^x and lam must be (arrays of JAX|tensors of PyTorch) like the costs, got <float"
        ):
            call()
    with pytest.raises(TypeError, match="outer_cost must be a function, got 3"):
        make_problem(inner, 3, n, d_x, d_lam)
    for wrong in (lambda i, x, lam: x, lambda x, lam, batch: x):
        with pytest.raises(
            TypeError, match=r"^inner_cost must be .* be called as inner_cost\(i, x, lam, batch\), got <f"
        ):
            make_problem(wrong, outer, n, d_x, d_lam)
    with pytest.raises(ValueError, match="dim_lam must be an integer >= 1, got 0"):
        make_problem(inner, outer, n, d_x, 0)
    with pytest.raises(ValueError, match=r"counts must have shape \(3,\) = \(n_clients,\), got \(2,\)"):
        make_problem(*arguments, counts=[1, 2])
    with pytest.raises(ValueError, match=r"batch must have shape \(..., 3, b\) = .*, b >= 1, got \(3, 0\)"):
        make_problem(*arguments, counts=[5, 8, 6]).inner_grad(x, lam, lib.asarray(c.batch[:, :0]))


@pytest.mark.parametrize("vmap", [False, True])
def test_indices_are_looked_at(adapted, vmap):
    """JAX would take the last instance for one that does not exist; True is no index, and -2 no padding."""
    lib, c, make_problem, arguments = adapted
    if vmap and make_problem is from_torch:
        pytest.skip("vmap is an option of from_jax")
    problem = make_problem(*arguments, counts=[5, 8, 6], **({"vmap": True} if vmap else {}))
    x, lam = lib.asarray(c.x), lib.asarray(c.lam)
    for index in (8, -2):
        with pytest.raises(ValueError, match=f"batch must hold indices from 0 to 7 .* for client 1, got {index}"):
            problem.inner_grad(x, lam, lib.asarray(np.array([[0], [index], [0]])))
    for wrong in (np.ones((3, 2), dtype=bool), np.ones((3, 2))):
        with pytest.raises(TypeError, match="batch must hold signed integers .* got"):
            problem.inner_cost(x, lam, lib.asarray(wrong))


def test_torch_without_recording_still_differentiates():
    torch = pytest.importorskip("torch")
    problem = from_torch(lambda i, x, lam, b: torch.sum(lam * x**3), lambda i, x, lam: torch.sum(x), 1, 2, 2)
    x = torch.tensor([[1.0, 2.0]])
    with torch.no_grad():
        lin = problem.linearize(x, x)
        assert lin.hvp(torch.ones_like(x)).tolist() == [[6.0, 24.0]]  # 6 lam x
        assert problem.inner_grad(x, x).tolist() == [[3.0, 24.0]]


CUT = {
    "detached": lambda torch, cost: cost.detach(),
    "rounded": lambda torch, cost: torch.round(cost).to(torch.int64).to(cost.dtype),
    "made anew": lambda torch, cost: torch.tensor(float(cost.detach()), dtype=cost.dtype),
}


def torch_problem(torch, inner=None, outer=None):
    inner = inner or (lambda i, x, lam, batch: (lam * (x - 1) ** 2).sum())
    outer = outer or (lambda i, x, lam: (7 * x).square().sum())
    point = torch.linspace(0.3, 2, 6, dtype=torch.float64).reshape(2, 3)
    return from_torch(inner, outer, 2, 3, 3), point, 2 * point


@pytest.mark.parametrize("how", CUT)
def test_a_cost_without_a_graph_is_an_error_not_a_zero(how):
    torch = pytest.importorskip("torch")
    cut = CUT[how]

    def inner(i, x, lam, batch):
        whole = (lam * (7 * x - 1) ** 2).sum()
        return cut(torch, whole) if i == 1 else whole

    problem, x, lam = torch_problem(torch, inner=inner)
    for call in (problem.inner_grad, problem.linearize):
        with pytest.raises(RuntimeError, match="inner_cost: client 1's cost changes with x, but carries no graph"):
            call(x, lam)
    problem, x, lam = torch_problem(torch, outer=lambda i, x, lam: cut(torch, (9 * x * lam).sum()))
    with pytest.raises(RuntimeError, match="outer_cost: client 0's cost changes with x, but carries no graph"):
        problem.outer_grad(x, lam)


def test_hyper_parameters_without_a_graph_are_an_error_where_they_matter():
    torch = pytest.importorskip("torch")
    problem, x, lam = torch_problem(torch, inner=lambda i, x, lam, batch: (lam.detach() * x * x).sum())
    lin = problem.linearize(x, lam)
    assert torch.equal(lin.hvp(x), 2 * lam * x)
    for product in (lin.cross, lin.products):
        with pytest.raises(RuntimeError, match="inner_cost: client 0's cost changes with lam, .* second derivative"):
            product(x)
    with pytest.raises(RuntimeError, match="inner_cost: client 1's"):
        problem.restrict([1]).linearize(x[1:], lam[1:]).cross(x[1:])


def test_costs_that_do_not_depend_on_it_have_derivative_zero():
    torch = pytest.importorskip("torch")
    problem, x, lam = torch_problem(torch, inner=lambda i, x, lam, batch: (x - i).square().sum() + lam.sum())
    along_x, along_lam = problem.outer_grad(x, lam)
    assert torch.equal(along_lam, torch.zeros_like(lam)) and torch.allclose(along_x, 98 * x)
    hvp, cross = problem.linearize(x, lam).products(x)
    assert torch.equal(cross, torch.zeros_like(lam)) and torch.allclose(hvp, 2 * x)
    constant, x, lam = torch_problem(torch, inner=lambda i, x, lam, batch: torch.zeros((), dtype=x.dtype))
    assert torch.equal(constant.inner_grad(x, lam), torch.zeros_like(x))


def test_inference_mode_is_refused_with_its_name():
    torch = pytest.importorskip("torch")
    problem, x, lam = torch_problem(torch)
    with torch.inference_mode():
        for name, call in (
            ("inner_cost", problem.inner_grad), ("inner_cost", problem.linearize), ("outer_cost", problem.outer_grad),
        ):  # fmt: skip
            with pytest.raises(
                RuntimeError, match=rf"{name} must be differentiated outside of torch.inference_mode\(\)"
            ):
                call(x, lam)
        made_inside = x.clone()
        assert problem.inner_cost(x, lam).shape == (2,)  # costs need no graph
    assert torch.equal(problem.inner_grad(made_inside, lam), problem.inner_grad(x, lam))


def test_runs_under_inference_mode_are_refused():
    torch = pytest.importorskip("torch")
    problem, x, lam = torch_problem(torch)
    net = hgp.networks.FullyConnected(2)
    with torch.inference_mode():
        with pytest.raises(RuntimeError, match="cost must be .* outside of .*inference_mode"):
            hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=0.01, iterations=3)
        with pytest.raises(RuntimeError, match="inner_cost must be .* outside of .*inference_mode"):
            hgp.sgp(problem, lam, net, steps=3, lr=0.01, milestones=(0.6, 0.8))


def test_constant_derivatives_are_evaluated_once():
    torch = pytest.importorskip("torch")
    calls = []
    inner = lambda i, x, lam, batch: calls.append(i) or x.square().sum()  # noqa: E731
    problem, x, lam = torch_problem(torch, inner=inner)
    problem.linearize(x, lam).cross(x)
    calls.clear()
    problem.linearize(x, lam).cross(x)
    assert len(calls) == 2  # one cost for each client, and no further look


def test_costs_in_integers_are_refused(adapted):
    lib, c, make_problem, (inner, _, *sizes) = adapted
    problem = make_problem(inner, lambda i, x, lam: lib.xp.sum(lib.xp.astype(x > 0, lib.xp.int32)), *sizes)
    x, lam = lib.asarray(c.x), lib.asarray(c.lam)
    for call in (problem.outer_grad, problem.outer_cost):
        with pytest.raises(
            TypeError, match="outer_cost must return a real floating-point number, got .*int.* for client 0"
        ):
            call(x, lam)


def test_both_products_at_once(adapted):
    lib, c, make_problem, arguments = adapted
    x, lam, u = map(lib.asarray, (c.x, c.lam, c.u))
    lin = make_problem(*arguments).linearize(x, lam)
    hvp, cross = lin.products(u)
    assert_same(hvp, lib.to_numpy(lin.hvp(u)), lib)
    assert_same(cross, lib.to_numpy(lin.cross(u)), lib)


@pytest.mark.parametrize(("make_problem", "library"), [(from_torch, "torch"), (from_jax, "jax")])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, make_problem, library):
    monkeypatch.setitem(sys.modules, library, None)  # importing it now raises ImportError
    with pytest.raises(ImportError, match=rf"'{library}' is not installed: pip install 'hgp_ref\[{library}\]'"):
        make_problem(len, len, 1, 1, 1)
