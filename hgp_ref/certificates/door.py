"""A rigorous bound on each client's error of a finished run.

Whatever the run did, its value v and its w are compared with the hyper-gradient d through the identity of
`bounds.residual`:

    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C1, C2)            seen from the centre
    ‖v_i − d_i‖ ≤ ‖v_i − (∂_λ f_i − J_i w_i)‖ + min(C3, C4)            computed by the clients over the network

The first part is rounding in a full-batch run and the noise of J in a mini-batch run. d is the formula at the
given x; if Lipschitz constants are known, the term of 2* makes it the hyper-gradient at the exact inner
solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array, host_float64
from hgp_ref.bounds.lipschitz import known_lipschitz
from hgp_ref.certificates import inputs
from hgp_ref.certificates.assemble import Seen, assemble
from hgp_ref.certificates.centralised import InnerError, inner_error, judge, own_part
from hgp_ref.certificates.conversation import Conversation
from hgp_ref.certificates.decentralised import Decentralised, decentralised
from hgp_ref.certificates.dense_point import DensePoint
from hgp_ref.certificates.lanczos import Lanczos
from hgp_ref.certificates.matrix_free_point import MatrixFreePoint
from hgp_ref.certificates.point import Point
from hgp_ref.certificates.result import Certificate
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.constants import Lipschitz

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
    value, w = inputs.estimate_arrays(est, problem)
    inputs.point_arrays(problem, x, lam, value)
    modulus = inputs.modulus(strong_convexity)
    first_call = None if first_call is None else arguments.integer("first_call", first_call, 0, arguments.LONGEST)
    max_rounds = None if max_rounds is None else arguments.integer("max_rounds", max_rounds, 0)
    if avg is None:
        inputs.all_here(est)
    averagings = inputs.averagings(avg, problem.n_clients, value.shape[0] if value.ndim == 3 else None)
    passed = [inputs.graphs_of(est) if first_call is None else a.graphs_before(first_call) for a in averagings or []]
    talks = [Conversation(a, used, x, max_rounds) for a, used in zip(averagings or [], passed, strict=True)]
    elsewhere = any(talk.elsewhere for talk in talks)
    nu = known_lipschitz(problem, lam) if lipschitz is None else inputs.constants(lipschitz)
    for talk in talks:
        talk.channel.meet(problem.clients)
        talk.channel.agree("hgp.certify", given=(lipschitz, modulus, max_rounds, matrix_free), runs=value.ndim)
    if elsewhere and lipschitz is None:
        nu = inputs.common_constants(nu, talks[0].channel)
    point = look(problem, x, lam, modulus, nu, matrix_free, everybody=talks[0].n if elsewhere else None)
    runs = [(value, w)] if value.ndim == 2 else [(value[r, ...], w[r, ...]) for r in range(value.shape[0])]
    owned = [own_part(point, v, u) for v, u in runs]
    seen, note = None, ELSEWHERE
    if elsewhere:
        common = inputs.common_modulus(modulus, nu)
    else:
        point.see_all()
        common = point.alpha_bar
        inner, nu, note = _inner(point, nu, runs[0][1], given=lipschitz is not None)
        inputs.not_refuted(point, modulus, nu, inner.gap)
        seen = Seen(inner, [judge(point, own, u) for own, (_, u) in zip(owned, runs, strict=True)])
    known = modulus if isinstance(modulus, float) else 0.0
    complete = not talks[0].channel.anyone(not point.complete) if talks else point.complete
    net = _by_clients(point, [w for _, w in runs], talks, nu, known, common, strict=lipschitz is not None)
    for one, talk in zip(averagings or [], talks, strict=True):
        one.ledger += talk.traffic
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
    if arguments.boolean("matrix_free", matrix_free):
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
