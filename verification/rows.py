"""Rows of the verification table, and the rule for their verdicts.

A row compares a measured number with a bound. Two sides that are equal in exact arithmetic differ by rounding, so

    holds  ⇔  measured ≤ bound · (1 + 1e-9) + rounding,

where `rounding` is what float64 alone may contribute to the measured number. The ratio is (bound + rounding)/measured,
given only where the measured number is above that level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

HOLDS = "holds"
VIOLATED = "VIOLATED"
VIOLATED_AS_PRINTED = "violated as printed"
SHOWN = "erratum shown"
NOT_SHOWN = "erratum NOT shown"
NOT_APPLICABLE = "not applicable"
MISSED = "goal missed"

RELATIVE_ROUNDING = 1e-9

PRINTED, CORRECTED, ERRATUM, GOAL = "printed", "corrected", "erratum", "goal"


@dataclass(frozen=True)
class Row:
    """One line of the table; `form` is "printed", "corrected", "erratum" or "goal" (desired, not claimed)."""

    statement: str
    setting: str
    measured: float | None
    bound: float | None
    verdict: str
    form: str = CORRECTED
    rounding: float = 0.0
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """(bound + rounding) / measured; None where there is no bound or the measured number is rounding."""
        if self.measured is None or self.bound is None or not self.measured > self.rounding:
            return None
        return (self.bound + self.rounding) / self.measured

    @property
    def failed(self) -> bool:
        """Whether this row makes the run fail: a violated corrected statement, or an erratum not reproduced."""
        return self.verdict in (VIOLATED, NOT_SHOWN)

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and strings; infinities, which JSON lacks, become null."""
        numbers = {"measured": self.measured, "bound": self.bound, "ratio": self.ratio, "rounding": self.rounding}
        return {
            "statement": self.statement,
            "setting": self.setting,
            **{k: float(v) if v is not None and math.isfinite(v) else None for k, v in numbers.items()},
            "verdict": self.verdict,
            "form": self.form,
            "note": self.note,
        }


def holds(measured: float, bound: float, rounding: float = 0.0) -> bool:
    """The rule at the head of this module; NaN on either side never holds."""
    return bool(measured <= bound * (1 + RELATIVE_ROUNDING) + rounding)


def verdict_row(
    statement: str,
    setting: str,
    measured: float,
    bound: float,
    *,
    form: str = CORRECTED,
    rounding: float = 0.0,
    note: str = "",
) -> Row:
    """A row with its verdict."""
    measured, bound = float(measured), float(bound)
    if holds(measured, bound, rounding):
        verdict = HOLDS
    else:
        verdict = {PRINTED: VIOLATED_AS_PRINTED, GOAL: MISSED}.get(form, VIOLATED)
    return Row(statement, setting, measured, bound, verdict, form, rounding, note)


def without_number(statement: str, setting: str, measured: float | None, why: str, *, form: str = CORRECTED) -> Row:
    """A row of a statement whose condition fails, with the condition in place of a number."""
    needs = "needs " if any(sign in why for sign in "<>=") else ""
    return Row(statement, setting, measured, None, f"{NOT_APPLICABLE}: {needs}{why}", form)


def against(
    statement: str, setting: str, measured: float, bound: Any, *, form: str = CORRECTED, rounding: float = 0.0
) -> Row:
    """A row from a `hgp_ref.bounds` result on the error over all clients together."""
    if not bound.applicable:
        return without_number(statement, setting, float(measured), bound.why, form=form)
    return verdict_row(statement, setting, measured, bound.total, form=form, rounding=rounding)


def erratum_row(number: int, setting: str, measured: float, bound: float, shown: bool, note: str) -> Row:
    """A row of an erratum: the measured number and the one that the paper's text implies."""
    verdict = SHOWN if shown else NOT_SHOWN
    return Row(f"erratum {number}", setting, float(measured), float(bound), verdict, ERRATUM, 0.0, note)
