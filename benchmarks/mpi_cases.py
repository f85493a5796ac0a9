"""The MPI workloads, and the program that times them.

    mpiexec -n 2 python -m benchmarks.mpi_cases FILE [--quick]

writes the seconds of every case on one process that holds all clients, and on all ranks. The two alternate. Idle ranks
wait in a barrier, which keeps their core busy. Every rank has one thread.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp
from benchmarks.problems import logistic
from hgp_ref.mixing import WeightRule, connect
from hgp_ref.networks import Network

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A workload and its distribution over ranks. Times are those of one iteration, or of one step of mixing."""

    use: str  # "strong", "weak", "ring", "model", "unseen"
    work: str  # "mixing", "hgp" or "cnn"
    n: int  # clients on all ranks together
    d: int
    S: int  # steps per call
    degree: float  # receivers of a client besides itself
    N: int = 0  # instances per client
    mode: str = "auto"  # of the ranks: "auto" steps
    alone: int = 0  # clients of the single process; 0 stands for n
    dtype: str = "float32"
    repeats: int = 5

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Timed:
    """Seconds of the fastest repetition."""

    case: Case
    ranks: int
    one: float  # of the single process
    all: float  # of the slowest rank
    sent_bytes: int  # by rank 0 in an iteration or a step

    @property
    def gain(self) -> float:
        """How much faster the ranks are."""
        return self.one / self.all


def cases(quick: bool) -> Iterator[Case]:
    """The cases for two ranks."""
    dense = Case("strong", "hgp", 100, 1000, 10, 59, N=100, repeats=25)
    cnn = Case("strong", "cnn", 10, 13_750, 5, 5, N=50, repeats=9)
    few_edges = replace(dense, degree=10)  # the same degree for every number of clients
    sparse = Case("strong", "mixing", 20_000, 64, 10, 4)
    listed = [dense, replace(dense, mode="composed"), cnn, replace(cnn, mode="composed"), sparse]
    listed += [
        replace(case, use="weak", alone=case.n // 2)
        for case in (few_edges, replace(few_edges, mode="composed"), sparse)
    ]
    ring = Case("ring", "mixing", 1000, 64, 1, 1)
    listed += [replace(ring, n=n, d=d, S=S) for n, d in ((1000, 64), (1000, 1000), (20_000, 64)) for S in (1, 10)]
    few, many = Case("model", "mixing", 2000, 16, 10, 4), Case("model", "mixing", 20_000, 16, 10, 4)
    listed += [few, replace(few, d=256), replace(few, degree=16), replace(few, degree=16, d=256), replace(few, S=1)]
    listed += [many, replace(many, degree=16), replace(many, d=128), replace(many, d=128, S=1)]
    listed += [Case("model", "hgp", 200, 200, 5, 4, N=N) for N in (50, 400)]
    unseen = Case("unseen", "mixing", 8000, 100, 10, 8)
    listed += [unseen, Case("unseen", "hgp", 400, 300, 10, 8, N=100)]
    for case in listed:
        yield small(case) if quick else case


def small(case: Case) -> Case:
    """The same case at a small size, which only tests that everything runs."""
    n, alone = (max(16, count // 20) if count else 0 for count in (case.n, case.alone))
    return replace(case, n=n, alone=alone, d=4 + case.d // 40, degree=min(case.degree, n // 2), N=min(case.N, 8),
                   repeats=1)  # fmt: skip


def network(case: Case, n: int) -> Network:
    """A static ring, or random graphs: sparse with k receivers per client, or dense."""
    if case.use == "ring":
        return hgp.networks.Schedule([(np.arange(n), np.roll(np.arange(n), -1))], n=n)
    if case.work == "mixing" or case.degree * 2 < n:
        return hgp.networks.RandomOut(n, int(case.degree), seed=1)
    return hgp.networks.RandomDirected(n, seed=1)


def prepared(case: Case, net: Network) -> tuple[Work, int]:
    """The call to be timed for the clients of this process, and how many iterations or steps it makes."""
    here, n = net.clients, net.n
    mode = (
        case.mode
        if isinstance(net, hgp.mpi.DistributedNetwork)
        else "composed"
        if case.mode == "composed"
        else "stepping"
    )
    if case.work == "mixing":
        z = np.random.default_rng(0).standard_normal((n, case.d)).astype(case.dtype)[here]
        return lambda: connect(net, mode).mix(z, case.S, WeightRule.RESET), case.S
    average = hgp.PushSum(net, case.S, mode=mode)
    if case.work == "cnn":
        problem, x, lam = images(case, here.stop - here.start)
        problem.clients = np.arange(n)[here]  # made of this rank's data alone
        return lambda: hgp.hypergradient(problem, x, lam, average, eta=0.01, iterations=3), 3
    whole, _, x, lam = logistic(n, case.N, case.d, case.dtype)
    local = whole.restrict(here)
    return lambda: hgp.hypergradient(local, x[here], lam[here], average, eta=1.0, iterations=100), 100


def images(case: Case, rows: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """The paper's influence network on random images."""
    rng, model = np.random.default_rng(0), hgp.neural.influence_cnn(10)
    X, y = rng.random((rows, case.N, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, (rows, case.N))
    problem = hgp.problems.NeuralInstanceWeights(model, X, y, X[:, :5], y[:, :5], l2=0.1)
    return problem, model.init(rows, 0, dtype="float32"), np.ones((rows, case.N), np.float32)


def timed(case: Case, comm: Any) -> Timed:
    """Time one process and all ranks in turn, so that other load on the machine affects both."""
    over = hgp.mpi.spread(network(case, case.n), comm)
    together, count = prepared(case, over)
    alone, _ = prepared(case, network(case, case.alone or case.n)) if comm.rank == 0 else (lambda: None, 0)
    seconds = np.empty((2, case.repeats + 1))
    for r in range(case.repeats + 1):  # the first one compiles
        for kind, call in enumerate((alone, together)):
            comm.Barrier()
            before, started = over.mpi_traffic.bytes, time.perf_counter()
            call()
            seconds[kind, r] = time.perf_counter() - started
    sent_bytes = (over.mpi_traffic.bytes - before) // count
    one, every = (float(row[1:].min()) / count for row in seconds)
    return Timed(case, comm.size, comm.bcast(one, root=0), max(comm.allgather(every)), comm.bcast(sent_bytes, root=0))


def main(file: str, *options: str) -> None:
    """Time all cases and write the results as JSON."""
    from mpi4py import MPI

    warnings.simplefilter("ignore", RuntimeWarning)  # few iterations are no estimate
    timings = [timed(case, MPI.COMM_WORLD) for case in cases("--quick" in options)]
    if MPI.COMM_WORLD.rank == 0:
        Path(file).write_text(json.dumps([asdict(one) for one in timings]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
