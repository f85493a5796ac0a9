"""PyTorch's graphs of derivatives, asked so that a graph that was cut off is not taken for a derivative of zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from hgp_ref.backend import Array


def require_recording(name: str) -> None:
    """RuntimeError where PyTorch records nothing, so that every derivative of the cost `name` would be zero."""
    import torch

    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{name}: its derivatives are needed, but torch.inference_mode() is on, in which PyTorch records no "
            "graph and every derivative would be zero; needed a call outside of it (torch.no_grad() is fine)"
        )


def leaf(a: Array) -> Array:
    """A copy of `a` from which graphs start."""
    return a.detach().clone().requires_grad_(True)


def gradients(costs: Sequence[Array], inputs: Sequence[Array], *, keep: bool = False,
              retain: bool = False) -> list[Array | None]:  # fmt: skip
    """Derivatives of the sum of `costs`, None where no graph leads from it to an input.

    keep: record the graph of the derivatives; retain: leave that of the costs for further use.
    """
    import torch

    alive = [cost for cost in costs if cost.requires_grad]
    if not alive:
        return [None] * len(inputs)
    ones = [torch.ones_like(cost) for cost in alive]
    return list(torch.autograd.grad(alive, inputs, ones, create_graph=keep, retain_graph=retain, allow_unused=True))


def changes(value: Callable[[Array], Array], at: Array) -> bool:
    """Whether `value` depends on its argument; one that is different each time it is asked tells nothing."""
    import torch

    k = torch.arange(at.numel(), dtype=at.dtype, device=at.device).reshape(at.shape)
    moved = at + 0.5 * (1 + at.abs()) * torch.cos(1 + k * k)  # no direction is special
    with torch.no_grad():
        here, again, there = (value(a).detach() for a in (at, at.clone(), moved))
    return _same(here, again) and not _same(here, there)


def _same(a: Array, b: Array) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan())


class PulledBack(ABC):
    """Second derivatives of g by pulling u back through the kept graph of d_x g."""

    @abstractmethod
    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        """d<d_x g_i, u_i> along each of "x", "lam" that is asked for."""

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i (the Hessian is symmetric).  # (n, d_x)"""
        return self._pull(("x",), u)[0]

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._pull(("lam",), u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass through the graph."""
        hvp, cross = self._pull(("x", "lam"), u)
        return hvp, cross
