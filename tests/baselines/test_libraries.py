"""Other methods on every array library: the numbers of NumPy, in its own arrays, with the same traffic."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import JAX_SLOW, assert_same, open_library

from baselines.test_bilevel import CALLS, net_of, setting
from hgp_ref import baselines

NAMES = JAX_SLOW
ESTIMATORS = [
    ("dsoba", dict(step=0.2)),
    ("ma_dsbo", dict(step=0.2)),
    *(("sparkle", dict(rule=rule, step=0.2)) for rule in ("ED", "EXTRA", "GT")),
    ("gbdsbo", dict(step=0.3, ell=1.0, terms=4)),
    ("mdbo", dict(terms=4, ell=2.0)),
    ("fednest", dict(terms=4, ell=1.5, draw=1)),
    ("dbo", dict(step=0.2)),
    ("fab", dict(step=0.02, penalty=5.0)),
]


@pytest.fixture(params=NAMES, scope="module")
def lib(request):
    return open_library(request.param)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_bilevel_methods(name, shared, lib):
    problem, x, lam = setting()
    run = lambda p, put: getattr(baselines, name)(  # noqa: E731
        p, put(lam), net_of(name), 3, x0=put(x), shared=shared, batches=5, **CALLS[name]
    )
    expected = run(problem, np.asarray)
    path = run(problem.to(lib.asarray(np.ones(1))), lib.asarray)
    assert_same(path.lam, expected.lam, lib, rtol=1e-11)
    assert_same(path.x, expected.x, lib, rtol=1e-11)
    assert path.traffic == expected.traffic


def test_estimators(lib):
    problem, x, lam = setting()
    other = problem.to(lib.asarray(np.ones(1)))
    for name, settings in ESTIMATORS:
        expected = baselines.at_point(problem, x, lam, net_of(name), name, iterations=4, **settings)
        est = baselines.at_point(other, lib.asarray(x), lib.asarray(lam), net_of(name), name, iterations=4, **settings)
        assert_same(est.history, expected.history, lib, rtol=1e-11)
        assert est.traffic == expected.traffic
