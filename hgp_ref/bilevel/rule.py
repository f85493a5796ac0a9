"""What `optimise(certify=)` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.bilevel.updates import GradientDescent
from hgp_ref.problems.constants import Lipschitz

OPTIONS = ("theta", "lipschitz")


@dataclass(frozen=True)
class Rule:
    """θ, and constants for problems that do not tell theirs."""

    theta: float = 0.5
    lipschitz: Lipschitz | None = None


def rule_of(certify: float | Mapping[str, Any] | None, estimate: Any, update: object) -> Rule | None:
    """What `optimise(certify=)` asks for; an error where steps cannot be certified."""
    if certify is None:
        return None
    given: dict[str, Any] = dict(certify) if isinstance(certify, Mapping) else {"theta": certify}
    for name in given:
        if name not in OPTIONS:
            raise ValueError(f"certify: {name!r} given, needed some of {', '.join(OPTIONS)}")
    theta = arguments.number("certify", given.get("theta", 0.5), "a number strictly between 0 and 1")
    if not 0 < theta < 1:
        raise ValueError(f"certify={theta:g} given, needed a number strictly between 0 and 1")
    if given.get("lipschitz") is not None:
        arguments.kind("certify['lipschitz']", given["lipschitz"], Lipschitz)
    if not isinstance(estimate, Mapping) or estimate.get("batch_size") is not None or estimate.get("iterations") == 0:
        raise ValueError("certify: needed keywords as estimate, without batch_size and with iterations >= 1")
    if not isinstance(update, GradientDescent):
        raise ValueError(f"certify: update={update!r} given, needed GradientDescent(lr), whose lr is the first γ")
    return Rule(theta, given.get("lipschitz"))
