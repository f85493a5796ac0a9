"""Other methods on every array library: the numbers of NumPy, in its own arrays, with the same traffic."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import LIBRARIES, assert_same, open_library

import hgp_ref as hgp
from baselines import loops
from baselines.test_bilevel import CALLS, NET, net_of, setting
from hgp_ref import baselines
from hgp_ref.methods import Descent, HessianGossip, LocalNeumann, RandomTerm

NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == "jax" else name for name in LIBRARIES]
METHODS = [*(Descent(rule, 0.2) for rule in loops.LOOPS), HessianGossip(0.3, 1.0, 4), LocalNeumann(0.5)]


@pytest.fixture(params=NAMES, scope="module")
def lib(request):
    return open_library(request.param)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_bilevel_methods(name, shared, lib):
    problem, x, lam = setting()
    run = lambda p, put: getattr(baselines, name)(  # noqa: E731
        p, put(lam), net_of(name), 3, x0=put(x), shared=shared, batch_size=5, **CALLS[name]
    )
    expected = run(problem, np.asarray)
    path = run(problem.to(lib.asarray(np.ones(1))), lib.asarray)
    assert_same(path.lam, expected.lam, lib, rtol=1e-11)
    assert_same(path.x, expected.x, lib, rtol=1e-11)
    assert path.traffic == expected.traffic


@pytest.mark.filterwarnings("ignore:not converged")
def test_estimators(lib):
    problem, x, lam = setting()
    moved = problem.to(lib.asarray(np.ones(1)))
    for method in [*METHODS, RandomTerm(4, 1.5, draw=1)]:
        avg = hgp.Gossip(NET, 1)
        expected = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=4)
        est = hgp.hypergradient(moved, lib.asarray(x), lib.asarray(lam), avg, method=method, iterations=4)
        assert_same(est.value, expected.value, lib, rtol=1e-11)
    expected = baselines.at_point(problem, x, lam, NET, "dbo", iterations=3, step=0.2)
    assert_same(
        baselines.at_point(moved, lib.asarray(x), lib.asarray(lam), NET, "dbo", iterations=3, step=0.2).history,
        expected.history,
        lib,
        rtol=1e-11,
    )
