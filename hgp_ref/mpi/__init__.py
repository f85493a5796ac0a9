"""Clients spread over the processes of MPI: the simulation's results, bit for bit, on several machines.

    from mpi4py import MPI
    net = hgp.mpi.spread(net, MPI.COMM_WORLD)           # the one line that changes
    own = problem.restrict(net.clients)                 # this rank's clients
    fit = hgp.sgp(own, lam[net.clients], net)
    x = hgp.mpi.gather(fit.x, net)                      # all rows, on every rank

Graphs and mini-batches are functions of (seed, step, client), so every rank knows by itself who sends to whom. Only
rows that cross between ranks travel, in one message from rank to rank and step; or, where that is less, columns of all
rows, there and back once a call.
"""

from hgp_ref.mpi.channel import Crossing
from hgp_ref.mpi.communicator import Handed
from hgp_ref.mpi.network import Spread, gather, spread

__all__ = ["Crossing", "Handed", "Spread", "gather", "spread"]
