"""Lemma 2: the spectral norm of E = Θ̂ − Θ from a bound c on its entries.

    printed    σ_max(E) ≤ √n c      with c = (8/δ) τ^S
    corrected  σ_max(E) ≤ n c       with c = (8/δ) τ^{S−1}

The printed proof goes from ‖Ey‖_∞ ≤ c ‖y‖₁ to σ_max through ‖Ay‖_∞ ≤ σ_max(A) ‖y‖, while the reverse is needed.
What does hold: ‖Ey‖₂ ≤ √n ‖Ey‖_∞ ≤ √n c ‖y‖₁ ≤ n c ‖y‖₂, and no smaller power of n does: E = c 11ᵀ has σ_max =
n c. Errors of Push-Sum, whose rows sum to zero, come close: 0.999 n c for two cliques of 64 clients joined
by one edge each way (erratum 2).
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import arguments
from hgp_ref.bounds.nedic_olshevsky import WorstCase

FORMS = ("printed", "corrected")


def lemma2(n: int, entry: float, form: str = "corrected") -> float:
    """The right-hand side for n clients and |E_ij| ≤ `entry`: √n·entry ("printed") or n·entry ("corrected").

    Parameters
    ----------
    n : int
        Clients.
    entry : float
        A bound c on the entries of E.
    form : {"corrected", "printed"}
        n c or √n c.

    Returns
    -------
    float
        A bound on σ_max(E); not one, in the printed form.

    Raises
    ------
    TypeError, ValueError
        `n` must be an integer ≥ 1, `entry` ≥ 0, `form` one of the two.

    Examples
    --------
    >>> hgp.bounds.lemma2(4, 0.1), hgp.bounds.lemma2(4, 0.1, "printed")
    (0.4, 0.2)
    """
    n, form = arguments.integer("n", n), arguments.choice("form", form, FORMS)
    if not isinstance(entry, float) or entry != math.inf:  # the worst case may be beyond floating point
        entry = arguments.nonnegative("entry", entry)
    if form == "printed":
        return math.sqrt(n) * entry
    return n * entry


def lemma2_worst_case(constants: WorstCase, steps: int, form: str = "corrected") -> float:
    """(8√n/δ) τ^S as printed, or (8n/δ) τ^{S−1} as corrected, with the worst-case δ and τ.

    Parameters
    ----------
    constants : WorstCase
        δ and τ.
    steps : int
        S.
    form : {"corrected", "printed"}
        8n/δ τ^{S−1} or 8√n/δ τ^S.

    Returns
    -------
    float
        A bound over all graphs that the constants allow.

    Raises
    ------
    TypeError, ValueError
        `constants` must be a WorstCase, `steps` an integer ≥ 1, `form` one of the two.

    Examples
    --------
    >>> round(hgp.bounds.lemma2_worst_case(hgp.bounds.worst_case(3), 500), 6)
    4e-06
    """
    arguments.kind("constants", constants, WorstCase)
    form = arguments.choice("form", form, FORMS)
    entry = constants.printed(steps) if form == "printed" else constants.entry(steps)
    return lemma2(constants.n, entry, form)


def lemma2_realised(K: np.ndarray, form: str = "corrected") -> float:
    """The right-hand side with c the largest entry of |K − 11ᵀ/n| for an actual averaging matrix K (n, n).

    Parameters
    ----------
    K : array (n, n)
        An averaging matrix.
    form : {"corrected", "printed"}
        n c or √n c.

    Returns
    -------
    float
        With c its largest deviation from 1/n.

    Raises
    ------
    TypeError, ValueError
        `K` must be (n, n), real and finite.

    Examples
    --------
    >>> K = hgp.exact.push_sum_matrix(hgp.networks.RandomDirected(n=4, seed=0), 5)
    >>> bool(np.linalg.norm(K - 0.25, 2) <= hgp.bounds.lemma2_realised(K))
    True
    """
    K = arguments.real_array("K", K, (None, None), "(n, n)")
    n = len(K)
    K = arguments.real_array("K", K, (n, n), "(n, n)")
    return lemma2(n, float(np.abs(K - 1 / n).max()), form)
