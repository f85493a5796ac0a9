"""Does the core agree with the explicit reference on this machine's array library, and how fast is it?

    python -m hgp_ref check --backend cupy --dtype float32

The error of a case is max |core − reference| / max |reference|, the reference in float64 on NumPy. Two ways of
computing the same numbers may differ by 1000 eps of the dtype; iterations that converge to the truth by 4 √eps.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hgp_ref import exact, mpi_check
from hgp_ref.averaging import ExactAverage, Gossip, PushSum, RobustPushSum
from hgp_ref.backend import EXTRAS, Array, Backend, array_namespace, get_backend, host_float64, scalar, to_host
from hgp_ref.estimators import hypergradient
from hgp_ref.networks import FullyConnected, OnePeerExponential, RandomDirected, RandomOut, StaticUndirected, Unreliable
from hgp_ref.problems import InstanceWeights, LogisticRegression, Quadratic, SoftmaxRegression, sample_batches
from hgp_ref.training import sgp

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
        self.problems = {name: (host, host.to(backend.name, dtype=dtype)) for name, host in problems().items()}

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
                core = hypergradient(moved, self.there(x), self.there(lam), avg, 0.4, M, batch_size=size, seed=5)
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
            fit = sgp(moved, FullyConnected(N), self.there(lam), steps=300, lr=0.8, milestones=())
            return fit.x, to_host(exact.inner_solution(host, lam))

        def truth() -> Any:
            x = to_host(exact.inner_solution(host, lam))
            core = hypergradient(moved, self.there(x), self.there(lam), ExactAverage(N), 0.8, 300)
            return core.value, exact.hypergradient(host, x, lam)

        yield "training, logistic: the inner solution", self.limit, training
        yield "HGP, logistic: the true hyper-gradient", self.limit, truth


def problems() -> dict[str, Any]:
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
    run = _best(lambda: hypergradient(problem, x, lam, composed, 0.5, iterations).value)
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
        return mpi_check.main(options.dtype, scale)
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
