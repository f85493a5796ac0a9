"""Divergence of a run: detection, and an explanation of its cause."""

from __future__ import annotations

import warnings

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype, host_float64
from hgp_ref.errors import ConvergenceWarning, DivergenceError, NonFiniteError, outside
from hgp_ref.methods.base import Method
from hgp_ref.methods.spectrum import NOT_FINITE, extremes, range_of_mean, row_norms, start_rows
from hgp_ref.methods.tracking import innermost
from hgp_ref.mixing import Channel, Mixer
from hgp_ref.problems.base import FullProblem

GROWTH_LIMIT = 1e8  # growth from which no run, training or baseline recovers with any correct digit
CLEAR_GROWTH = 1e3  # growth at the end of a run that no transient of a convergent series reaches
SUDDEN = 1e3  # terms that overflow faster than this times the fastest growth so far are NaN for another reason
LONG = 32  # iterations of a run from which its progress is judged
ROUNDINGS = 64  # rounding errors of products in the residual at the end


def largest_entry(channel: Channel, a: Array) -> np.ndarray:
    """max |a_ij| over all clients i and entries j of a (..., n, d).  # (...)"""
    xp = array_namespace(a)
    return channel.max_over_clients(xp.max(xp.abs(a), axis=-1))


class DivergenceMonitor:
    """Monitors max_i ‖r_i^(m)‖, the norm of the residual r = ∂_x f − H w of a run.

    With reset weights Θ̂ is row-stochastic, so in Algorithm 2 this norm can grow only if some ‖I − η H_i‖ > 1. A run
    whose residual is larger at its end than at half time has diverged if η λ_max(H̄) ≥ 2 or if it is 1000 times the
    first one. Otherwise the growth may be transient (negative curvature of a client, single mini-batches) and gives a
    warning. So does a residual that does not shrink at all, or is larger at the end than at the start. Gradient
    tracking has no such transients on full batches: there a growing residual is divergence, unless half of all digits
    are correct.
    """

    def __init__(
        self, problem: FullProblem, x: Array, lam: Array, method: Method, first: Array, mixer: Mixer, mini_batches: bool
    ) -> None:
        self.problem, self.x, self.lam, self.method = problem, x, lam, method
        self.mixer, self.mini_batches = mixer, mini_batches
        self.norms, self.checkpoints = [self._norm(first)], [0]
        self._first = np.where(self.norms[0] > 0, self.norms[0], np.inf)
        self.warned = False  # whether a warning was given
        self.last_finite = (0, float(np.max(self.norms[0])))  # the last iteration known to be finite, and its size
        self.first_infinite: int | None = None
        limits = np.finfo(host_dtype(first))
        self.eps = float(limits.eps)
        self.slack = 1.0 + float(np.sqrt(limits.eps))
        self.tiny = float(limits.tiny)  # below it rounded terms no longer shrink

    @property
    def residual_ratio(self) -> np.ndarray:
        """The last norm relative to the first, for each run."""
        return self.norms[-1] / np.where(self.norms[0] > 0, self.norms[0], 1.0)

    def check(self, r: Array, m: int) -> None:
        """Record the norm after iteration m; raise an error if the run has diverged."""
        norm = self._norm(r)
        self.norms.append(norm)
        self.checkpoints.append(m)
        self.record_size(float(np.max(norm)), m)
        lost = ~np.isfinite(norm) | (norm > GROWTH_LIMIT * self._first)
        if np.any(lost):
            spectrum = self._mean_range()
            if not np.isfinite(norm).all() and self._is_sudden():
                begin, end = self.last_finite[0] + 1, self.first_infinite
                raise NonFiniteError(f"{NOT_FINITE}; in iterations {begin} to {end} terms became NaN without growing")
            raise self._diverged(m, lost, spectrum)

    def record_size(self, size: float, m: int) -> None:
        """Record the size of iteration m on this rank, also between two checks: when did it cease to be finite?"""
        if self.first_infinite is None and np.isfinite(size):
            self.last_finite = (m, size)
        elif self.first_infinite is None:
            self.first_infinite = m

    def _is_sudden(self) -> bool:
        """Whether numbers that are not finite come from products and not from growth, on every rank."""
        (m, size), limits = self.last_finite, np.finfo(host_dtype(self.x))
        assert self.first_infinite is not None
        needed = (np.log(float(limits.max)) - np.log(max(size, float(limits.tiny)))) / (self.first_infinite - m)
        return not self.mixer.channel.any_rank(bool(needed <= np.log(SUDDEN) + self._fastest_growth()))

    def _fastest_growth(self) -> float:
        """log of the largest growth per iteration between two checks with finite norms, at least 0."""
        norms = np.log(np.maximum([float(np.max(norm)) for norm in self.norms[:-1]], self.tiny))
        return max(0.0, *np.diff(norms) / np.diff(self.checkpoints[:-1])) if len(norms) > 1 else 0.0

    def finalize(self, m: int, w: Array) -> None:
        """Decide whether the run of m iterations that ended at w has converged."""
        end, half = self.norms[-1], self.norms[len(self.norms) // 2 if len(self.norms) > 2 else 0]
        end = np.where(end < self.tiny, 0.0, end)
        progress = innermost(self.method).progress if m >= LONG and not self.mini_batches else 1.0
        expected = np.where(end > np.sqrt(self.eps) * self._first, half / progress, half)
        if not np.any((end > 0) & (end * self.slack > np.minimum(expected, self._first))):
            return
        end = np.where(end <= self._rounding(w), 0.0, end)  # methods that store w itself stop there
        growing = end > half * self.slack
        doubtful = growing | (end > self._first * self.slack)  # also while it falls from a peak
        if np.any(doubtful):
            spectrum = self._mean_range()
            eta = getattr(self.method, "eta", 0.0)
            steady = innermost(self.method).steady and not self.mini_batches
            unstable = steady & (end > np.sqrt(self.eps) * self._first)  # smaller residuals may waver by rounding
            lost = growing & (unstable | (eta * spectrum[1] >= 2.0) | (end > CLEAR_GROWTH * self._first))
            if np.any(lost):
                raise self._diverged(m, lost, spectrum)
            self._warn(self._message(m, doubtful, spectrum))
        elif progress > 1 and np.any((end > 0) & (end * self.slack > expected)):
            low, high = self._mean_range()
            self._warn(
                f"the residual falls by less than {progress:g} times over the last half of {m} iterations of "
                f"{self.method!r}; the mean Hessian, with spectrum [{low:.4g}, {high:.4g}], may be singular, or "
                f"clients may differ much: {innermost(self.method).remedy}"
            )
        elif np.any((end > 0) & (end * self.slack > half)) and m > 1:
            self._warn(
                f"the terms of the series do not shrink over the last half of {m} iterations; the mean Hessian may be "
                "singular, or eta * lambda_max = 2"
            )

    def _diverged(self, m: int, lost: np.ndarray, spectrum: tuple[float, float]) -> DivergenceError:
        error = DivergenceError("diverged: " + self._message(m, lost, spectrum))
        error.steps = m
        return error

    def _warn(self, message: str) -> None:
        self.warned = True
        warnings.warn(f"not converged: {message}", ConvergenceWarning, stacklevel=outside())

    def _norm(self, r: Array) -> np.ndarray:
        return self.mixer.channel.max_over_clients(row_norms(r))

    def _rounding(self, w: Array) -> np.ndarray:
        """The residual that rounding of the products may leave: eps ‖H_i‖ ‖w_i‖ for each product."""
        low, high = extremes(self.problem.linearize(self.x, self.lam).hvp, start_rows(self.x))
        sizes = np.maximum(np.abs(low), np.abs(high)) * host_float64(row_norms(w))  # of H_i w_i, (..., n)
        return ROUNDINGS * float(np.finfo(host_dtype(w)).eps) * self.mixer.channel.max_over_clients(sizes)

    def _mean_range(self) -> tuple[float, float]:
        linearization = self.problem.linearize(self.x, self.lam)
        spectrum = range_of_mean(self.mixer.channel, linearization, self.x)
        if not np.isfinite(spectrum).all():
            raise NonFiniteError(NOT_FINITE)
        return spectrum

    def _message(self, m: int, affected: np.ndarray, spectrum: tuple[float, float]) -> str:
        """What has grown in the first of the `affected` runs, and the likely cause."""
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = np.atleast_1d(self.norms[-1] / self._first)
        run = int(np.flatnonzero(np.atleast_1d(affected))[0])
        named = ""
        if np.ndim(affected):
            outer_costs = len(self.mixer.averagings) == 1  # and not runs
            named = f" for outer cost {run}" if outer_costs else f" in run {run}, {self.mixer.averagings[run]!r},"
        growth = f"after {m} iterations{named} the largest term is {ratios[run]:.2g} times the first; "
        low, high = spectrum
        eta = getattr(self.method, "eta", None)
        if eta is None:
            where = f"{self.method!r}, where the spectrum of the mean Hessian is [{low:.4g}, {high:.4g}]"
            remedy = innermost(self.method).remedy
            return growth + where + (f": {remedy}" if remedy else "")
        strongest = high if abs(high) >= abs(low) else low
        product = f"eta={eta:g} gives eta * lambda_max = {eta * strongest:.4g} (of the mean Hessian), "
        return growth + product + self._cause(eta, low, high, run)

    def _cause(self, eta: float, low: float, high: float, run: int) -> str:
        if eta * high >= 2:
            return "which must be < 2: take a smaller eta"
        if low < 0:
            return f"and its smallest eigenvalue is {low:.3g}: the mean inner cost is not convex here"
        averagings = self.mixer.averagings
        debias = getattr(averagings[run if len(averagings) > 1 else 0], "debias", "reset")
        if debias != "reset":
            return f"which is < 2: debias={debias!r} of the averaging makes them grow"
        if self.mini_batches:
            return "which is < 2, but single mini-batches may exceed it: take larger ones, or a smaller eta"
        return "which is < 2, but " + self._worst_client(eta)

    def _worst_client(self, eta: float) -> str:
        lows, highs = extremes(self.problem.linearize(self.x, self.lam).hvp, start_rows(self.x))
        top = self.mixer.channel.max_over_clients(np.stack([-lows, highs]))
        low, high = float(-top[0]), float(top[1])
        if eta * high >= 2:
            return f"{eta * high:.4g} for a single client, which inexact averages feed back; use more steps per call"
        if low < 0:
            return f"some client's inner cost is not convex (eigenvalue {low:.3g})"
        return "no client's Hessian explains the growth: check it by hgp.problems.check_derivatives"
