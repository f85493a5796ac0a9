"""A rigorous bound on each client's error of a finished run.

Whatever the run did, its value v and its w are compared with the hyper-gradient d through the identity of
`residual`:

    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C1, C2)            seen from the centre
    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C3, C4)            computed by the clients over the network

The first part is rounding in a full-batch run and the noise of J in a mini-batch run. d is the formula at the
given x; if Lipschitz constants are known, the term of 2* makes it the hyper-gradient at the exact inner
solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging, Traffic
from hgp_ref.backend import to_host

from .centralised import InnerError, Point, Residuals, inner_error, judge
from .decentralised import Decentralised, client_curvature, decentralised
from .inexact import Lipschitz
from .lipschitz import known_lipschitz

AT_SOLUTION = "the hyper-gradient at the exact inner solution"
AT_POINT = "the hyper-gradient formula at the given x"


@dataclass(frozen=True)
class Certificate:
    """Bounds on ‖v_i − d_i‖, (n,) each; with a run axis in the estimate, (runs, n).

    `bound` is the one to use: `centralised` plus `inexact` where that is known. `against` says what d is.
    """

    centralised: np.ndarray  # consistency + min(C1, C2) + rounding
    c1: np.ndarray
    c2: np.ndarray
    identity: np.ndarray  # ‖J_i (w* − w_i)‖: the error of ∂_λ f_i − J_i w_i itself, up to rounding
    consistency: np.ndarray  # ‖v_i − (∂_λ f_i − J_i w_i)‖
    rounding: np.ndarray  # allowance for arithmetic on gradients and products, not for cancellation inside them
    residual: np.ndarray  # ‖ḡ − H̄ w_i‖
    alpha_bar: float  # λ_min(H̄) at x
    inexact: np.ndarray | None  # (n,), what an inexact inner solution may add; None if constants are not known
    inner_gradient: float  # ‖mean ∂_x g‖ at the mean of x: 0 at the inner solution
    consensus_gap: float  # max_i ‖x_i − mean of x‖
    decentralised: np.ndarray | None  # consistency + min(C3, C4) + rounding
    c3: np.ndarray | None
    c4: np.ndarray | None
    decentralised_inexact: np.ndarray | None
    traffic: Traffic | None  # of the decentralised computation
    against: str
    assumptions: tuple[str, ...]

    @property
    def bound(self) -> np.ndarray:
        """Bounds on the error against what `against` names, centralised."""
        return self.centralised if self.inexact is None else self.centralised + self.inexact

    @property
    def decentralised_bound(self) -> np.ndarray | None:
        """The same from the decentralised computation; None without an averaging, or where x is too far off for it."""
        if self.decentralised is None or self.inexact is None:
            return self.decentralised
        return None if self.decentralised_inexact is None else self.decentralised + self.decentralised_inexact

    def __str__(self) -> str:
        lines = [f"certificate against {self.against}"]
        lines.append(f"  largest bound over clients   {np.max(self.bound):.3e}")
        if self.decentralised_bound is not None:
            lines.append(f"  the same, decentralised      {np.max(self.decentralised_bound):.3e}")
        lines.append(f"  inner gradient, gap of x     {self.inner_gradient:.3e}, {self.consensus_gap:.3e}")
        return "\n".join([*lines, *(f"  assumes: {a}" for a in self.assumptions)])


def certify(
    problem: Any,
    x: Any,
    lam: Any,
    est: Any,
    avg: Any = None,
    *,
    lipschitz: Lipschitz | None = None,
    strong_convexity: float | None = None,
    first_call: int | None = None,
    max_rounds: int | None = None,
) -> Certificate:
    """Bound each client's error of `est`, an estimate with `value` (n, d_lam) and `w` (n, d_x), or with a run axis.

    avg : an averaging (or one per run) over which clients compute C3 and C4 themselves; its ledger grows. More steps
        give a tighter bound, any number a valid one. Calls start at `first_call`, by default after the run's graphs.
    lipschitz : constants for the term of an inexact x; by default the problem's own, or those of a built-in problem.
    strong_convexity : a lower bound on λ_min(H̄) that clients know, for decentralised use where theirs is not positive.
    max_rounds : limit for every flooding; ValueError if the graphs do not carry maxima to all clients within it.

    ValueError where an assumption fails: mean Hessian not positive definite, no w, clients cut off, x too far off for
    given Lipschitz constants. Costs d_x Hessian-vector and d_x cross products over all clients at once and a
    (d_x, d_x) solve.
    """
    value, w = _estimate_arrays(est, problem)
    arguments.same_kind(x=x, lam=lam, **{"est.value": value, "est.w": w})
    averagings = _averagings(avg, problem.n_clients, value.shape[0] if value.ndim == 3 else None)
    point = Point(problem, x, lam)
    nu = known_lipschitz(problem, lam) if lipschitz is None else lipschitz
    inner, nu, note = _inner(point, nu, given=lipschitz is not None)
    runs = [(value, w)] if value.ndim == 2 else [(value[r, ...], w[r, ...]) for r in range(value.shape[0])]
    judged = [judge(point, v, u) for v, u in runs]
    net: list[Decentralised] = []
    if averagings is not None:
        curvature = client_curvature(point)
        for (_, u), one in zip(runs, averagings, strict=True):
            start = _first_call(est, one) if first_call is None else first_call
            found = decentralised(
                point,
                to_host(u).astype(np.float64),
                one,
                start,
                curvature=curvature,
                nu=nu,
                strict=lipschitz is not None,
                alpha_known=strong_convexity or 0.0,
                max_rounds=max_rounds,
            )
            net.append(found)
    return _assemble(point, inner, judged, net, value.ndim == 3, _assumptions(nu, net, note))


def _inner(point: Point, nu: Lipschitz | None, given: bool) -> tuple[InnerError, Lipschitz | None, str]:
    """The inner error with constants where they serve; constants that were not asked for may fail without harm."""
    try:
        return inner_error(point, nu), nu, ""
    except ValueError as error:
        if given:
            raise
        return inner_error(point, None), None, f"no term for an inexact x: {error}"


def _estimate_arrays(est: Any, problem: Any) -> tuple[Any, Any]:
    value, w = getattr(est, "value", None), getattr(est, "w", None)
    if value is None or w is None:
        raise ValueError("est: needed an estimate with `value` and `w`, the residual of which is judged")
    arguments.shape("est.value", value, (problem.n_clients, problem.dim_lam), "(..., n, d_lam)")
    arguments.shape("est.w", w, (problem.n_clients, problem.dim_x), "(..., n, d_x)")
    if value.ndim > 3 or value.ndim != w.ndim:
        raise ValueError(f"est: value {tuple(value.shape)} and w {tuple(w.shape)} given, needed at most one run axis")
    arguments.finite("est.value", value)
    arguments.finite("est.w", w)
    return value, w


def _averagings(avg: Any, clients: int, runs: int | None) -> list[Any] | None:
    """One averaging per run, None if none was given."""
    if avg is None:
        return None
    for one in avg if isinstance(avg, list | tuple) else [avg]:
        if not isinstance(one, Averaging):
            raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or one per run, got {one!r}")
        if one.n != clients:
            raise ValueError(f"avg: {one!r} averages {one.n} clients, but the problem has {clients}")
    if not isinstance(avg, list | tuple):
        return [avg] * (runs or 1)
    if len(avg) != (runs or 1):
        raise ValueError(f"avg: {len(avg)} averagings given for {runs or 1} runs, needed one for each or a single one")
    return list(avg)


def _first_call(est: Any, avg: Any) -> int:
    """The first call of `avg` whose graphs come after those of the run."""
    if not hasattr(est, "averaging") or not hasattr(est, "iterations"):
        raise ValueError("first_call: needed where the estimate does not tell its averaging and iterations")
    used = est.averaging if isinstance(est.averaging, list | tuple) else [est.averaging]
    steps = max(getattr(a, "steps", 0) for a in used) * est.iterations
    return -(-steps // avg.steps)


def _assumptions(nu: Lipschitz | None, net: list[Decentralised], note: str) -> tuple[str, ...]:
    found = [
        "the problem's hvp, cross and gradients are the derivatives of its costs",
        "gradients and products are as evaluated: sums inside them that cancel may round by more than is allowed for",
    ]
    if nu is None:
        found.append(note or "no Lipschitz constants known: the bound is against the formula at the given x")
    elif nu.strong_convexity is not None:
        found.append(
            f"mean inner cost strongly convex with modulus {nu.strong_convexity:.3e}, Lipschitz constants hold"
        )
    else:
        found.append("mean inner cost convex, Lipschitz constants hold")
    if net:
        found.append("graphs are column-stochastic; flooding runs at least as many rounds as counted")
        if nu is not None:
            found.append("every client knows the Lipschitz constants")
    return tuple(found)


def _assemble(
    point: Point,
    inner: InnerError,
    judged: list[Residuals],
    net: list[Decentralised],
    many: bool,
    assumptions: tuple[str, ...],
) -> Certificate:
    def rows(get: Callable[[int], np.ndarray]) -> np.ndarray:
        stacked = np.stack([get(r) for r in range(len(judged))])
        return stacked if many else stacked[0]

    def clients(get: Callable[[int], np.ndarray]) -> np.ndarray | None:
        return rows(get) if net else None

    def base(r: int) -> np.ndarray:
        return judged[r].consistency + judged[r].rounding

    terms = [one.term for one in net if one.term is not None]
    terms = terms if len(terms) == len(judged) else []
    return Certificate(
        centralised=rows(lambda r: base(r) + np.minimum(judged[r].c1, judged[r].c2)),
        c1=rows(lambda r: judged[r].c1),
        c2=rows(lambda r: judged[r].c2),
        identity=rows(lambda r: judged[r].identity),
        consistency=rows(lambda r: judged[r].consistency),
        rounding=rows(lambda r: judged[r].rounding),
        residual=rows(lambda r: judged[r].residual),
        alpha_bar=point.alpha_bar,
        inexact=inner.term,
        inner_gradient=inner.gradient,
        consensus_gap=inner.gap,
        decentralised=clients(lambda r: base(r) + np.minimum(net[r].c3, net[r].c4)),
        c3=clients(lambda r: net[r].c3),
        c4=clients(lambda r: net[r].c4),
        decentralised_inexact=rows(lambda r: terms[r]) if terms else None,
        traffic=sum((one.traffic for one in net), Traffic()) if net else None,
        against=AT_POINT if inner.term is None else AT_SOLUTION,
        assumptions=assumptions,
    )
