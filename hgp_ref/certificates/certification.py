"""The arguments of a certificate, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref import rounding as rigorous
from hgp_ref.backend import Array, host_float64
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates.point import DensePoint, Lanczos, MatrixFreePoint, Point
from hgp_ref.certificates.residuals import (
    Conversation,
    Decentralised,
    InnerError,
    decentralised,
    inner_error,
    judge,
    own_part,
    slack,
)
from hgp_ref.certificates.result import Certificate, Seen, assemble
from hgp_ref.mixing import Averaging, Channel
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.results import Result


def estimate_arrays(est: Any, problem: Problem) -> tuple[Array, Array]:
    """v and w of an estimate, with at most one run axis."""
    value, w = getattr(est, "value", None), getattr(est, "w", None)
    if value is None or w is None:
        raise ValueError("est: needed an estimate with `value` and `w`, the residual of which is judged")
    validation.same_kind(**{"est.value": value, "est.w": w})
    validation.shape("est.value", value, (problem.n_clients, problem.dim_lam), "(..., n, d_lam)")
    validation.shape("est.w", w, (problem.n_clients, problem.dim_x), "(..., n, d_x)")
    if value.ndim > 3 or value.ndim != w.ndim:
        raise ValueError(f"est: value {tuple(value.shape)} and w {tuple(w.shape)} given, needed at most one run axis")
    validation.finite("est.value", value)
    validation.finite("est.w", w)
    return value, w


def point_arrays(problem: Problem, x: Array, lam: Array, value: Array) -> None:
    """x and lam beside the estimate, one row per client."""
    validation.same_kind(x=x, lam=lam, **{"est.value": value})
    validation.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    validation.finite("x", x)
    validation.finite("lam", lam)


def all_here(est: Any) -> None:
    """ValueError where the run of `est` had clients in other processes: without them there is no mean Hessian."""
    used = getattr(est, "averaging", None)
    for one in used if isinstance(used, list | tuple) else [used]:
        net = getattr(one, "net", None)
        if net is not None and net.clients != slice(0, net.n):
            raise ValueError(
                f"avg: None given for a run over {net!r}, needed an averaging over the same network: no process sees "
                "all clients, so that only they can bound the error together (C3, C4)"
            )


def read_averagings(
    avg: Averaging | Sequence[Averaging] | None, clients: int, runs: int | None
) -> list[Averaging] | None:
    """One averaging per run, None if none was given."""
    if avg is None:
        return None
    given: list[Any] = list(avg) if isinstance(avg, list | tuple) else [avg]
    for one in given:
        if not isinstance(one, Averaging):
            raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or one per run, got {one!r}")
        held = one.n if one.net is None else one.net.clients.stop - one.net.clients.start
        if held != clients:
            raise ValueError(f"avg: {one!r} averages {held} clients, but the problem has {clients}")
    if not isinstance(avg, list | tuple):
        return given * (runs or 1)
    if len(given) != (runs or 1):
        raise ValueError(f"avg: {len(given)} averagings given for {runs or 1} runs, needed one each or a single one")
    return given


def graphs_of(est: Any) -> int:
    """How many graphs the run behind `est` has used, whichever of its runs used most."""
    traffic = getattr(est, "traffic", None)
    if traffic is not None:
        return int(np.max(traffic.rounds))
    averaging, iterations = getattr(est, "averaging", None), getattr(est, "iterations", None)
    if averaging is None or iterations is None:
        raise ValueError("first_call: needed where the estimate tells neither its traffic nor averaging and iterations")
    return max(a.graphs_before(iterations) for a in (averaging if isinstance(averaging, list) else [averaging]))


def read_modulus(strong_convexity: object) -> float | Lanczos | None:
    """A positive number, `Lanczos` ("lanczos" is one) or None."""
    if strong_convexity is None or isinstance(strong_convexity, Lanczos):
        return strong_convexity
    if isinstance(strong_convexity, str):
        validation.choice("strong_convexity", strong_convexity, ("lanczos",))
        return Lanczos()
    return validation.positive("strong_convexity", strong_convexity)


def constants(lipschitz: object) -> Lipschitz:
    """Lipschitz constants that the caller gives."""
    if not isinstance(lipschitz, Lipschitz):
        raise TypeError(
            f"lipschitz={lipschitz!r} given ({type(lipschitz).__name__}), needed a hgp_ref.problems.Lipschitz"
        )
    return lipschitz


def common_constants(nu: Lipschitz | None, channel: Channel) -> Lipschitz | None:
    """Constants of all clients from those of the clients in each process, None where one has none.

    Lipschitz constants are the largest. The mean Hessian is a mean of those of the processes, each weighed by its
    number of clients, and λ_min is concave: the mean of their moduli is one of it.
    """
    names = ("nu_flam", "nu_fx", "nu_J", "nu_H")
    told = np.zeros(4) if nu is None else np.array([getattr(nu, name) for name in names])
    modulus = None if nu is None else nu.strong_convexity
    flags = [nu is None, modulus is None, nu is None or not nu.holds_apart]
    *top, unknown, without, apart = channel.max_over_clients(np.concatenate([told, flags])[:, None])
    rows = np.full((channel.clients.stop - channel.clients.start, 1), modulus or 0.0)
    mean = float(channel.mean_over_clients(rows)[0, 0]) * (1 - 2 * channel.n * rounding.EPS)
    if unknown:
        return None
    constants = {name: float(value) for name, value in zip(names, top, strict=True)}
    return Lipschitz(**constants, strong_convexity=None if without else mean, holds_apart=not apart)


def common_modulus(strong_convexity: float | Lanczos | None, nu: Lipschitz | None) -> float:
    """A lower bound on λ_min(H̄) at x that needs no look at all clients; 0 where none is known."""
    if isinstance(strong_convexity, Lanczos):
        raise ValueError(
            "strong_convexity='lanczos' given, for which someone must see all clients, but some of them "
            "live in other processes; needed None or a number"
        )
    by_rates = nu.strong_convexity if nu is not None and nu.holds_apart else None
    return max(strong_convexity or 0.0, by_rates or 0.0)


def not_refuted(point: Point, strong_convexity: float | Lanczos | None, nu: Lipschitz | None, gap: float) -> None:
    """ValueError where a modulus that was told is above the smallest eigenvalue of the mean Hessian as computed.

    A modulus at common points says less where rows of x are apart: by ν_H · `gap`, unless it `holds_apart`.
    """
    told = {"strong_convexity": strong_convexity}
    if nu is not None and nu.strong_convexity is not None:
        told["lipschitz: strong_convexity"] = nu.strong_convexity - (0.0 if nu.holds_apart else nu.nu_H * gap)
    for name, value in told.items():
        if isinstance(value, float) and value > point.alpha_top:
            raise ValueError(
                f"{name}={value:.6g} given, but the smallest eigenvalue of the mean Hessian at x is at most "
                f"{point.alpha_top:.6g}; needed a lower bound of it"
            )


# ----------------------------------------------------------------------------------------------------
# A rigorous bound on each client's error of a finished run.
#
# Whatever the run did, its value v and its w are compared with the hyper-gradient d through the identity of
# `bounds.residual`:
#
#     ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C1, C2)            seen from the centre
#     ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C3, C4)            computed by the clients over the network
#
# The first part is rounding in a full-batch run and the noise of J in a mini-batch run. d is the formula at the
# given x; if Lipschitz constants are known, the term of 2* makes it the hyper-gradient at the exact inner
# solution.


ELSEWHERE = "no process sees all clients: what they computed themselves is all there is"
MATRIX_FREE_ABOVE = 1000  # d_x from which on H_i and J_i are not formed: 8 n d_x (d_x + d_λ) bytes, 16 MB a client here


@np.errstate(over="ignore", invalid="ignore")  # what leaves the range of floating point is refused in words
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
    problem, x, lam
        What the run was about: the problem, the point (n, d_x) and the hyper-parameters (n, d_lam).
    est : Estimate
        The run, or anything with `value` (n, d_lam) and `w` (n, d_x); both may carry a run axis.
    avg : Averaging, or one per run, optional
        An averaging over which clients compute C3 and C4 themselves; its ledger grows. More steps give a tighter
        bound, any number a valid one. Calls start at `first_call`, by default after the run's graphs.
    lipschitz : Lipschitz, optional
        Constants for the term of an inexact x; by default what the problem's own `lipschitz(lam)` says.
    strong_convexity : float, "lanczos" or Lanczos, optional
        A lower bound on λ_min of the mean of the clients' Hessians at x that everybody knows: needed by clients where
        the mean of their own λ_min is not positive, and in matrix-free form. "lanczos", in matrix-free form only:
        computed, and wrong with probability 1e-6 over the seed of its random start. The seed is drawn anew for every
        certificate, which records it; `certificates.Lanczos(seed=...)` sets it.
    first_call : int, optional
        The first call of `avg` that is used.
    max_rounds : int, optional
        Limit for every flooding.
    matrix_free : bool, optional
        Products alone, without C2 and C3. By default where d_x exceeds `MATRIX_FREE_ABOVE` = 1000.

    Returns
    -------
    Certificate
        `bound` and `decentralised_bound`, (n,) each, their parts, and what they assume.

    Raises
    ------
    ValueError
        Where an assumption fails: mean Hessian not positive definite, no w, clients cut off or not reached within
        `max_rounds`, x too far off for given Lipschitz constants, a given modulus above what is computed, numbers
        beyond floating point.

    Notes
    -----
    Cost: d_x Hessian-vector and d_x cross products over all clients at once, a (d_x, d_x) eigenproblem and
    8 n d_x (d_x + d_λ) bytes; matrix-free n + 24 Hessian-vector products a run, cross products as
    `MatrixFreePoint` says, and memory for some ten arrays (n, d_x).

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
    value, w = estimate_arrays(est, problem)
    point_arrays(problem, x, lam, value)
    modulus = read_modulus(strong_convexity)
    first_call = None if first_call is None else validation.integer("first_call", first_call, 0, validation.LONGEST)
    max_rounds = None if max_rounds is None else validation.integer("max_rounds", max_rounds, 0)
    if avg is None:
        all_here(est)
    averagings = read_averagings(avg, problem.n_clients, value.shape[0] if value.ndim == 3 else None)
    passed = [graphs_of(est) if first_call is None else a.graphs_before(first_call) for a in averagings or []]
    talks = [Conversation(a, used, x, max_rounds) for a, used in zip(averagings or [], passed, strict=True)]
    elsewhere = any(talk.elsewhere for talk in talks)
    nu = known_lipschitz(problem, lam) if lipschitz is None else constants(lipschitz)
    for talk in talks:
        talk.channel.check_client_ids(problem.clients)
        talk.channel.check_same_on_all_ranks(
            "hgp.certify", given=(lipschitz, modulus, max_rounds, matrix_free), runs=value.ndim
        )
    if elsewhere and lipschitz is None:
        nu = common_constants(nu, talks[0].channel)
    point = look(problem, x, lam, modulus, nu, matrix_free, everybody=talks[0].n if elsewhere else None)
    runs = [(value, w)] if value.ndim == 2 else [(value[r, ...], w[r, ...]) for r in range(value.shape[0])]
    owned = [own_part(point, v, u) for v, u in runs]
    seen, note = None, ELSEWHERE
    if elsewhere:
        common = common_modulus(modulus, nu)
    else:
        point.see_all()
        common = point.alpha_bar
        inner, nu, note = _inner(point, nu, runs[0][1], given=lipschitz is not None)
        not_refuted(point, modulus, nu, inner.gap)
        seen = Seen(inner, [judge(point, own, u) for own, (_, u) in zip(owned, runs, strict=True)])
    known = modulus if isinstance(modulus, float) else 0.0
    complete = not talks[0].channel.any_rank(not point.complete) if talks else point.complete
    net = _by_clients(point, [w for _, w in runs], talks, nu, known, common, strict=lipschitz is not None)
    for one, talk in zip(averagings or [], talks, strict=True):
        one.traffic += talk.traffic
    return assemble(point, owned, seen, net, many=value.ndim == 3, nu=nu, note=note, complete=complete)


def look(
    problem: Problem,
    x: Array,
    lam: Array,
    strong_convexity: float | Lanczos | None,
    nu: Lipschitz | None,
    matrix_free: bool | None,
    everybody: int | None = None,
) -> Point:
    """The point with matrices or without; `everybody` is the number of all clients where some live elsewhere."""
    if matrix_free is None:
        matrix_free = problem.dim_x > MATRIX_FREE_ABOVE
    if validation.boolean("matrix_free", matrix_free):
        return MatrixFreePoint(problem, x, lam, everybody, strong_convexity=strong_convexity, nu=nu)
    if isinstance(strong_convexity, Lanczos):
        raise ValueError(
            f"strong_convexity='lanczos' given, but with d_x={problem.dim_x} the smallest eigenvalue of the mean "
            "Hessian is computed; needed None or a number, or matrix_free=True"
        )
    return DensePoint(problem, x, lam, everybody)


def _by_clients(
    point: Point,
    ws: list[Array],
    talks: list[Conversation],
    nu: Lipschitz | None,
    known: float,
    common: float,
    strict: bool,
) -> list[Decentralised]:
    """What the clients find in each conversation, one for each w; nothing without any.

    `common` is an ᾱ that everybody knows where clients do not find one by themselves.
    """
    if not talks:
        return []
    curvature = point.curvature()
    if curvature is None:
        known = max(known, common)
    return [
        decentralised(
            point,
            host_float64(w),
            talk,
            curvature=curvature,
            nu=nu,
            strict=strict,
            alpha_known=known,
        )
        for w, talk in zip(ws, talks, strict=True)
    ]


def _inner(point: Point, nu: Lipschitz | None, w: Array, given: bool) -> tuple[InnerError, Lipschitz | None, str]:
    """The inner error with constants where they serve; constants that were not asked for may fail without harm."""
    w_host = host_float64(w)
    try:
        return inner_error(point, nu, w_host), nu, ""
    except ValueError as error:
        if given:
            raise
        return inner_error(point, None, w_host), None, f"no term for an inexact x: {error}"


# ----------------------------------------------------------------------------------------------------
# What can be said of a finished run where the inner cost is not known to be convex, as with neural clients.
#
#     residual_i = ‖ḡ − H̄ w_i‖,        ḡ = mean_k ∂_x f_k,  H̄ = mean_k ∂²_x g_k   at the given x
#
# is how far w_i is from solving H̄ w = ḡ, and consistency_i = ‖v_i − (∂_λ f_i − J_i w_i)‖ how far v_i is from what w_i
# implies. Both are measured, with what rounding may add. Neither is an error: that needs a bound on H̄⁻¹, which only a
# positive λ_min(H̄) gives; with one, `certify` bounds the error against the formula at x.


@dataclass(frozen=True)
class MeasuredResidual(Result):
    """How well each client's w solves its equation, (n,) each; no bound on the error of v.

    Attributes
    ----------
    residual : ‖ḡ − H̄ w_i‖, at most, rounding included.
    relative : the same divided by ‖ḡ‖: 1 for w = 0.
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖, at most, rounding included.
    rounding_complete : whether that of the problem's own sums is too, as where it offers `term_sizes`.

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
    """Products and the sizes that rounding needs; no ᾱ and no β."""

    def __init__(self, problem: Problem, x: Array, lam: Array) -> None:
        Point.__init__(self, problem, x, lam)
        Point.see_all(self)
        self._sizes()


def measured_residual(problem: Problem, x: Array, lam: Array, est: Any) -> MeasuredResidual:
    """The residuals of `est` (value (n, d_lam), w (n, d_x)) at x; no convexity is needed.

    Cost: n + 16 products with all Hessians, one cross product.

    Parameters
    ----------
    problem : Problem
        Client costs; convexity is not needed.
    x, lam : arrays (n, d_x) and (n, d_lam)
        The point of the run.
    est : Estimate
        The run, or anything with `value` and `w`.

    Returns
    -------
    MeasuredResidual
        `residual`, `relative` and `consistency` of each client.

    Raises
    ------
    ValueError
        x, λ and the estimate do not fit together, or it has a run axis.

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
    value, w = estimate_arrays(est, problem)
    if value.ndim != 2:
        raise ValueError(f"est: value of shape {tuple(value.shape)} given, needed (n, d_lam), one run")
    point_arrays(problem, x, lam, value)
    point = _ProductsOnly(problem, x, lam)
    v, w_host = (host_float64(a) for a in (value, w))
    residual = rigorous.norms(point.residuals(w_host)) * slack(point) + point.residual_rounding(w_host)
    own = own_part(point, v, w_host)
    size = rigorous.norm(point.g_bar)
    relative = residual / size if size > 0 else np.where(residual > 0, np.inf, 0.0)
    return MeasuredResidual(residual, relative, own.consistency + own.rounding, point.complete)
