"""The three neural problems and a user's problem, on small networks and clients of unequal size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import neural
from hgp_ref.problems import NeuralCost, NeuralInstanceWeights, NeuralProblem, PersonalMask, PersonalMixture

COUNTS, VAL_COUNTS, CLASSES = (5, 8, 5), (4, 1, 3), 3
KINDS = ["weights", "mask", "mask on validation", "mask without scale", "mixture", "temperature"]


class Temperature(NeuralCost):
    """l = CE(exp(λ_i) z, y): a temperature for each client, learnt. With a = exp(λ) z, ȧ = exp(λ) ż and p = CE'(a):

    ∂l/∂z = exp(λ) p,   ∂l/∂λ = <a, p>,   its derivative along ż: <ȧ, p> + <a, CE''(a) ȧ>.
    """

    def value(self, z, lam, view, xp):
        return self.loss.value(xp.exp(lam)[:, :, None] * z, view.targets, xp=xp)

    def slope(self, z, lam, view, xp):
        s = xp.exp(lam)[:, :, None]
        return s * self.loss.slope(s * z, view.targets, xp=xp)

    def curvature(self, z, lam, view, z_dot, xp):
        s = xp.exp(lam)[:, :, None]
        return s * self.softmax_curvature(s * z, s * z_dot, xp)

    def along_lam(self, z, lam, view, xp):
        a = xp.exp(lam)[:, :, None] * z
        each = xp.sum(a * self.loss.slope(a, view.targets, xp=xp), axis=-1)
        return xp.sum(view.mean * each, axis=-1, keepdims=True)

    def cross(self, z, lam, view, z_dot, xp):
        a, a_dot = xp.exp(lam)[:, :, None] * z, xp.exp(lam)[:, :, None] * z_dot
        p = self.loss.slope(a, view.targets, xp=xp)
        each = xp.sum(a_dot * p + a * self.softmax_curvature(a, a_dot, xp), axis=-1)
        return xp.sum(view.mean * each, axis=-1, keepdims=True)


def network(smooth: bool) -> neural.Sequential:
    act, pool = (neural.Tanh, neural.AvgPool2d) if smooth else (neural.ReLU, neural.MaxPool2d)
    return neural.Sequential((1, 6, 5), neural.Conv2d(1, 2, 2), act(), pool(2), neural.Flatten(),
                             neural.Linear(8, 4), act(), neural.Linear(4, CLASSES))  # fmt: skip


@dataclass(frozen=True)
class Case:
    problem: Any
    x: np.ndarray
    lam: np.ndarray
    u: np.ndarray
    batch: np.ndarray  # (n, 4): repeated entries, padding at the end and between


def instances(rng, counts, dtype="float64"):
    X = [rng.standard_normal((k, 1, 6, 5)).astype(dtype) for k in counts]
    return X, [rng.integers(0, CLASSES, k) for k in counts]


def build(kind, model, arrays):
    """The problem called `kind` of (X, y, X_val, y_val)."""
    if kind == "weights":
        return NeuralInstanceWeights(model, *arrays, l2=0.1)
    if kind == "mask on validation":
        return PersonalMask(model, *arrays, l2=0.1, outer_l2=0.2)
    if kind.startswith("mask"):
        return PersonalMask(model, *arrays[:2], l2=0.1, outer_l2=0.2, scale=1.0 if "without" in kind else None)
    if kind == "mixture":
        return PersonalMixture(model, *arrays[:2], components=2, l2=0.1, outer_l2=0.2)
    return NeuralProblem(model, Temperature(CLASSES, 1), *arrays, l2=0.1, outer_l2=0.2)


def make(kind, smooth=True, seed=0, dtype="float64", counts=COUNTS, val_counts=VAL_COUNTS):
    rng = np.random.default_rng(seed)
    arrays = (*instances(rng, counts, dtype), *instances(rng, val_counts, dtype))
    problem = build(kind, network(smooth), arrays)
    n = len(counts)
    x = (problem.model.init(n, seed, same_for_all=False) + 0.3 * rng.standard_normal((n, problem.dim_x))).astype(dtype)
    lam, u = rng.uniform(0.2, 1.5, (n, problem.dim_lam)).astype(dtype), rng.standard_normal(x.shape).astype(dtype)
    batch = np.array([[0, 0, c - 1, -1] if i != 1 else [c // 2, -1, 0, -1] for i, c in enumerate(counts)])
    return Case(problem, x, lam, u, batch)


def methods(problem, x, lam, u, batch):
    """Everything that a problem computes."""
    lin = problem.linearize(x, lam, batch)
    along_x, along_lam = problem.outer_grad(x, lam)
    return [problem.inner_cost(x, lam, batch), problem.inner_grad(x, lam, batch), problem.outer_cost(x, lam), along_x,
            along_lam, lin.hvp(u), lin.cross(u), *lin.products(u), problem.accuracy(x, lam)]  # fmt: skip
