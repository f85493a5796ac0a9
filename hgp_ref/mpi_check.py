"""Does MPI carry what the simulation computes on this cluster, and how fast is it?

    mpiexec -n 4 python -m hgp_ref check --mpi

Every rank computes the simulation of all clients by itself and compares the rows of its own, bit for bit. Then latency
and bandwidth between the first and the last rank, and the time of a step and of an iteration of HGP against one process
that holds all clients. Rank 0 prints.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hgp_ref.averaging import PushSum
from hgp_ref.channels import FRESH, connect
from hgp_ref.estimators import hypergradient
from hgp_ref.methods import Chebyshev, Neumann, Tracking
from hgp_ref.mpi import Spread, library, spread
from hgp_ref.networks import Network, OnePeerExponential, RandomDirected, RandomOut
from hgp_ref.problems import InstanceWeights, LogisticRegression
from hgp_ref.training import sgp

Comparison = tuple[str, bool]
Row = tuple[str, str, float, float]  # what, size, seconds of one process, seconds of all ranks
SMALL, LARGE = 8, 4 * 2**20  # bytes of the messages that tell latency and bandwidth
REPEATS = 5
MILLISECONDS = 1e3  # in a second


def main(dtype: str, scale: int = 1) -> int:
    """0 if every case is equal on every rank, 1 if not, 2 without MPI; `scale` divides sizes."""
    try:
        MPI = library.load()
    except ImportError as error:
        print(f"hgp_ref check: {error}", file=sys.stderr)
        return 2
    comm = MPI.COMM_WORLD
    say = print if comm.rank == 0 else _nothing
    say(describe(MPI), flush=True)
    compared = [(name, _everywhere(comm, same)) for name, same in comparisons(comm, dtype)]
    say(equality_table(compared), end="\n\n", flush=True)
    if comm.size > 1:
        latency, bandwidth = between(comm, 0, comm.size - 1)
        say(f"between rank 0 and rank {comm.size - 1}: latency {latency * 1e6:.1f} µs, "
            f"bandwidth {bandwidth / 1e9:.2f} GB/s\n", flush=True)  # fmt: skip
    say(scaling_table(list(scaling(comm, dtype, scale)), comm.size), flush=True)
    return 0 if all(same for _, same in compared) else 1


def _nothing(*words: object, **options: Any) -> None:
    """Other ranks are silent."""


def _everywhere(comm: Any, same: bool) -> bool:
    return all(comm.allgather(same))


def describe(MPI: Any) -> str:
    """Ranks, where they run, and with what."""
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(MPI.Get_processor_name())
    where = ", ".join(f"{hosts.count(host)} on {host}" for host in dict.fromkeys(hosts))
    first = MPI.Get_library_version().split("\n")[0].strip(" \0")
    return f"{comm.size} ranks: {where}; {first}; OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}"


def problems(n: int, dtype: str) -> dict[str, Any]:
    """Small ones, clients of unequal size."""
    rng = np.random.default_rng(0)
    sizes = 4 + rng.integers(0, 6, n)
    X, X_val = ([rng.uniform(-1, 1, (k, 3)).astype(dtype) for k in sizes] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k).astype(dtype) for k in sizes] for _ in range(2))
    return {
        "logistic": LogisticRegression(X, y, X_val, y_val),
        "instance weights": InstanceWeights(X, y, X_val, y_val, l2=0.3),
    }


def comparisons(comm: Any, dtype: str) -> Iterator[Comparison]:
    """(case, whether the rows of this rank and the ledger equal the simulation's)."""
    n = 2 * comm.size + 1
    rng = np.random.default_rng(1)
    for net in (RandomDirected(n, seed=2), RandomOut(n, k=2, seed=3), OnePeerExponential(n)):
        own_net = spread(net, comm)
        for name, problem in problems(n, dtype).items():
            own, k = problem.restrict(own_net.clients), own_net.clients
            x = (0.5 * rng.standard_normal((n, problem.dim_x))).astype(dtype)
            lam = rng.uniform(0.2, 0.6, (n, problem.dim_lam)).astype(dtype)
            for batch in (None, 3):
                where = f"{type(net).__name__}, {name}, {'full' if batch is None else 'mini'} batch"
                options: dict[str, Any] = {"batch_size": batch, "seed": 5}
                whole = sgp(problem, net, lam, 20, 0.2, mode="stepping", **options)
                part = sgp(own, own_net, lam[k], 20, 0.2, mode="stepping", **options)  # by rows; HGP by columns
                yield f"training, {where}", _same(whole.x[k], part.x) and whole.traffic == part.traffic
                for method in (Neumann(0.4), Chebyshev(), Tracking(0.05)):
                    averages = PushSum(net, 3, mode="stepping"), PushSum(own_net, 3)
                    one = hypergradient(problem, x, lam, averages[0], method=method, iterations=10, **options)
                    other = hypergradient(own, x[k], lam[k], averages[1], method=method, iterations=10, **options)
                    same = _same(one.value[k], other.value) and _same(one.w[k], other.w)
                    yield f"HGP, {type(method).__name__}, {where}", same and one.traffic == other.traffic


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b) and a.dtype == b.dtype)


def between(comm: Any, first: int, last: int) -> tuple[float, float]:
    """Seconds of a short message one way, and bytes a second of long ones; on every rank."""
    measured = np.zeros(2)
    if comm.rank in (first, last):
        short, long = (_round_trip(comm, first, last, size) for size in (SMALL, LARGE))
        measured[:] = short / 2, 2 * LARGE / long
    comm.Bcast(measured, root=first)
    return float(measured[0]), float(measured[1])


def _round_trip(comm: Any, first: int, last: int, size: int) -> float:
    """Seconds of the fastest of many round trips of `size` bytes."""
    buffer, best = np.zeros(size, dtype=np.uint8), np.inf
    for _ in range(200 if size < 2**16 else 20):
        started = time.perf_counter()
        if comm.rank == first:
            comm.Send(buffer, last)
            comm.Recv(buffer, last)
        else:
            comm.Recv(buffer, first)
            comm.Send(buffer, first)
        best = min(best, time.perf_counter() - started)
    return best


def scaling(comm: Any, dtype: str, scale: int) -> Iterator[Row]:
    """A fixed problem (strong), and one that grows with the ranks (weak), against one process."""
    few, many, d = max(comm.size, 64 // scale), max(comm.size, 20_000 // scale), 2000 // scale
    for what, factor in (("strong", 1), ("weak", comm.size)):
        networks = [RandomOut(clients, 4, seed=1) for clients in (many, many * factor)]
        yield _timed(comm, f"a step, 4 peers, {what}", "d=64", networks, lambda net: _steps(net, 64, dtype))
    for what, factor in (("strong", 1), ("weak", comm.size)):
        dense = [RandomDirected(clients, seed=1) for clients in (few, few * factor)]
        yield _timed(comm, f"an HGP iteration, {what}", f"N=50, d={d}, S=5", dense, lambda net: _hgp(net, d, dtype))


def _steps(net: Network, d: int, dtype: str) -> Callable[[], Any]:
    """Ten steps of mixing for the clients that are here."""
    z = np.random.default_rng(0).standard_normal((net.clients.stop - net.clients.start, d)).astype(dtype)
    return lambda: connect(net, "auto" if isinstance(net, Spread) else "stepping").mix(z, 10, FRESH)


def _hgp(net: Network, d: int, dtype: str) -> Callable[[], Any]:
    """Ten iterations of Algorithm 2 for the clients that are here; whose data they are does not matter to the time."""
    rng, rows = np.random.default_rng(0), net.clients.stop - net.clients.start
    X = (rng.uniform(-1, 1, (rows, 50, d)) / d**0.5).astype(dtype)
    y = rng.integers(0, 2, (rows, 50)).astype(dtype)
    problem = LogisticRegression(X, y, X[:, :1], y[:, :1])
    problem.clients = np.arange(net.n)[net.clients]  # made of this rank's data alone
    x, lam = np.zeros((rows, d), dtype), np.full((rows, d), 0.1, dtype)
    mode = "composed" if net.n <= 1000 else "stepping"
    return lambda: hypergradient(problem, x, lam, PushSum(net, 5, mode=mode), 0.5, 10)


def _timed(comm: Any, what: str, size: str, networks: list[Any], work: Callable[[Network], Callable[[], Any]]) -> Row:
    """A tenth of the fastest of several runs, for ten steps: one process on the first network, all ranks on the second.

    By turns, so that whatever else the machines do falls on both.
    """
    over = spread(networks[1], comm)
    alone = work(networks[0]) if comm.rank == 0 else _nothing
    together = work(over)
    seconds = np.full((2, REPEATS + 1), np.inf)
    for r in range(REPEATS + 1):  # the first one compiles
        for kind, call in enumerate((alone, together)):
            _meet(over)
            started = time.perf_counter()
            call()
            seconds[kind, r] = time.perf_counter() - started
    best = seconds[:, 1:].min(axis=1) / 10
    clients = f"n={networks[0].n}" if networks[0].n == networks[1].n else f"n={networks[0].n}, {networks[1].n}"
    return what, f"{clients}, {size}", float(best[0]), max(comm.allgather(float(best[1])))


def _meet(over: Spread) -> None:
    """All ranks, politely: who waits does not take the processor from who works."""
    over.ranks.agree("a meeting", {})


def equality_table(compared: list[Comparison]) -> str:
    """What differs, and how many cases are equal."""
    wrong = [f"{name:60} DIFFERS" for name, same in compared if not same]
    equal = len(compared) - len(wrong)
    return "\n".join([*wrong, f"{equal} of {len(compared)} cases equal the simulation bit for bit, ledger included"])


def scaling_table(rows: list[Row], ranks: int) -> str:
    """Operations with their times, a line each."""
    lines = [f"{'milliseconds':36}{'size':36}{'one process':>12}{f'{ranks} ranks':>12}{'gain':>8}"]
    for what, size, alone, together in rows:
        times = f"{MILLISECONDS * alone:12.3f}{MILLISECONDS * together:12.3f}{alone / together:7.2f}×"
        lines.append(f"{what:36}{size:36}{times}")
    return "\n".join([*lines, "weak: as many times the clients as there are ranks, so that 1.00 is all one can have"])
