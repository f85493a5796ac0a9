"""Derivatives of the costs of clients that share a graph, at a point: first ones, and products with second ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.problems.torch_graph import PulledBack, changes, gradients, leaf
from hgp_ref.problems.torch_instances import TorchInstances

if TYPE_CHECKING:
    from hgp_ref.problems.torch_module import TorchModuleProblem


class Point:
    """One of the costs at a point, for clients that share a graph."""

    def __init__(self, problem: TorchModuleProblem, name: str, x: Array, lam: Array, data: TorchInstances) -> None:
        self.problem, self.name, self.data = problem, name, data
        self.leaves = {"x": leaf(x), "lam": leaf(lam)}

    def costs(self, x: Array, lam: Array) -> Array:
        return self.problem.costs(self.name, x, lam, self.data)

    def gradients(self, along: tuple[str, ...], *, keep: bool = False) -> list[Array]:
        """Derivatives along each name; `keep` records their own graph."""
        import torch

        with torch.enable_grad():
            costs = self.costs(**self.leaves)
        rows = gradients([costs], [self.leaves[name] for name in along], keep=keep, retain=keep)
        return [self.or_zero(row, name, self.costs, "derivative") for row, name in zip(rows, along, strict=True)]

    def slopes(self, x: Array, lam: Array) -> Array:
        """d_x of the costs at any point, without a graph."""
        import torch

        moved = leaf(x)
        with torch.enable_grad():
            (rows,) = gradients([self.costs(moved, lam.detach())], [moved])
        return torch.zeros_like(moved) if rows is None else rows

    def or_zero(self, rows: Array | None, name: str, value: Callable[..., Array], what: str) -> Array:
        """`rows`; zero if there is no graph, after a look that `value` really does not depend on `name`."""
        import torch

        if rows is not None:
            return rows
        point = {key: a.detach() for key, a in self.leaves.items()}
        question = (self.name, what, name)
        if question not in self.problem._independent:
            if changes(lambda moved: value(**{**point, name: moved}), point[name]):
                raise RuntimeError(
                    f"{self.name}: it changes with {name}, but carries no graph to it (detached, or computed under "
                    f"no_grad, in integers or outside of PyTorch): its {what} would be zero"
                )
            self.problem._independent.add(question)
        return torch.zeros_like(point[name])


class ModuleLinearization(PulledBack):
    """u -> d<d_x g, u>/dx and d<d_x g, u>/dlam through the kept graphs."""

    def __init__(self, problem: TorchModuleProblem, points: list[Point]) -> None:
        self._problem, self._points = problem, points
        self._slopes = [point.gradients(("x",), keep=True)[0] for point in points]

    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        import torch

        arguments.same_kind(x=self._slopes[0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        vectors = u.detach().split([len(slope) for slope in self._slopes])
        parts = []
        for point, slope, vector in zip(self._points, self._slopes, vectors, strict=True):
            with torch.enable_grad():
                product = (slope * vector).sum()
            rows = gradients([product], [point.leaves[name] for name in along], retain=True)
            parts.append(
                [point.or_zero(row, name, point.slopes, "second derivative")
                 for row, name in zip(rows, along, strict=True)]
            )  # fmt: skip
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]
