"""Lemma 2: how far S steps of Push-Sum are from the mean, as printed (8√n/δ) and as corrected (8n/δ)."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import lemma2_realised, lemma2_worst_case, worst_case
from verification.cases import push_sum_matrices
from verification.errata.push_sum import norm_ratios, two_cliques
from verification.pictures import draw_cliques
from verification.rows import CORRECTED, PRINTED, Row, verdict_row
from verification.run import Result, Run

TITLE = "Lemma 2: the largest singular value of Θ − Θ̂"
FORMS = {PRINTED: "√n c", CORRECTED: "n c"}


def verify(run: Run) -> Result:
    """With c = max |E_ij| of realised matrices, and with the worst-case constants of Nedić and Olshevsky."""
    rows: list[Row] = []
    count = run.pick(2000, 200)
    for n in (3, 10):
        for S in (1, 2, 10):
            rows += realised(run, n, S, count)
    for n in (16, 128):
        E = two_cliques(n, 10)
        sigma, c = float(np.linalg.norm(E, 2)), float(np.abs(E).max())
        for form, bound in ((PRINTED, np.sqrt(n) * c), (CORRECTED, n * c)):
            rows.append(verdict_row(f"Lemma 2, {FORMS[form]}", f"two cliques, n={n}, S=10", sigma, bound, form=form))
    rows += worst_case_rows()
    sizes = (4, 8, 16, 32, 64, 128)
    ratios = [norm_ratios(two_cliques(n, 10)) for n in sizes]
    return Result(rows, [draw_cliques(sizes, ratios)])


def realised(run: Run, n: int, S: int, count: int) -> list[Row]:
    """The setting, among `count` calls on random digraphs, in which the bound is smallest against σ_max."""
    K = np.concatenate(
        [
            push_sum_matrices(hgp.networks.RandomDirected(n, seed=seed), S, 10)[0]
            for seed in run.seeds(count // 10, stream=n)
        ]
    )
    sigma = np.linalg.norm(K - 1 / n, 2, axis=(1, 2))
    rows = []
    for form, label in FORMS.items():
        bound = np.array([lemma2_realised(k, form) for k in K])
        ratio = np.where(sigma > 1e-14, bound / np.maximum(sigma, 1e-300), np.inf)
        worst, broken = int(ratio.argmin()), int((ratio < 1 - 1e-9).sum())
        setting = f"random digraphs n={n}, S={S}: worst of {count}" + (f" ({broken} violated)" if broken else "")
        rows.append(verdict_row(f"Lemma 2, {label}", setting, sigma[worst], bound[worst], form=form, rounding=1e-14))
    return rows


def worst_case_rows() -> list[Row]:
    """A directed ring with self-loops, strongly connected at every step: B = 1."""
    rows = []
    for n, S in ((3, 10), (3, 300), (5, 300)):
        ring = hgp.networks.Schedule([(list(range(n)), [(i + 1) % n for i in range(n)])])
        sigma = float(np.linalg.norm(hgp.exact.push_sum_matrix(ring, S) - 1 / n, 2))
        for form in (PRINTED, CORRECTED):
            bound = lemma2_worst_case(worst_case(n, 1), S, form)
            name = f"Lemma 2, worst case ({form})"
            rows.append(verdict_row(name, f"directed ring n={n}, S={S}", sigma, bound, form=form, rounding=1e-14))
    return rows
