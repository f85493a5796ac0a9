"""
Several machines
================

``hgp.mpi.spread`` spreads the clients of a network over the ranks of an MPI communicator. Training, hyper-gradients,
influence and certificates then run as they are, and give the numbers of the simulation, bit for bit on NumPy.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

# %%
# The whole program. Every rank builds the problem and keeps its own clients; ``pip install mpi4py mpich`` brings a
# working MPI into a plain virtual environment.

PROGRAM = """
import numpy as np
import hgp_ref as hgp
from mpi4py import MPI

problem = hgp.problems.Quadratic.random(8, 6, 2, seed=0)
lam = np.zeros((8, 2))
x = hgp.exact.inner_solution(problem, lam)
alone = hgp.hypergradient(problem, x, lam, hgp.PushSum(hgp.networks.RandomOut(8, k=2), steps=10, mode="stepping"),
                          iterations=50)

net = hgp.mpi.spread(hgp.networks.RandomOut(8, k=2), MPI.COMM_WORLD)
mine = net.clients
est = hgp.hypergradient(problem.restrict(mine), x[mine], lam[mine], hgp.PushSum(net, steps=10), iterations=50)
everything = hgp.mpi.gather(est.value, net)
if MPI.COMM_WORLD.rank == 0:
    print(MPI.COMM_WORLD.size, "ranks; equal to the simulation:", bool(np.all(everything == alone.value)))
"""

# %%
# Two ranks on this machine, if MPI is here; on a cluster, ``mpiexec`` is told the hosts.

try:
    import mpi4py  # noqa: F401

    mpiexec = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)
        command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", "2", sys.executable, str(file)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
except ImportError:
    print("mpi4py is not installed where this page was built: the program above was not run here")
