"""Corollary 2, mini-batches of size b, as printed with C the largest deviation of a single instance.

κ of the assumption is a supremum over batches, not C/√b; a run can therefore only be compared with the printed formula
where C is given this meaning. The corrected statement is bound D.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.bounds import corollary2
from verification.minibatch import batches
from verification.rows import PRINTED, Row, against, judged
from verification.run import Result, Run

TITLE = "Corollary 2: mini-batches"
FAILURE = 0.1


def verify(run: Run) -> Result:
    """The 90 % quantile over runs against the formula, and the claim κ ≤ C/√b itself."""
    rows: list[Row] = []
    for size in run.pick((5, 20, 50), (20,)):
        for S in (2, 10):
            sampled = batches(run, run.pick(400, 60), S=S, size=size)
            quantile = float(np.quantile(sampled.errors, 1 - FAILURE))
            bound = corollary2(sampled.constants, sampled.samples, size, FAILURE)
            rows.append(against("Corollary 2", f"{sampled.setting}, 90 % quantile", quantile, bound, form=PRINTED))
        H = sampled.H[0]
        single = float(np.linalg.norm(H - H.mean(axis=0), 2, axis=(1, 2)).max())
        worst = H[[int(np.linalg.norm(H - H.mean(axis=0), 2, axis=(1, 2)).argmax())] * size].mean(axis=0)
        setting = f"{sampled.case.name}, client 0, b={size} with replacement: sup ‖Ĥ − H‖ against C/√b"
        largest = float(np.linalg.norm(worst - H.mean(axis=0), 2))
        rows.append(judged("Corollary 2, κ", setting, largest, single / np.sqrt(size), form=PRINTED))
    return Result(rows)
