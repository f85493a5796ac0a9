"""What changes while the outer loop runs; `loop` holds the parts that do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hgp_ref.backend import Array
from hgp_ref.bilevel.clock import Clock
from hgp_ref.bilevel.path import OuterStep
from hgp_ref.bilevel.updates import State
from hgp_ref.channels import Traffic


@dataclass
class LoopState:
    """Everything that the next step depends on, and what the path will hold."""

    clock: Clock
    state: State  # of the update
    lam: list[Array] = field(default_factory=list)  # λ_0 .. λ_k, or their logarithms
    x: Array = None  # at λ_k
    outer_cost: list[float] = field(default_factory=list)
    floats: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    steps: list[OuterStep] = field(default_factory=list)
    training: Traffic = field(default_factory=Traffic)  # of the last training
    measure: list[float] = field(default_factory=list)
    best: int = 0  # where the measure was lowest, and x there
    best_x: Array = None
    shrink: float = 1.0  # of η, by hyper-gradients that diverged
    refused: int = 0  # steps in a row
    kept: dict[str, Any] = field(default_factory=dict)  # what a kind of loop keeps besides
    stopped: str = ""  # why, once it has
    note: str = ""  # the same at length, where there is more to say

    @property
    def k(self) -> int:
        """Outer steps done."""
        return len(self.lam) - 1
