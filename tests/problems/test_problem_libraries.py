"""The same code on every array library: the numbers of NumPy, on the same device, without a transfer to the host."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_same

from hgp_ref.backend import host_dtype
from hgp_ref.problems import InstanceWeights, SoftmaxRegression

from .cases import COUNTS, VAL_COUNTS, data, make, settings

RTOL = 1e-12


def methods(problem, x, lam, u, batch):
    lin = problem.linearize(x, lam, batch)
    along_x, along_lam = problem.outer_grad(x, lam)
    return [problem.inner_cost(x, lam, batch), problem.inner_grad(x, lam, batch), problem.outer_cost(x, lam), along_x,
            along_lam, lin.hvp(u), lin.cross(u), problem.hessian(x, lam, batch),
            problem.jacobian(x, lam, batch)]  # fmt: skip


@pytest.mark.parametrize("setting", settings(), ids=str)
def test_every_library_gives_the_same_numbers(xp, setting):
    kind, d, mini = setting
    c = make(kind, d)
    batch = c.batch if mini else None
    u = np.stack([c.u, 2 * c.x])  # a run axis
    expected = methods(c.problem, c.x, c.lam, u, batch)
    if "sparse" in kind and xp.name == "array_api_strict":
        with pytest.raises(
            TypeError, match="sparse features need arrays of NumPy, CuPy, PyTorch or JAX, got array_api_s"
        ):
            c.problem.to(xp.asarray(c.x))
        return
    moved = c.problem.to(xp.asarray(c.x))
    placed = None if batch is None else xp.asarray(batch)
    for actual, value in zip(methods(moved, *map(xp.asarray, (c.x, c.lam, u)), placed), expected, strict=True):
        assert_same(actual, value, xp, RTOL)


@pytest.mark.parametrize("kind", ["quadratic", "logistic", "weights-softmax"])
def test_float32_stays_float32(xp, kind):
    c = make(kind, 2, dtype="float32")
    reference = make(kind, 2)
    moved = reference.problem.to(xp.asarray(c.x), dtype="float32")
    expected = methods(c.problem, c.x, c.lam, c.u, c.batch)
    placed = None if c.batch is None else xp.asarray(c.batch.astype("int32"))
    for actual, value in zip(methods(moved, *map(xp.asarray, (c.x, c.lam, c.u)), placed), expected, strict=True):
        assert_same(actual, value, xp)


def test_constructors_take_arrays_of_the_library(xp):
    rng = np.random.default_rng(2)
    arrays = (*data(rng, COUNTS, 2, 3, "float64"), *data(rng, VAL_COUNTS, 2, 3, "float64"))
    placed = tuple([xp.asarray(a) for a in part] for part in arrays)
    for kind, options in ((SoftmaxRegression, {}), (InstanceWeights, {"loss": "softmax"})):
        host, there = kind(*arrays, **options), kind(*placed, **options)
        x = rng.standard_normal((3, host.dim_x))
        lam = rng.uniform(1, 2, (3, host.dim_lam))
        assert_same(there.inner_grad(xp.asarray(x), xp.asarray(lam)), host.inner_grad(x, lam), xp, RTOL)
        assert there.counts.tolist() == list(COUNTS)


def test_moving_there_and_back_changes_nothing(xp):
    c = make("softmax")
    back = c.problem.to(xp.asarray(c.x)).to("numpy")
    np.testing.assert_array_equal(back.inner_cost(c.x, c.lam), c.problem.inner_cost(c.x, c.lam))
    assert host_dtype(back.inner_cost(c.x, c.lam)) == "float64"


def test_an_index_out_of_range_is_never_a_number(xp):
    """On NumPy an error; where looking would stop the device, NaN for that client and for it alone."""
    c = make("logistic")  # clients of 5, 8 and 6 instances
    moved = c.problem.to(xp.asarray(c.x))
    if xp.name == "numpy":
        with pytest.raises(ValueError, match="batch must hold indices from 0 to 4 .* for client 0"):
            moved.inner_grad(c.x, c.lam, np.array([[0, 5], [0, 7], [0, 5]]))
        return
    grad = moved.inner_grad(xp.asarray(c.x), xp.asarray(c.lam), xp.asarray(np.array([[0, 5], [0, 7], [0, 5]])))
    assert np.all(np.isnan(xp.to_numpy(grad)), axis=1).tolist() == [True, False, False]
    grad = moved.inner_grad(xp.asarray(c.x), xp.asarray(c.lam), xp.asarray(np.array([[0, 4], [0, 99], [-2, 5]])))
    assert np.all(np.isnan(xp.to_numpy(grad)), axis=1).tolist() == [False, True, True]


def test_no_method_transfers_anything(counted):
    from support.libraries import open_library

    lib = open_library("cupy")
    for kind, d, mini in settings():
        c = make(kind, d)
        moved = c.problem.to(lib.asarray(c.x))
        point = [lib.asarray(a) for a in (c.x, c.lam, c.u)]
        batch = lib.asarray(c.batch) if mini else None
        counted.reset()
        methods(moved, *point, batch)
        assert counted.to_device == counted.to_host == 0, (kind, d, mini)
