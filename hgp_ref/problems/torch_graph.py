"""PyTorch's graphs of derivatives, asked so that a graph that was cut off is not taken for a derivative of zero."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

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

    moved = at + 0.5 * (1 + at.abs()) * no_special_direction(at)
    with torch.no_grad():
        here, again, there = (value(a).detach() for a in (at, at.clone(), moved))
    return _same(here, again) and not _same(here, there)


def _same(a: Array, b: Array) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan())


def no_special_direction(like: Array) -> Array:
    """Numbers in [-1, 1] that no problem is likely to know."""
    import torch

    k = torch.arange(like.numel(), dtype=like.dtype, device=like.device).reshape(like.shape)
    return torch.cos(1 + k * k)


class PulledBack(ABC):
    """Second derivatives of g by pulling u back through the kept graph of d_x g.

    A Hessian is symmetric. Some of PyTorch's operations have a wrong second derivative (weight_norm in 2.13), and what
    they give is not: the first product of a problem is looked at by one more.
    """

    _problem: Any

    @abstractmethod
    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        """d<d_x g_i, u_i> along each of "x", "lam" that is asked for."""

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i (the Hessian is symmetric).  # (n, d_x)"""
        return self._looked_at(u, self._pull(("x",), u)[0])

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._pull(("lam",), u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass through the graph."""
        hvp, cross = self._pull(("x", "lam"), u)
        return self._looked_at(u, hvp), cross

    def _looked_at(self, u: Array, bent: Array) -> Array:
        """`bent` = H u, after <H u, v> = <u, H v> was seen to hold for some v, once for each problem."""
        import torch

        if self._problem._symmetric or not bool(bent.any()):
            return bent
        v = no_special_direction(u)
        other = self._pull(("x",), v)[0]
        gap = ((bent * v).sum(1) - (u * other).sum(1)).abs()
        size = bent.norm(dim=1) * v.norm(dim=1) + u.norm(dim=1) * other.norm(dim=1)
        if bool((gap > torch.finfo(u.dtype).eps ** 0.5 * size).any()):
            raise RuntimeError(
                "inner_cost: its second derivative by PyTorch is not symmetric, so an operation in it has a wrong one "
                "(weight_norm has in PyTorch 2.13); needed operations that can be differentiated twice"
            )
        self._problem._symmetric = True
        return bent
