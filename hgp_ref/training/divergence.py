"""Whether training converges: what grows is reported, with its cause."""

from __future__ import annotations

import numpy as np

from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace
from hgp_ref.errors import DivergenceError, NonFiniteError, warn_unmet
from hgp_ref.methods.spectrum import range_of_mean, row_norms
from hgp_ref.problems.normalised import optional
from hgp_ref.training.descent import Descent

GROWTH_LIMIT = 1e8  # parameters and gradients that have both grown by this are not coming back
CLEAR_GROWTH = 10.0  # at the end: parameters and mean gradient beyond this times what they started with


class TrainingWatch:
    """Follows max |x| and max |∂g| from the start of training.

    Parameters alone may grow as far as the solution is away, and gradients alone grow from a start at the solution:
    training has diverged if both have grown, parameters from |x_0| + a |∂g(x_0)|, gradients from those of the start.
    """

    def __init__(self, rule: Descent, start: Array, lr: float, average: Mean) -> None:
        self.rule, self.lr, self.average = rule, lr, average
        self.start = start
        self.gradient = self._largest(rule.gradient(start))  # (runs,) or ()
        if not np.isfinite(self.gradient).all():
            raise NonFiniteError("problem: inner_grad(x, lam) returned NaN or infinite values at the start of training")
        self.reach = self._largest(start) + lr * self.gradient
        self.step = 0  # of the last look
        self.mean_gradient: np.ndarray | None = None  # of the start, once a tolerance asks for it

    def widen(self, lr: float) -> None:
        """Allow for steps of rate `lr`, the largest so far: how far parameters may be expected to move."""
        if lr > self.lr:
            self.lr = lr
            self.reach = np.maximum(self.reach, self._largest(self.start) + lr * self.gradient)

    def look(self, z: Array, gradient: Array, step: int, rate: float) -> None:
        """Stop training that has left the range of sense; `rate` is the largest learning rate used so far."""
        self.step = step
        size, slope = self._largest(z), self._largest(gradient)
        if step == 1:  # a mini-batch may have a gradient where the full batch has none
            self.gradient = np.maximum(self.gradient, slope)
            self.reach = np.maximum(self.reach, size)
        grown = (size > GROWTH_LIMIT * self.reach) & (slope > GROWTH_LIMIT * self.gradient)
        if np.any(grown | ~np.isfinite(size) | ~np.isfinite(slope)):
            self._raise(f"parameters up to {np.max(size):.2g} after {step} steps, learning rate {rate:g}")

    def conclude(self, x: Array, rate: float) -> tuple[float | np.ndarray, float | np.ndarray]:
        """max_i ‖x_i − x̄‖ and ‖mean_i ∂g_i(x̄)‖ on the host; refuses training that ends far off.

        `rate` is the largest learning rate used.
        """
        xp, channel = array_namespace(x), self.average.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape)
        gap = channel.max_over_clients(row_norms(x - mean))
        norm = self._mean_gradient(x)
        if not np.all(np.isfinite(gap) & np.isfinite(norm)):
            self._raise(f"parameters up to {np.max(self._largest(x)):.2g}, whose norms are beyond floating point")
        moved = self._largest(x) > CLEAR_GROWTH * self.reach
        if np.any(moved & (norm > CLEAR_GROWTH * self.gradient)):
            self._raise(
                f"the mean gradient is {np.max(norm):.2g} at its end, clients' gradients were at most "
                f"{np.max(self.gradient):.2g} at its start, learning rate {rate:g}"
            )
        return (gap, norm) if x.ndim > 2 else (float(gap), float(norm))

    def reached(self, z: Array, tol: float) -> bool:
        """Whether the mean gradient is at most tol times that of the start, in all runs."""
        return bool(np.all(self._mean_gradient(z) <= tol * self._first_mean_gradient()))

    def warn_unless_reached(self, norm: float | np.ndarray, tol: float, turns: str) -> None:
        """Warn unless the mean gradient at the end, of this `norm`, is at most tol times that of the start."""
        first = self._first_mean_gradient()
        if not np.all(norm <= tol * first):
            left = np.max(norm / np.where(first > 0, first, np.finfo(np.float64).tiny))
            warn_unmet(
                f"tol={tol:g} was not met in {turns}, where {left:.2g} of the first mean gradient is left; needed more "
                "of them, or another learning rate"
            )

    def _first_mean_gradient(self) -> np.ndarray:
        if self.mean_gradient is None:
            self.mean_gradient = self._mean_gradient(self.start)
        return self.mean_gradient

    def _mean_gradient(self, x: Array) -> np.ndarray:
        """‖mean_i ∂g_i(x̄)‖ on full batches."""
        xp, channel = array_namespace(x), self.average.channel
        mean = xp.broadcast_to(channel.mean_over_clients(x), x.shape) + xp.zeros_like(x)
        row = channel.mean_over_clients(self.rule.gradient(mean))  # (..., 1, d)
        return channel.max_over_clients(row_norms(row))

    def _largest(self, a: Array) -> np.ndarray:
        xp = array_namespace(a)
        return self.average.channel.max_over_clients(xp.max(xp.abs(a), axis=-1))

    def _raise(self, what: str) -> None:
        added = {name: getattr(self.rule, name) for name in ("momentum", "weight_decay", "prox")}
        named = "".join(f", {name}={value:g}" for name, value in added.items() if value)
        error = DivergenceError(f"training diverged: {what}{named}: {self._remedy()}")
        error.traffic, error.steps = self.average.channel.traffic, self.step
        raise error

    def _remedy(self) -> str:
        """A smaller rate helps unless the mean inner cost falls without end."""
        problem = self.rule.problem
        if not callable(optional(problem.given, "linearize")):
            return "take a smaller lr"
        start, lam = (a[(*(0,) * (a.ndim - 2), ...)] for a in (self.start, self.rule.lam))
        linearization = problem.linearize(start, lam)
        low, high = range_of_mean(self.average.channel, linearization, start)
        low, high = low + self.rule.weight_decay, high + self.rule.weight_decay
        if not np.isfinite(low + high):
            return "the problem's hvp returns NaN or infinite values at the start"
        if low < 0:
            return (
                f"the mean Hessian at the start has the eigenvalue {low:.3g}, so no learning rate may help: is lam, or "
                "the problem, such that the inner cost has no minimum?"
            )
        limit = f" (2 / lambda_max is {2 / high:.3g} at the start)" if high > 0 else ""
        if limit and self.lr < 2 / high and self.average.averagings[0].conserves:
            limit = (
                f"{limit[:-1]}, but steps are lr / ω: long where Push-Sum's weights ω are small, as those of clients "
                "are that hear little for a while), or graphs that connect clients better"
            )
        return f"take a smaller lr{limit}"
