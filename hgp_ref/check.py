"""`python -m hgp_ref check`: is this installation correct, and how fast is it?

    python -m hgp_ref check --backend cupy --dtype float32 --device 1
    python -m hgp_ref check --backend cupy --report
    mpiexec -n 4 python -m hgp_ref check --mpi

The first command compares the core on an array library with the explicit reference in float64 on NumPy. The error of a
case is max |core − reference| / max |reference|. Two ways of computing the same numbers may differ by 1000 eps of the
dtype, and iterations that converge to the truth by 4 √eps. The times of the core operations follow. In float32 the
output says whether the library computes products in TF32, which keeps 11 bits of each factor.

The second command checks both dtypes, measures the core against the memory bandwidth of the device and prints a block
that can be sent to the authors.

The third command compares MPI with the simulation. Every rank computes the simulation of all clients and compares the
rows of its own clients, bit for bit. Latency and bandwidth between the first and the last rank follow, then the time of
a step and of an HGP iteration against one process that holds all clients. Rank 0 prints.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from hgp_ref import exact
from hgp_ref.backend import (
    EXTRAS,
    TF32_OFF,
    Array,
    Backend,
    array_namespace,
    get_backend,
    hardware,
    host_float64,
    on_device_of,
    scalar,
    to_host,
)
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

REPEATS = 5  # of every timing, after a first call that compiles


def main(arguments: Sequence[str] | None = None, *, scale: int = 1) -> int:
    """0 if every case agrees, 1 if not, 2 if the library cannot be used; `scale` divides the sizes of timings."""
    parser = argparse.ArgumentParser(
        prog="python -m hgp_ref check", description="compare the core with the explicit reference, and time it"
    )
    parser.add_argument("--backend", default="numpy", choices=["numpy", *EXTRAS])
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--device", help="a number, such as 1 for the second GPU, or the library's name of the device")
    parser.add_argument("--report", action="store_true", help="both dtypes, bandwidth, and a block to send in")
    parser.add_argument("--mpi", action="store_true", help="under mpiexec: clients distributed over ranks, NumPy")
    options = parser.parse_args(arguments)
    try:
        library = communicator.load() if options.mpi else get_backend(options.backend, options.device)
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"hgp_ref check: {error}", file=sys.stderr)
        return 2
    if options.mpi:
        return check_mpi(library, options.dtype, scale)
    if library.name == "jax":  # 32 bits by default
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    with on_device_of(library.asarray([0.0])):
        return report(library, scale) if options.report else check_backend(library, options.dtype, scale)


def labelled_data(
    rng: np.random.Generator, sizes: Sequence[int], classes: int, dtype: str = "float64"
) -> tuple[Any, Any, Any, Any]:
    """X, y, X_val, y_val of clients with these numbers of instances, three features."""
    X, X_val = ([rng.uniform(-1, 1, (k, 3)).astype(dtype) for k in sizes] for _ in range(2))
    y, y_val = ([rng.integers(0, classes, k).astype(dtype) for k in sizes] for _ in range(2))
    return X, y, X_val, y_val


# An array library against the explicit reference ----------------------------------------------------------------------

N = 4  # clients
Case = tuple[str, float, Callable[[], tuple[Array, np.ndarray]]]  # name, tolerance, (core, reference)


def check_backend(backend: Backend, dtype: str, scale: int) -> int:
    """Print the comparison and the times; 0 if every case agrees, otherwise 1."""
    print(f"backend {backend.name}, device {backend.device}, {dtype}")
    outcomes = BackendCases(backend, dtype)()
    print(table(outcomes))
    if dtype == "float32":
        print(products_of_float32(backend))
    print(flush=True)
    print(f"{'operation':34}{'size':24}{'milliseconds':>12}")
    for name, size, seconds, _ in core_operations(
        backend, dtype, 200 // scale, 1000 // scale, 2000 // scale, 64 // min(scale, 8)
    ):
        print(f"{name:34}{size:24}{1e3 * seconds:12.3f}")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


@dataclass(frozen=True)
class CaseOutcome:
    """One comparison; `note` is the error that was raised instead of a result."""

    case: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # false for NaN


def table(outcomes: Sequence[CaseOutcome]) -> str:
    """One line for every case, and the number that agree."""
    width = max(len(outcome.case) for outcome in outcomes)
    lines = [f"{'case':{width}}     error  tolerance"]
    for o in outcomes:
        verdict = "ok" if o.ok else f"FAILED  {o.note}".rstrip()
        lines.append(f"{o.case:{width}}  {o.error:8.1e}   {o.tolerance:8.1e}  {verdict}")
    agreeing = sum(outcome.ok for outcome in outcomes)
    return "\n".join([*lines, f"{agreeing} of {len(outcomes)} cases agree with the explicit reference"])


class BackendCases:
    """The cases for one array library and dtype."""

    def __init__(self, backend: Backend, dtype: str) -> None:
        self.backend, self.dtype = backend, dtype
        eps = float(np.finfo(dtype).eps)
        self.identity, self.limit = 1000 * eps, 4 * eps**0.5
        rng, sizes = np.random.default_rng(0), (5, 7, 6, 9)
        two_classes, three_classes = (labelled_data(rng, sizes, classes) for classes in (2, 3))
        hosts: dict[str, Any] = {
            "quadratic": Quadratic.random(N, 5, 3, seed=1),
            "logistic": LogisticRegression(*two_classes),
            "softmax": SoftmaxRegression(*three_classes, 3),
            "instance weights": InstanceWeights(*two_classes, l2=0.3),
        }
        self.problems = {name: (host, on_backend(host, backend, dtype)) for name, host in hosts.items()}

    def __call__(self) -> list[CaseOutcome]:
        """The outcomes of all cases; one that raises fails."""
        parts = (self.derivatives, self.averages, self.estimates, self.limits)
        return [self._run(*case) for part in parts for case in part()]

    def _run(self, name: str, tolerance: float, compute: Callable[[], tuple[Array, np.ndarray]]) -> CaseOutcome:
        try:
            core, reference = compute()
        except Exception as error:  # whatever a library raises is the result of this case; the others still run
            return CaseOutcome(name, float("inf"), tolerance, f"{type(error).__name__}: {error}".splitlines()[0])
        gap = np.max(np.abs(host_float64(core) - reference))
        return CaseOutcome(name, float(gap / np.max(np.abs(reference))), tolerance)

    def array(self, a: np.ndarray) -> Array:
        return self.backend.asarray(a, dtype=self.dtype)

    def derivatives(self) -> Iterator[Case]:
        """hvp and cross against block Hessians and Jacobians."""
        for name, (host, problem) in self.problems.items():
            for product, matrices in (("hvp", exact.hessians), ("cross", exact.jacobians)):

                def compute(host: Any, problem: Any, product: str, matrices: Any) -> tuple[Array, np.ndarray]:
                    x, lam = point(host)
                    u = np.cos(np.arange(x.size)).reshape(x.shape)
                    at = problem.linearize(self.array(x), self.array(lam))
                    return getattr(at, product)(self.array(u)), np.einsum("nij,nj->ni", matrices(host, x, lam), u)

                yield f"{product}, {name}", self.identity, partial(compute, host, problem, product, matrices)

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

            def compute(avg: Any, matrix: Any) -> tuple[Array, np.ndarray]:
                return avg.apply(self.array(u), call=2), matrix(avg.net, avg.steps, 2) @ u

            yield name, self.identity, partial(compute, avg, matrix)

    def estimates(self) -> Iterator[Case]:
        """Algorithm 2 against the product formula on the same graphs and mini-batches."""
        net, M = RandomDirected(N, seed=2), 12
        runs: list[tuple[str, str, int | None]] = [(name, "reset", None) for name in self.problems]
        runs += [("logistic", "conserve", None), ("logistic", "reset", 3), ("instance weights", "reset", 3)]
        for name, debias, size in runs:

            def compute(name: str, debias: str, size: int | None) -> tuple[Array, np.ndarray]:
                host, problem = self.problems[name]
                x, lam = point(host)
                avg = PushSum(net, 4, debias=debias)
                batches = None if size is None else MiniBatches(size, seed=5)
                est = hypergradient(
                    problem, self.array(x), self.array(lam), avg, eta=0.4, iterations=M, batches=batches
                )
                K, weights = exact.push_sum_matrices(net, 4, M, debias)
                drawn: list[Any] = [None, None]
                if size is not None:
                    drawn = [sample_batches(host.counts, size, 5, 0, M, stream) for stream in (0, 1)]
                carried = weights if debias == "conserve" else None
                return est.value, exact.estimate(host, x, lam, K, 0.4, *drawn, weights=carried)

            kind = f"{'mini' if size else 'full'} batch{', conserve' if debias == 'conserve' else ''}"
            yield f"HGP, {name}, {kind}", self.identity, partial(compute, name, debias, size)

    def limits(self) -> Iterator[Case]:
        """Training against the inner solution, HGP with exact averaging against the true hyper-gradient."""
        host, problem = self.problems["logistic"]
        lam = point(host)[1]

        def training() -> Any:
            fit = sgp(problem, self.array(lam), FullyConnected(N), steps=300, lr=0.8)
            return fit.x, to_host(exact.inner_solution(host, lam))

        def truth() -> Any:
            x = to_host(exact.inner_solution(host, lam))
            est = hypergradient(problem, self.array(x), self.array(lam), ExactAverage(N), eta=0.8, iterations=300)
            return est.value, exact.hypergradient(host, x, lam)

        yield "training, logistic: the inner solution", self.limit, training
        yield "HGP, logistic: the true hyper-gradient", self.limit, truth


def point(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """x and lam at which clients disagree; lam > 0, as rates and weights are."""
    rng = np.random.default_rng(1)
    shape = (problem.n_clients, problem.dim_x)
    return 0.5 * rng.standard_normal(shape), rng.uniform(0.2, 0.6, (problem.n_clients, problem.dim_lam))


def on_backend(problem: Any, backend: Backend, dtype: str) -> Any:
    return problem.to(backend.name, dtype=dtype, device=backend.device)


def products_of_float32(backend: Backend) -> str:
    """One line: do products of float32 matrices keep all digits, or are factors rounded to TF32?

    TF32 keeps 10 bits after the leading one, so that 1 + 2⁻¹² becomes 1.
    """
    rounded = []
    for kind, shape in (("matrices", (64, 64)), ("stacks of matrices", (4, 64, 64))):
        a = backend.asarray(np.full(shape, 1 + 2.0**-12), dtype="float32")
        identity = backend.asarray(np.broadcast_to(np.eye(64), shape), dtype="float32")
        if np.any(host_float64(a @ identity) != 1 + 2.0**-12):
            rounded.append(kind)
    if not rounded:
        return "float32 products: full precision, TF32 is off"
    return (
        f"float32 products: TF32 or less for {' and '.join(rounded)}; errors of about 1e-3 follow. "
        f"To turn it off: {TF32_OFF.get(backend.name, 'see the library')}"
    )


def core_operations(
    backend: Backend, dtype: str, instances: int, d: int, many: int, few: int
) -> Iterator[tuple[str, str, float, float]]:
    """(operation, size, seconds, bytes): the bytes are what the operation must at least read and write.

    The sizes are N and d of 16 clients, and `many` clients with `few` columns for Push-Sum along a sparse graph. hvp
    reads the features twice, H u = Xᵀ(s ⊙ (X u)) + λ ⊙ u. A step of Push-Sum reads and writes every vector once. An HGP
    iteration is both and reads and writes u and w twice more. Where arrays fit into a cache, more than 100 % of the
    model can be reached; where they are small, launches take longer than memory.
    """
    n, S, peers, iterations, item = 16, 10, 4, 20, np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    X = (rng.uniform(-1, 1, (n, instances, d)) / d**0.5).astype(dtype)
    y = rng.integers(0, 2, (n, instances)).astype(dtype)
    problem = on_backend(LogisticRegression(X, y, X[:, :1], y[:, :1]), backend, dtype)
    x, u, z = (backend.asarray(rng.standard_normal(shape), dtype=dtype) for shape in ((n, d), (n, d), (many, few)))
    lam = backend.asarray(np.full((n, d), 0.1), dtype=dtype)
    linearization = problem.linearize(x, lam)
    composed = PushSum(RandomDirected(n, seed=0), S, mode="composed")
    stepping = PushSum(RandomOut(many, peers), S, mode="stepping")
    features, vectors, sparse_vectors = item * n * instances * d, item * n * d, item * many * few
    size = f"n={n}, N={instances}, d={d}"
    yield "hvp", size, _fastest(lambda: linearization.hvp(u)), 2 * features + 3 * vectors
    yield (
        f"Push-Sum composed, S={S}", f"n={n}, d={d}", _fastest(lambda: composed.apply(u)), 2 * vectors + item * n * n
    )  # fmt: skip
    yield (
        f"Push-Sum stepping, S={S}, {peers} peers", f"n={many}, d={few}", _fastest(lambda: stepping.apply(z)),
        2 * S * sparse_vectors
    )  # fmt: skip
    run = _fastest(lambda: hypergradient(problem, x, lam, composed, eta=0.5, iterations=iterations).value)
    yield f"one HGP iteration, S={S}", size, run / iterations, 2 * features + 9 * vectors


def _fastest(operation: Callable[[], Array]) -> float:
    """Seconds of the fastest of several calls; the sum makes the host wait for the device."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        result = operation()
        scalar(array_namespace(result).sum(result))
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


# A report to send in --------------------------------------------------------------------------------------------------


def report(backend: Backend, scale: int) -> int:
    """Print a block with versions, device, comparisons in both dtypes, and times against a model of the bandwidth."""
    lines = [f"hgp_ref {version('hgp_ref')}, Python {platform.python_version()}, {platform.platform()}"]
    lines += [f"backend {backend.name} {_version(backend)}, device {backend.device}", *hardware(backend)]
    all_ok = True
    for dtype in ("float64", "float32"):
        outcomes = BackendCases(backend, dtype)()
        failed = [outcome.case for outcome in outcomes if not outcome.ok]
        all_ok = all_ok and not failed
        worst = max(outcome.error / outcome.tolerance for outcome in outcomes)
        lines.append(
            f"{dtype}: {len(outcomes) - len(failed)} of {len(outcomes)} cases agree, largest error {worst:.1e} of what "
            f"is allowed{'; FAILED: ' + '; '.join(failed) if failed else ''}"
        )
    lines.append(products_of_float32(backend))
    for dtype in ("float64", "float32"):
        bandwidth = measured_bandwidth(backend, dtype, scale)
        lines.append(f"{dtype}: memory bandwidth {bandwidth / 1e9:.1f} GB/s, measured by the sum of a large array")
        lines.append(f"  {'operation':34}{'size':26}{'ms':>10}{'model ms':>10}{'of model':>9}")
        sizes = (100, 20_000 // scale, 20_000 // scale, 256 // min(scale, 8))
        for name, size, seconds, nbytes in core_operations(backend, dtype, *sizes):
            model = nbytes / bandwidth
            lines.append(f"  {name:34}{size:26}{1e3 * seconds:10.3f}{1e3 * model:10.3f}{model / seconds:9.0%}")
    print("----- report of python -m hgp_ref check -----", *lines, "----- end of report -----", sep="\n")
    return 0 if all_ok else 1


def _version(backend: Backend) -> str:
    return str(getattr(importlib.import_module(backend.name), "__version__", "?"))


def measured_bandwidth(backend: Backend, dtype: str, scale: int) -> float:
    """Bytes per second of reading one large array."""
    x = backend.asarray(np.ones(32 * 2**20 // scale), dtype=dtype)
    return x.shape[0] * np.dtype(dtype).itemsize / _fastest(lambda: x)  # which adds up the entries of x


# MPI against the simulation -------------------------------------------------------------------------------------------

SMALL, LARGE = 8, 4 * 2**20  # bytes of the messages that measure latency and bandwidth


def check_mpi(MPI: Any, dtype: str, scale: int) -> int:
    """Print the comparison and the times on rank 0; 0 if every case is equal on every rank, otherwise 1."""
    comm = MPI.COMM_WORLD

    def show(text: str) -> None:
        if comm.rank == 0:
            print(text, flush=True)

    hosts = comm.allgather(MPI.Get_processor_name())
    counts = ", ".join(f"{hosts.count(host)} on {host}" for host in dict.fromkeys(hosts))
    version = MPI.Get_library_version().split("\n")[0].strip(" \0")
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    show(f"{comm.size} ranks: {counts}; {version}; OMP_NUM_THREADS={threads}")
    outcomes = {name: all(comm.allgather(equal)) for name, equal in mpi_cases(comm, dtype)}
    for name in (name for name, equal in outcomes.items() if not equal):
        show(f"{name:60} DIFFERS")
    equal = sum(outcomes.values())
    show(f"{equal} of {len(outcomes)} cases equal the simulation bit for bit, traffic included\n")
    if comm.size > 1:
        latency, bandwidth = connection(comm, 0, comm.size - 1)
        ranks = f"rank 0 and rank {comm.size - 1}"
        show(f"between {ranks}: latency {latency * 1e6:.1f} µs, bandwidth {bandwidth / 1e9:.2f} GB/s\n")
    show(f"{'milliseconds':36}{'size':36}{'one process':>12}{f'{comm.size} ranks':>12}{'gain':>8}")
    for name, size, single, distributed in scaling(comm, dtype, scale):
        show(f"{name:36}{size:36}{1e3 * single:12.3f}{1e3 * distributed:12.3f}{single / distributed:7.2f}×")
    show("weak: the number of clients grows with the ranks, so that 1.00 is the best possible gain")
    return 0 if equal == len(outcomes) else 1


def mpi_cases(comm: Any, dtype: str) -> Iterator[tuple[str, bool]]:
    """(case, whether the rows of this rank and the traffic equal the simulation's)."""
    n, rng = 2 * comm.size + 1, np.random.default_rng(1)
    data_rng = np.random.default_rng(0)
    data = labelled_data(data_rng, 4 + data_rng.integers(0, 6, n), 2, dtype)
    problems = {"logistic": LogisticRegression(*data), "instance weights": InstanceWeights(*data, l2=0.3)}
    for net in (RandomDirected(n, seed=2), RandomOut(n, k=2, seed=3), OnePeerExponential(n)):
        distributed = spread(net, comm)
        rows = distributed.clients
        for name, problem in problems.items():
            local = problem.restrict(rows)
            x = (0.5 * rng.standard_normal((n, problem.dim_x))).astype(dtype)
            lam = rng.uniform(0.2, 0.6, (n, problem.dim_lam)).astype(dtype)
            for size in (None, 3):
                setting = f"{type(net).__name__}, {name}, {'full' if size is None else 'mini'} batch"
                batches = None if size is None else MiniBatches(size, seed=5)
                sgp_method = SGP(20, 0.2, (0.6, 0.8), batches=batches, mode="stepping")
                fit = train(problem, lam, net, sgp_method)
                part = train(local, lam[rows], distributed, sgp_method)
                yield f"training, {setting}", _equal(fit.x[rows], part.x) and fit.traffic == part.traffic
                for method in (Neumann(0.4), Chebyshev(), Tracking(0.05)):
                    run: dict[str, Any] = {"method": method, "iterations": 10, "batches": batches}
                    est = hypergradient(problem, x, lam, PushSum(net, 3, mode="stepping"), **run)
                    ours = hypergradient(local, x[rows], lam[rows], PushSum(distributed, 3), **run)
                    equal = _equal(est.value[rows], ours.value) and _equal(est.w[rows], ours.w)
                    yield f"HGP, {type(method).__name__}, {setting}", equal and est.traffic == ours.traffic


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b) and a.dtype == b.dtype)


def connection(comm: Any, first: int, last: int) -> tuple[float, float]:
    """Seconds of a short message one way, and bytes per second of long ones; known on every rank."""
    measured = np.zeros(2)
    if comm.rank in (first, last):
        short, long = (_round_trip(comm, first, last, size) for size in (SMALL, LARGE))
        measured[:] = short / 2, 2 * LARGE / long
    comm.Bcast(measured, root=first)
    return float(measured[0]), float(measured[1])


def _round_trip(comm: Any, first: int, last: int, size: int) -> float:
    """Seconds of the fastest of many round trips of `size` bytes."""
    buffer, fastest = np.zeros(size, dtype=np.uint8), np.inf
    for _ in range(200 if size < 2**16 else 20):
        start = time.perf_counter()
        if comm.rank == first:
            comm.Send(buffer, last)
            comm.Recv(buffer, last)
        else:
            comm.Recv(buffer, first)
            comm.Send(buffer, first)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def scaling(comm: Any, dtype: str, scale: int) -> Iterator[tuple[str, str, float, float]]:
    """(operation, size, seconds of one process, of all ranks): a fixed problem (strong) and a growing one (weak)."""
    few, many, d = max(comm.size, 64 // scale), max(comm.size, 20_000 // scale), 2000 // scale
    for kind, factor in (("strong", 1), ("weak", comm.size)):
        sparse = [RandomOut(n, 4, seed=1) for n in (many, many * factor)]
        yield _timed(comm, f"a step, 4 peers, {kind}", "d=64", sparse, lambda net: _ten_steps(net, 64, dtype))
    for kind, factor in (("strong", 1), ("weak", comm.size)):
        dense = [RandomDirected(n, seed=1) for n in (few, few * factor)]
        yield _timed(
            comm, f"an HGP iteration, {kind}", f"N=50, d={d}, S=5", dense, lambda net: _ten_iterations(net, d, dtype)
        )


def _ten_steps(net: Network, d: int, dtype: str) -> Callable[[], Any]:
    """Ten steps of mixing for the clients of this rank."""
    z = np.random.default_rng(0).standard_normal((net.clients.stop - net.clients.start, d)).astype(dtype)
    mode = "auto" if isinstance(net, DistributedNetwork) else "stepping"
    return lambda: connect(net, mode).mix(z, 10, WeightRule.RESET)


def _ten_iterations(net: Network, d: int, dtype: str) -> Callable[[], Any]:
    """Ten iterations of Algorithm 2 for the clients of this rank, on any data: the time does not depend on it."""
    rng, rows = np.random.default_rng(0), net.clients.stop - net.clients.start
    X = (rng.uniform(-1, 1, (rows, 50, d)) / d**0.5).astype(dtype)
    y = rng.integers(0, 2, (rows, 50)).astype(dtype)
    problem = LogisticRegression(X, y, X[:, :1], y[:, :1])
    problem.clients = np.arange(net.n)[net.clients]
    x, lam = np.zeros((rows, d), dtype), np.full((rows, d), 0.1, dtype)
    mode = "composed" if net.n <= 1000 else "stepping"
    return lambda: hypergradient(problem, x, lam, PushSum(net, 5, mode=mode), eta=0.5, iterations=10)


def _timed(
    comm: Any, name: str, size: str, networks: list[Any], work: Callable[[Network], Callable[[], Any]]
) -> tuple[str, str, float, float]:
    """A tenth of the fastest of several runs: of one process on the first network, of all ranks on the second.

    The two alternate, so that other load on the machines affects both.
    """
    distributed = spread(networks[1], comm)
    calls = (work(networks[0]) if comm.rank == 0 else lambda: None, work(distributed))
    seconds = np.full((2, REPEATS + 1), np.inf)
    for repeat in range(REPEATS + 1):
        for kind, call in enumerate(calls):
            distributed.ranks.check_same("a barrier", {})  # unlike MPI's barrier it waits without using the processor
            start = time.perf_counter()
            call()
            seconds[kind, repeat] = time.perf_counter() - start
    single_seconds, distributed_seconds = seconds[:, 1:].min(axis=1) / 10
    clients = f"n={networks[0].n}" if networks[0].n == networks[1].n else f"n={networks[0].n}, {networks[1].n}"
    return name, f"{clients}, {size}", float(single_seconds), max(comm.allgather(float(distributed_seconds)))
