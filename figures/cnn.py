"""The experiment behind appendix Fig. 2b, 2c and the CNN rows of the R²/F1 table: influence where g is not convex.

Train a CNN by SGP with all weights λ = 1, predict the change of f = Σ f_k by HGP for every training instance, take the
instances with the largest prediction and groups of instances, and find the actual change in two ways:

    scratch    train again without them: the same SGP, initial x, graphs and batches, as the paper does
    continued  M full-batch gradient steps of size η from the trained x, once with and once without them: what v^(M)
               is the derivative of, convex or not (`hgp_ref.attribution.retraining`)

Where training ends in another valley after a small change, `scratch` sees it and no derivative at x can; what is lost
there but not in `continued` is no fault of the estimate. With mini-batches, training and HGP draw batches; `continued`
stays full-batch, which is what they estimate.

Groups are of one client and one label. Beside the predictions: extreme eigenvalues of H̄ at x, the gradient that is left
there, and predictions with damping, that is with H̄ + δI in place of H̄.

The sizes `reduced` and `emnist` were chosen from the cost and from training alone (cost of g, gradient left, λ_max),
before any prediction was compared with a retraining: the paper's learning rate and weight decay would need more steps
than a minute has, so both are larger.

With ReLU and the largest of 2 × 2, R² of `continued` came out as 0.64 (full batch), short of the 0.8 that was aimed at.
`smooth_experiment`, tanh and means of 2 × 2 with longer training, was added after that had been seen. It was chosen at
seed 0, where R² was 0.88 with tanh, 0.72 with ReLU and 0.37 with softplus, all with means; shown is seed 1, which no
choice has used (0.92; seeds 2 and 3: 0.87, 0.94). Why it does better is not settled: the derivation needs ∂²g, which
kinks do not have, and ∂g(x) = 0, but λ_max is five times smaller as well (η λ_max 0.2, not 1.1), and softplus, smooth
too, had η λ_max 1.8 and its gradient grew along the steps. No part was varied alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figures.cnn_parts import cost_in_words, more_steps, predict, retrain_from_scratch, train
from reporting.store import Arrays, Experiment

PAPER = {
    "data": "emnist", "side": 28, "share": 0.01, "dtype": "float32", "l2": 1e-3,
    "train_steps": 5000, "lr": 0.01, "milestones": [3000, 4000, 4500, 4600, 4700, 4800, 4900, 4950, 4990, 4999],
    "eta": 0.05, "iterations": 1000, "batch": 512, "removals": 50, "groups": 20, "group_size": 10,
    "block": 1, "more_block": 5,  # removals in a part of `scratch` and of `continued`
}  # fmt: skip
REDUCED = {
    "data": "digits", "side": 8, "share": 300, "dtype": "float64", "l2": 1e-2,
    "train_steps": 1000, "lr": 0.1, "milestones": [600, 800, 900, 950],
    "eta": 0.1, "iterations": 200, "batch": 32, "removals": 14, "groups": 6, "group_size": 4,
    "block": 5, "more_block": 20,
}  # fmt: skip
SMOOTH = {
    "smooth": True,
    "train_steps": 1500,
    "lr": 0.2,
    "decay": 0.3,
    "milestones": [700, 1100, 1350],
    "damping": [0.0],
}
QUICK = {"share": 150, "train_steps": 60, "milestones": [36, 48], "iterations": 15, "removals": 4, "groups": 2,
         "group_size": 2, "batch": 8, "block": 2, "more_block": 4}  # fmt: skip
SIZES = {"reduced": REDUCED, "emnist": {**REDUCED, "data": "emnist", "side": 14}, "paper": PAPER}
DAMPING = (0.0, 0.01, 0.1, 1.0)  # δ


def experiment(size: str, *, mini_batch: bool, quick: bool = False, backend: str = "numpy") -> Experiment:
    """Predicted and actual changes, with mini-batches or without."""
    return _experiment(
        size, {**SIZES[size or "reduced"], **(QUICK if quick else {})}, mini_batch, backend, ("continued", "scratch")
    )


def smooth_experiment(*, seed: int = 1, quick: bool = False, backend: str = "numpy") -> Experiment:
    """The reduced size, full batch, with a smooth network, and M more steps only."""
    sizes = {**REDUCED, **SMOOTH, **(QUICK if quick else {}), "seed": seed}
    return _experiment("reduced", sizes, False, backend, ("continued",))


def _experiment(size: str, sizes: Mapping[str, Any], mini_batch: bool, backend: str, ways: Sequence[str]) -> Experiment:
    settings = {
        "revision": 1,
        "n": 3, "alpha": 0.4, "low": 0.4, "high": 0.8, "steps": 100, "seed": 0, "backend": backend,
        "damping": list(DAMPING),
        "smooth": False, "decay": 0.1,
        **sizes,
    }  # fmt: skip
    if not mini_batch:
        settings["batch"] = None
    blocks = {
        f"{way}-{first}": slice(first, first + size_of_block)
        for way, size_of_block in (("continued", settings["more_block"]), ("scratch", settings["block"]))
        if way in ways
        for first in range(0, settings["removals"] + settings["groups"], size_of_block)
    }

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        if part == "train":
            return train(settings)
        x = finished["train"]["x"]
        if part == "predict":
            return predict(settings, x)
        removed = finished["predict"]["removed"][blocks[part]]
        if part.startswith("continued"):
            return {"actual": more_steps(settings, x, removed)}
        return {"actual": retrain_from_scratch(settings, removed) - finished["train"]["cost"]}

    all_parts = ("train", "predict", *blocks)

    def cost(parts: Sequence[str]) -> str:
        return cost_in_words(settings, parts, all_parts)

    return Experiment("cnn", settings, all_parts, compute, _join, cost if size == "paper" else None)


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    actual = {
        way: np.concatenate([arrays["actual"] for part, arrays in parts.items() if part.startswith(way)])
        for way in ("continued", "scratch")
        if any(part.startswith(way) for part in parts)
    }
    return {**parts["train"], **parts["predict"], **actual}
