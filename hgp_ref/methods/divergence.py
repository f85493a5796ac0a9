"""Whether the terms of an iteration vanish, and what to say when they grow."""

from __future__ import annotations

import warnings

import numpy as np

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.errors import ConvergenceWarning, DivergenceError, NonFiniteError, outside
from hgp_ref.methods.base import Method
from hgp_ref.methods.spectrum import NOT_FINITE, extremes, range_of_mean, row_norms, start_rows
from hgp_ref.mixing import Mixer
from hgp_ref.problems.base import Normalised

SUDDEN = (
    1e3  # times the fastest growth seen: terms that would have to grow faster to overflow are NaN for another reason
)
GROWTH_LIMIT = 1e8  # no run comes back from here with digits that mean anything
ROUNDINGS = 64  # of products, in what is left at the end
CLEAR_GROWTH = 1e3  # at the end of a run: no transient of a series that converges


class GrowthWatch:
    """Follows max_i ‖r_i^(m)‖ over a run, r what is left of ∂_x f − ∂²_x g w (u^(m) in Algorithm 2).

    With reset weights Θ̂ is row-stochastic, so this norm can grow in Algorithm 2 only where some ‖I − η H_i‖ > 1. A run
    whose terms are larger at its end than at half time has diverged if η λ_max(H̄) ≥ 2 or if they are 1000 times the
    first one. Otherwise it may be a transient (negative curvature at some client, single mini-batches) and gets a
    warning, as does a run whose terms do not shrink at all or are larger at its end than the first one. A method that
    knows no transients (`Method.transients`) has diverged if that happens with full batches, unless half of all digits
    are settled at the end: then it gets the warning.
    """

    def __init__(
        self, problem: Normalised, x: Array, lam: Array, method: Method, first: Array, mixer: Mixer, mini_batches: bool
    ) -> None:
        self.problem, self.x, self.lam, self.method = problem, x, lam, method
        self.mixer, self.mini_batches = mixer, mini_batches
        self.norms, self.looks = [self._norm(first)], [0]
        self.warned = False  # that the run has not converged
        self.finite = (0, float(np.max(self.norms[0])))  # the last iteration known to be finite, and how large it was
        self.spoilt: int | None = None  # the first one known not to be
        limits = np.finfo(host_dtype(first))
        self.eps = float(limits.eps)
        self.slack = 1.0 + float(np.sqrt(limits.eps))
        self.vanished = float(limits.tiny)  # below it products round to what they were: terms no longer shrink

    @property
    def left(self) -> np.ndarray:
        """The last norm as a share of the first, for each run."""
        return self.norms[-1] / np.where(self.norms[0] > 0, self.norms[0], 1.0)

    def look(self, r: Array, m: int) -> None:
        """Record the norm after iteration m; stop a run that has left the range of sense."""
        norm = self._norm(r)
        self.norms.append(norm)
        self.looks.append(m)
        self._note(float(np.max(norm)), m)
        lost = ~np.isfinite(norm) | (norm > GROWTH_LIMIT * self._first)
        if np.any(lost):
            spectrum = self._mean_range()
            if not np.isfinite(norm).all() and self._is_sudden():
                begin, end = self.finite[0] + 1, self.spoilt
                raise NonFiniteError(f"{NOT_FINITE}; in iterations {begin} to {end} terms became NaN without growing")
            raise self._diverged(m, lost, spectrum)

    def sample(self, p: Array, m: int) -> None:
        """Note between two looks how large the increment of iteration m is; clients here only, nothing is sent."""
        self._note(abs(float(np.add.reduce(p, axis=None))), m)

    def _note(self, size: float, m: int) -> None:
        if self.spoilt is None and np.isfinite(size):
            self.finite = (m, size)
        elif self.spoilt is None:
            self.spoilt = m

    def _is_sudden(self) -> bool:
        """Whether what is not finite comes from products, not from growth, as every rank has seen it."""
        (m, size), limits = self.finite, np.finfo(host_dtype(self.x))
        assert self.spoilt is not None, "looks are noted"
        needed = (np.log(float(limits.max)) - np.log(max(size, float(limits.tiny)))) / (self.spoilt - m)
        return not self.mixer.channel.any_rank(bool(needed <= np.log(SUDDEN) + self._fastest()))

    def _fastest(self) -> float:
        """log of the largest growth in one iteration that finite looks show, 0 where there is none."""
        norms = np.log(np.maximum([float(np.max(norm)) for norm in self.norms[:-1]], self.vanished))
        return max(0.0, *np.diff(norms) / np.diff(self.looks[:-1])) if len(norms) > 1 else 0.0

    def conclude(self, m: int, w: Array) -> None:
        """Judge the whole run of m iterations, which has ended at w."""
        end, half = self.norms[-1], self.norms[len(self.norms) // 2 if len(self.norms) > 2 else 0]
        end = np.where(end < self.vanished, 0.0, end)
        if not np.any((end > 0) & (end * self.slack > np.minimum(half, self._first))):
            return
        end = np.where(end <= self._rounding(w), 0.0, end)  # a method that keeps w itself stops shrinking there
        growing = end > half * self.slack
        doubtful = growing | (end > self._first * self.slack)  # also what is on its way down from a peak
        if np.any(doubtful):
            spectrum = self._mean_range()
            eta = getattr(self.method, "eta", 0.0)
            steady = not (self.method.transients or self.mini_batches)
            unstable = steady & (end > np.sqrt(self.eps) * self._first)  # below it, what is left of rounding may waver
            lost = growing & (unstable | (eta * spectrum[1] >= 2.0) | (end > CLEAR_GROWTH * self._first))
            if np.any(lost):
                raise self._diverged(m, lost, spectrum)
            self._warn(self._message(m, doubtful, spectrum))
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

    @property
    def _first(self) -> np.ndarray:
        return np.where(self.norms[0] > 0, self.norms[0], np.inf)

    def _rounding(self, w: Array) -> np.ndarray:
        """What rounding may leave of ∂_x f − ∂²_x g w: eps ‖∂²_x g_i‖ ‖w_i‖ of each product."""
        low, high = extremes(self.problem.linearize(self.x, self.lam).hvp, start_rows(self.x))
        sizes = np.maximum(np.abs(low), np.abs(high)) * host_float64(row_norms(w))  # of ∂²_x g_i w_i, (..., n)
        return ROUNDINGS * float(np.finfo(host_dtype(w)).eps) * self.mixer.channel.max_over_clients(sizes)

    def _mean_range(self) -> tuple[float, float]:
        linearization = self.problem.linearize(self.x, self.lam)
        spectrum = range_of_mean(self.mixer.channel, linearization, self.x)
        if not np.isfinite(spectrum).all():
            raise NonFiniteError(NOT_FINITE)
        return spectrum

    def _message(self, m: int, which: np.ndarray, spectrum: tuple[float, float]) -> str:
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = np.atleast_1d(self.norms[-1] / self._first)
        run = int(np.flatnonzero(np.atleast_1d(which))[0])
        named = f" in run {run}, {self.mixer.averagings[run]!r}," if np.ndim(which) else ""
        grown = f"after {m} iterations{named} the largest term is {ratios[run]:.2g} times the first; "
        low, high = spectrum
        eta = getattr(self.method, "eta", None)
        if eta is None:
            where = f"{self.method!r}, where the spectrum of the mean Hessian is [{low:.4g}, {high:.4g}]"
            return grown + where + (f": {self.method.remedy}" if self.method.remedy else "")
        strongest = high if abs(high) >= abs(low) else low
        product = f"eta={eta:g} gives eta * lambda_max = {eta * strongest:.4g} (of the mean Hessian), "
        return grown + product + self._cause(eta, low, high, run)

    def _cause(self, eta: float, low: float, high: float, run: int) -> str:
        if eta * high >= 2:
            return "needed < 2: take a smaller eta"
        if low < 0:
            return f"and its smallest eigenvalue is {low:.3g}: the mean inner cost is not convex here"
        debias = getattr(self.mixer.averagings[run], "debias", "reset")
        if debias != "reset":
            return f"which is < 2: the averaging makes them grow, debias={debias!r}"
        if self.mini_batches:
            return "which is < 2, but single mini-batches may exceed it: take larger ones, or a smaller eta"
        return "which is < 2, but " + self._worst_client(eta)

    def _worst_client(self, eta: float) -> str:
        lows, highs = extremes(self.problem.linearize(self.x, self.lam).hvp, start_rows(self.x))
        top = self.mixer.channel.max_over_clients(np.stack([-lows, highs]))
        low, high = float(-top[0]), float(top[1])
        if eta * high >= 2:
            return f"{eta * high:.4g} of a single client: averages that are not exact feed it back; more steps help"
        return f"some client's inner cost is not convex (eigenvalue {low:.3g})" if low < 0 else "not of all terms"
