"""What the parts of the influence experiment with a CNN compute; see `figures.cnn`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.cnn_clients import from_settings
from hgp_ref.attribution import influence, retrain_from
from hgp_ref.attribution.retraining import Removal, without
from hgp_ref.backend import Array, array_namespace, from_host, to_host
from hgp_ref.methods.spectrum import extremes, start_rows
from reporting.store import Arrays

Settings = Mapping[str, Any]
LANCZOS = 60  # products with H̄ for its extreme eigenvalues
MOMENTUM = 0.9  # μ


def train(settings: Settings) -> Arrays:
    """The trained x, and what tells how well it is trained."""
    problem, lam, _, test, _ = from_settings(settings)
    fit = _sgp(settings, lam)
    x, xp = _settle(settings, problem, fit.x, lam), array_namespace(lam)
    return {
        "x": to_host(x),
        "cost_sgp": _total(problem, fit.x, lam),
        "accuracy": to_host(problem.accuracy(x, lam, *test)),  # (n,), of each client's test images
        "inner_cost": to_host(problem.inner_cost(x, lam)),
        "gradient_sgp": np.array(fit.grad_norm),
        "gradient": to_host(xp.linalg.vector_norm(xp.mean(problem.inner_grad(x, lam), axis=0))),
        "gap": np.array(fit.consensus_gap),
    }


def _settle(settings: Settings, problem: Any, x: Array, lam: Array) -> Array:
    """Nesterov's method on ḡ, the mean of all g_i, from the mean of x: z = x + μ (x − x⁻), x⁺ = z − η ∂ḡ(z)."""
    xp, eta = array_namespace(x), settings["eta"]
    x = before = xp.zeros_like(x) + xp.mean(x, axis=0)
    for _ in range(settings["settle_steps"]):
        z = x + MOMENTUM * (x - before)
        x, before = z - eta * xp.mean(problem.inner_grad(z, lam), axis=0), x
    return x


def predict(settings: Settings, x_host: np.ndarray) -> Arrays:
    """HGP's predictions for every damping δ, of the most influential instances (as found without) and of groups."""
    problem, lam, x0, _, _ = from_settings(settings)
    influences = [predict_with(settings, x_host, damping) for damping in settings["damping"]]
    removals = [((i, k),) for i, k in influences[0].most_influential(settings["removals"])] + _groups(settings)
    low, high = _spectrum(problem, from_host(x_host, like=x0), lam)
    return {
        "removed": _padded(removals),  # (R, longest, 2)
        "predicted": np.array([[sum(one.per_instance[pair] for pair in r) for r in removals] for one in influences]),
        "per_instance": influences[0].per_instance,
        "low": np.array(low),
        "high": np.array(high),
    }


def continued(settings: Settings, x: np.ndarray, removed: np.ndarray, fraction: float = 1.0) -> np.ndarray:
    """Actual changes after M more steps of size η from x."""
    problem, lam, x0, _, _ = from_settings(settings)
    given = {"eta": settings["eta"], "steps": settings["iterations"], "fraction": fraction}
    return retrain_from(problem, from_host(x, like=x0), lam, removals_of(removed), **given).actual


def retrain_from_scratch(settings: Settings, removed: np.ndarray) -> np.ndarray:
    """Σ f_k after training without each of the removals."""
    problem, lam, _, _, _ = from_settings(settings)
    x = _sgp(settings, without(lam, removals_of(removed))).x  # (R, n, d)
    return np.array([_total(problem, x[r, ...], lam) for r in range(x.shape[0])])


def _sgp(settings: Settings, lam: Array) -> Any:
    """Training with lam (n, N) or (R, n, N), always from the same x on the same graphs and batches."""
    problem, _, x0, _, _ = from_settings(settings)
    batches = hgp.MiniBatches(settings["batch"], seed=settings["seed"])
    method = hgp.training.SGP(settings["train_steps"], settings["lr"], settings["milestones"], decay=settings["decay"],
                              batches=batches)  # fmt: skip
    return hgp.train(problem, lam, _network(settings, settings["seed"]), method, x0=x0)


def predict_with(settings: Settings, x_host: np.ndarray, damping: float = 0.0, **choices: Any) -> Any:
    """HGP with H̄ + δI: an L2 rate that is larger by δ changes the Hessian so, and nothing else that HGP uses.

    choices: of `MiniBatches`, in place of what the settings say.
    """
    problem, lam, x0, _, _ = from_settings(settings)
    damped = copy.copy(problem)
    damped.l2 = problem.l2 + damping
    chosen = {"size": settings["batch"], "seed": settings["seed"], **choices}
    batches = None if chosen["size"] is None else hgp.MiniBatches(**chosen)
    return influence(damped, from_host(x_host, like=x0), lam, averaging(settings), eta=settings["eta"],
                     iterations=settings["iterations"], batches=batches)  # fmt: skip


def averaging(settings: Settings) -> Any:
    """Push-Sum over graphs of HGP's own."""
    return hgp.PushSum(_network(settings, settings["seed"] + 1), settings["steps"])


def _groups(settings: Settings) -> list[Removal]:
    """Instances of one client with one label, as many as `group_size`: which ones, and of which cells, at random."""
    labels = from_settings(settings)[-1]
    rng = np.random.default_rng([settings["seed"], 3])
    cells = [(i, np.flatnonzero(y == c)) for i, y in enumerate(labels) for c in range(10)]
    large = [(i, members) for i, members in cells if members.size >= settings["group_size"]]
    if len(large) < settings["groups"]:
        raise ValueError(f"groups={settings['groups']} given, there are {len(large)} with enough instances of a label")
    drawn = [large[j] for j in rng.permutation(len(large))[: settings["groups"]]]
    return [
        tuple((i, int(k)) for k in np.sort(rng.permutation(members)[: settings["group_size"]])) for i, members in drawn
    ]


def _spectrum(problem: Any, x: Array, lam: Array) -> tuple[float, float]:
    """Extreme eigenvalues of the mean Hessian, full batch, by Lanczos: from inside."""
    xp, linearization = array_namespace(x), problem.linearize(x, lam)

    def mean_product(u: Array) -> Array:  # (1, d)
        return xp.mean(linearization.hvp(xp.broadcast_to(u, tuple(x.shape)) + xp.zeros_like(x)), axis=0)[None, :]

    low, high = extremes(mean_product, start_rows(x[:1, :]), LANCZOS)
    return float(low[0]), float(high[0])


def _network(settings: Settings, seed: int) -> Any:
    return hgp.networks.RandomDirected(settings["n"], settings["low"], settings["high"], seed=seed)


def _total(problem: Any, x: Array, lam: Array) -> np.ndarray:
    return np.array(np.sum(to_host(problem.outer_cost(x, lam)), dtype=np.float64))


def _padded(removals: Sequence[Removal]) -> np.ndarray:
    """Removals of different lengths as one array; −1 behind the shorter ones."""
    array = np.full((len(removals), max(map(len, removals)), 2), -1)
    for row, removal in zip(array, removals, strict=True):
        row[: len(removal)] = removal
    return array


def removals_of(removed: np.ndarray) -> list[Removal]:
    """The inverse of `_padded`."""
    return [tuple((int(i), int(k)) for i, k in row if i >= 0) for row in removed]
