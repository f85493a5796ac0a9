"""One erratum: the place, the printed text, the correction, and the function that demonstrates it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verification.rows import Row, erratum_row
from verification.run import Run

FALSE = "false as printed"  # a theorem fails under its own conditions
GAP = "gap in the proof"  # the argument does not prove the statement, or no statement covers what is computed
SLIP = "slip"  # an index, a sign, a factor, a symbol, or a condition that is stated elsewhere in the paper
SHARPER = "sharper"  # the printed text is right, and more can be said


@dataclass(frozen=True)
class Shown:
    """What a demonstration found.

    `measured` is set against `reference`, what the paper's text would give; `says` puts the numbers into a sentence.
    """

    setting: str
    measured: float
    reference: float
    shown: bool
    says: str


@dataclass(frozen=True)
class Erratum:
    """An entry of ERRATA.md; `kind` is one of the four words above."""

    number: int
    kind: str
    where: str
    wrong: str
    right: str
    show: Callable[[Run], Shown]

    def row(self, run: Run) -> Row:
        """Run the demonstration."""
        shown = self.show(run)
        return erratum_row(self.number, shown.setting, shown.measured, shown.reference, shown.shown, shown.says)


def figure(x: float) -> str:
    """A number as ERRATA.md prints it: two digits, short exponents, 0 for 0."""
    if x == 0:
        return "0"
    if 0.01 <= abs(x) < 1000:
        return f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
