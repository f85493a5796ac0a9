"""Running a bilevel method: outer iterations, what is recorded, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Mean, open_mean
from hgp_ref.backend import Array, array_namespace, detached, device, host_float64
from hgp_ref.bilevel.others.joint import Joint, Place
from hgp_ref.bilevel.others.networks import one_round
from hgp_ref.bilevel.others.points import Points
from hgp_ref.bilevel.path import Path
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.rules import Rule
from hgp_ref.networks import Network
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.normalised import Normalised
from hgp_ref.training.start import check_lam

GROWTH_LIMIT = 1e8  # beyond this times what they started with, λ and x are not coming back


def run(
    method: Joint,
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int,
    *,
    x0: Array | None = None,
    project: Callable[[Array], Array] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    every: int = 1,
    callback: Callable[[int, Array, Array, float], object] | None = None,
    **unknown: object,
) -> Path:
    """K outer iterations of `method` from λ and x0, as a Path; the keywords are those of every method of others.

    x0 : (n, d_x), zeros by default.
    project : λ ← project(λ) after every iteration, of each client's own entries.
    batch_size, seed : None for full batches of g, else b instances a client, drawn anew whenever g is differentiated.
    every : an entry of the path for so many iterations; Σ f is evaluated there, at the clients' own x and λ.
    callback : callback(k, lam, x, outer_cost) at each entry; a true result stops.

    What grows beyond GROWTH_LIMIT or is not finite raises DivergenceError.
    """
    if unknown:
        known = "x0, project, batch_size, seed, every, callback"
        raise TypeError(f"{', '.join(unknown)}: no option of {method.name}, needed some of its own or of {known}")
    problem = as_problem(problem)
    lam, x = _start(problem, lam, x0)
    K = arguments.integer("outer_steps", outer_steps, 0, arguments.LONGEST)
    every, seed = arguments.integer("every", every, 1, arguments.LONGEST), check_seed(seed)
    for name, function in (("project", project), ("callback", callback)):
        if function is not None:
            arguments.function(name, function)
    averaging = one_round(method.name, method.network, net)
    mean = open_mean([averaging], problem.n_clients, x, max(K, 1))
    points = Points(problem, x, batch_size, seed, total=K * method.draws + 1)
    at, kept = method.start(points.next(x, lam)), _Kept(problem, mean, lam, x)
    points.drawn, stopped = 0, "steps"
    kept.add(at, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for k in range(1, K + 1):
            at = method.step(at, mean, points)
            if project is not None:
                at = _projected(at, project, method.lam_rule)
            if k % every and k != K:
                continue
            kept.add(at, k)
            if callback is not None:
                told = callback(k, at.lam.s, at.inner, kept.cost[-1])
                if arguments.truth("callback", told):
                    stopped = "callback"
                    break
    xp = array_namespace(lam)
    settings = dict(net=net, outer_steps=K, project=project, batch_size=batch_size, seed=seed, every=every)
    return Path(
        lam=xp.stack(kept.lam),
        x=at.inner,
        outer_cost=np.array(kept.cost),
        traffic=mean.charge(),
        floats=np.array(kept.floats, dtype=np.int64),
        rounds=np.array(kept.rounds, dtype=np.int64),
        stopped=stopped,
        method=method.name,
        settings=settings | described(method),
    )


def described(method: Joint) -> dict[str, Any]:
    """The settings of a method as plain numbers and words."""
    return {f.name: repr(getattr(method, f.name)) for f in fields(method) if f.name not in ("name", "network")}  # type: ignore[arg-type]


def _start(problem: Normalised, lam: Array, x0: Array | None) -> tuple[Array, Array]:
    check_lam(problem, lam, x0, run_axes=False)
    xp, shape = array_namespace(lam), (problem.n_clients, problem.dim_x)
    lam = xp.asarray(detached(lam), copy=True)
    if x0 is None:
        return lam, xp.zeros(shape, dtype=lam.dtype, device=device(lam))
    arguments.shape("x0", x0, shape, "(n, d_x)", run_axes=False)
    arguments.finite("x0", x0)
    return lam, xp.asarray(detached(x0), copy=True)


def _projected(at: Place, project: Callable[[Array], Array], rule: Rule) -> Place:
    projected = project(array_namespace(at.lam.s).asarray(at.lam.s, copy=True))
    arguments.same_kind(lam=at.lam.s, **{"project(lam)": projected})
    arguments.shape("project(lam)", projected, tuple(at.lam.s.shape), "(n, d_lam)", run_axes=False)
    return replace(at, lam=rule.projected(at.lam, detached(projected)))


class _Kept:
    """What the path will hold."""

    def __init__(self, problem: Normalised, mean: Mean, lam: Array, x: Array) -> None:
        self.problem, self.mean = problem, mean
        self.lam: list[Array] = []
        self.cost: list[float] = []
        self.floats: list[int] = []
        self.rounds: list[int] = []
        self.worth = 0.0  # 1 + |Σ f| at first
        self.reach = 1.0 + max(self._largest(lam), self._largest(x))

    def add(self, at: Place, k: int) -> None:
        """The entry after iteration k; DivergenceError where it makes no sense."""
        cost = host_float64(self.problem.outer_cost(at.inner, at.lam.s))[:, None]
        total = float(self.mean.channel.mean_over_clients(cost)[0, 0]) * self.mean.channel.n
        size = max(self._largest(at.lam.s), self._largest(at.inner))
        self.worth = self.worth or 1.0 + abs(total)
        if not (np.isfinite(total) and abs(total) <= GROWTH_LIMIT * self.worth and size <= GROWTH_LIMIT * self.reach):
            raise DivergenceError(
                f"diverged: after {k} outer iterations Σ f is {total:.3g} and the largest entry of x and λ {size:.3g}; "
                "take smaller step sizes"
            )
        sent = self.mean.channel.traffic
        self.lam.append(at.lam.s)
        self.cost.append(total)
        self.floats.append(int(sent.floats))
        self.rounds.append(int(sent.rounds))

    def _largest(self, a: Array) -> float:
        xp = array_namespace(a)
        return float(np.max(self.mean.channel.max_over_clients(xp.max(xp.abs(a), axis=-1))))
