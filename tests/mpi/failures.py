"""On two ranks or more: a failure on one of them while the others are in a run."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from mpi4py import MPI
from support.examples import logistic

import hgp_ref as hgp
from hgp_ref.mixing import connect

COMM = MPI.COMM_WORLD
N = 4
LAST = COMM.rank == COMM.size - 1


def long_run(callback=None, patience=60.0):
    """Training that does not end by itself."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM, patience=patience)
    problem, _, lam = logistic(n=N, d=3)
    hgp.sgp(problem.restrict(net.clients), lam[net.clients], net, steps=10**6, lr=0.01, callback=callback)


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


def dtype():
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2), COMM)
    rows = net.clients.stop - net.clients.start
    hgp.PushSum(net, 3).apply(np.ones((rows, 4), "float32" if LAST else "float64"))


def version():
    hgp.__version__ = "0.0.1" if LAST else hgp.__version__
    hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM)


def leaves():
    """One rank has had enough, as a program whose options are wrong."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM)
    if LAST:
        sys.exit("wrong option")
    hgp.PushSum(net, 3).apply(np.ones((net.clients.stop - net.clients.start, 4)))


def ends():
    """One rank comes to the end of its program, in the middle of the others' run."""
    net = hgp.mpi.spread(hgp.networks.FullyConnected(N), COMM)
    channel = connect(net, "stepping")
    for _ in range(3 if LAST else 9):
        channel.mix(np.ones((net.clients.stop - net.clients.start, 4)), 2)


def never_spreads():
    if LAST:
        COMM.Recv(np.empty(1), source=0)
    else:
        hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM, patience=2.0)


def slow():
    """Nothing is wrong: one rank is at its end long before the others, who need it no more."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1), COMM)
    hgp.PushSum(net, 3).apply(np.ones((net.clients.stop - net.clients.start, 4)))
    if not LAST:
        time.sleep(3.0)
        rest = COMM.Split(0, COMM.rank)
        hgp.mpi.spread(hgp.networks.FullyConnected(N), rest)
        rest.Free()
    else:
        COMM.Split(MPI.UNDEFINED, COMM.rank)


if __name__ == "__main__":
    programs = (exception, going, absent, seed, shape, dtype, version, leaves, ends, never_spreads, slow)
    {one.__name__: one for one in programs}[sys.argv[1]]()
