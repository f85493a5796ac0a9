"""Lemma 2: the spectral norm of E = Θ̂ − Θ from a bound c on its entries.

    printed    σ_max(E) ≤ √n c      with c = (8/δ) τ^S
    corrected  σ_max(E) ≤ n c       with c = (8/δ) τ^{S−1}

The printed proof goes from ‖Ey‖_∞ ≤ c ‖y‖₁ to σ_max through ‖Ay‖_∞ ≤ σ_max(A) ‖y‖, which points the wrong way.
What does hold: ‖Ey‖₂ ≤ √n ‖Ey‖_∞ ≤ √n c ‖y‖₁ ≤ n c ‖y‖₂, and no smaller power of n does: E = c 11ᵀ has σ_max =
n c. (Among errors of Push-Sum themselves, whose rows sum to zero, two cliques without an edge between them
attain it.)
"""

from __future__ import annotations

import math

import numpy as np

from .nedic_olshevsky import WorstCase


def lemma2(n: int, entry: float, form: str = "corrected") -> float:
    """The right-hand side for n clients and |E_ij| ≤ `entry`: √n·entry ("printed") or n·entry ("corrected")."""
    if form == "printed":
        return math.sqrt(n) * entry
    if form == "corrected":
        return n * entry
    raise ValueError(f"form={form!r} is unknown; choose 'printed' or 'corrected'")


def lemma2_worst_case(constants: WorstCase, steps: int, form: str = "corrected") -> float:
    """(8√n/δ) τ^S as printed, or (8n/δ) τ^{S−1} as corrected, with the worst-case δ and τ."""
    entry = constants.printed(steps) if form == "printed" else constants.entry(steps)
    return lemma2(constants.n, entry, form)


def lemma2_realised(K: np.ndarray, form: str = "corrected") -> float:
    """The right-hand side with c the largest entry of |K − 11ᵀ/n| for an actual averaging matrix K (n, n)."""
    n = len(K)
    return lemma2(n, float(np.abs(np.asarray(K) - 1 / n).max()), form)
