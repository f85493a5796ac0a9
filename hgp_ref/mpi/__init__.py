"""Clients distributed over MPI processes: the results of one process, bit for bit, on several machines.

    from mpi4py import MPI
    net = hgp.mpi.spread(net, MPI.COMM_WORLD)           # the one line that changes
    problem = problem.restrict(net.clients)             # the clients of this rank
    fit = hgp.sgp(problem, lam[net.clients], net)
    x = hgp.mpi.gather(fit.x, net)                      # all rows, on every rank

Graphs and mini-batches are functions of (seed, step, client), so every rank knows who sends to whom. In a call of
mixing, ranks exchange rows for columns and back (`mpi.channel`).
"""

from hgp_ref.mpi.channel import RankChannel
from hgp_ref.mpi.communicator import MPITraffic
from hgp_ref.mpi.network import DistributedNetwork, gather, spread

__all__ = ["DistributedNetwork", "MPITraffic", "RankChannel", "gather", "spread"]
