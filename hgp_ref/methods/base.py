"""A method approaches w* = (Σ_i H_i)⁻¹ Σ_i ∂_x f_i by increments p of w, with averages and Hessian-vector products.

The driver (`hgp_ref.methods.driver`) owns what all methods share,

    w ← w + p,    v ← v − J p,

and history, tolerance, divergence, traffic, callback and resuming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hgp_ref.backend import Array
from hgp_ref.mixing import Mixer
from hgp_ref.problems.base import FullLinearization


class Curvature(Protocol):
    """u ↦ H_i u_i at every client."""

    def hvp(self, u: Array) -> Array: ...


class Derivatives(Curvature, Protocol):
    """What a method sees of the problem: products with Hessians on the mini-batch of this iteration, if any."""

    sampled: bool  # whether `hvp` uses mini-batches

    @property
    def full(self) -> Callable[[], FullLinearization]:
        """The linearization on full batches."""
        ...

    @property
    def cache(self) -> dict[Any, Any]:
        """What a method computes once from the linearization on full batches; released with the run."""
        ...

    def hessians(self) -> Array:
        """The explicit H_i on full batches, (n, d, d)."""
        ...


class Start(NamedTuple):
    """What a method knows before its first step. Arrays may have a leading run axis."""

    residual: Array  # ∂_x f_i − H_i w_i at every client, on full batches
    w: Array
    mixer: Mixer
    derivatives: Derivatives
    iterations: int
    previous: Any = None  # the last state of the cycle before, if this is a restart


class Method(ABC):
    """An iteration towards w*. A method holds its settings; what changes during a run is its state.

    A new method implements `init` and `step`. Its state is data, such as a dictionary of arrays and numbers; another
    state cannot be saved or resumed. The driver reads two entries if the state has them:

        residual    ∂_x f_i − H_i w_i as client i sees it; its mean over clients tends to 0. Tolerance and divergence
                    refer to its norm. Without it the driver monitors the increments.
        may_stop    False while a small residual does not mean that the run has converged.

    `mixer.average(u)` makes the next call of the averaging, and `mixer.carry(ubar)` is what the method continues with
    in place of ū (another array only if the averaging conserves sums). A vector that was passed to `hvp` must not be
    changed in place afterwards: the driver may reuse its product with J.

    Examples
    --------
    >>> isinstance(hgp.methods.Neumann(1.0), hgp.methods.Method)
    True
    """

    steady = False  # whether a residual that grows on full batches shows divergence: there are no transients
    progress = 1.0  # a residual that falls by less than this factor in the second half of a run gives a warning
    remedy = ""  # what to do if a run diverges

    @abstractmethod
    def init(self, start: Start) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(self, state: Any, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, Any]:
        """The increment p of w, and the next state."""

    def resume(self, state: Any, start: Start) -> Any:
        """The state with which a run continues another one that ended with `state`; its mixing weights start at 1."""
        return state


def entry(state: Any, name: str, default: Any = None) -> Any:
    """An entry of a state that is a dictionary, an attribute of another one."""
    return state.get(name, default) if isinstance(state, dict) else getattr(state, name, default)
