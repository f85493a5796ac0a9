"""Rigorous bounds on each client's error of a finished run.

However the run was made, its value v and its w are compared with the hyper-gradient d through the identity of
`bounds.residual`:

    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C1, C2)            by an observer of all clients
    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C3, C4)            by the clients, over the network

The first term is rounding in a full-batch run and the noise of J in a mini-batch run. d is the formula at the given x.
If Lipschitz constants are known, the term of 2* makes it the hyper-gradient at the exact inner solution.

Without convexity, as for neural networks, `measured_residual` reports

    residual_i = ‖ḡ − H̄ w_i‖,        ḡ = mean_k ∂_x f_k,  H̄ = mean_k ∂²_x g_k   at the given x,

which measures how well w_i solves H̄ w = ḡ. It is not an error: that would need a bound on H̄⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref.backend import Array, computes_on_device, host_float64
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates.point import INCLUDED, NOT_INCLUDED, DensePoint, Lanczos, MatrixFreePoint, Point
from hgp_ref.certificates.residuals import (
    CentralTerms,
    DecentralisedTerms,
    NetworkReductions,
    centralised,
    consistency,
    decentralised,
    inner_error,
)
from hgp_ref.certificates.result import AT_POINT, AT_SOLUTION, Certificate, smaller
from hgp_ref.mixing import Averaging, Channel, Traffic
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.transforms import modified_curvature
from hgp_ref.results import Result
from hgp_ref.validation import Boolean, Count, Instance, Integer, Optional, checked

DISTRIBUTED = "no process sees all clients: the bound is the one that they computed themselves"
MATRIX_FREE_ABOVE = 1000  # d_x above which H_i and J_i are not formed; they take 8 n d_x (d_x + d_λ) bytes


OPTIONS = {  # arguments that `Plan.run` has, too
    "lipschitz": Optional(Instance(Lipschitz)),
    "max_rounds": Optional(Integer(0)),
    "matrix_free": Optional(Boolean()),
}


@checked(**OPTIONS, first_call=Optional(Count(0)))
@np.errstate(over="ignore", invalid="ignore")  # overflow raises a ValueError below
def certify(
    problem: Problem,
    x: Array,
    lam: Array,
    est: Any,
    avg: Averaging | Sequence[Averaging] | None = None,
    *,
    lipschitz: Lipschitz | None = None,
    strong_convexity: float | str | Lanczos | None = None,
    first_call: int | None = None,
    max_rounds: int | None = None,
    matrix_free: bool | None = None,
) -> Certificate:
    """Bound each client's error ‖v_i − d_i‖ of a finished run, rigorously.

    Parameters
    ----------
    problem, x, lam : the problem and the point of the run.
    est : the run, or anything with `value` (n, d_lam) and `w` (n, d_x); both may have a run axis.
    avg : an averaging, or one per run, over which clients compute C3 and C4 themselves; its traffic grows by theirs.
        The bound is valid for any number of steps, and tighter for more.
    lipschitz : constants for the term of an inexact x; by default those of `problem.lipschitz(lam)`.
    strong_convexity : a lower bound on λ_min of the mean Hessian at x that all clients know. It is needed if the mean
        of the clients' λ_min is not positive, and in matrix-free form. "lanczos", in matrix-free form only, computes
        one that is wrong with probability 1e-6 over the seed of its random start. Every certificate draws and records
        a new seed; `certificates.Lanczos(seed=...)` sets it.
    first_call : the first call of `avg` that is used; by default the first one after the run's graphs.
    max_rounds : a limit for every max-consensus.
    matrix_free : use products only, without C2 and C3. The default for d_x > `MATRIX_FREE_ABOVE` = 1000.

    Raises
    ------
    ValueError
        If an assumption fails: the mean Hessian is not positive definite, a client is not reached within
        `max_rounds`, x is too far from the inner solution for the given constants, a given modulus is larger than the
        smallest eigenvalue, or a bound overflows.

    Notes
    -----
    Cost: d_x Hessian-vector and d_x cross products over all clients at once, a (d_x, d_x) eigenproblem and
    8 n d_x (d_x + d_λ) bytes. Matrix-free: n + 24 Hessian-vector products per run, cross products as in
    `MatrixFreePoint`, and about ten arrays (n, d_x).

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=10), iterations=200)
    >>> certificate = hgp.certify(problem, x, lam, est, hgp.PushSum(net, steps=20))
    >>> error = np.linalg.norm(est.value - hgp.exact.hypergradient(problem, x, lam), axis=1)
    >>> bool(np.all(error <= certificate.bound) and np.all(error <= certificate.decentralised_bound))
    True
    """
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    v, w = _check_estimate(problem, x, lam, est)
    modulus = _read_modulus(strong_convexity)
    mu, curvature = modified_curvature(problem.wrapped)
    in_place = _in_place(mu, curvature)
    if in_place and lipschitz is not None:
        raise ValueError(f"lipschitz must be None: the bound is against the formula at x{in_place}, got {lipschitz!r}")
    averagings = _check_averagings(avg, est, problem.n_clients, len(v))
    rounds_used = _rounds_used(averagings, est, first_call)
    networks = [NetworkReductions(a, k, x, max_rounds) for a, k in zip(averagings, rounds_used, strict=True)]
    for network in networks:
        network.channel.check_client_ids(problem.clients)
        network.channel.check_same_on_all_ranks(
            "hgp.certify", options=(lipschitz, modulus, max_rounds, matrix_free), runs=est.value.ndim
        )
    distributed = any(network.distributed for network in networks)
    nu = known_lipschitz(problem, lam) if lipschitz is None else lipschitz
    if distributed and lipschitz is None:
        nu = common_constants(nu, networks[0].channel)

    # 1. What each client computes alone
    point = _point(problem, x, lam, modulus, nu, matrix_free, n_total=networks[0].n if distributed else None)
    difference, difference_rounding = consistency(point, v, w)
    complete = point.rounding_complete

    # 2. Bounds by an observer of all clients: C1, C2
    central, inner, note = None, None, DISTRIBUTED
    if distributed:
        alpha_known = _common_modulus(modulus, nu)
    else:
        point.compute_means()
        alpha_known = point.alpha_bar
        inner = inner_error(point, nu, w[0], strict=lipschitz is not None)
        note, nu = inner.note, None if inner.note else nu
        _check_moduli(point, modulus, nu, inner.gap)
        central = centralised(point, w)

    # 3. Bounds by the clients, over the network: C3, C4
    by_clients = None
    if networks:
        complete = not networks[0].channel.any_rank(not complete)
        if not point.matrix_free:  # clients find ᾱ themselves
            alpha_known = modulus if isinstance(modulus, float) else 0.0
        by_clients = decentralised(point, w, networks, nu, alpha_known, strict=lipschitz is not None)
        for averaging, network in zip(averagings, networks, strict=True):
            averaging.traffic += network.traffic

    # 4. The certificate
    arrays = _combine(difference, difference_rounding, central, by_clients)
    if est.value.ndim == 2:
        arrays = {name: a if a is None else a[0] for name, a in arrays.items()}
    term = arrays.get("decentralised_inexact") if inner is None else inner.term
    certificate = Certificate(
        **arrays,  # type: ignore[arg-type]
        alpha_bar=by_clients.alpha_bar if by_clients is not None and central is None else point.alpha_bar,
        inexact=None if inner is None else inner.term,
        inner_gradient=None if inner is None else inner.gradient,
        consensus_gap=None if inner is None else inner.gap,
        traffic=sum((network.traffic for network in networks), Traffic()) if networks else None,
        matrix_free=point.matrix_free,
        against=AT_SOLUTION if term is not None else AT_POINT + in_place,
        assumptions=_assumptions(point, nu, by_clients is not None, note, complete, in_place),
        rounding_complete=complete,
        damping=mu,
        curvature=curvature,
        smallest_eigenvalue=None if central is None else float(point.alpha_top - mu),
    )
    _check_range(certificate)
    return certificate


# ------------------------------------------------------------------------------------------------------------ arguments


def _check_estimate(problem: Problem, x: Array, lam: Array, est: Any) -> tuple[np.ndarray, np.ndarray]:
    """v (runs, n, d_lam) and w (runs, n, d_x) of `est` on the host; they must fit x and lam."""
    value, w = getattr(est, "value", None), getattr(est, "w", None)
    if value is None or w is None:
        hint = "; pass its `estimate`" if hasattr(est, "estimate") else ""
        raise ValueError(f"est must be an estimate with `value` and `w`, got {type(est).__name__}{hint}")
    n, dim_x, dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
    validation.same_kind(**{"est.value": value, "est.w": w}, x=x, lam=lam)
    validation.shape("est.value", value, (n, dim_lam), "(..., n, d_lam)")
    validation.shape("est.w", w, (n, dim_x), "(..., n, d_x)")
    if value.ndim > 3 or value.ndim != w.ndim:
        raise ValueError(
            f"est.value and est.w must have the same run axis, or none, got {tuple(value.shape)} and {tuple(w.shape)}"
        )
    validation.shape("x", x, (n, dim_x), "(n, d_x)", run_axes=False)
    validation.shape("lam", lam, (n, dim_lam), "(n, d_lam)", run_axes=False)
    for name, a in {"est.value": value, "est.w": w, "x": x, "lam": lam}.items():
        validation.finite(name, a)
    return host_float64(value).reshape(-1, n, dim_lam), host_float64(w).reshape(-1, n, dim_x)


def _read_modulus(strong_convexity: object) -> float | Lanczos | None:
    if strong_convexity is None or isinstance(strong_convexity, Lanczos):
        return strong_convexity
    if isinstance(strong_convexity, str):
        validation.choice("strong_convexity", strong_convexity, ("lanczos",))
        return Lanczos()
    return validation.positive("strong_convexity", strong_convexity)


def _check_averagings(
    avg: Averaging | Sequence[Averaging] | None, est: Any, clients: int, runs: int
) -> list[Averaging]:
    """One averaging per run; none without `avg`, for which all clients must be in this process."""
    if avg is None:
        averaging = getattr(est, "averaging", None)
        for used in averaging if isinstance(averaging, list | tuple) else [averaging]:
            net = getattr(used, "net", None)
            if net is not None and net.clients != slice(0, net.n):
                raise ValueError(
                    f"avg must be an averaging over {net!r}, got None: no process sees all clients, so only they can "
                    "bound the error together (C3, C4)"
                )
        return []
    averagings: list[Any] = list(avg) if isinstance(avg, list | tuple) else [avg] * runs
    if len(averagings) != runs:
        raise ValueError(f"avg must be one averaging or {runs}, one for each run, got {len(averagings)}")
    for a in averagings:
        if not isinstance(a, Averaging):
            raise TypeError(f"avg must be an averaging (PushSum, ExactAverage, Gossip) or one per run, got {a!r}")
        local = a.n if a.net is None else a.net.clients.stop - a.net.clients.start
        if local != clients:
            raise ValueError(f"avg must average the problem's {clients} clients, got {a!r} for {local}")
    return averagings


def _rounds_used(averagings: list[Averaging], est: Any, first_call: int | None) -> list[int]:
    """How many graphs each averaging skips: those before `first_call`, or those that any run of `est` has used."""
    if first_call is not None:
        return [a.graphs_before(first_call) for a in averagings]
    if not averagings:
        return []
    traffic, used = getattr(est, "traffic", None), getattr(est, "averaging", None)
    iterations = getattr(est, "iterations", None)
    if traffic is not None:
        return [int(np.max(traffic.rounds))] * len(averagings)
    if used is None or iterations is None:
        raise ValueError(
            "first_call must be given: est has no traffic and lacks averaging or iterations, so its number of calls is "
            "unknown"
        )
    most = max(a.graphs_before(iterations) for a in (used if isinstance(used, list) else [used]))
    return [most] * len(averagings)


def common_constants(nu: Lipschitz | None, channel: Channel) -> Lipschitz | None:
    """Constants of all clients from those of the clients in each process; None if a process has none.

    Lipschitz constants are the largest. The mean Hessian is a mean of those of the processes, weighted by their numbers
    of clients, and λ_min is concave. So the same mean of their moduli is a modulus of it.
    """
    names = ("nu_flam", "nu_fx", "nu_J", "nu_H")
    values = np.zeros(4) if nu is None else np.array([getattr(nu, name) for name in names])
    modulus = None if nu is None else nu.strong_convexity
    flags = [nu is None, modulus is None, nu is None or not nu.holds_apart]
    *top, unknown, no_modulus, apart = channel.max_over_clients(np.concatenate([values, flags])[:, None])
    rows = np.full((channel.clients.stop - channel.clients.start, 1), modulus or 0.0)
    mean = float(channel.mean_over_clients(rows)[0, 0]) * (1 - 2 * channel.n * rounding.EPS)
    if unknown:
        return None
    constants = {name: float(value) for name, value in zip(names, top, strict=True)}
    return Lipschitz(**constants, strong_convexity=None if no_modulus else mean, holds_apart=not apart)


def _common_modulus(strong_convexity: float | Lanczos | None, nu: Lipschitz | None) -> float:
    """A lower bound on λ_min(H̄) at x that is known without seeing all clients; 0 if none is."""
    if isinstance(strong_convexity, Lanczos):
        raise ValueError(
            "strong_convexity must be None or a number for clients in several processes, got 'lanczos', which needs "
            "all Hessians"
        )
    by_rates = nu.strong_convexity if nu is not None and nu.holds_apart else None
    return max(strong_convexity or 0.0, by_rates or 0.0)


def _check_moduli(point: Point, strong_convexity: float | Lanczos | None, nu: Lipschitz | None, gap: float) -> None:
    """ValueError if a given modulus exceeds the smallest eigenvalue of the mean Hessian.

    A modulus at common points is smaller by ν_H · `gap` where rows of x differ, unless it `holds_apart`.
    """
    moduli = {"strong_convexity": strong_convexity}
    if nu is not None and nu.strong_convexity is not None:
        moduli["lipschitz.strong_convexity"] = nu.strong_convexity - (0.0 if nu.holds_apart else nu.nu_H * gap)
    for name, value in moduli.items():
        if isinstance(value, float) and value > point.alpha_top:
            raise ValueError(
                f"{name} must be a lower bound on the smallest eigenvalue of the mean Hessian at x, which is at most "
                f"{point.alpha_top:.6g}, got {value:.6g}"
            )


# ------------------------------------------------------------------------------------------------------------ the parts


def _point(
    problem: FullProblem,
    x: Array,
    lam: Array,
    strong_convexity: float | Lanczos | None,
    nu: Lipschitz | None,
    matrix_free: bool | None,
    n_total: int | None,
) -> Point:
    if matrix_free or (matrix_free is None and problem.dim_x > MATRIX_FREE_ABOVE):
        return MatrixFreePoint(problem, x, lam, n_total, strong_convexity=strong_convexity, nu=nu)
    if isinstance(strong_convexity, Lanczos):
        raise ValueError(
            f"strong_convexity must be None or a number for d_x={problem.dim_x}, where the mean Hessian is formed, got "
            "'lanczos', which needs matrix_free=True"
        )
    return DensePoint(problem, x, lam, n_total)


def _combine(
    difference: np.ndarray,
    difference_rounding: np.ndarray,
    central: CentralTerms | None,
    by_clients: DecentralisedTerms | None,
) -> dict[str, np.ndarray | None]:
    """The arrays (runs, n) of the certificate by name."""
    arrays: dict[str, np.ndarray | None] = {"consistency": difference}
    if central is not None:
        total = difference_rounding + central.rounding
        arrays |= {**vars(central), "rounding": total}
        arrays["centralised"] = difference + total + smaller(central.c1, central.c2)
    if by_clients is not None:
        arrays |= {"c3": by_clients.c3, "c4": by_clients.c4, "decentralised_inexact": by_clients.inexact}
        arrays["decentralised"] = difference + difference_rounding + smaller(by_clients.c4, by_clients.c3)
    return arrays


def _check_range(certificate: Certificate) -> None:
    """ValueError if a bound overflows."""
    largest = np.max(certificate.consistency if certificate.residual is None else certificate.residual)
    for name, bound in (("bound", certificate.bound), ("decentralised_bound", certificate.decentralised_bound)):
        if bound is not None and not np.all(np.isfinite(bound)):
            raise ValueError(
                f"{name} leaves the range of floating point (ᾱ ≥ {certificate.alpha_bar:.1e}, residuals up to "
                f"{largest:.1e}); rescale the problem"
            )


def _in_place(mu: float, curvature: str) -> str:
    """What the formula has in place of the mean Hessian, in words; empty if nothing."""
    if curvature == "hessian" and not mu:
        return ""
    matrix = "the Gauss-Newton matrix" if curvature == "gauss-newton" else "the mean Hessian"
    return f", with {matrix}{f' + μI, μ = {mu:g},' if mu else ''} in place of the mean Hessian"


def _assumptions(
    point: Point, nu: Lipschitz | None, by_clients: bool, note: str, complete: bool, in_place: str
) -> tuple[str, ...]:
    lines = [
        "the problem's hvp, cross and gradients are the derivatives of its costs" + in_place,
        INCLUDED if complete else NOT_INCLUDED,
        *point.notes,
    ]
    if nu is None:
        lines.append(note or "no Lipschitz constants known: the bound is against the formula at the given x")
    elif nu.strong_convexity is not None:
        lines.append(
            f"mean inner cost strongly convex with modulus {nu.strong_convexity:.3e}, Lipschitz constants hold"
        )
    else:
        lines.append("mean inner cost convex, Lipschitz constants hold")
    if by_clients:
        lines.append("graphs are column-stochastic; max-consensus runs at least as many rounds as counted")
        if nu is not None:
            lines.append("every client knows the Lipschitz constants")
    return tuple(lines)


# ---------------------------------------------------------------------------------------------------- without convexity


@dataclass(frozen=True)
class MeasuredResidual(Result):
    """How well each client's w solves its equation, (n,) each; no bound on the error of v.

    Attributes
    ----------
    residual : ‖ḡ − H̄ w_i‖, at most, rounding included.
    relative : the same divided by ‖ḡ‖: 1 for w = 0.
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖, at most, rounding included.
    rounding_complete : whether the rounding of the problem's own sums is included; needs `term_sizes`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> bool(np.all(hgp.certificates.measured_residual(problem, x, lam, est).relative < 1e-3))
    True
    """

    residual: np.ndarray
    relative: np.ndarray
    consistency: np.ndarray
    rounding_complete: bool = False

    def _summary(self) -> list[str]:
        return validation.table(
            f"residuals of {len(self.residual)} clients, measured: no bound on the error",
            residual=f"at most {np.max(self.residual):.1e}, {np.max(self.relative):.1e} of the mean outer gradient",
            consistency=f"at most {np.max(self.consistency):.1e}",
        )


class _ProductsOnly(MatrixFreePoint):
    """Products, and the sizes needed for rounding; no ᾱ and no β."""

    def __init__(self, problem: FullProblem, x: Array, lam: Array) -> None:
        Point.__init__(self, problem, x, lam)
        Point.compute_means(self)


@computes_on_device
def measured_residual(problem: Problem, x: Array, lam: Array, est: Any) -> MeasuredResidual:
    """Measure how well `est` (value (n, d_lam), w (n, d_x)) solves its equation at x; needs no convexity.

    Cost: n + 16 products with all Hessians, one cross product.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> hgp.certificates.measured_residual(problem, x, lam, est).residual.shape
    (3,)
    """
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    v, w = _check_estimate(problem, x, lam, est)
    if est.value.ndim != 2:
        raise ValueError(f"est.value must have shape (n, d_lam), one run, got {tuple(est.value.shape)}")
    point = _ProductsOnly(problem, x, lam)
    r, error = point.residuals(w[0])
    residual = rounding.norms(r) * point.slack + error
    difference, difference_rounding = consistency(point, v[0], w[0])
    size = rounding.norm(point.g_bar)
    relative = residual / size if size > 0 else np.where(residual > 0, np.inf, 0.0)
    return MeasuredResidual(residual, relative, difference + difference_rounding, point.rounding_complete)
