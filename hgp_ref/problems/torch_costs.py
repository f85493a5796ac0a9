"""Costs on torch tensors as a problem: gradients by backward, second derivatives by double backward.

A tensor that carries no graph to x has derivative zero for PyTorch, whether it does not depend on x or was detached on
the way. The two are told apart by asking: a cost that changes when x does has been cut off, which is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.problems.adapters import Adapter
from hgp_ref.problems.torch_graph import PulledBack, changes, gradients, leaf, require_recording

Rows = list[Array]


class TorchProblem(Adapter):
    """Costs on torch tensors; see `adapters` for their form."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._symmetric = False  # whether a second derivative was seen to be
        self._independent: set[tuple[str, str, str, int]] = set()  # what has been asked for and depends on nothing

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        import torch

        self._check(x, lam)
        rows = self._rows(batch, x)
        with torch.no_grad():
            return torch.stack([self._inner_of(i, x[i], lam[i], rows[i]) for i in range(self.n_clients)])

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        import torch

        self._check(x, lam)
        with torch.no_grad():
            return torch.stack([self._outer_of(i, x[i], lam[i]) for i in range(self.n_clients)])

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        import torch

        self._check(x, lam)
        return torch.stack(_Differentiation(self, "inner_cost", x, lam, self._rows(batch, x)).gradients(("x",)))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        import torch

        self._check(x, lam)
        both = _Differentiation(self, "outer_cost", x, lam, None).gradients(("x", "lam"))
        return torch.stack(both[: self.n_clients]), torch.stack(both[self.n_clients :])

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> TorchLinearization:
        """The gradient with its graph, differentiated once more for each vector."""
        self._check(x, lam)
        return TorchLinearization(_Differentiation(self, "inner_cost", x, lam, self._rows(batch, x)))


class _Differentiation:
    """One of the costs at a point whose rows are leaves of their own, so that each client's graph can be looked at."""

    def __init__(self, problem: TorchProblem, name: str, x: Array, lam: Array, rows: list[Array | None] | None) -> None:
        require_recording(name)
        self.problem, self.name, self.rows = problem, name, rows
        self.leaves = {"x": _leaves(x), "lam": _leaves(lam)}

    def cost(self, i: int, x: Array, lam: Array) -> Array:
        if self.rows is None:
            return self.problem._outer_of(i, x, lam)
        return self.problem._inner_of(i, x, lam, self.rows[i])

    def gradients(self, along: tuple[str, ...], *, keep: bool = False) -> Rows:
        """Derivatives of every client's cost along each name, one after the other; `keep` records their own graph."""
        import torch

        clients = range(self.problem.n_clients)
        with torch.enable_grad():
            costs = [self.cost(i, self.leaves["x"][i], self.leaves["lam"][i]) for i in clients]
        rows = gradients(costs, [row for name in along for row in self.leaves[name]], keep=keep, retain=keep)
        slots = [(name, i) for name in along for i in clients]
        return [
            self._zero(name, i, self.cost, "its derivative") if row is None else row
            for (name, i), row in zip(slots, rows, strict=True)
        ]

    def slope(self, i: int, x: Array, lam: Array) -> Array:
        """d_x of client i's cost at any point, without a graph."""
        import torch

        moved = leaf(x)
        with torch.enable_grad():
            (row,) = gradients([self.cost(i, moved, lam.detach())], [moved])
        return torch.zeros_like(moved) if row is None else row

    def _zero(self, name: str, i: int, value: Callable[..., Array], what: str) -> Array:
        """Zero, after a look that `value` of client i really does not depend on `name`."""
        import torch

        point = {key: rows[i].detach() for key, rows in self.leaves.items()}
        question = (self.name, what, name, i)
        if question in self.problem._independent:
            return torch.zeros_like(point[name])
        if changes(lambda moved: value(i, **{**point, name: moved}), point[name]):
            raise RuntimeError(
                f"{self.name}: client {int(self.problem.clients[i])}'s cost changes with {name}, but carries no graph "
                f"to it (detached, or computed under no_grad, in integers or outside of PyTorch): {what} would be zero"
            )
        self.problem._independent.add(question)
        return torch.zeros_like(point[name])


class TorchLinearization(PulledBack):
    """u -> d<d_x g, u>/dx and d<d_x g, u>/dlam through the kept graph."""

    def __init__(self, point: _Differentiation) -> None:
        self._point, self._problem = point, point.problem
        self._slopes = point.gradients(("x",), keep=True)

    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        import torch

        arguments.same_kind(x=self._point.leaves["x"][0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        with torch.enable_grad():
            products = [(slope * row).sum() for slope, row in zip(self._slopes, u.detach(), strict=True)]
        rows = gradients(products, [row for name in along for row in self._point.leaves[name]], retain=True)
        n = self._problem.n_clients
        return [torch.stack([self._row(name, i, rows[k * n + i]) for i in range(n)]) for k, name in enumerate(along)]

    def _row(self, name: str, i: int, row: Array | None) -> Array:
        return self._point._zero(name, i, self._point.slope, "its second derivative") if row is None else row


def _leaves(a: Array) -> Rows:
    return [leaf(row) for row in a]
