"""A method approaches w* = (Σ_i H_i)⁻¹ Σ_i ∂_x f_i by increments p of w, with averages and Hessian-vector products.

The driver (`hgp_ref.methods.driver`) owns what all methods share,

    w ← w + p,    v ← v − J p,

and history, tolerance, divergence, traffic and callback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hgp_ref.backend import Array
from hgp_ref.mixing import Mixer


class Curvature(Protocol):
    """What a method sees of the problem: u ↦ H_i u_i at every client, on this iteration's mini-batch if any."""

    def hvp(self, u: Array) -> Array: ...


class Start(NamedTuple):
    """What a method knows before its first step. Arrays may have a leading run axis."""

    residual: Array  # ∂_x f_i − H_i w_i at every client; in a resumed run, what the earlier run had left
    w: Array
    exact_residual: Array  # ∂_x f_i − H_i w_i, also in a resumed run
    mixer: Mixer
    derivatives: Callable[[], Curvature]  # on full batches, even if the steps use mini-batches
    iterations: int
    previous: Any = None  # the last state of the cycle before, if this is a restart


class Method(ABC):
    """An iteration towards w*. A method holds its settings; what changes during a run is its state.

    A new method implements `init` and `step`; with `residual` a tolerance applies to it.

    `mixer.average(u)` makes the next call of the averaging, and `mixer.carry(ubar)` is what the method continues with
    in place of ū (another array only if the averaging conserves sums). A vector that was passed to `hvp` must not be
    changed in place afterwards: the driver may reuse its product with J.

    Examples
    --------
    >>> isinstance(hgp.methods.Neumann(1.0), hgp.methods.Method)
    True
    """

    transients = True  # whether the residual may grow for a while in a run that converges; if not, growth is divergence
    remedy = ""  # advice in the error message of a run that diverges
    conserves = False  # whether the mean over clients of the residual is mean_i(∂_x f_i − H_i w_i) at all times

    @abstractmethod
    def init(self, start: Start) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(self, state: Any, mixer: Mixer, derivatives: Curvature) -> tuple[Array, Any]:
        """The increment p of w, and the next state."""

    def residual(self, state: Any) -> Array | None:
        """Each client's residual ∂_x f_i − H_i w_i, whose mean over clients tends to 0.

        A tolerance is compared with its norm. None: the driver monitors the increments instead.
        """
        return None

    def carry(self, state: Any) -> Array | None:
        """The residual from which a later run can continue together with w; None if the method cannot be resumed."""
        return None

    def may_end(self, state: Any) -> bool:
        """Whether a tolerance may end the run in this state."""
        return True
