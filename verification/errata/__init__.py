"""The errata of the paper: each shown by a function that a reader can run.

`python -m verification errata` runs all, `python -m verification errata 4 25` some, and
`python -m verification errata --write ERRATA.md` writes the document with the numbers of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from verification.errata import (
    batch_size,
    floor,
    inexact,
    main_text,
    noise,
    proofs,
    push_sum,
    stability,
    theorem2_proof,
)
from verification.errata.entry import Erratum
from verification.pictures import draw_weights
from verification.run import Result, Run

TITLE = "Errata of the paper"
PARTS = (push_sum, stability, floor, noise, batch_size, proofs, theorem2_proof, inexact, main_text)
ERRATA: dict[int, Erratum] = {
    entry.number: entry
    for entry in sorted((entry for part in PARTS for entry in part.ENTRIES), key=lambda entry: entry.number)
}


def verify(run: Run, numbers: Sequence[int] = ()) -> Result:
    """Show the errata of the given numbers, all by default."""
    unknown = sorted(set(numbers) - set(ERRATA))
    if unknown:
        raise ValueError(f"errata must be numbers from 1 to {max(ERRATA)}, got {unknown[0]}")
    chosen = sorted(set(numbers)) or list(ERRATA)
    rows = [ERRATA[k].row(run) for k in chosen]
    return Result(rows, [draw_weights(stability.all_debiased_errors(run))] if 25 in chosen else [])
