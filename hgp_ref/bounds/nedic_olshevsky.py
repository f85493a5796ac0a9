"""Worst-case constants of Push-Sum on B-strongly connected graphs (Nedić and Olshevsky 2015).

    δ = n^{−nB} (every entry of P 1 is at least δ),   τ = (1 − n^{−nB})^{1/B},   |E_ij| ≤ (8/δ) τ^{S−1} after S steps.

Their Lemma 1 bounds the error after t + 1 steps by (8/δ) λ^t ‖y‖₁, hence the exponent S − 1. For display: on n
= 10 clients these constants ask for some 3e11 steps before Theorem 1 says anything. Everything is kept in
logarithms, since δ itself leaves the floating-point range for n around 140.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hgp_ref import arguments


@dataclass(frozen=True)
class WorstCase:
    """log δ and log τ for n clients whose graphs are jointly strongly connected over every B steps.

    Attributes
    ----------
    n : clients.
    window : B, within which the graphs connect.
    log_delta : log δ.
    log_tau : log τ.

    Examples
    --------
    >>> constants = hgp.bounds.worst_case(10, window=2)
    >>> bool(constants.log_tau < 0)
    True
    """

    n: int
    window: int
    log_delta: float
    log_tau: float

    @property
    def delta(self) -> float:
        """δ, 0 where it underflows."""
        return math.exp(self.log_delta)

    @property
    def tau(self) -> float:
        """τ, 1 where it cannot be told from 1."""
        return math.exp(self.log_tau)

    def entry(self, steps: int) -> float:
        """(8/δ) τ^{S−1} ≥ |E_ij|.

        Parameters
        ----------
        steps : S.

        Returns
        -------
        float, perhaps inf.
        """
        steps = arguments.integer("steps", steps)
        return _exp(math.log(8) - self.log_delta + _power(self.log_tau, steps - 1))

    def printed(self, steps: int) -> float:
        """(8/δ) τ^S, the same with the exponent that the paper prints.

        Parameters
        ----------
        steps : S.

        Returns
        -------
        float, perhaps inf.
        """
        steps = arguments.integer("steps", steps)
        return _exp(math.log(8) - self.log_delta + _power(self.log_tau, steps))

    def steps_needed(self, eta_alpha: float, *, factor: float | None = None) -> float:
        """Smallest S with (8 f/δ) τ^S ≤ ½ ηα/(1 − ηα): Theorem 1's condition on S, printed with f = √n.

        `factor` f is n by default, as Lemma 2 needs it. The result is a float: it may be astronomical, or infinite.

        Parameters
        ----------
        eta_alpha : ηα.
        factor : f.

        Returns
        -------
        float: it may be beyond all integers.
        """
        if not 0 < arguments.number("eta_alpha", eta_alpha) < 1:
            raise ValueError(f"eta_alpha={eta_alpha} given, needed a number strictly between 0 and 1")
        f = float(self.n) if factor is None else arguments.positive("factor", factor)
        log_needed = self.log_delta - math.log(16) - math.log(f) + math.log(eta_alpha / (1 - eta_alpha))
        if log_needed >= 0 or self.log_tau == -math.inf:
            return 1.0
        if self.log_tau == 0:
            return math.inf
        return max(1.0, math.ceil(log_needed / self.log_tau))


def worst_case(n: int, window: int = 1) -> WorstCase:
    """The constants for `n` clients and B = `window`.

    Parameters
    ----------
    n : int
        Clients.
    window : int
        B, over which graphs are jointly strongly connected.

    Returns
    -------
    WorstCase
        log δ and log τ.

    Raises
    ------
    TypeError, ValueError
        `n` and `window` must be integers ≥ 1.

    Examples
    --------
    >>> round(hgp.bounds.worst_case(3).log_delta, 4)
    -3.2958
    """
    n, window = arguments.integer("n", n), arguments.integer("window", window)
    log_delta = -n * window * math.log(n)
    delta = math.exp(log_delta)
    log_tau = -math.inf if delta == 1 else math.log1p(-delta) / window
    return WorstCase(n, window, log_delta, log_tau)


def _power(log_base: float, exponent: int) -> float:
    """log(base^exponent), with 0^0 = 1."""
    return 0.0 if exponent == 0 else exponent * log_base


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)
