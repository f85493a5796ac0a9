"""A method: how w* = (Σ H_i)⁻¹ Σ ∂_x f_i is approached with averages and Hessian-vector products.

The driver (`hgp_ref.methods.driver`) owns what all methods share,

    w ← w + p,    v ← v − ∂²_{xλ} g p,

history, growth watch, tolerance, traffic, callback. A method says how the next increment p comes about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from hgp_ref.backend import Array
from hgp_ref.mixing import Mixer


class Curvature(Protocol):
    """What a method sees of the problem: u ↦ ∂²_x g_i u_i of every client, on this iteration's mini-batch if any."""

    def hvp(self, u: Array) -> Array: ...


class Method(ABC):
    """An iteration for w*. Its settings are attributes, its state is whatever `start` and `step` return.

    `mixer.average(u)` makes the next call of the averaging, `mixer.carry(ubar)` is what goes on in place of ū, and
    `mixer.channel` is there for methods that need more than means. Arrays may carry a leading run axis. A vector that
    `hvp` was asked for must not be changed in place afterwards: the driver may have taken ∂²_{xλ} g of it, too.

    Examples
    --------
    >>> isinstance(hgp.methods.Neumann(1.0), hgp.methods.Method)
    True
    """

    transients = True  # whether what is left may grow for a while in a run that converges; if not, growth is divergence
    remedy = ""  # what helps a run that grows, in words
    conserves = False  # whether what is carried on has the mean over clients of ∂_x f − ∂²_x g w at all times

    def for_run(self, iterations: int) -> Method:
        """The method of a run of at most so many iterations: itself, unless that matters.

        Parameters
        ----------
        iterations : M.

        Returns
        -------
        Method.
        """
        return self

    @abstractmethod
    def start(self, g: Array) -> Any:
        """The state before the first step, from g = ∂_x f − ∂²_x g w₀ of every client.

        Parameters
        ----------
        g : (..., n, d_x).

        Returns
        -------
        the state, whatever the method needs.
        """

    def start_from(self, g: Array, w: Array) -> Any:
        """The same where w₀ = w is not 0, for methods that average w itself.

        Parameters
        ----------
        g : (..., n, d_x), ∂_x f − ∂²_x g w.
        w : (..., n, d_x).

        Returns
        -------
        the state.
        """
        return self.start(g)

    def begin(self, state: Any, mixer: Mixer, whole: Callable[[], Curvature]) -> Any:
        """The state with what must be known before the first step; whole() is ∂²_x g on full batches, for all runs.

        Parameters
        ----------
        state : of `start`.
        mixer : averages over the network.
        whole : () → a linearization on full batches.

        Returns
        -------
        the state.
        """
        return state

    def restart(self, state: Any, g: Array, w: Array, mixer: Mixer, whole: Callable[[], Curvature]) -> Any:
        """The state of a new start from w, g = ∂_x f − ∂²_x g w; what `begin` has found in `state` may be kept.

        Parameters
        ----------
        state : of the cycle before.
        g : (..., n, d_x), ∂_x f − ∂²_x g w.
        w : (..., n, d_x), where it starts.
        mixer : averages over the network.
        whole : () → a linearization on full batches.

        Returns
        -------
        the state.
        """
        return self.begin(self.start_from(g, w), mixer, whole)

    def carry(self, state: Any) -> Array | None:
        """What a later run may go on from together with w; None where the method cannot tell.

        Parameters
        ----------
        state : at the end of a run.

        Returns
        -------
        (..., n, d_x) or None.
        """
        return None

    def resume(self, g: Array, w: Array, carried: Array) -> Any:
        """The state of a run that goes on from w with what `carry` gave; g = ∂_x f − ∂²_x g w.

        Parameters
        ----------
        g : (..., n, d_x), ∂_x f − ∂²_x g w.
        w : (..., n, d_x).
        carried : what `carry` gave.

        Returns
        -------
        the state.
        """
        return self.start_from(carried, w)

    def may_end(self, state: Any) -> bool:
        """Whether a tolerance on `residual` may end the run here."""
        return True

    @abstractmethod
    def step(self, state: Any, mixer: Mixer, linearization: Curvature) -> tuple[Array, Any]:
        """The increment p of w, and the next state.

        Parameters
        ----------
        state : of the step before.
        mixer : averages over the network: mixer.average(u).
        linearization : hvp(u) is ∂²_x g u.

        Returns
        -------
        (p, state).
        """

    def residual(self, state: Any) -> Array | None:
        """What is left of ∂_x f − ∂²_x g w, whose mean over clients tends to 0; None to watch increments.

        Parameters
        ----------
        state : after a step.

        Returns
        -------
        (..., n, d_x) or None.
        """
        return None
