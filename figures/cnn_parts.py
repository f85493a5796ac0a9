"""What the parts of the influence experiment with a CNN compute; see `figures.cnn`."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.cnn_clients import from_settings
from hgp_ref.attribution import influence, retrain_from
from hgp_ref.attribution.removals import Removal, without
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
    x = from_host(x_host, like=x0)
    found = [_influence(settings, x, damping) for damping in settings["damping"]]
    removals = [((i, k),) for i, k in found[0].most_influential(settings["removals"])] + _groups(settings)
    low, high = _spectrum(problem, x, lam)
    return {
        "removed": _padded(removals),  # (R, longest, 2)
        "predicted": np.array([[sum(one.per_instance[pair] for pair in r) for r in removals] for one in found]),
        "per_instance": found[0].per_instance,
        "low": np.array(low),
        "high": np.array(high),
    }


def more_steps(settings: Settings, x: np.ndarray, removed: np.ndarray, fraction: float = 1.0) -> np.ndarray:
    """Actual changes after M more steps of size η from x."""
    problem, lam, x0, _, _ = from_settings(settings)
    given = {"eta": settings["eta"], "steps": settings["iterations"], "fraction": fraction}
    return retrain_from(problem, from_host(x, like=x0), lam, _removals(removed), **given).actual


def retrain_from_scratch(settings: Settings, removed: np.ndarray) -> np.ndarray:
    """Σ f_k after training without each of the removals."""
    problem, lam, _, _, _ = from_settings(settings)
    x = _sgp(settings, without(lam, _removals(removed))).x  # (R, n, d)
    return np.array([_total(problem, x[r, ...], lam) for r in range(x.shape[0])])


def cost_in_words(settings: Settings, parts: Sequence[str], all_parts: Sequence[str]) -> str:
    """CPU seconds that `parts`, some of `all_parts`, will take, from a few timed steps; a busy machine takes longer."""
    problem, lam, x0, _, _ = from_settings(settings)
    batch = None if settings["batch"] is None else from_host(_some_batch(problem, settings["batch"]), like=lam)
    linearization = problem.linearize(x0, lam, batch)
    full = _seconds(lambda: problem.inner_grad(x0, lam))
    step = full if batch is None else _seconds(lambda: problem.inner_grad(x0, lam, batch))
    products = _seconds(lambda: linearization.products(x0))
    if batch is not None:  # activations are made anew for each batch
        products += step
    M, T, removals = settings["iterations"], settings["train_steps"], settings["removals"] + settings["groups"]
    number = {way: sum(part.startswith(way) for part in parts) for way in ("train", "predict", "continued", "scratch")}
    of_all = {way: number[way] / max(1, sum(p.startswith(way) for p in all_parts)) for way in ("continued", "scratch")}
    total = (
        number["train"] * (T * step + settings["settle_steps"] * full)
        + number["predict"] * (len(settings["damping"]) * M + LANCZOS) * products
    )
    total += (of_all["continued"] * removals + number["continued"]) * M * full + of_all["scratch"] * removals * T * step
    return (
        f"{settings['data']} {settings['side']} × {settings['side']}, {problem.counts.sum()} training images, "
        f"{problem.dim_x} parameters: a gradient takes {step:.2g} CPU s, a Hessian-vector product {products:.2g}; "
        f"{len(parts)} parts to compute, about {total:.0f} CPU s = {total / 3600:.1f} h; each part is kept when done"
    )


def _sgp(settings: Settings, lam: Array) -> Any:
    """Training with lam (n, N) or (R, n, N), always from the same x on the same graphs and batches."""
    problem, _, x0, _, _ = from_settings(settings)
    given = {name: settings[name] for name in ("lr", "milestones", "decay", "seed")}
    given |= {"steps": settings["train_steps"], "batch_size": settings["batch"], "x0": x0}
    return hgp.sgp(problem, _network(settings, settings["seed"]), lam, **given)


def _influence(settings: Settings, x: Array, damping: float) -> Any:
    """HGP with H̄ + δI: an L2 rate that is larger by δ changes the Hessian so, and nothing else that HGP uses."""
    problem, lam, _, _, _ = from_settings(settings)
    damped = copy.copy(problem)
    damped.l2 = problem.l2 + damping
    return influence(
        damped,
        x,
        lam,
        hgp.PushSum(_network(settings, settings["seed"] + 1), settings["steps"]),
        eta=settings["eta"],
        iterations=settings["iterations"],
        batch_size=settings["batch"],
        seed=settings["seed"],
    )


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


def _removals(removed: np.ndarray) -> list[Removal]:
    return [tuple((int(i), int(k)) for i, k in row if i >= 0) for row in removed]


def _some_batch(problem: Any, size: int) -> np.ndarray:
    """The first `size` instances of each client, padded with −1."""
    index = np.arange(size)
    return np.where(index < problem.counts[:, None], index, -1)


def _seconds(call: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the shortest of a few runs, after one that compiles."""
    call()
    spans = []
    for _ in range(times):
        start = time.process_time()
        call()
        spans.append(time.process_time() - start)
    return min(spans)
