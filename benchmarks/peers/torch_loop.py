"""Hyper-Gradient Push as one would write it in PyTorch: clients in a loop, autograd twice, messages one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

Graph = Callable[[int], list[list[int]]]  # receivers of every sender at a step, itself included


class Client:
    """One client's data and its costs g and f."""

    def __init__(self, X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray) -> None:
        as_tensor = torch.from_numpy
        self.X, self.y = as_tensor(X), as_tensor(y.astype(X.dtype))
        self.X_val, self.y_val = as_tensor(X_val), as_tensor(y_val.astype(X.dtype))

    def inner(self, x: torch.Tensor, lam: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(self.X @ x, self.y) + 0.5 * (lam * x * x).sum()

    def outer(self, x: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(self.X_val @ x, self.y_val)

    def second(self, x: torch.Tensor, lam: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """∂²_x g u and ∂²_{xλ} g u by differentiating the gradient again."""
        x, lam = x.detach().requires_grad_(), lam.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.inner(x, lam), x, create_graph=True)
        return torch.autograd.grad(gradient @ u, (x, lam))


def push_sum(values: list[torch.Tensor], graph: Graph, first: int, steps: int) -> list[torch.Tensor]:
    """Algorithm 1, message by message."""
    n = len(values)
    weights = [1.0] * n
    for s in range(first, first + steps):
        receivers = graph(s)
        inbox = [torch.zeros_like(values[0]) for _ in range(n)]
        arrived = [0.0] * n
        for j in range(n):
            for i in receivers[j]:
                inbox[i] += values[j] / len(receivers[j])
                arrived[i] += weights[j] / len(receivers[j])
        values, weights = inbox, arrived
    return [value / weight for value, weight in zip(values, weights, strict=True)]


def hypergradient(
    clients: list[Client], x: np.ndarray, lam: np.ndarray, graph: Graph, steps: int, iterations: int, eta: float = 1.0
) -> np.ndarray:
    """Algorithm 2; v of every client."""
    points, rates = list(torch.from_numpy(x)), list(torch.from_numpy(lam))
    u = []
    for client, point in zip(clients, points, strict=True):
        leaf = point.detach().requires_grad_()
        u.append(torch.autograd.grad(client.outer(leaf), leaf)[0])
    v = [torch.zeros_like(rate) for rate in rates]
    for m in range(iterations):
        u = push_sum(u, graph, m * steps + 1, steps)
        for i, client in enumerate(clients):
            curved, mixed = client.second(points[i], rates[i], u[i])
            v[i] = v[i] - eta * mixed
            u[i] = u[i] - eta * curved
    return torch.stack(v).numpy()


def sampled_graphs(n: int, seed: int, low: float = 0.4, high: float = 0.8) -> Graph:
    """Random directed graphs as NumPy draws them, one step at a time."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(low, high, (n, n))

    def graph(_: int) -> list[list[int]]:
        adjacency = rng.random((n, n)) < rates
        np.fill_diagonal(adjacency, True)
        return [np.flatnonzero(adjacency[:, j]).tolist() for j in range(n)]

    return graph
