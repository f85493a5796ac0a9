"""Corollary 2, mini-batches of size b: as printed, and repaired with C = √n κ/4.

κ is the largest deviation of a single instance. "Printed" rows take C = κ, which is no smaller for n ≤ 16, under the
printed conditions. "Repaired" adds η(α + L) ≤ 2, from which the corollary follows (`verification.errata.batch_size`).
The sentence before the corollary, κ = O_P(1/√b) for the supremum over batches, is compared separately.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.bounds import corollary2
from verification.errata.batch_size import constant_of_corollary2
from verification.minibatch import Batches, batches
from verification.rows import PRINTED, RELATIVE_ROUNDING, Row, against, verdict_row, without_number
from verification.run import Result, Run

TITLE = "Corollary 2: mini-batches"
SENTENCE = "κ before Corollary 2"
FAILURE = 0.1


def verify(run: Run) -> Result:
    """The 90 % quantile over runs against both forms, and the supremum over batches against κ/√b."""
    rows: list[Row] = []
    for size in run.pick((5, 20, 50), (20,)):
        for S in (2, 10):
            sampled = batches(run, run.pick(400, 60), S=S, size=size)
            quantile = float(np.quantile(sampled.errors, 1 - FAILURE))
            bound = corollary2(sampled.constants, sampled.samples, size, FAILURE)
            setting = f"{sampled.setting}, 90 % quantile"
            rows.append(against("Corollary 2", setting, quantile, bound, form=PRINTED))
            rows.append(repaired(sampled, setting, quantile))
        H = sampled.H[0]
        single = float(np.linalg.norm(H - H.mean(axis=0), 2, axis=(1, 2)).max())
        worst = H[[int(np.linalg.norm(H - H.mean(axis=0), 2, axis=(1, 2)).argmax())] * size].mean(axis=0)
        setting = f"{sampled.case.name}, client 0, b={size} with replacement: sup ‖Ĥ − H‖ against κ/√b"
        largest = float(np.linalg.norm(worst - H.mean(axis=0), 2))
        rows.append(verdict_row(SENTENCE, setting, largest, single / np.sqrt(size), form=PRINTED))
    return Result(rows)


def repaired(sampled: Batches, setting: str, quantile: float) -> Row:
    """Corollary 2 with C = √n κ/4, applicable where ‖I − ηĤ‖ ≤ 1 − ηα for every instance."""
    c, s = sampled.constants, sampled.samples
    if max(s.rho, c.rho) > (1 - c.eta * s.alpha) * (1 + RELATIVE_ROUNDING):
        return without_number("Corollary 2, repaired", setting, quantile, "η(α + L) ≤ 2")
    bound = corollary2(c, s, sampled.size, FAILURE, C=constant_of_corollary2(s, c.n))
    return against("Corollary 2, repaired", setting, quantile, bound)
