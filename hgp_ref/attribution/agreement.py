"""How well predicted changes meet actual ones: the paper's R² and F1, and rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from hgp_ref import arguments
from hgp_ref.results import Result


@dataclass(frozen=True)
class Scores(Result):
    """Agreement of predicted with actual changes.

    A score that the data leave undefined is NaN: `r2` if all actual changes are equal, `spearman` if all of either are,
    `f1` if no change is negative, neither actual nor predicted, since there is then nothing to find (as when all of
    the most influential instances are helpful ones).

    Attributes
    ----------
    r2 : R² of the predictions; NaN where all actual changes are equal.
    f1 : F1 of finding the changes below 0; NaN where there is none.
    spearman : rank correlation.

    Examples
    --------
    >>> print(hgp.attribution.scores(np.array([1.0, -2.0, 3.0]), np.array([0.9, -1.8, 3.3])))
    R² 0.9889, F1 1, Spearman 1
    """

    r2: float
    f1: float
    spearman: float

    def __str__(self) -> str:
        why = {
            "R²": "all actual changes are equal",
            "F1": "no change is negative, actual or predicted",
            "Spearman": "all actual or all predicted changes are equal",
        }
        values = zip(why, (self.r2, self.f1, self.spearman), strict=True)
        return ", ".join(f"{k} undefined ({why[k]})" if np.isnan(v) else f"{k} {v:.4g}" for k, v in values)


def r2_score(actual: np.ndarray, predicted: np.ndarray) -> float:
    """R² = 1 − Σ(a − p)² / Σ(a − ā)²: 1 for p = a; below 0 if the mean ā of the actual changes predicts better.

    Parameters
    ----------
    actual, predicted : arrays (k,)
        Changes of the cost.

    Returns
    -------
    float
        1 where they are equal, 0 for a prediction as good as the mean, negative for a worse one.

    Examples
    --------
    >>> round(hgp.attribution.r2_score(np.array([1.0, 2.0, 3.0]), np.array([1.1, 1.9, 3.2])), 3)
    0.97
    """
    actual, predicted = _pair(actual, predicted)
    residual = float(np.sum((actual - predicted) ** 2))
    total = float(np.sum((actual - np.mean(actual)) ** 2))
    return 1 - residual / total if total > 0 else float("nan")


def f1_negative(actual: np.ndarray, predicted: np.ndarray) -> float:
    """F1 = 2TP / (2TP + FP + FN) for finding the instances whose removal lowers the cost (change < 0).

    Parameters
    ----------
    actual, predicted : arrays (k,)
        Changes of the cost; negative ones are to be found.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> round(hgp.attribution.f1_negative(np.array([-1.0, 2.0, -0.5]), np.array([-0.8, 1.0, 0.1])), 3)
    0.667
    """
    actual, predicted = _pair(actual, predicted)
    lowers, said = actual < 0, predicted < 0
    hits = int(np.sum(lowers & said))
    misses = int(np.sum(lowers ^ said))
    return 2 * hits / (2 * hits + misses) if hits + misses else float("nan")


def spearman(actual: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties sharing their mean rank.

    Parameters
    ----------
    actual, predicted : arrays (k,)
        Changes of the cost.

    Returns
    -------
    float
        Between -1 and 1; 1 where the order is the same.

    Examples
    --------
    >>> round(hgp.attribution.spearman(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3])), 3)
    1.0
    """
    actual, predicted = _pair(actual, predicted)
    a, p = (rank - np.mean(rank) for rank in (rankdata(actual), rankdata(predicted)))
    size = float(np.sqrt(np.sum(a**2) * np.sum(p**2)))
    return float(np.sum(a * p)) / size if size > 0 else float("nan")


def scores(actual: np.ndarray, predicted: np.ndarray) -> Scores:
    """All three for `actual` (R,) against `predicted` (R,).

    Parameters
    ----------
    actual, predicted : arrays (k,)
        Changes of the cost.

    Returns
    -------
    Scores
        `r2`, `f1` and `spearman`.

    Examples
    --------
    >>> hgp.attribution.scores(np.array([1.0, -2.0, 3.0]), np.array([1.0, -2.0, 3.0])).r2
    1.0
    """
    return Scores(r2_score(actual, predicted), f1_negative(actual, predicted), spearman(actual, predicted))


def _pair(actual: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as (R,) float64 arrays of finite numbers; shapes that differ would be broadcast without a word."""
    a, p = arguments.host_array("actual", actual), arguments.host_array("predicted", predicted)
    for name, values in (("actual", a), ("predicted", p)):
        if values.dtype.kind not in "iuf":
            raise TypeError(f"{name}: {values.dtype} given, needed real numbers")
    a, p = a.astype(np.float64), p.astype(np.float64)
    if a.ndim != 1 or a.shape != p.shape or a.size == 0:
        raise ValueError(f"actual {a.shape} and predicted {p.shape}, needed the same (R,) with R >= 1")
    for name, values in (("actual", a), ("predicted", p)):
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{name}: holds NaN or infinite values, needed finite changes")
    return a, p
