"""Mini-batches prepared on the host: the same numbers, the same errors, and few operations on a device."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import LIBRARIES, assert_same, open_library

from hgp_ref.problems import as_problem, sample_batches

from .cases import make


def drawn(problem, runs=()):
    """Two steps of two streams, with clients of fewer instances than the batch, (2, 2, [runs,] n, b)."""
    seeds = range(runs[0]) if runs else [0]
    each = [[sample_batches(problem.counts, 6, seed, 0, 2, stream=s) for seed in seeds] for s in (0, 1)]
    batches = np.moveaxis(np.asarray(each), 2, 0)  # (count, streams, runs, n, b)
    return batches if runs else batches[:, :, 0]


@pytest.mark.parametrize("runs", [(), (3,)], ids=["one run", "runs"])
@pytest.mark.parametrize("kind", ["logistic", "softmax-client", "weights"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_prepared_batches_are_the_plain_ones(library, kind, runs):
    lib, c = open_library(library), make(kind)
    there = as_problem(c.problem.to(lib.backend, device=lib.device))
    host, (x, lam) = drawn(c.problem, runs), map(lib.asarray, (c.x, c.lam))
    u = np.broadcast_to(c.u, (*runs, *c.u.shape)).copy()
    prepared = there.prepare_batches(host, like=x)
    for key in ((0, 0), (1, 1)):
        expected = c.problem.linearize(c.x, c.lam, host[key])
        lin = there.linearize(x, lam, batch=prepared[key])
        assert_same(lin.hvp(lib.asarray(u)), expected.hvp(u), lib)
        assert_same(lin.cross(lib.asarray(u)), expected.cross(u), lib)
        assert_same(there.inner_grad(x, lam, batch=prepared[key]), c.problem.inner_grad(c.x, c.lam, host[key]), lib)
        assert_same(there.inner_cost(x, lam, batch=prepared[key]), c.problem.inner_cost(c.x, c.lam, host[key]), lib)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("wrong", [8, -2])
def test_an_instance_that_is_not_there_is_refused_everywhere(library, wrong):
    lib, c = open_library(library), make("logistic")
    batches = drawn(c.problem)
    batches[1, 1, 2, 0] = wrong
    with pytest.raises(ValueError, match=rf"batch must hold indices from 0 to 5 .* for client 2, got {wrong}"):
        c.problem.to(lib.backend, device=lib.device).prepare_batches(batches, lib.asarray(c.x))


# softmax: five of them keep the digits of curvatures where a class is nearly sure
@pytest.mark.parametrize(
    ("kind", "most"), [("logistic", 20), ("softmax", 28), ("weights", 44), ("weights-softmax", 50)]
)
def test_launches_of_two_linearizations_and_their_products(kind, most, counted):
    """Launches are few, and nothing crosses the bus."""
    lib, c = open_library("cupy"), make(kind, 2)
    there = as_problem(c.problem.to(lib.backend, device=lib.device))
    x, lam, u = map(lib.asarray, (c.x, c.lam, c.u))
    prepared = there.prepare_batches(drawn(c.problem), like=x)
    counted.reset()
    there.linearize(x, lam, batch=prepared[0, 0]).cross(u)
    there.linearize(x, lam, batch=prepared[0, 1]).hvp(u)
    assert 10 < counted.launches <= most
    assert counted.number == 0
