"""The parts put together: one certificate from what was found for each run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgp_ref.averaging import Traffic
from hgp_ref.certificates.allowances import INCLUDED, NOT_INCLUDED
from hgp_ref.certificates.centralised import InnerError, Own, Residuals
from hgp_ref.certificates.decentralised import Decentralised
from hgp_ref.certificates.point import Point
from hgp_ref.certificates.result import AT_POINT, AT_SOLUTION, Certificate
from hgp_ref.problems.constants import Lipschitz


@dataclass(frozen=True)
class Seen:
    """What someone who sees all clients found: how far x is from the inner solution, and each run judged."""

    inner: InnerError
    judged: list[Residuals]


def assemble(
    point: Point,
    owned: list[Own],
    seen: Seen | None,
    net: list[Decentralised],
    *,
    many: bool,
    nu: Lipschitz | None,
    note: str,
    complete: bool,
) -> Certificate:
    """The certificate of all runs, `many` of them along a leading axis; ValueError beyond floating point.

    Without what was `seen` of all clients there is only what they computed themselves. `complete`: whether the sizes
    of all terms of all clients were known.
    """

    def rows(get: Callable[[int], np.ndarray | None]) -> np.ndarray | None:
        each = [get(r) for r in range(len(owned))]
        present = [a for a in each if a is not None]
        if len(present) < len(each):
            return None
        return np.stack(present) if many else present[0]

    def judged(get: Callable[[Residuals], np.ndarray | None]) -> np.ndarray | None:
        return None if seen is None else rows(lambda r: get(seen.judged[r]))

    def found(get: Callable[[Decentralised], np.ndarray | None]) -> np.ndarray | None:
        return rows(lambda r: get(net[r])) if net else None

    def own(r: int) -> np.ndarray:
        return owned[r].consistency + owned[r].rounding

    def by_all(r: int) -> np.ndarray | None:
        one = None if seen is None else seen.judged[r]
        return None if one is None else owned[r].consistency + one.rounding + smaller(one.c1, one.c2)

    inner = None if seen is None else seen.inner
    term = found(lambda one: one.term)
    certificate = Certificate(
        centralised=rows(by_all),
        c1=judged(lambda one: one.c1),
        c2=judged(lambda one: one.c2),
        identity=judged(lambda one: one.identity),
        consistency=np.stack([one.consistency for one in owned]) if many else owned[0].consistency,
        rounding=judged(lambda one: one.rounding),
        residual=judged(lambda one: one.residual),
        alpha_bar=min(one.alpha_bar for one in net) if seen is None else point.alpha_bar,
        inexact=None if inner is None else inner.term,
        inner_gradient=None if inner is None else inner.gradient,
        consensus_gap=None if inner is None else inner.gap,
        decentralised=rows(lambda r: own(r) + smaller(net[r].c4, net[r].c3)) if net else None,
        c3=found(lambda one: one.c3),
        c4=found(lambda one: one.c4),
        decentralised_inexact=term,
        traffic=sum((one.traffic for one in net), Traffic()) if net else None,
        matrix_free=point.matrix_free,
        against=AT_POINT if (term if inner is None else inner.term) is None else AT_SOLUTION,
        assumptions=assumptions(point, nu, bool(net), note, complete),
        rounding_complete=complete,
    )
    _require_finite(certificate)
    return certificate


def assumptions(point: Point, nu: Lipschitz | None, by_clients: bool, note: str, complete: bool) -> tuple[str, ...]:
    """What the bound rests on, in words."""
    words = [
        "the problem's hvp, cross and gradients are the derivatives of its costs",
        INCLUDED if complete else NOT_INCLUDED,
        *point.notes,
    ]
    if nu is None:
        words.append(note or "no Lipschitz constants known: the bound is against the formula at the given x")
    elif nu.strong_convexity is not None:
        words.append(
            f"mean inner cost strongly convex with modulus {nu.strong_convexity:.3e}, Lipschitz constants hold"
        )
    else:
        words.append("mean inner cost convex, Lipschitz constants hold")
    if by_clients:
        words.append("graphs are column-stochastic; flooding runs at least as many rounds as counted")
        if nu is not None:
            words.append("every client knows the Lipschitz constants")
    return tuple(words)


def _require_finite(certificate: Certificate) -> None:
    """ValueError where nothing can be said because a bound overflowed."""
    bounds = {"bound": certificate.bound, "decentralised_bound": certificate.decentralised_bound}
    left = certificate.residual if certificate.residual is not None else certificate.consistency
    for name, values in bounds.items():
        if values is not None and not np.all(np.isfinite(values)):
            raise ValueError(
                f"{name}: leaves the range of floating point (ᾱ ≥ {certificate.alpha_bar:.1e}, residuals up to "
                f"{np.max(left):.1e}), so nothing can be certified; rescale the problem"
            )


def smaller(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """min(a, b) where there is a b."""
    return a if b is None else np.minimum(a, b)
