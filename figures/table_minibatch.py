"""Why mini-batches make influence with a CNN hard to see: HGP's noise, its sources, and what it is right about.

Single instances of appendix Fig. 2c, those with the largest mini-batch prediction. `noise` is the standard deviation of
a prediction over sequences of batches (root of the mean square over instances), relative to the spread of the actual
changes: 1 minus its square is about what is left of R². `of J` is the noise from drawing instances
for J alone, by the formula in `experiments.influence.cnn`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from figures.experiments.influence import cnn
from figures.figA2b import KINDS, of_kind
from figures.options import Data, Options, Row
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.table import Table

SHOWS = "What the noise of mini-batches does to influence with a CNN: R² by prediction and by what it is held against"
BY_VARIANT = False
BY_SIZE = True
FULL_STEPS = "M full-batch steps from x"


def experiments(options: Options) -> dict[str, Experiment]:
    """That of appendix Fig. 2c."""
    given: dict[str, Any] = {"quick": options.quick, "backend": options.backend}
    return {"mini": cnn.experiment(options.size, mini_batch=True, **given)}


def table(data: Data, options: Options) -> Table:
    """A line for each prediction and each retraining it is held against."""
    d = data["mini"]
    rows = [*_against_full_steps(d), *_against_mini_batch_steps(d), *_against_full_batch_predictions(d)]
    return Table("", ("prediction", "held against", "R²", "Spearman", "noise", "of J"), tuple(rows))


def _against_full_steps(d: Arrays) -> list[tuple[str, ...]]:
    chosen = of_kind(d, KINDS[0])
    actual, own, others = d["continued"][chosen], d["predicted"][0, chosen], d["repeated"][1:, chosen]
    noise, of_J = (_relative(spread, actual) for spread in (_spread(d["repeated"][:, chosen]), d["noise"][chosen]))
    each = np.array([[scores(actual, one).r2, scores(actual, one).spearman] for one in others])
    ranges = [f"{a:.2f} … {c:.2f}, median {b:.2f}" for a, b, c in np.quantile(each, (0, 0.5, 1), axis=0).T]
    K = len(d["repeated"])
    mean, whole, full = d["repeated"][:, chosen].mean(axis=0), d["whole"][:, chosen], d["full"][chosen]
    of_mean = [f"{float(value) / K**0.5:.2f}" for value in (noise, of_J)]
    of_H = _relative(_spread(whole), actual)
    return [
        ("mini-batches, as instances were chosen by", FULL_STEPS, *_scored(actual, own), noise, of_J),
        (f"the same instances, {K - 1} other sequences of batches", FULL_STEPS, *ranges, noise, of_J),
        (f"mean over the {K} sequences", FULL_STEPS, *_scored(actual, mean), *of_mean),
        ("J on full batches (full_jacobian)", FULL_STEPS, *_scored(actual, whole[0]), of_H, "0"),
        ("full batches", FULL_STEPS, *_scored(actual, full), "0", "0"),
    ]  # fmt: skip


def _against_mini_batch_steps(d: Arrays) -> list[tuple[str, ...]]:
    chosen = of_kind(d, KINDS[0])
    words = {
        "continued": FULL_STEPS,
        "held": "M steps on the same batches, held to x",
        "same": "M steps on the same batches",
        "other": "M steps on other batches",
    }
    names = {"shared": "mini-batches, one sequence for J and H̄", "full": "full batches"}
    return [
        (name, words[way], *_scored(d[way][chosen], d[key][chosen]), "", "")
        for key, name in names.items()
        for way in words
        if (key, way) != ("full", "continued")  # stands above
    ]


def _against_full_batch_predictions(d: Arrays) -> list[tuple[str, ...]]:
    """Over the instances that either prediction calls most influential, and over all: what choosing does."""
    own, full = d["per_instance"], d["full_per_instance"]
    there = own != 0
    own, full = own[there], full[there]
    count = int(of_kind(d, KINDS[0]).sum())
    ways = {f"the {count} largest by mini-batches": own, f"the {count} largest by full batches": full}
    rows = []
    for words, size in ways.items():
        top = np.argsort(-np.abs(size), kind="stable")[:count]
        rows.append((f"mini-batches, {words}", "full-batch predictions", *_scored(full[top], own[top]), "", ""))
    return [*rows, (f"mini-batches, all {own.size}", "full-batch predictions", *_scored(full, own), "", "")]


def _scored(actual: np.ndarray, predicted: np.ndarray) -> tuple[str, str]:
    of = scores(actual, predicted)
    return f"{of.r2:.3f}", f"{of.spearman:.3f}"


def _spread(predictions: np.ndarray) -> np.ndarray:
    """Standard deviation over sequences, (R,)."""
    return np.std(predictions, axis=0, ddof=1)


def _relative(spread: np.ndarray, actual: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(spread**2)) / np.std(actual):.2f}"


def compare(data: Data, options: Options) -> list[Row]:
    """The paper prints nothing of this."""
    return []
