"""The noise of mini-batches in influence with a CNN: its size, its sources, and what noisy predictions agree with.

The instances are the single ones of appendix Fig. 2c, those with the largest mini-batch prediction. `noise` is the
standard deviation of a prediction over sequences of batches (root mean square over instances), divided by the standard
deviation of the actual changes. 1 minus its square is about what remains of R². `of J` is the part due to the batches
of J, by the formula in `experiments.influence.cnn`.
"""

from __future__ import annotations

import numpy as np

from figures.experiments.influence import cnn
from figures.figA2b import KINDS, of_kind
from figures.options import INFLUENCE_SIZES, Data, Options
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.table import Table

SHOWS = "The noise of mini-batches in influence with a CNN: R² by prediction and by retraining"
SIZES = INFLUENCE_SIZES
FULL_STEPS = "M full-batch steps from x"


def experiments(options: Options) -> dict[str, Experiment]:
    """The experiment of appendix Fig. 2c."""
    return {"mini": cnn.experiment(options.size, mini_batch=True, **options.computation)}


def table(data: Data, options: Options) -> Table:
    """One row per prediction and retraining."""
    d = data["mini"]
    rows = [*_against_full_steps(d), *_against_mini_batch_steps(d), *_against_full_batch_predictions(d)]
    return Table("", ("prediction", "held against", "R²", "Spearman", "noise", "of J"), tuple(rows))


def _against_full_steps(d: Arrays) -> list[tuple[str, ...]]:
    chosen = of_kind(d, KINDS[0])
    actual, mini, repeated = d["continued"][chosen], d["predicted"][0, chosen], d["repeated"][1:, chosen]
    noise, of_J = (_relative(std, actual) for std in (_std(d["repeated"][:, chosen]), d["noise"][chosen]))
    repeats = [scores(actual, prediction) for prediction in repeated]
    values = np.array([[score.r2, score.spearman] for score in repeats])
    ranges = [f"{a:.2f} … {c:.2f}, median {b:.2f}" for a, b, c in np.quantile(values, (0, 0.5, 1), axis=0).T]
    K = len(d["repeated"])
    mean, full_J, full = d["repeated"][:, chosen].mean(axis=0), d["whole"][:, chosen], d["full"][chosen]
    of_mean = [f"{float(value) / K**0.5:.2f}" for value in (noise, of_J)]
    of_H = _relative(_std(full_J), actual)
    return [
        ("mini-batches, as instances were chosen by", FULL_STEPS, *_scored(actual, mini), noise, of_J),
        (f"the same instances, {K - 1} other sequences of batches", FULL_STEPS, *ranges, noise, of_J),
        (f"mean over the {K} sequences", FULL_STEPS, *_scored(actual, mean), *of_mean),
        ("J on full batches (full_jacobian)", FULL_STEPS, *_scored(actual, full_J[0]), of_H, "0"),
        ("full batches", FULL_STEPS, *_scored(actual, full), "0", "0"),
    ]  # fmt: skip


def _against_mini_batch_steps(d: Arrays) -> list[tuple[str, ...]]:
    chosen = of_kind(d, KINDS[0])
    labels = {
        "continued": FULL_STEPS,
        "held": "M steps on the same batches, held to x",
        "same": "M steps on the same batches",
        "other": "M steps on other batches",
    }
    names = {"shared": "mini-batches, one sequence for J and H̄", "full": "full batches"}
    return [
        (name, labels[retraining], *_scored(d[retraining][chosen], d[key][chosen]), "", "")
        for key, name in names.items()
        for retraining in labels
        if (key, retraining) != ("full", "continued")  # is in the rows above
    ]


def _against_full_batch_predictions(d: Arrays) -> list[tuple[str, ...]]:
    """The effect of selection: instances with the largest predictions of either kind, and all instances."""
    mini, full = d["per_instance"], d["full_per_instance"]
    nonzero = mini != 0
    mini, full = mini[nonzero], full[nonzero]
    count = int(of_kind(d, KINDS[0]).sum())
    orders = {f"the {count} largest by mini-batches": mini, f"the {count} largest by full batches": full}
    rows = []
    for label, size in orders.items():
        top = np.argsort(-np.abs(size), kind="stable")[:count]
        rows.append((f"mini-batches, {label}", "full-batch predictions", *_scored(full[top], mini[top]), "", ""))
    return [*rows, (f"mini-batches, all {mini.size}", "full-batch predictions", *_scored(full, mini), "", "")]


def _scored(actual: np.ndarray, predicted: np.ndarray) -> tuple[str, str]:
    of = scores(actual, predicted)
    return f"{of.r2:.3f}", f"{of.spearman:.3f}"


def _std(predictions: np.ndarray) -> np.ndarray:
    """Standard deviation over sequences, (R,)."""
    return np.std(predictions, axis=0, ddof=1)


def _relative(std: np.ndarray, actual: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(std**2)) / np.std(actual):.2f}"
