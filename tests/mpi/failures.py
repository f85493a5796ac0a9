"""On two ranks or more: something goes wrong on one of them while the others are in the middle of a run."""

from __future__ import annotations

import os
import sys

import numpy as np
from kinds import logistic
from mpi4py import MPI

import hgp_ref as hgp

COMM = MPI.COMM_WORLD
N = 4
LAST = COMM.rank == COMM.size - 1


def long_run(callback=None, patience=60.0):
    """Training that does not end by itself."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM, patience=patience)
    problem, _, lam = logistic(n=N, d=3)
    hgp.sgp(
        problem.restrict(net.clients), net, lam[net.clients], steps=10**6, lr=0.01, milestones=(), callback=callback
    )


def say_pid(s, z):
    if s == 5:
        os.write(1, f"pid {os.getpid()}\n".encode())  # in one piece, whoever else writes


def exception():
    def callback(s, z):
        if LAST and s == 20:
            raise KeyError("the callback of one rank")

    long_run(callback)


def going():
    """Until somebody ends it from outside."""
    long_run(say_pid)


def absent():
    """One rank has something else to do."""
    if LAST:
        hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM)
        COMM.Recv(np.empty(1), source=0)  # of which the others know nothing
    else:
        long_run(patience=2.0)


def seed():
    hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=5 if LAST else 4), COMM)


def shape():
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2), COMM)
    hgp.PushSum(net, 3).apply(np.ones((net.clients.stop - net.clients.start, 5 if LAST else 4)))


if __name__ == "__main__":
    {one.__name__: one for one in (exception, going, absent, seed, shape)}[sys.argv[1]]()
