"""The parts put together: one certificate from what was found for each run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hgp_ref.averaging import Traffic
from hgp_ref.certificates.centralised import InnerError, Residuals
from hgp_ref.certificates.decentralised import Decentralised
from hgp_ref.certificates.point import Point
from hgp_ref.certificates.result import AT_POINT, AT_SOLUTION, Certificate
from hgp_ref.problems.constants import Lipschitz


def assemble(
    point: Point,
    inner: InnerError,
    judged: list[Residuals],
    net: list[Decentralised],
    *,
    many: bool,
    nu: Lipschitz | None,
    note: str,
) -> Certificate:
    """The certificate of all runs, `many` of them along a leading axis; ValueError beyond floating point."""

    def rows(get: Callable[[int], np.ndarray | None]) -> np.ndarray | None:
        each = [get(r) for r in range(len(judged))]
        present = [a for a in each if a is not None]
        if len(present) < len(each):
            return None
        return np.stack(present) if many else present[0]

    def needed(get: Callable[[int], np.ndarray]) -> np.ndarray:
        return np.stack([get(r) for r in range(len(judged))]) if many else get(0)

    def own(r: int) -> np.ndarray:
        return judged[r].consistency + judged[r].own_rounding

    certificate = Certificate(
        centralised=needed(lambda r: judged[r].consistency + judged[r].rounding + smaller(judged[r].c1, judged[r].c2)),
        c1=needed(lambda r: judged[r].c1),
        c2=rows(lambda r: judged[r].c2),
        identity=rows(lambda r: judged[r].identity),
        consistency=needed(lambda r: judged[r].consistency),
        rounding=needed(lambda r: judged[r].rounding),
        residual=needed(lambda r: judged[r].residual),
        alpha_bar=point.alpha_bar,
        inexact=inner.term,
        inner_gradient=inner.gradient,
        consensus_gap=inner.gap,
        decentralised=rows(lambda r: own(r) + smaller(net[r].c4, net[r].c3)) if net else None,
        c3=rows(lambda r: net[r].c3) if net else None,
        c4=rows(lambda r: net[r].c4) if net else None,
        decentralised_inexact=rows(lambda r: net[r].term) if net else None,
        traffic=sum((one.traffic for one in net), Traffic()) if net else None,
        matrix_free=point.beta_inverse is None,
        against=AT_POINT if inner.term is None else AT_SOLUTION,
        assumptions=assumptions(point, nu, bool(net), note),
    )
    _require_finite(certificate)
    return certificate


def assumptions(point: Point, nu: Lipschitz | None, by_clients: bool, note: str) -> tuple[str, ...]:
    """What the bound rests on, in words."""
    words = [
        "the problem's hvp, cross and gradients are the derivatives of its costs",
        "gradients and products are as evaluated: sums inside them that cancel may round by more than is allowed for",
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
    for name, values in bounds.items():
        if values is not None and not np.all(np.isfinite(values)):
            raise ValueError(
                f"{name}: leaves the range of floating point (ᾱ ≥ {certificate.alpha_bar:.1e}, residuals up to "
                f"{np.max(certificate.residual):.1e}), so nothing can be certified; rescale the problem"
            )


def smaller(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """min(a, b) where there is a b."""
    return a if b is None else np.minimum(a, b)
