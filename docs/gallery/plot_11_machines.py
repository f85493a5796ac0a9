"""
Several machines
================

``hgp.mpi.spread`` distributes the clients of a network over the ranks of an MPI communicator. Training,
hyper-gradients, influence and certificates run unchanged. On NumPy arrays the results are those of the simulation,
bit for bit.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# The whole program: every rank builds the problem and restricts it to its own clients. ``pip install mpi4py mpich``
# installs a working MPI in a virtual environment.

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
# Run it on two ranks of this machine, if MPI is installed. On a cluster ``mpiexec`` needs the host names.

try:
    import mpi4py  # noqa: F401

    mpiexec = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)
        command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", "2", sys.executable, str(file)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
except ImportError:
    print("mpi4py is not installed on the machine that built this page: the program was not run")

# %%
# Which messages pass between ranks? The plot shows the first graph of a larger network, with eight clients on each of
# four ranks. Messages in the diagonal blocks stay inside a rank. Otherwise a sender's row goes once to each rank with
# receivers, however many there are.

senders, receivers = hgp.networks.RandomOut(32, k=3).edges(1)
figure, axes = plt.subplots(figsize=(4.6, 4.2))
inside = senders // 8 == receivers // 8
axes.scatter(senders[inside], receivers[inside], s=14, label="inside a rank")
axes.scatter(senders[~inside], receivers[~inside], s=14, marker="x", label="between ranks")
for edge in (7.5, 15.5, 23.5):
    axes.axvline(edge, color="grey", linewidth=0.8)
    axes.axhline(edge, color="grey", linewidth=0.8)
axes.set(xlabel="sender", ylabel="receiver", xlim=(-0.5, 31.5), ylim=(31.5, -0.5))
axes.grid(False)
figure.legend(loc="outside upper center", ncols=2)
print(
    f"{len(np.unique(32 * senders[~inside] + receivers[~inside] // 8))} rows between ranks, {(~inside).sum()} messages"
)
