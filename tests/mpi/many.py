"""On several ranks: 100,000 clients of logistic regression over RandomOut, equal to the simulation bit for bit.

mpiexec -n 4 python tests/mpi/many.py [CLIENTS]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

import hgp_ref as hgp

COMM = MPI.COMM_WORLD
N, D = 8, 16


def problem_of(n):
    rng = np.random.default_rng(0)
    X, X_val = (rng.standard_normal((n, rows, D), dtype=np.float32) for rows in (N, 2))
    y, y_val = (rng.integers(0, 2, (n, rows)).astype(np.float32) for rows in (N, 2))
    return hgp.problems.LogisticRegression(X, y, X_val, y_val), np.full((n, D), 0.2, np.float32)


def work(problem, lam, net, mode):
    """Training on mini-batches, and an estimate at its end: x, v, and what both have sent."""
    fit = hgp.train(problem, lam, net, hgp.training.SGP(steps=10, lr=0.3, mode=mode, batches=4))
    average = hgp.PushSum(net, 3, mode=mode)
    with pytest.warns(hgp.ConvergenceWarning, match="tol=1e-09 was not met in 5 iterations"):
        est = hgp.hypergradient(problem, fit.x, lam, average, eta=0.3, iterations=5, tol=1e-9, batches=4)
    return fit.x, est.value, fit.traffic + est.traffic


def main(n):
    problem, lam = problem_of(n)
    base = hgp.networks.RandomOut(n, 4, seed=1)
    started = time.perf_counter()
    whole = work(problem, lam, base, "stepping") if COMM.rank == 0 else None
    alone = time.perf_counter() - started
    COMM.Barrier()
    net = hgp.mpi.spread(base, COMM)
    before, started = net.mpi_traffic, time.perf_counter()
    x, v, traffic = work(problem.restrict(net.clients), lam[net.clients], net, "auto")
    seconds, sent = time.perf_counter() - started, net.mpi_traffic.bytes - before.bytes
    x, v = hgp.mpi.gather(x, net), hgp.mpi.gather(v, net)
    if COMM.rank == 0:
        np.testing.assert_array_equal(x, whole[0], strict=True)
        np.testing.assert_array_equal(v, whole[1], strict=True)
        assert traffic == whole[2]
        print(
            f"{n} clients on {COMM.size} ranks: equal bit for bit, {traffic.messages} messages of "
            f"{traffic.bytes / 1e9:.2f} GB between clients; rank 0 handed {sent / 1e9:.2f} GB to MPI; "
            f"{seconds:.1f} s, one process {alone:.1f} s"
        )


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)  # five iterations are no estimate
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
