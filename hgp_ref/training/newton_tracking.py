"""Newton tracking: gradient tracking for the inner problem, in which every client solves with its own Hessian.

With H_i = ∂²_x g_i(x_i) and P_i = H_i + δ_i I, from u = x = x_0, ω = 1 and y = ∂_x g(x_0),

    u ← P(u − γ_i t_i ω P_i⁻¹(y_i/ω_i)),    ω ← P ω,    x⁺ = u/ω,    y ← P y + ∂_x g(x⁺) − ∂_x g(x),    x ← x⁺.

Columns of P sum to 1, so Σ_i y_i = Σ_i ∂_x g_i(x_i) whatever P_i, γ_i and t_i are. Where clients agree and y = 0, x is
a stationary point of Σ g_i: there is no floor. Shifts and steps follow the rule of `hgp_ref.methods.curvature`.

*Damping.* t_i is the largest of 1, ½, ¼, … for which the client's own gradient changes as its Hessian says,

    ‖∂_x g_i(x_i − t p) − ∂_x g_i(x_i) + t H_i p‖ ≤ ½ t ‖P_i p‖,    p = γ_i P_i⁻¹ y_i/ω_i,

which costs local gradients and no message. While t_i < 1, δ_i does not fall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype, to_host
from hgp_ref.methods.curvature import (
    FIRST_STEP,
    Adaptation,
    LocalSolver,
    adapt,
    check_shift,
    compare,
    explicit_hessians,
    first_adaptation,
    local_solver,
)
from hgp_ref.methods.spectrum import range_of_mean, row_norms
from hgp_ref.mixing import Mixer, push_sum_for, start_averaging
from hgp_ref.mixing.simulated import MODES
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem, optional
from hgp_ref.training.gradient_push import (
    Callback,
    Fit,
    LocalGradient,
    TrainingLoop,
    TrainingMethod,
    TrainingMonitor,
    check_clients,
    read_start,
)
from hgp_ref.validation import Choice, Count, Nonnegative, Optional, Positive, checked

CHECK_EVERY = 8  # iterations between two checks for divergence
NONLINEAR = 0.5  # of the change of a gradient, at most
HALVINGS = 40
ROUNDINGS = 64  # of gradients, which the test of linearity ignores


@checked(
    iterations=Count(),
    shift=Optional(Nonnegative()),
    step=Optional(Positive()),
    averaging_steps=Count(),
    degree=Optional(Count(2)),
    mode=Choice(*MODES),
)
@dataclass(frozen=True, repr=False)
class NewtonTracking(TrainingMethod):
    """Gradient tracking with local Newton directions, on full batches: far fewer messages than gradient push.

    The limit is exact: x is a stationary point of Σ_k g_k up to rounding, over any network that mixes. For similar
    clients the number of iterations does not depend on the condition number. A message carries two vectors and one
    weight. Over links that lose or delay messages, running sums are used (`RobustPushSum`).

    Clients find shifts and steps themselves, without messages, and damp steps where their gradients are not close to
    linear (`hgp_ref.training.newton_tracking`). Give a `shift` if a client has far less curvature than the others, as
    in `PreconditionedTracking`. Up to 512 dimensions they factorise their Hessian in every iteration,
    on the host; in more, a solve is a polynomial of `degree` Hessian-vector products. `fit.rates` holds the γ at which
    clients start.

    Parameters
    ----------
    iterations : at most so many.
    shift : δ, the same for every client; it must exceed −λ_min(H_i) of every client at the start. None to adapt it.
    step : γ; None to adapt it.
    averaging_steps : rounds of communication per iteration. More than 1 pays on networks that mix slowly.
    degree : of the polynomial; None for a factorisation where d is small.
    mode : how mixing matrices are applied, as in `PushSum`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> fit = hgp.train(problem, lam, net, hgp.training.NewtonTracking(iterations=150))
    >>> bool(np.abs(fit.x - hgp.exact.inner_solution(problem, lam)).max() < 1e-10)
    True
    """

    iterations: int = 100
    shift: float | None = None
    step: float | None = None
    _: KW_ONLY
    averaging_steps: int = 1
    degree: int | None = None
    mode: str = "auto"

    def run(self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, tol: float | None,
            callback: Callback | None, progress: bool) -> Fit:  # fmt: skip
        if not callable(optional(problem.wrapped, "linearize")):
            raise TypeError(f"NewtonTracking needs a problem with linearize(x, lam), got {type(problem.wrapped)}")
        averaging = push_sum_for(net, self.averaging_steps, debias="conserve", mode=self.mode)
        check_clients(net, problem.n_clients)
        x = read_start(problem, lam, x0)
        mixer = start_averaging([averaging], problem.n_clients, x, self.iterations)
        mixer.channel.check_client_ids(problem.clients)
        mixer.channel.check_same_on_all_ranks(
            "hgp.train", method=self, tol=tol, callback=callback is not None, dim_lam=problem.dim_lam
        )
        gradient = LocalGradient(problem, lam)
        monitor = NewtonMonitor(gradient, x, mixer)
        newton = NewtonStep(self, problem, lam, x, gradient.direction(x, None, None), mixer)
        loop = TrainingLoop(newton, newton, monitor, self.iterations, False, CHECK_EVERY, tol, 1, callback)
        return loop.fit(x, "newton" if progress else None, self)


class NewtonStep:
    """One iteration in the two halves that `TrainingLoop` alternates: the local step, then the average of u and y."""

    milestones = ()

    def __init__(
        self, settings: NewtonTracking, problem: FullProblem, lam: Array, x: Array, gradient: Array, mixer: Mixer
    ) -> None:
        self.settings, self.problem, self.lam, self.mixer = settings, problem, lam, mixer
        self.x, self.last, self.y = x, gradient, gradient
        self.u, self.omega = x, 1.0
        self.rates = self  # of which the loop reads `milestones`
        self.rate = FIRST_STEP if settings.step is None else settings.step
        self.adaptation: Adaptation | None = None
        self._solver: LocalSolver | None = None  # of the last iteration
        self._damped: Array | None = None  # clients whose last step was damped, (..., n, 1)
        self._gradient: Callable[..., Array] = problem.gradient_at(lam)

    def __call__(self, round: int, z: Array) -> Array:
        """−γ t ω P⁻¹(y/ω), what the clients add to u; z is x."""
        x = z
        linearization = self.problem.linearize(x, self.lam)
        explicit = self._hessians(linearization)
        solver = self._solver = local_solver(linearization, explicit, x, self.mixer.channel, self.settings.degree)
        if self.adaptation is None:
            check_shift(solver, self.settings.shift, self.mixer.channel)
            self.adaptation = first_adaptation(solver, x, self.settings.shift, self.settings.step)
        free = self.settings.shift is None, self.settings.step is None
        tracked = self.y / self.omega
        direction, self.adaptation = adapt(self.adaptation, solver, tracked, *free, hold=self._damped)
        p = self.adaptation.step * direction
        t = self._damping(solver, linearization.hvp(p), x, p)
        self._damped = t < 1
        return -self.omega * t * p

    def _hessians(self, linearization: Any) -> Callable[[], Array]:
        if self.problem.hessian is not None:
            return lambda: self.problem.hessian(self.x, self.lam)
        return lambda: explicit_hessians(linearization.hvp, self.x)

    def _damping(self, solver: LocalSolver, Hp: Array, x: Array, p: Array) -> Array:
        """t_i, (..., n, 1)."""
        xp = array_namespace(x)
        assert self.adaptation is not None
        allowed = NONLINEAR * row_norms(Hp + self.adaptation.shift * p)[..., None]
        rounding = ROUNDINGS * float(np.finfo(host_dtype(x)).eps)
        noise = rounding * (row_norms(self.last) + solver.high[..., 0] * row_norms(x))[..., None]
        t = xp.ones_like(allowed)
        for _ in range(HALVINGS):
            change = self._gradient(x - t * p) - self.last
            bad = ~(row_norms(change + t * Hp)[..., None] <= t * allowed + noise)  # also NaN
            if not bool(to_host(xp.any(bad))):
                break
            t = xp.where(bad, t / 2, t)
        return t

    def average(self, u: Array) -> Array:
        """x⁺ from the sums u; y follows the gradients."""
        xp, d = array_namespace(u), u.shape[-1]
        mixed = self.mixer.push(xp.concat([u, self.y], axis=-1))
        self.u, self.omega = mixed[..., :d], self.mixer.weights
        before, self.x = self.x, self.u / self.omega
        gradient = self._gradient(self.x)
        change = gradient - self.last
        self.y, self.last = mixed[..., d:] + change, gradient
        if self.settings.shift is None:
            assert self.adaptation is not None and self._solver is not None
            self.adaptation = compare(self.adaptation, self._solver, self.y / self.omega, self.x - before, change)
        return self.x

    def carry(self, x: Array) -> Array:
        return self.u

    def debias(self, u: Array) -> Array:
        return u / self.omega


class NewtonMonitor(TrainingMonitor):
    """The monitor of training, with advice for shifts and steps."""

    rate_name, advice = "step size", "use more iterations or averaging_steps"

    def _remedy(self) -> str:
        start, lam = (a[(*(0,) * (a.ndim - 2), ...)] for a in (self.start, self.gradient.lam))
        low, _ = range_of_mean(self.mixer.channel, self.gradient.problem.linearize(start, lam), start)
        if low <= 0:
            return f"the mean Hessian at the start has the eigenvalue {low:.3g}; does the inner cost have a minimum?"
        return "take a larger shift, a smaller step, or more averaging_steps"
