"""Rules of decentralized descent: how clients that each see a gradient d_i approach a zero of the mean gradient.

Each variable of a bilevel method (inner x, auxiliary z, outer λ) moves by one of these rules. W is the mixing matrix of
one round and α the step. Gradients are taken at the current point:

    consensus   s ← W s − α d                                          biased by O(α) if clients differ
    diffusion   s ← W (s − α d)                                        biased by O(α) if clients differ
    tracking    s ← W s − α t,  t ← W t + d⁺ − d,  t⁰ = d⁰             exact; two vectors per round
    ED          s^{k+2} = W (2s^{k+1} − s^k − α (d^{k+1} − d^k))       exact; s¹ = W (s⁰ − α d⁰)
    EXTRA       s^{k+2} = 2W s^{k+1} − W s^k − α (d^{k+1} − d^k)       exact; s¹ = W s⁰ − α d⁰
    GT          s ← W (s − α y),  y ← W (y + d⁺ − d),  y⁰ = W d⁰       exact; two rounds of one vector,
                i.e. s^{k+2} = 2W s^{k+1} − W² s^k − α W² (d^{k+1} − d^k)

An exact rule stops only where all clients agree and Σ_i d_i = 0: tracking conserves Σ_i (t_i − d_i) = 0, and ED and
EXTRA conserve the sum of s^{k+1} − s^k + α d^k from the first step on. In ED and EXTRA, W stands for the lazy matrix
(I + W)/2, which a client applies by itself; without it W must have no eigenvalue near −1. From a common start EXTRA is
that of its paper, whose first step is not lazy. Tracking pushes t and pulls s, so it also works over directed graphs
(see `hgp_ref.mixing.consensus`). All other rules need a doubly stochastic W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hgp_ref.backend import Array
from hgp_ref.mixing.consensus import MixingRoutine, SumPreserving, no_communication
from hgp_ref.validation import Positive, checked

Gradient = Callable[[Array], Array]


@dataclass(frozen=True)
class Variable:
    """A variable of every client, (n, d), and what its rule remembers from earlier iterations."""

    s: Array
    memory: Any = None


@checked(step=Positive())
@dataclass(frozen=True)
class DescentRule(ABC):
    """One iteration of a variable, as a mixing routine (see `hgp_ref.mixing.consensus`)."""

    step: float  # α

    @abstractmethod
    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        """The next variable; gradient(s) is d at s, of every client."""

    def projected(self, variable: Variable, s: Array) -> Variable:
        """The variable after its s was projected to another one."""
        return Variable(s, variable.memory)

    def without_communication(self) -> DescentRule:
        """The rule of a variable that each client has for itself."""
        return LocalStep(self.step)


class LocalStep(DescentRule):
    """s ← s − α d, by each client alone."""

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        return no_communication(Variable(variable.s - self.step * gradient(variable.s)))


class Consensus(DescentRule):
    """s ← W s − α d."""

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        d = gradient(variable.s)
        (mixed,) = yield (variable.s,)
        return Variable(mixed - self.step * d)


class Diffusion(DescentRule):
    """s ← W (s − α d)."""

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        (mixed,) = yield (variable.s - self.step * gradient(variable.s),)
        return Variable(mixed)


@checked(step=Positive())
@dataclass(frozen=True)
class Tracking(DescentRule):
    """s ← (1 − η) s + η (W s − α t),  t ← W t + d⁺ − d.  The damping η is 1 by default."""

    damping: float = 1.0

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        d = gradient(variable.s)
        t = tracker(variable.memory, d)
        mixed, mixed_t = yield variable.s, SumPreserving(t)
        s = mixed - self.step * t
        return Variable(s if self.damping == 1 else variable.s + self.damping * (s - variable.s), (mixed_t, d))

    def without_communication(self) -> DescentRule:
        return LocalStep(self.damping * self.step)


def track(memory: Any, d: Array) -> MixingRoutine:
    """t ← W t + d⁺ − d without a variable that moves along t. Returns the next memory."""
    (mixed,) = yield (SumPreserving(tracker(memory, d)),)
    return mixed, d


def tracker(memory: Any, d: Array) -> Array:
    """t for the current d: the mixed t of the last round plus the change of d since; d in the first round."""
    return d if memory is None else memory[0] + (d - memory[1])


def _lazy(rows: Array) -> MixingRoutine:
    (mixed,) = yield (rows,)
    return 0.5 * (rows + mixed)


class ExactDiffusion(DescentRule):
    """ψ⁺ = s − α d,  s ← W (ψ⁺ + s − ψ),  ψ⁰ = s⁰.

    With a projection, s = Π y and y ← W (ψ⁺ + y − ψ): the part that Π removes remains in y − ψ.
    """

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        psi = variable.s - self.step * gradient(variable.s)
        s = yield from _lazy(psi if variable.memory is None else psi + (variable.s - variable.memory))
        return Variable(s, psi)

    def projected(self, variable: Variable, s: Array) -> Variable:
        return Variable(s, None if variable.memory is None else variable.memory + (s - variable.s))


class Extra(DescentRule):
    """With m = W s and e = α d:  s ← 2m − m₋ − (e − e₋), where m₋ and e₋ are those of the last step.

    With a projection, s = Π y and y ← 2m − s + y − m₋ − (e − e₋).
    """

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        e = self.step * gradient(variable.s)
        m = yield from _lazy(variable.s)
        s = m - e if variable.memory is None else m + (m - variable.memory[0]) - (e - variable.memory[1])
        return Variable(s, (m, e))

    def projected(self, variable: Variable, s: Array) -> Variable:
        if variable.memory is None:
            return Variable(s)
        m, e = variable.memory
        return Variable(s, (m + (s - variable.s), e))


class AdaptThenTrack(DescentRule):
    """y ← W (y + d⁺ − d), then s ← W (s − α y): two rounds."""

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        d = gradient(variable.s)
        (y,) = yield (tracker(variable.memory, d),)
        (s,) = yield (variable.s - self.step * y,)
        return Variable(s, (y, d))


@checked(step=Positive())
@dataclass(frozen=True)
class Svrg(DescentRule):
    """τ local steps that are corrected to the mean gradient, then a mean (FedInn and FedOut of FedNest):

        d̄ = W d(s),    τ times y ← y − α (d(y) − d(s) + d̄) from y = s,    s ← W y.

    Two rounds. W is the exact mean.
    """

    local_steps: int = 1

    def move(self, variable: Variable, gradient: Gradient) -> MixingRoutine:
        d = gradient(variable.s)
        (mean,) = yield (d,)
        y = variable.s - self.step * mean
        for _ in range(self.local_steps - 1):
            y = y - self.step * (gradient(y) - d + mean)
        (s,) = yield (y,)
        return Variable(s)


CORRECTED: dict[str, type[DescentRule]] = {"ED": ExactDiffusion, "EXTRA": Extra, "GT": AdaptThenTrack}
