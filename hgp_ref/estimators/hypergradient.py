"""Hyper-Gradient Push, Algorithm 2."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments, checks
from hgp_ref.averaging import Averaging, Runs
from hgp_ref.backend import Array, array_namespace
from hgp_ref.estimators.derivatives import FullBatch, MiniBatch
from hgp_ref.estimators.divergence import GrowthWatch
from hgp_ref.estimators.estimate import Estimate
from hgp_ref.progress import bar


def hypergradient(
    problem: Any,
    x: Array,
    lam: Array,
    avg: Averaging | Sequence[Averaging],
    eta: float = 1.0,
    iterations: int = 1000,
    batch_size: int | None = None,
    seed: int | Sequence[int] = 0,
    history: bool = False,
    *,
    shared_batch: bool = False,
    replace: bool = False,
    callback: Callable[[int, Array], Any] | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate d_λ Σ_k f_k(x_k(λ), λ_k), client i's block from vectors that clients send each other only.

    From u^(0) = ∂_x f and v^(0) = ∂_λ f, for m = 1 .. M:

        ū^(m-1) = Θ̂_{m-1} u^(m-1)                              (averaging, call m-1)
        v^(m)   = v^(m-1) − η ∂²_{xλ} g(ξ̂^(m)) ū^(m-1)
        u^(m)   = ū^(m-1) − η ∂²_x g(ξ̂̂^(m)) ū^(m-1)

    With exact averaging and full batches v^(M) tends to the true hyper-gradient if 0 < η λ_max < 2.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    x, lam : (n, d_x) and (n, d_lam), where the costs are differentiated.
    avg : averaging of n clients. A list of averagings, or of seeds, runs them all at once along a leading run axis.
    eta, iterations : step size η and number of terms M.
    batch_size : None for full batches, else b instances a client, drawn anew at each iteration from `seed`: without
        replacement unless `replace`, independently for v and u unless `shared_batch`.
    history : keep v^(1) .. v^(M).
    callback : called as callback(m, v) after each iteration m = 1 .. M; a true result stops the run.
    progress : show a bar.

    A run whose terms grow raises DivergenceError; a run over networks that are not jointly strongly connected warns.
    """
    _check_point(problem, x, lam)
    eta, M = arguments.positive("eta", eta), arguments.integer("iterations", iterations)
    averagings, seeds, runs = _runs(avg, seed)
    checks.same_clients(averagings, problem)
    checks.warn_unreachable(averagings, M)
    size = checks.batch_size(problem, batch_size)
    derivatives: FullBatch | MiniBatch
    if size is None:
        derivatives = FullBatch(problem, x, lam, runs)
    else:
        derivatives = MiniBatch(problem, x, lam, size, seeds, runs is not None, shared_batch, replace)

    averaging = averagings[0] if runs is None else Runs(averagings)
    u, v = _start(problem, x, lam, runs)
    watch = GrowthWatch(problem, x, lam, eta, u, averagings, mini_batches=size is not None)
    run = _Run(u, v, eta, watch, keep_history=history)
    shown = bar(M, "hypergradient", progress)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
            run.iterate(averaging, derivatives, M, callback, shown)
    finally:
        shown.close()
    return run.finish(averaging, derivatives, batch_size, averagings if runs is not None else averagings[0])


def _check_point(problem: Any, x: Array, lam: Array) -> None:
    arguments.same_kind(x=x, lam=lam)
    arguments.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)


def _start(problem: Any, x: Array, lam: Array, runs: int | None) -> tuple[Array, Array]:
    """u^(0) = ∂_x f and v^(0) = ∂_λ f, once for each run."""
    u, v = problem.outer_grad(x, lam)
    for k, (given, dimension) in enumerate(((u, problem.dim_x), (v, problem.dim_lam))):
        arguments.answer(f"outer_grad(x, lam)[{k}]", given, (problem.n_clients, dimension))
        arguments.finite(f"problem.outer_grad(x, lam)[{k}]", given)
    if runs is None:
        return u, v
    xp = array_namespace(u)
    return tuple(xp.broadcast_to(a, (runs, *a.shape)) + xp.zeros_like(a) for a in (u, v))


class _Run:
    """The state of Algorithm 2."""

    def __init__(self, u: Array, v: Array, eta: float, watch: GrowthWatch, keep_history: bool) -> None:
        self.u, self.v, self.w = u, v, array_namespace(u).zeros_like(u)
        self.eta, self.watch, self.keep_history = eta, watch, keep_history
        self.kept: list[Array] = []
        self.messages: Any = 0
        self.m, self.stopped = 0, "iterations"

    def iterate(self, averaging: Any, derivatives: Any, M: int, callback: Any, shown: Any) -> None:
        # Full batch: ∂²_{xλ} g is the same at each m, so v^(m) = v^(0) − ∂²_{xλ} g w^(m) is left to `finish`.
        self.deferred = derivatives.constant and callback is None
        size = max(1, min(averaging.block_size(self.u), math.ceil(M / 4)))
        for first in range(0, M, size):
            count = min(size, M - first)
            calls = averaging.prepare(first, count, self.u)
            derivatives.prepare(first, count)
            for m in range(count):
                for_v, for_u = derivatives.at(m)
                self.step(calls, for_v, for_u, m)
                if callback is not None and callback(self.m, self.v):
                    self.stopped = "callback"
                    break
            shown.update(m + 1)
            restart = calls.restart(m)
            self.watch.look(self.u if restart is None else self.u / restart, self.m)
            if self.stopped == "callback":
                break

    def step(self, calls: Any, for_v: Any, for_u: Any, m: int) -> None:
        ubar = calls.apply(m, self.u)  # ū = Θ̂ u
        self.messages = self.messages + calls.messages(m)
        self.w = self.w + self.eta * ubar
        if not self.deferred:
            crossed = arguments.answer("cross(u)", for_v.cross(ubar), self.v.shape)
            self.v = self.v - self.eta * crossed  # v ← v − η ∂²_{xλ} g ū
        restart = calls.restart(m)
        kept = ubar if restart is None else restart * ubar  # ū, or the mass ω ū where sums are conserved
        bent = arguments.answer("hvp(u)", for_u.hvp(ubar), ubar.shape)
        self.u = kept - self.eta * bent  # u ← ū − η ∂²_x g ū
        self.m += 1
        if self.keep_history:
            self.kept.append(self.w if self.deferred else self.v)

    def finish(self, averaging: Any, derivatives: Any, batch_size: int | None, given: Any) -> Estimate:
        growth = self.watch.conclude(self.m)
        xp = array_namespace(self.u)
        value, history = self.v, None
        if self.deferred:
            value = self.v - arguments.answer("cross(u)", derivatives.linearization.cross(self.w), self.v.shape)
            if self.keep_history:
                history = xp.expand_dims(self.v, axis=-3) - derivatives.crosses(self.kept)
        elif self.keep_history:
            history = xp.stack(self.kept, axis=-3)
        arguments.finite("the estimate", value)
        charge = averaging.traffic(self.messages, self.m, self.u)
        _keep_ledgers(averaging, charge)
        return Estimate(
            value=value,
            w=self.w,
            history=history,
            traffic=charge,
            eta=self.eta,
            iterations=self.m,
            batch_size=batch_size,
            averaging=given,
            stopped=self.stopped,
            growth=growth if growth.ndim else float(growth),
        )


def _runs(avg: Any, seed: Any) -> tuple[list[Averaging], list[int], int | None]:
    """The averagings and seeds, paired, and their number; None where neither was a list."""
    averagings = [avg] if isinstance(avg, Averaging) else avg
    if (
        not isinstance(averagings, list | tuple)
        or not averagings
        or not all(isinstance(a, Averaging) for a in averagings)
    ):
        raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or a list of them, got {avg!r}")
    many_seeds = isinstance(seed, list | tuple | range | np.ndarray)
    seeds = [operator.index(s) for s in seed] if many_seeds else [operator.index(seed)]
    if not seeds:
        raise ValueError("seed: empty list given, needed at least one")
    alone = isinstance(avg, Averaging) and not many_seeds
    count = max(len(averagings), len(seeds))
    if {len(averagings), len(seeds)} - {1, count}:
        raise ValueError(f"seed: {len(seeds)} given for {len(averagings)} averagings, needed as many or a single one")
    pair = [list(a) * (count if len(a) == 1 else 1) for a in (averagings, seeds)]
    return pair[0], pair[1], None if alone else count


def _keep_ledgers(averaging: Any, charge: Any) -> None:
    if isinstance(averaging, Averaging):
        averaging.ledger += charge
        return
    for r, one in enumerate(averaging.averagings):
        fields = (charge.messages, charge.floats, charge.bytes, charge.rounds)
        one.ledger += type(charge)(*(int(field[r]) for field in fields))
