"""The outer loop gives NumPy's numbers on every array library, and leaves arrays where they were."""

from __future__ import annotations

import numpy as np
import pytest
from support.four_clients import NET, PROBLEMS, point
from support.libraries import LIBRARIES, assert_same, open_library

from hgp_ref.bilevel import Adam, Box, CertifiedDescent, Estimator, optimise
from hgp_ref.networks import FullyConnected
from hgp_ref.training import SGP

PAIRS = [(lib, dtype) for lib in LIBRARIES if lib != "jax" for dtype in ("float64", "float32")]
PAIRS += [pytest.param(("jax", "float64"), marks=pytest.mark.slow)]
RUNS = {
    "log rates, mini-batches": ("logistic", dict(train=SGP(10, 0.4, (0.6, 0.8), batches=3), update=Adam(0.1, log=True),
                                                 estimate=Estimator(3, 8, eta=1.0, batches=3))),
    "hyper-cleaning in a box": ("hyper-cleaning", dict(train=SGP(10, 0.4, (0.6, 0.8)), project=Box(-0.1, 0.7),
                                                       estimate=Estimator(3, 8, eta=1.0), update=Adam(0.3))),
}  # fmt: skip


@pytest.fixture(params=PAIRS, ids="-".join, scope="module")
def pair(request):
    return open_library(request.param[0]), request.param[1]


@pytest.mark.parametrize("name", RUNS)
def test_the_loop(pair, name, tmp_path):
    lib, dtype = pair
    kind, settings = RUNS[name]
    host = PROBLEMS[kind]()
    _, lam = point(host)
    expected = optimise(host, lam, NET, outer_steps=3, **settings)
    problem, lam = host.to(lib.backend, dtype=dtype, device=lib.device), lib.asarray(lam, dtype=dtype)
    path = optimise(problem, lam, NET, outer_steps=3, **settings)
    rtol = 1e-11 if dtype == "float64" else 3e-4
    assert_same(path.lam, expected.lam.astype(dtype), lib, rtol)
    assert_same(path.x, expected.x.astype(dtype), lib, rtol)
    np.testing.assert_allclose(path.outer_cost, expected.outer_cost, rtol=rtol)
    assert path.floats.tolist() == expected.floats.tolist()
    file = tmp_path / "loop.npz"
    optimise(problem, lam, NET, outer_steps=1, file=file, **settings)
    again = optimise(problem, lam, NET, outer_steps=3, file=file, **settings)
    assert_same(again.lam, lib.to_numpy(path.lam), lib, rtol=0)


def test_certified_steps(pair):
    lib, dtype = pair
    host = PROBLEMS["logistic"]()
    _, lam = point(host)
    settings = dict(train=SGP(60, 1.0, (0.6, 0.8)), estimate=Estimator(3, 10, eta=1.0))
    settings |= dict(update=CertifiedDescent(5.0, log=True))
    path = optimise(
        host.to(lib.backend, dtype=dtype, device=lib.device),
        lib.asarray(lam, dtype=dtype),
        FullyConnected(4),
        outer_steps=2,
        **settings,
    )
    assert len(path.outer_cost) == 3 and np.all(np.diff(path.outer_cost) < 0)
    assert all(step.interval[0] <= cost <= step.interval[1]
               for step, cost in zip(path.steps, path.outer_cost[1:], strict=True))  # fmt: skip
