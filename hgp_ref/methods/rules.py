"""Rules of decentralized descent: how clients that each see a gradient d_i approach a zero of the mean gradient.

Each variable of a decentralized bilevel method (inner x, auxiliary z, outer λ) moves by one of these. W is the mixing
of one round, α the step, all starts are at s⁰ and gradients are taken at the current point:

    consensus   s ← W s − α d                                          a bias of order α where clients differ
    diffusion   s ← W (s − α d)                                        likewise
    tracking    s ← W s − α t,  t ← W t + d⁺ − d,  t⁰ = d⁰             exact; two vectors a round
    ED          s^{k+2} = W (2s^{k+1} − s^k − α (d^{k+1} − d^k))       exact; s¹ = W (s⁰ − α d⁰)
    EXTRA       s^{k+2} = 2W s^{k+1} − W s^k − α (d^{k+1} − d^k)       exact; s¹ = W s⁰ − α d⁰
    GT          s ← W (s − α y),  y ← W (y + d⁺ − d),  y⁰ = W d⁰       exact; two rounds of one vector,
                i.e. s^{k+2} = 2W s^{k+1} − W² s^k − α W² (d^{k+1} − d^k)

What exact means: at a point where s does not move any more all clients agree and Σ_i d_i = 0. For "tracking", the sum
over clients of t − d is conserved at 0; for ED and EXTRA the sum of s^{k+1} − s^k + α d^k is, from the first step on.
In ED and EXTRA W stands for the lazy matrix (I + W)/2, which a client makes by itself; without it W must have no
eigenvalue near −1. "tracking" pushes t and pulls s, so that it also works over directed graphs (see `averaging.talks`);
all others need doubly stochastic W. A damping η in "tracking" gives s ← (1 − η) s + η (W s − α t).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.averaging.talks import Pushed, Talk
from hgp_ref.backend import Array
from hgp_ref.channels import BALANCED

Gradient = Callable[[Array], Array]


@dataclass(frozen=True)
class Moving:
    """A variable of every client, (n, d), and what its rule remembers beside it."""

    s: Array
    memory: Any = None


class Rule(ABC):
    """One iteration as a talk (see `averaging.talks`): `yield from`, or given to `exchange`."""

    directed = False  # whether it also works where matrices are only column-stochastic

    def __init__(self, step: float) -> None:
        self.step = arguments.positive("step", step)

    @abstractmethod
    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        """From one state to the next; gradient(s) is d at s, of every client."""

    def projected(self, moving: Moving, s: Array) -> Moving:
        """The state at s, the projection of what it was at."""
        return Moving(s, moving.memory)


class Consensus(Rule):
    """s ← W s − α d."""

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        d = gradient(moving.s)
        (mixed,) = yield (moving.s,)
        return Moving(mixed - self.step * d)


class Diffusion(Rule):
    """s ← W (s − α d)."""

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        (mixed,) = yield (moving.s - self.step * gradient(moving.s),)
        return Moving(mixed)


class Tracked(Rule):
    """s ← (1 − η) s + η (W s − α t),  t ← W t + d⁺ − d."""

    directed = True

    def __init__(self, step: float, damping: float = 1.0) -> None:
        super().__init__(step)
        self.damping = arguments.between("damping", damping, 0, 1)

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        d = gradient(moving.s)
        t = followed(moving.memory, d)
        mixed, mixed_t = yield moving.s, Pushed(t)
        s = mixed - self.step * t
        return Moving(s if self.damping == 1 else moving.s + self.damping * (s - moving.s), (mixed_t, d))


class Lazy(Rule):
    """Rules whose W is (I + W)/2 unless `lazy` is False."""

    def __init__(self, step: float, lazy: bool = True) -> None:
        super().__init__(step)
        self.lazy = arguments.boolean("lazy", lazy)

    def mixed(self, own: Array) -> Talk:
        (mixed,) = yield (own,)
        return 0.5 * (own + mixed) if self.lazy else mixed


class ExactDiffusion(Lazy):
    """ψ⁺ = s − α d,  s ← W (ψ⁺ + s − ψ),  ψ⁰ = s⁰.

    With a projection, s ← Π y, y ← W (ψ⁺ + y − ψ): what it takes away stays in y − ψ.
    """

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        psi = moving.s - self.step * gradient(moving.s)
        s = yield from self.mixed(psi if moving.memory is None else psi + (moving.s - moving.memory))
        return Moving(s, psi)

    def projected(self, moving: Moving, s: Array) -> Moving:
        return Moving(s, None if moving.memory is None else moving.memory + (s - moving.s))


class Extra(Lazy):
    """With m = W s and e = α d:  s ← 2m − m₋ − (e − e₋), where m₋ and e₋ are those of the step before.

    With a projection, s ← Π y, y ← 2m − s + y − m₋ − (e − e₋).
    """

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        e = self.step * gradient(moving.s)
        m = yield from self.mixed(moving.s)
        s = m - e if moving.memory is None else m + (m - moving.memory[0]) - (e - moving.memory[1])
        return Moving(s, (m, e))

    def projected(self, moving: Moving, s: Array) -> Moving:
        return Moving(s, None if moving.memory is None else (moving.memory[0] + (s - moving.s), moving.memory[1]))


class AdaptThenTrack(Rule):
    """y ← W (y + d⁺ − d), then s ← W (s − α y): two rounds."""

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        d = gradient(moving.s)
        (y,) = yield (followed(moving.memory, d),)
        (s,) = yield (moving.s - self.step * y,)
        return Moving(s, (y, d))


RULES: dict[str, Callable[[float], Rule]] = {
    "consensus": Consensus,
    "diffusion": Diffusion,
    "tracking": Tracked,
    "ED": ExactDiffusion,
    "EXTRA": Extra,
    "GT": AdaptThenTrack,
}


class Svrg(Rule):
    """Local steps corrected to the mean gradient, then a mean: with y⁰ = s and d̄ = W d(s), τ times
    y ← y − α (d(y) − d(s) + d̄), then s ← W y: two rounds. W is the exact mean (FedInn and FedOut of FedNest)."""

    def __init__(self, step: float, local_steps: int = 1) -> None:
        super().__init__(step)
        self.local_steps = arguments.integer("local_steps", local_steps, 1, arguments.LONGEST)

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        d = gradient(moving.s)
        (mean,) = yield (d,)
        y = moving.s - self.step * mean
        for _ in range(self.local_steps - 1):
            y = y - self.step * (gradient(y) - d + mean)
        (s,) = yield (y,)
        return Moving(s)


def follow(memory: Any, d: Array) -> Talk:
    """t ← W t + d⁺ − d by itself, t⁰ = d⁰: from what was remembered to what is, `followed` reads it."""
    (mixed,) = yield (Pushed(followed(memory, d)),)
    return mixed, d


def followed(memory: Any, d: Array) -> Array:
    """t where the direction is d now: what was mixed, plus what d has changed by since."""
    return d if memory is None else memory[0] + (d - memory[1])


def require_balanced(what: str, average: Mean) -> None:
    """ValueError unless the averaging takes doubly stochastic matrices, on which `what` rests."""
    for averaging in average.averagings:
        if averaging.weights is not BALANCED:
            raise ValueError(
                f"avg: {averaging!r} given, but {what} rests on doubly stochastic matrices, which directed graphs do "
                "not have; needed Gossip(net, steps) over a network that has them, such as StaticUndirected"
            )


def read_rule(name: str, rule: object, step: float) -> Rule:
    """The rule called `rule`, with its step."""
    return RULES[arguments.choice(name, rule, RULES)](step)
