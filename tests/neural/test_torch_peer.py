"""The PyTorch implementation of the benchmark computes the same as hgp_ref."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

from benchmarks.neural import problem_of

RTOL = 1e-3  # float32, through double backward


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_loop_and_vmap_are_the_problem():
    peers = pytest.importorskip("benchmarks.peers.torch_networks", exc_type=ImportError)
    problem, (x, lam, X, y, u) = problem_of(2, 3)
    peer = peers.Clients(x, lam, X, y, u)

    def rows(parts):
        return np.stack([np.concatenate([a.detach().numpy().ravel() for a in part]) for part in parts])

    hvp, cross = problem.linearize(x, lam).products(u)
    assert_close(rows(peer.gradient()), problem.inner_grad(x, lam), RTOL)
    second = peer.second(peer.graphs(), False, True)
    assert_close(rows([part[:-1] for part in second]), hvp, RTOL)
    assert_close(rows([part[-1:] for part in second]), cross, RTOL)
    by_vmap = [call() for call in peer.by_vmap()]
    for stacked, expected in zip(by_vmap, (problem.inner_grad(x, lam), hvp), strict=True):
        assert_close(rows([[a[i] for a in stacked] for i in range(2)]), expected, RTOL)
