"""Costs in JAX by one call for all clients: the same numbers as the loop, to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close, open_library

from hgp_ref.problems import from_jax

N, D, COUNT = 4, 3, 6


@pytest.fixture
def setting():
    lib = open_library("jax")
    rng = np.random.default_rng(0)
    data = lib.asarray(rng.standard_normal((2, N, COUNT, D)))
    f = lib.xp

    def inner(i, x, lam, batch):
        X = data[0, i] if batch is None else data[0, i][batch]
        return f.mean(f.log1p(f.exp(-(X @ f.tanh(x))))) + 0.5 * f.sum(f.exp(lam) * x * x) + 0.1 * i * x[0] ** 2

    def outer(i, x, lam):
        return f.mean((data[1, i] @ x) ** 2) + f.sum(lam**2)

    return lib, inner, outer, [lib.asarray(rng.standard_normal((N, D))) for _ in range(3)]


def everything(problem, x, lam, u, batch=None):
    lin = problem.linearize(x, lam, batch)
    return [problem.inner_cost(x, lam, batch), problem.inner_grad(x, lam, batch), problem.outer_cost(x, lam),
            *problem.outer_grad(x, lam), lin.hvp(u), lin.cross(u), *lin.products(u)]  # fmt: skip


def count_calls(cost, calls):
    def counted(i, *rest):
        calls.append(i)
        return cost(i, *rest)

    return counted


@pytest.mark.parametrize("batch", [None, [[0, 1]] * N, [[0, 1]] * (N - 1) + [[3, -1]]], ids=["full", "mini", "padded"])
def test_the_same_as_the_loop(setting, batch):
    lib, inner, outer, point = setting
    calls = []
    together = from_jax(count_calls(inner, calls), outer, N, D, D, counts=[COUNT] * N, vmap=True)
    loop = from_jax(inner, outer, N, D, D, counts=[COUNT] * N)
    arguments = (*point, None if batch is None else lib.asarray(np.array(batch)))
    for ours, expected in zip(everything(together, *arguments), everything(loop, *arguments), strict=True):
        assert_close(lib.to_numpy(ours), lib.to_numpy(expected), 1e-12)
    padded = batch is not None and -1 in batch[-1]
    assert all(isinstance(i, int) == padded for i in calls)


def test_restricted_clients_keep_their_numbers(setting):
    lib, inner, outer, point = setting
    whole = from_jax(inner, outer, N, D, D, vmap=True)
    which = np.array([3, 1])
    some = everything(whole.restrict(which), *(a[which] for a in point))
    for ours, expected in zip(some, everything(whole, *point), strict=True):
        assert_close(lib.to_numpy(ours), lib.to_numpy(expected)[which], 1e-12)


def test_a_number_used_as_pythons_is_explained(setting):
    _, _, outer, (x, lam, _) = setting
    parts = [1.0, 2.0, 3.0, 4.0]
    for cost in (lambda i, x, lam, batch: parts[i] * x[0], lambda i, x, lam, batch: x[0] if i == 1 else x[1]):
        problem = from_jax(cost, outer, N, D, D, vmap=True)
        with pytest.raises(TypeError, match=r"inner_cost must not use the client's number i .* vmap=False"):
            problem.inner_grad(x, lam)


def test_bad_input(setting):
    lib, inner, outer, (x, lam, _) = setting
    with pytest.raises(TypeError, match="vmap must be .*, got 1"):
        from_jax(inner, outer, N, D, D, vmap=1)
    problem = from_jax(inner, outer, N, D, D, vmap=True)
    with pytest.raises(ValueError, match="batch must be None for a problem without counts, got an array"):
        problem.inner_grad(x, lam, lib.asarray(np.zeros((N, 1), dtype=np.int64)))
    wrong = from_jax(lambda i, x, lam, batch: x, outer, N, D, D, vmap=True)
    with pytest.raises(
        ValueError, match=r"inner_cost must return a scalar array of shape \(\), got shape \(3,\) for client i"
    ):
        wrong.inner_cost(x, lam)


@pytest.mark.parametrize("vmap", [False, True])
def test_costs_that_compute_with_numpy_are_told_to_use_jax(setting, vmap):
    lib, _, outer, (x, lam, _) = setting
    data = np.ones((N, D))
    costs = {
        True: lambda i, x, lam, batch: lib.xp.sum(data[i] * x),
        False: lambda i, x, lam, batch: np.asarray(x).sum(),
    }
    problem = from_jax(costs[vmap], outer, N, D, D, vmap=vmap)
    assert repr(problem) == f"<JaxProblem: n_clients={N}, dim_x={D}, dim_lam={D}>"
    with pytest.raises(TypeError, match="inner_cost must compute with jax.numpy on arrays of JAX"):
        problem.inner_grad(x, lam)
