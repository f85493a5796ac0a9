"""What every bound returns: numbers with the conditions under which they hold, or the condition that failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hgp_ref import arguments
from hgp_ref.rigorous import norm


@dataclass(frozen=True)
class Bound:
    """A bound on the error of v^(M), or the reason why there is none.

    Attributes
    ----------
    name : of the statement.
    total : bound on ‖v − d‖ over all clients together; None if not applicable.
    per_client : bounds on ‖v_i − d_i‖, (n,); None if not applicable or if the statement has no such form.
    applicable : whether every condition of the statement holds.
    why : the failed condition, with its numbers; empty if applicable.
    terms : the parts of `total` by name.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> bound = hgp.bounds.contracting_clients(c)
    >>> bound.name, bound.applicable, sorted(bound.terms)
    ('A', True, ['consensus', 'truncation'])
    """

    name: str
    total: float | None
    per_client: np.ndarray | None = None
    applicable: bool = True
    why: str = ""
    terms: dict[str, float] = field(default_factory=dict)


def not_applicable(name: str, why: str) -> Bound:
    """The bound `name` without a number, because of `why`."""
    return Bound(name, total=None, applicable=False, why=why)


def first_failure(conditions: dict[str, bool]) -> str | None:
    """The first condition, in words, that does not hold; None if all do."""
    return next((words for words, holds in conditions.items() if not holds), None)


def finite(bound: Bound) -> Bound:
    """`bound` itself, or not applicable where its number has left the floating-point range."""
    numbers = [bound.total if bound.total is not None else 0.0, *bound.terms.values()]
    rows = np.zeros(0) if bound.per_client is None else bound.per_client
    if np.isfinite(numbers).all() and np.isfinite(rows).all():
        return bound
    return not_applicable(bound.name, "the bound grows beyond floating point with the iterations or the scales")


def best(*bounds: Bound) -> Bound:
    """The smallest of several bounds on the same error, client by client; not applicable if none of them is.

    Parameters
    ----------
    *bounds : Bound
        Of the same error.

    Returns
    -------
    Bound
        The smallest total among those that apply.

    Raises
    ------
    TypeError
        No bound is given, or something else.
    ValueError
        They are on different numbers of clients.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> hgp.bounds.best(hgp.bounds.contracting_clients(c), hgp.bounds.convex_mean(c)).name
    'min(A, B)'
    """
    if not bounds:
        raise TypeError("bounds: none given, needed at least one Bound")
    for bound in bounds:
        arguments.kind("bounds", bound, Bound)
    usable = [b for b in bounds if b.total is not None]
    name = f"min({', '.join(b.name for b in bounds)})"
    if not usable:
        return not_applicable(name, "; ".join(f"{b.name}: {b.why}" for b in bounds))
    rows = [b.per_client for b in usable if b.per_client is not None]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"bounds: on {[len(row) for row in rows]} clients given, needed bounds on the same clients")
    per_client = np.min(rows, axis=0) if rows else None
    totals = [b.total for b in usable if b.total is not None]
    if per_client is not None:
        totals.append(norm(per_client))
    return Bound(name, min(totals), per_client)
