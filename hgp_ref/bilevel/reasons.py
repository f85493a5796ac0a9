"""What ended a run of certified steps, in words: what stood in the way, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LOWER, JUDGED, UNKNOWN = "lower", "judged", "unknown"  # what became of a trial; an error's words where training failed


def too_rough(kept: Mapping[str, Any], bound: float, inner: float, needed: float) -> str:
    """What kept the error of the hyper-gradient above what a step may have; `inner` is what x is to blame for."""
    words = f"the bound on the error of the hyper-gradient is {bound:.2g}, needed {needed:.2g} = θ‖D‖"
    if not np.isfinite(bound):
        return f"{words}: x is too far from x(λ) for a bound; train longer, or with a smaller rate"
    if inner > needed / 2:
        return (
            f"{words}; {inner:.2g} of it is owed to x, which was corrected {kept['care']} times: train longer or with "
            "a smaller rate, give a larger θ, or keep λ from where the inner cost is hardly convex (project=)"
        )
    return (
        f"{words}; x is to blame for {inner:.2g} of it, the rest is the series' with S = {kept['S']} and "
        f"M = {kept['M']}: start from larger ones, or take a faster method"
    )


def not_lower(kept: Mapping[str, Any], norm: float, seen: Sequence[str]) -> str:
    """What kept F from being seen to fall; `seen` is what became of each trial: JUDGED, UNKNOWN or an error."""
    failures = [what for what in seen if what not in (JUDGED, UNKNOWN)]
    if len(failures) == len(seen):
        return (
            f"training failed at all {len(seen)} λ⁺ that were tried, so nothing is known of F there. The last time: "
            f"{failures[-1]}"
        )
    words = (
        f"F(λ) lies between {kept['low']:.10g} and {kept['high']:.10g}, and none of {len(seen)} steps tried (the first "
        f"with γ = {kept['gamma']:.2g}, ‖v‖ = {norm:.2g}) was seen to lower it: "
    )
    if failures:
        words += f"at {len(failures)} of them training failed ({failures[-1]}); "
    unknown = sum(what == UNKNOWN for what in seen)
    if unknown:
        return (
            f"{words}{unknown} of them led to where the problem tells no strong convexity; keep λ away from there, by "
            "log=True or project="
        )
    return (
        f"{words}what is left to gain is less than can be told with x corrected {kept['care']} times; train longer or "
        "with a smaller rate, or start from larger S and M"
    )
