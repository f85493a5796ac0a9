"""On two ranks: two threads of each rank make runs, over the same ranks at once, over their own, or in turn."""

from __future__ import annotations

import sys
import threading

import numpy as np
from mpi4py import MPI
from support.examples import quadratic

import hgp_ref as hgp

COMM = MPI.COMM_WORLD
N = 4
NET = hgp.networks.RandomOut(N, 2, seed=1)


def train(problem, net, lam, steps=400):
    return hgp.sgp(problem.restrict(net.clients), lam[net.clients], net, steps=steps, lr=0.1)


def together(nets):
    """What two threads of this rank have come to, each over one of the networks."""
    problem, _, lam = quadratic(n=N)
    found, begin = {}, threading.Barrier(2)

    def work(k):
        begin.wait()
        try:
            found[k] = train(problem, nets[k], lam).x
        except Exception as error:
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,), name=f"worker {k}") for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def shared():
    net = hgp.mpi.spread(NET, COMM, patience=30.0)
    for error in together([net, net]).values():
        assert isinstance(error, RuntimeError), repr(error)
        assert str(error).startswith(f"two threads of rank {COMM.rank} (worker "), error
        assert "use one thread at a time" in str(error)
    try:  # what was sent may still be under way
        train(*quadratic(n=N)[:1], net, np.zeros((N, 2)))
    except RuntimeError as error:
        assert "two threads of rank" in str(error), error
    else:
        raise AssertionError("ranks that two threads have used go on")


def own():
    nets = [hgp.mpi.spread(NET, COMM.Dup(), patience=30.0) for _ in range(2)]
    problem, _, lam = quadratic(n=N)
    alone = hgp.train(problem, lam, NET, hgp.training.SGP(steps=400, lr=0.1, mode="stepping")).x
    for x in together(nets).values():
        np.testing.assert_array_equal(x, alone[nets[0].clients])


def turns():
    """The main thread spreads, others run, the main thread goes on: nothing is wrong."""
    net = hgp.mpi.spread(NET, COMM, patience=30.0)
    problem, _, lam = quadratic(n=N)
    alone = hgp.train(problem, lam, NET, hgp.training.SGP(steps=50, lr=0.1, mode="stepping")).x[net.clients]
    found = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(train(problem, net, lam, 50).x))
        thread.start()
        thread.join()
        found.append(train(problem, net, lam, 50).x)
    assert len(found) == 6 and all(np.array_equal(x, alone) for x in found)


if __name__ == "__main__":
    {one.__name__: one for one in (shared, own, turns)}[sys.argv[1]]()
