"""The experiment behind appendix Fig. 2b, 2c and the CNN rows of the R²/F1 table: influence where g is not convex.

Train a CNN by SGP with all weights λ = 1, go on by full-batch steps until ∂g is small (`settle_steps`), predict the
change of f = Σ f_k by HGP for every training instance, take the instances with the largest prediction and groups of
instances, and find the actual change in two ways:

    scratch    train again without them: the same SGP, initial x, graphs and batches, as the paper does
    continued  M full-batch gradient steps of size η from the trained x, once with and once without them: what v^(M)
               is the derivative of where ∂g(x) = 0, convex or not (`hgp_ref.attribution.retraining`)

Where training ends in another valley after a small change, `scratch` sees it and no derivative at x can; what is lost
there but not in `continued` is no fault of the estimate. `scratch` compares SGP with SGP, unsettled. With mini-batches,
training and HGP draw batches; settling and `continued` stay full-batch, which is what they estimate. What the noise of
batches does is derived in `figures.cnn_batches`, which takes steps from x on mini-batches too.

Groups are of one client and one label. Beside the predictions: extreme eigenvalues of H̄ at x, the gradient that is left
there, and predictions with damping, that is with H̄ + δI in place of H̄.

How the sizes `reduced` and `emnist` were chosen: learning rate and weight decay are larger than the paper's, which
would need more steps than a minute has. A first choice, 300 images and no settling, had R² 0.64 from x where 0.8 was
aimed at. One thing varied at a time, at seed 0 and η = 0.1, showed two causes: the gradient left at x (1797 images:
R² −0.18 with a gradient of 0.24 left, 0.92 with 0.006) and the size of the change (settled, 300 and 600 images: 0.70
and 0.73; a tenth of each weight removed from 300: 0.96, kinks and all). Hence all 1797 digits and settling, and the
paper's η = 0.05, for η λ_max had come to 1.9. That was chosen at seed 0, with M = 200 and 12 removals; the experiment
runs at seed 1 (0.95 then; seed 2: 0.99). M = 150 and 10 removals came later, unseen, for a minute and a half in all.
`python -m figures.cnn_controls` repeats the controls with the settings as they are now, and more seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figures.cnn_batches import STEPS, mini_batch_steps, repeat
from figures.cnn_cost import cost_in_words, kind_of
from figures.cnn_parts import continued, predict, retrain_from_scratch, train
from reporting.store import Arrays, Experiment

PAPER = {
    "data": "emnist", "side": 28, "share": 0.01, "dtype": "float32", "l2": 1e-3,
    "train_steps": 5000, "lr": 0.01, "milestones": [3000, 4000, 4500, 4600, 4700, 4800, 4900, 4950, 4990, 4999],
    "settle_steps": 1000,
    "eta": 0.05, "iterations": 1000, "batch": 512, "removals": 50, "groups": 20, "group_size": 10,
    "block": 1, "more_block": 5,  # removals in a part of `scratch` and of `continued`
}  # fmt: skip
REDUCED = {
    "data": "digits", "side": 8, "share": 1797, "dtype": "float64", "l2": 1e-2,
    "train_steps": 500, "lr": 0.1, "milestones": [300, 400, 450, 475], "settle_steps": 500,
    "eta": 0.05, "iterations": 150, "batch": 32, "removals": 10, "groups": 3, "group_size": 4,
    "block": 4, "more_block": 16,
}  # fmt: skip
QUICK = {"share": 150, "train_steps": 60, "settle_steps": 10, "milestones": [36, 48], "iterations": 15, "removals": 4,
         "groups": 2, "group_size": 2, "batch": 8, "repeats": 3, "block": 2, "more_block": 4}  # fmt: skip
EMNIST = {**REDUCED, "data": "emnist", "side": 14, "iterations": 200, "removals": 30, "groups": 8}
SIZES = {"reduced": REDUCED, "emnist": EMNIST, "paper": PAPER}
DAMPING = (0.0, 0.01, 0.1, 1.0)  # δ
BLOCKS = {"continued": "more_block", **dict.fromkeys(STEPS, "more_block"), "scratch": "block"}  # removals in a part
WAYS, MINI_WAYS = ("continued", "scratch"), tuple(BLOCKS)


def experiment(
    size: str, *, mini_batch: bool, quick: bool = False, backend: str = "numpy", seed: int = 1, **changes: Any
) -> Experiment:
    """Predicted and actual changes, with mini-batches or without; `changes` replace settings of the size."""
    settings = {
        "revision": 3,
        "n": 3, "alpha": 0.4, "low": 0.4, "high": 0.8, "steps": 100, "seed": seed, "backend": backend,
        "damping": list(DAMPING), "smooth": False, "decay": 0.1, "ways": list(MINI_WAYS if mini_batch else WAYS),
        "repeats": 8,  # sequences of batches that predictions are made with
        **SIZES[size or "reduced"], **(QUICK if quick else {}), **changes,
    }  # fmt: skip
    if not mini_batch:
        settings |= {"batch": None, "repeats": 0}
    removals = settings["removals"] + settings["groups"]
    blocks = {
        f"{way}-{first}": slice(first, first + settings[BLOCKS[way]])
        for way in settings["ways"]
        for first in range(0, removals, settings[BLOCKS[way]])
    }

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        if part == "train":
            return train(settings)
        x = finished["train"]["x"]
        if part == "predict":
            return predict(settings, x)
        if part == "repeat":
            return repeat(settings, x, finished["predict"]["removed"])
        way, removed = kind_of(part), finished["predict"]["removed"][blocks[part]]
        if way == "continued":
            return {"actual": continued(settings, x, removed)}
        if way == "scratch":
            return {"actual": retrain_from_scratch(settings, removed) - finished["train"]["cost_sgp"]}
        return {"actual": mini_batch_steps(settings, x, removed, way)}

    all_parts = ("train", "predict", *(["repeat"] if settings["repeats"] else []), *blocks)

    def cost(parts: Sequence[str]) -> str:
        return cost_in_words(settings, parts, all_parts)

    return Experiment("cnn", settings, all_parts, compute, _join, cost if size in ("emnist", "paper") else None)


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    actual = {
        way: np.concatenate([arrays["actual"] for part, arrays in parts.items() if kind_of(part) == way])
        for way in BLOCKS
        if way in map(kind_of, parts)
    }
    return {**parts["train"], **parts["predict"], **parts.get("repeat", {}), **actual}
