"""On two ranks: products of one rank's clients are NaN, always or in one call; every rank reports it."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI
from support.examples import quadratic
from support.user_problems import Spoiled

import hgp_ref as hgp

COMM = MPI.COMM_WORLD
N = 4
METHODS = (hgp.methods.Neumann(1.0), hgp.methods.Tracking(), hgp.methods.Chebyshev())


def main(last: int) -> None:
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM, patience=30.0)
    problem, x, lam = quadratic(n=N)
    for method in METHODS:
        for first in (1, 3, 20):  # of 20 calls or more
            own = problem.restrict(net.clients)
            spoiled = Spoiled(own, first, last) if COMM.rank == COMM.size - 1 else own
            try:
                hgp.hypergradient(
                    spoiled, x[net.clients], lam[net.clients], hgp.PushSum(net, 5), method=method, iterations=60
                )
            except ValueError as error:
                assert str(error).startswith("problem.hvp(u) must return finite"), (method, first, error)
            else:
                raise AssertionError(f"{method!r}: NaN in call {first} is not an error")
    try:
        hgp.sgp(
            Spoiled(problem.restrict(net.clients), 1, 0, gradient=COMM.rank == 0),
            lam[net.clients],
            net,
            steps=5,
            lr=2.0,
            milestones=(0.6, 0.8),
        )
    except ValueError as error:
        assert str(error).startswith("problem.inner_grad(x, lam) must return finite"), error
    else:
        raise AssertionError("NaN in a gradient is not an error")


if __name__ == "__main__":
    np.seterr(invalid="ignore")
    main(int(sys.argv[1]))
