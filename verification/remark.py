"""The explicit formula of v^(M): Algorithm 2, matrix-free, against products of block matrices."""

from __future__ import annotations

import warnings

import numpy as np

import hgp_ref as hgp
from hgp_ref.problems import sample_batches
from verification.cases import Case, host64, logistic
from verification.rows import CORRECTED, PRINTED, Row, verdict_row
from verification.run import Result, Run

TITLE = "Remark: the estimate as a product of operators"
TOLERANCE = 1e-12
M, ETA, BATCH = 30, 0.5, 5


def verify(run: Run) -> Result:
    """Reset, kept and conserved weights; full batches, two samples, one sample for both; and the formula as printed."""
    case = logistic(3, 4, seed=run.seed, rate=0.2, instances=30)
    net = hgp.networks.RandomDirected(3, seed=run.seed + 1)
    rows: list[Row] = []
    for debias in ("reset", "keep", "conserve"):
        for S in run.pick((1, 3, 10), (2,)):
            for batch, shared in ((None, False), (BATCH, False), (BATCH, True)):
                rows.append(compare(case, net, S, debias, batch, shared, run))
    rows += as_printed(case, net, run)
    return Result(rows)


def compare(
    case: Case, net: hgp.networks.Network, S: int, debias: str, batch: int | None, shared: bool, run: Run
) -> Row:
    """‖v of the core − v of the formula‖ relative to ‖v‖."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the library warns of kept weights
        avg = hgp.PushSum(net, S, debias=debias)
        batches = None if batch is None else hgp.MiniBatches(batch, seed=run.seed, share=shared)
        est = case.estimate(avg, run.backend, eta=ETA, iterations=M, batches=batches)
    v = formula(case, net, S, debias, batch, shared, run)
    gap = np.linalg.norm(host64(est.value) - v) / np.linalg.norm(v)
    kind = "full batch" if batch is None else f"b={batch}, {'one sample' if shared else 'two samples'}"
    return verdict_row("Remark", f"logistic n=3 d=4, S={S}, {debias}, {kind}", gap, TOLERANCE, form=CORRECTED)


def formula(case: Case, net: object, S: int, debias: str, batch: int | None, shared: bool, run: Run) -> np.ndarray:
    """The product formula with Θ̂_m and the samples of Algorithm 2."""
    matrices, weights = hgp.exact.push_sum_matrices(net, S, M, debias)
    for_v = for_u = None
    if batch is not None:
        for_v, for_u = (
            sample_batches(case.problem.counts, batch, run.seed, 0, M, stream=0 if shared else k) for k in (0, 1)
        )
    carried = weights if debias == "conserve" else None
    return hgp.exact.estimate(case.problem, case.x, case.lam, matrices, ETA, for_v, for_u, weights=carried)


def as_printed(case: Case, net: object, run: Run) -> list[Row]:
    """One Θ̂ for all calls, and the sample of v in the Hessian factors."""
    S = 2
    est = case.estimate(
        hgp.PushSum(net, S), run.backend, eta=ETA, iterations=M, batches=hgp.MiniBatches(BATCH, seed=run.seed)
    )
    value = host64(est.value)
    matrices, _ = hgp.exact.push_sum_matrices(net, S, M)
    for_v, for_u = (sample_batches(case.problem.counts, BATCH, run.seed, 0, M, stream=k) for k in (0, 1))
    rows = []
    for label, K, batches in (("one Θ̂", matrices[:1] * M, for_u), ("ξ̂ in the Hessian factors", matrices, for_v)):
        v = hgp.exact.estimate(case.problem, case.x, case.lam, K, ETA, for_v, batches)
        gap = np.linalg.norm(value - v) / np.linalg.norm(v)
        rows.append(
            verdict_row(
                "Remark as printed", f"logistic n=3 d=4, S={S}, b={BATCH}: {label}", gap, TOLERANCE, form=PRINTED
            )
        )
    return rows
