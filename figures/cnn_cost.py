"""What the influence experiment with a CNN will cost, from a few timed steps, before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from figures.cnn_clients import from_settings
from figures.cnn_parts import LANCZOS, Settings
from hgp_ref.backend import from_host


def cost_in_words(settings: Settings, parts: Sequence[str], all_parts: Sequence[str]) -> str:
    """CPU seconds that `parts`, some of `all_parts`, will take; a busy machine takes longer."""
    problem = from_settings(settings)[0]
    full, full_products, step, products = _timed(settings)
    M, T, removals = settings["iterations"], settings["train_steps"], settings["removals"] + settings["groups"]
    of_all = {kind: number(parts, kind) / number(all_parts, kind) for kind in map(kind_of, all_parts)}
    # Each part of steps from x has a run with all data beside its removals, and one more gradient where it is held.
    runs = {kind: removals + (1 + (kind == "held")) * number(all_parts, kind) for kind in of_all}
    seconds = {kind: runs[kind] * M * (full if kind == "continued" else step) for kind in of_all} | {
        "train": T * step + settings["settle_steps"] * full,
        "predict": len(settings["damping"]) * M * products + LANCZOS * full_products,
        "repeat": (2 * settings["repeats"] + 1) * M * products + 2 * M * full_products,
        "scratch": removals * T * step,
    }
    total = sum(share * seconds[kind] for kind, share in of_all.items())
    return (
        f"{settings['data']} {settings['side']} × {settings['side']}, {problem.counts.sum()} training images, "
        f"{problem.dim_x} parameters: a gradient takes {step:.2g} CPU s, a Hessian-vector product {products:.2g}; "
        f"{len(parts)} parts to compute, about {total:.0f} CPU s = {total / 3600:.1f} h; each part is kept when done"
    )


def kind_of(part: str) -> str:
    """What a part computes: its name without the number of its first removal."""
    return part.split("-")[0]


def number(parts: Sequence[str], kind: str) -> int:
    """How many of the parts are of this kind."""
    return sum(kind_of(part) == kind for part in parts)


def _timed(settings: Settings) -> tuple[float, float, float, float]:
    """CPU seconds of a gradient and of both products at a point that stays, on full batches and on mini-batches."""
    problem, lam, x0, _, _ = from_settings(settings)
    kept = problem.linearize(x0, lam)
    full = _seconds(lambda: problem.inner_grad(x0, lam)), _seconds(lambda: kept.products(x0))
    if settings["batch"] is None:
        return (*full, *full)
    batch = from_host(_some_batch(problem, settings["batch"]), like=lam)

    def products() -> object:  # of batches of their own, with activations made anew
        return problem.linearize(x0, lam, batch).hvp(x0), problem.linearize(x0, lam, batch).cross(x0)

    return (*full, _seconds(lambda: problem.inner_grad(x0, lam, batch)), _seconds(products))


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
