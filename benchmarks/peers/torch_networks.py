"""Gradients and second derivatives of a masked network, as written in PyTorch: a loop over clients, or vmap.

g_i = CE(C softmax(λ_i) ∘ z(x_i), y_i),  mean over the client's mini-batch
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

Arrays = list[torch.Tensor]


def personalization_network(classes: int) -> nn.Sequential:
    """The paper's network as PyTorch modules."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, classes),
    )  # fmt: skip


class Clients:
    """n clients with parameters of their own, as PyTorch's tensors in their natural shapes."""

    def __init__(self, x: np.ndarray, lam: np.ndarray, X: np.ndarray, y: np.ndarray, u: np.ndarray) -> None:
        self.net, self.classes = personalization_network(lam.shape[1]), lam.shape[1]
        self.names, self.shapes = zip(*((k, p.shape) for k, p in self.net.named_parameters()), strict=True)
        self.points, self.directions = ([self.tensors(row) for row in a] for a in (x, u))
        self.lam, self.X, self.y = torch.from_numpy(lam), torch.from_numpy(X), torch.from_numpy(y)

    def tensors(self, row: np.ndarray) -> Arrays:
        """A row of parameters as separate tensors that require gradients."""
        parts = torch.split(torch.from_numpy(row.copy()), [shape.numel() for shape in self.shapes])
        return [part.reshape(shape).clone().requires_grad_() for part, shape in zip(parts, self.shapes, strict=True)]

    def cost(self, point: Arrays, lam: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = functional_call(self.net, dict(zip(self.names, point, strict=True)), (X,))
        return functional.cross_entropy(self.classes * torch.softmax(lam, 0) * z, y)

    def gradient(self) -> list[Arrays]:
        """One client after the other."""
        return [torch.autograd.grad(self.cost(p, *self._of(i)), p) for i, p in enumerate(self.points)]

    def graphs(self) -> list[Arrays]:
        """Gradients that can be differentiated again, also along λ."""
        self.leaves = [lam.clone().requires_grad_() for lam in self.lam]
        return [
            torch.autograd.grad(self.cost(p, self.leaves[i], self.X[i], self.y[i]), p, create_graph=True)
            for i, p in enumerate(self.points)
        ]

    def second(self, graphs: list[Arrays], keep: bool, cross: bool) -> list[Arrays]:
        """∂²_x g u of every client, and ∂²_{xλ} g u if `cross`."""
        return [
            torch.autograd.grad(g, [*p, *([lam] if cross else [])], u, retain_graph=keep)
            for g, p, lam, u in zip(graphs, self.points, self.leaves, self.directions, strict=True)
        ]

    def by_vmap(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """Gradient and Hessian-vector product of all clients by one call of torch.func's vmap."""
        stack = [torch.stack([p[k].detach() for p in self.points]) for k in range(len(self.shapes))]
        along = [torch.stack([u[k].detach() for u in self.directions]) for k in range(len(self.shapes))]
        gradient = torch.func.grad(self.cost)

        def hvp(point: Arrays, u: Arrays, *data: torch.Tensor) -> object:
            return torch.func.jvp(lambda p: gradient(p, *data), (point,), (u,))[1]

        data = (self.lam, self.X, self.y)
        return (
            lambda: torch.func.vmap(gradient)(stack, *data),
            lambda: torch.func.vmap(hvp)(stack, along, *data),
        )

    def _of(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.lam[i], self.X[i], self.y[i]
