"""Does MPI carry what the simulation computes on this cluster, and how fast is it?

    mpiexec -n 4 python -m hgp_ref check --mpi

Every rank computes the simulation of all clients by itself and compares the rows of its own, bit for bit. Then latency
and bandwidth between the first and the last rank, and the time of a step and of an iteration of HGP against one process
that holds all clients. Rank 0 prints.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hgp_ref import exact
from hgp_ref.backend import EXTRAS, Array, Backend, array_namespace, get_backend, host_float64, scalar, to_host
from hgp_ref.methods.driver import hypergradient
from hgp_ref.methods.series import Chebyshev, Neumann
from hgp_ref.methods.tracking import Tracking
from hgp_ref.mixing.averaging import ExactAverage, Gossip, PushSum, RobustPushSum
from hgp_ref.mixing.channel import WeightRule, connect
from hgp_ref.mpi import communicator
from hgp_ref.mpi.network import DistributedNetwork, spread
from hgp_ref.networks.base import Network
from hgp_ref.networks.fixed import FullyConnected, OnePeerExponential, StaticUndirected
from hgp_ref.networks.random import RandomDirected, RandomOut
from hgp_ref.networks.unreliable import Unreliable
from hgp_ref.problems.batches import MiniBatches, sample_batches
from hgp_ref.problems.instance_weights import InstanceWeights
from hgp_ref.problems.linear import LogisticRegression, SoftmaxRegression
from hgp_ref.problems.quadratic import Quadratic
from hgp_ref.training.gradient_push import SGP, sgp, train

MPIComparison = tuple[str, bool]
Row = tuple[str, str, float, float]  # what, size, seconds of one process, seconds of all ranks
SMALL, LARGE = 8, 4 * 2**20  # bytes of the messages that tell latency and bandwidth
REPEATS = 5
MILLISECONDS = 1e3  # in a second


def mpi_main(dtype: str, scale: int = 1) -> int:
    """0 if every case is equal on every rank, 1 if not, 2 without MPI; `scale` divides sizes."""
    try:
        MPI = communicator.load()
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


def mpi_problems(n: int, dtype: str) -> dict[str, Any]:
    """Small ones, clients of unequal size."""
    rng = np.random.default_rng(0)
    sizes = 4 + rng.integers(0, 6, n)
    X, X_val = ([rng.uniform(-1, 1, (k, 3)).astype(dtype) for k in sizes] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k).astype(dtype) for k in sizes] for _ in range(2))
    return {
        "logistic": LogisticRegression(X, y, X_val, y_val),
        "instance weights": InstanceWeights(X, y, X_val, y_val, l2=0.3),
    }


def comparisons(comm: Any, dtype: str) -> Iterator[MPIComparison]:
    """(case, whether the rows of this rank and the ledger equal the simulation's)."""
    n = 2 * comm.size + 1
    rng = np.random.default_rng(1)
    for net in (RandomDirected(n, seed=2), RandomOut(n, k=2, seed=3), OnePeerExponential(n)):
        own_net = spread(net, comm)
        for name, problem in mpi_problems(n, dtype).items():
            own, k = problem.restrict(own_net.clients), own_net.clients
            x = (0.5 * rng.standard_normal((n, problem.dim_x))).astype(dtype)
            lam = rng.uniform(0.2, 0.6, (n, problem.dim_lam)).astype(dtype)
            for batch in (None, 3):
                where = f"{type(net).__name__}, {name}, {'full' if batch is None else 'mini'} batch"
                batches = None if batch is None else MiniBatches(batch, seed=5)
                recipe = SGP(20, 0.2, (0.6, 0.8), batches=batches, mode="stepping")
                whole = train(problem, lam, net, recipe)
                part = train(own, lam[k], own_net, recipe)
                yield f"training, {where}", _same(whole.x[k], part.x) and whole.traffic == part.traffic
                for method in (Neumann(0.4), Chebyshev(), Tracking(0.05)):
                    averages = PushSum(net, 3, mode="stepping"), PushSum(own_net, 3)
                    one = hypergradient(problem, x, lam, averages[0], method, iterations=10, batches=batches)
                    other = hypergradient(own, x[k], lam[k], averages[1], method, iterations=10, batches=batches)
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
    return lambda: connect(net, "auto" if isinstance(net, DistributedNetwork) else "stepping").mix(
        z, 10, WeightRule.RESET
    )


def _hgp(net: Network, d: int, dtype: str) -> Callable[[], Any]:
    """Ten iterations of Algorithm 2 for the clients that are here; whose data they are does not matter to the time."""
    rng, rows = np.random.default_rng(0), net.clients.stop - net.clients.start
    X = (rng.uniform(-1, 1, (rows, 50, d)) / d**0.5).astype(dtype)
    y = rng.integers(0, 2, (rows, 50)).astype(dtype)
    problem = LogisticRegression(X, y, X[:, :1], y[:, :1])
    problem.clients = np.arange(net.n)[net.clients]  # made of this rank's data alone
    x, lam = np.zeros((rows, d), dtype), np.full((rows, d), 0.1, dtype)
    mode = "composed" if net.n <= 1000 else "stepping"
    return lambda: hypergradient(problem, x, lam, PushSum(net, 5, mode=mode), eta=0.5, iterations=10)


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


def _meet(over: DistributedNetwork) -> None:
    """All ranks, politely: who waits does not take the processor from who works."""
    over.ranks.check_same("a meeting", {})


def equality_table(compared: list[MPIComparison]) -> str:
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


# ----------------------------------------------------------------------------------------------------
# Does the core agree with the explicit reference on this machine's array library, and how fast is it?
#
#     python -m hgp_ref check --backend cupy --dtype float32
#
# The error of a case is max |core − reference| / max |reference|, the reference in float64 on NumPy. Two ways of
# computing the same numbers may differ by 1000 eps of the dtype; iterations that converge to the truth by 4 √eps.


Case = tuple[str, float, Callable[[], tuple[Array, np.ndarray]]]  # name, tolerance, (core, reference)
N = 4  # clients


@dataclass(frozen=True)
class Outcome:
    """One comparison; `note` says what was raised instead of an answer."""

    case: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # false for NaN


class Comparison:
    """The cases for one array library and dtype."""

    def __init__(self, backend: Backend, dtype: str) -> None:
        self.backend, self.dtype = backend, dtype
        eps = float(np.finfo(dtype).eps)
        self.identity, self.limit = 1000 * eps, 4 * eps**0.5
        self.problems = {name: (host, host.to(backend.name, dtype=dtype)) for name, host in check_problems().items()}

    def __call__(self) -> list[Outcome]:
        """Every case; one that raises fails and says what it raised."""
        return [
            self._judge(*case)
            for part in (self.derivatives, self.averages, self.estimates, self.limits)
            for case in part()
        ]

    def _judge(self, name: str, tolerance: float, both: Callable[[], tuple[Array, np.ndarray]]) -> Outcome:
        try:
            core, reference = both()
        except Exception as error:  # whatever a library raises is this case's result, and the others still run
            return Outcome(name, float("inf"), tolerance, f"{type(error).__name__}: {error}".splitlines()[0])
        gap = np.max(np.abs(host_float64(core) - reference))
        return Outcome(name, float(gap / np.max(np.abs(reference))), tolerance)

    def there(self, a: np.ndarray) -> Array:
        return self.backend.asarray(a, dtype=self.dtype)

    def derivatives(self) -> Iterator[Case]:
        """hvp and cross against block Hessians and Jacobians."""
        for name, (host, moved) in self.problems.items():
            for product, matrices in (("hvp", exact.hessians), ("cross", exact.jacobians)):

                def both(host: Any = host, moved: Any = moved, product: str = product, matrices: Any = matrices) -> Any:
                    x, lam = point(host)
                    u = np.cos(np.arange(x.size)).reshape(x.shape)
                    linear = moved.linearize(self.there(x), self.there(lam))
                    return getattr(linear, product)(self.there(u)), np.einsum("nij,nj->ni", matrices(host, x, lam), u)

                yield f"{product}, {name}", self.identity, both

    def averages(self) -> Iterator[Case]:
        """Push-Sum and gossip against explicit products of mixing matrices."""
        random, static = RandomDirected(N, seed=1), StaticUndirected(N, p=0.8, seed=1, weights="metropolis")
        lossy, robust_matrix = Unreliable(random, loss=0.2, delay=2), partial(exact.push_sum_matrix, robust=True)
        u = np.cos(np.arange(7.0 * N)).reshape(N, 7)
        cases = {
            "Push-Sum composed, RandomDirected": (PushSum(random, 5, mode="composed"), exact.push_sum_matrix),
            "Push-Sum stepping, RandomDirected": (PushSum(random, 5, mode="stepping"), exact.push_sum_matrix),
            "Push-Sum stepping, RandomOut": (PushSum(RandomOut(N, 2), 3, mode="stepping"), exact.push_sum_matrix),
            "Push-Sum, OnePeerExponential": (PushSum(OnePeerExponential(N), 3), exact.push_sum_matrix),
            "Gossip, StaticUndirected": (Gossip(static, 3), exact.mixing_product),
            "robust Push-Sum composed, Unreliable": (RobustPushSum(lossy, 5, mode="composed"), robust_matrix),
            "robust Push-Sum stepping, Unreliable": (RobustPushSum(lossy, 5, mode="stepping"), robust_matrix),
        }
        for name, (avg, matrix) in cases.items():

            def both(avg: Any = avg, matrix: Any = matrix) -> Any:
                return avg.apply(self.there(u), call=2), matrix(avg.net, avg.steps, 2) @ u

            yield name, self.identity, both

    def estimates(self) -> Iterator[Case]:
        """Algorithm 2 against the product formula on the same graphs and mini-batches."""
        net, M = RandomDirected(N, seed=2), 12
        runs: list[tuple[str, str, int | None]] = [(name, "reset", None) for name in self.problems]
        runs += [("logistic", "conserve", None), ("logistic", "reset", 3), ("instance weights", "reset", 3)]
        for name, debias, size in runs:

            def both(name: str = name, debias: str = debias, size: int | None = size) -> Any:
                host, moved = self.problems[name]
                x, lam = point(host)
                avg = PushSum(net, 4, debias=debias)
                drawn = None if size is None else MiniBatches(size, seed=5)
                core = hypergradient(moved, self.there(x), self.there(lam), avg, eta=0.4, iterations=M, batches=drawn)
                K, weights = exact.push_sum_matrices(net, 4, M, debias)
                batches: list[Any] = [
                    None if size is None else sample_batches(host.counts, size, 5, 0, M, k) for k in (0, 1)
                ]
                kept = weights if debias == "conserve" else None
                return core.value, exact.estimate(host, x, lam, K, 0.4, *batches, weights=kept)

            kind = f"{'mini' if size else 'full'} batch{', conserve' if debias == 'conserve' else ''}"
            yield f"HGP, {name}, {kind}", self.identity, both

    def limits(self) -> Iterator[Case]:
        """Training against the inner solution, HGP with exact averaging against the true hyper-gradient."""
        host, moved = self.problems["logistic"]
        lam = point(host)[1]

        def training() -> Any:
            fit = sgp(moved, self.there(lam), FullyConnected(N), steps=300, lr=0.8)
            return fit.x, to_host(exact.inner_solution(host, lam))

        def truth() -> Any:
            x = to_host(exact.inner_solution(host, lam))
            core = hypergradient(moved, self.there(x), self.there(lam), ExactAverage(N), eta=0.8, iterations=300)
            return core.value, exact.hypergradient(host, x, lam)

        yield "training, logistic: the inner solution", self.limit, training
        yield "HGP, logistic: the true hyper-gradient", self.limit, truth


def check_problems() -> dict[str, Any]:
    """One of each kind on NumPy in float64, clients of unequal size."""
    rng = np.random.default_rng(0)
    sizes = (5, 7, 6, 9)
    X, X_val = ([rng.uniform(-1, 1, (k, 3)) for k in sizes] for _ in range(2))
    two, two_val = ([rng.integers(0, 2, k).astype(float) for k in sizes] for _ in range(2))
    three, three_val = ([rng.integers(0, 3, k).astype(float) for k in sizes] for _ in range(2))
    return {
        "quadratic": Quadratic.random(N, 5, 3, seed=1),
        "logistic": LogisticRegression(X, two, X_val, two_val),
        "softmax": SoftmaxRegression(X, three, X_val, three_val, n_classes=3),
        "instance weights": InstanceWeights(X, two, X_val, two_val, l2=0.3),
    }


def point(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """x and lam at which clients disagree; lam > 0, as rates and weights are."""
    rng = np.random.default_rng(1)
    shape = (problem.n_clients, problem.dim_x)
    return 0.5 * rng.standard_normal(shape), rng.uniform(0.2, 0.6, (problem.n_clients, problem.dim_lam))


def speeds(backend: Backend, dtype: str, scale: int = 1) -> list[tuple[str, str, float]]:
    """(operation, size, seconds) of the core operations, waits for their results included; `scale` divides sizes."""
    n, instances, d, iterations = 16, 200 // scale, 1000 // scale, 20
    many, few = 2000 // scale, 64 // min(scale, 8)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, instances, d)) / d**0.5
    y = rng.integers(0, 2, (n, instances)).astype(float)
    problem = LogisticRegression(X, y, X, y).to(backend.name, dtype=dtype)
    x, u, large = (backend.asarray(rng.standard_normal(s), dtype=dtype) for s in ((n, d), (n, d), (many, few)))
    lam = backend.asarray(np.full((n, d), 0.1), dtype=dtype)
    linear, net = problem.linearize(x, lam), RandomDirected(n, seed=0)
    composed = PushSum(net, 10, mode="composed")
    stepping = PushSum(RandomOut(many, 4), 10, mode="stepping")
    whole = f"n={n}, N={instances}, d={d}"
    run = _best(lambda: hypergradient(problem, x, lam, composed, eta=0.5, iterations=iterations).value)
    return [
        ("hvp", whole, _best(lambda: linear.hvp(u))),
        ("Push-Sum composed, S=10", f"n={n}, d={d}", _best(lambda: composed.apply(u))),
        ("Push-Sum stepping, S=10, 4 peers", f"n={many}, d={few}", _best(lambda: stepping.apply(large))),
        ("one HGP iteration, S=10", whole, run / iterations),
    ]


def _best(operation: Callable[[], Array], repeats: int = 5) -> float:
    """Seconds of the fastest of several calls after a first one that compiles; the sum makes the host wait."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = operation()
        scalar(array_namespace(result).sum(result))
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def table(outcomes: Sequence[Outcome]) -> str:
    """Cases with their errors, a line each, and how many agree."""
    width = max(len(outcome.case) for outcome in outcomes)
    lines = [f"{'case':{width}}     error  tolerance"]
    for o in outcomes:
        verdict = "ok" if o.ok else f"FAILED  {o.note}".rstrip()
        lines.append(f"{o.case:{width}}  {o.error:8.1e}   {o.tolerance:8.1e}  {verdict}")
    agreeing = sum(outcome.ok for outcome in outcomes)
    return "\n".join([*lines, f"{agreeing} of {len(outcomes)} cases agree with the explicit reference"])


def speed_table(measured: Sequence[tuple[str, str, float]]) -> str:
    """Operations with their times, a line each."""
    lines = [f"{'operation':34}{'size':24}{'milliseconds':>12}"]
    return "\n".join([*lines, *(f"{name:34}{size:24}{1e3 * seconds:12.3f}" for name, size, seconds in measured)])


def main(arguments: Sequence[str] | None = None, *, scale: int = 1) -> int:
    """0 if every case agrees, 1 if not, 2 if the library cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m hgp_ref check", description="compare the core with the explicit reference, and time it"
    )
    parser.add_argument("--backend", default="numpy", choices=["numpy", *EXTRAS])
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--mpi", action="store_true", help="under mpiexec: clients spread over ranks, NumPy")
    options = parser.parse_args(arguments)
    if options.mpi:
        return mpi_main(options.dtype, scale)
    try:
        backend = get_backend(options.backend)
    except (ImportError, RuntimeError) as error:
        print(f"hgp_ref check: {error}", file=sys.stderr)
        return 2
    if options.backend == "jax":  # 32 bits unless told
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    print(f"backend {backend.name}, device {backend.device}, {options.dtype}")
    outcomes = Comparison(backend, options.dtype)()
    print(table(outcomes), end="\n\n", flush=True)
    print(speed_table(speeds(backend, options.dtype, scale)))
    return 0 if all(outcome.ok for outcome in outcomes) else 1
