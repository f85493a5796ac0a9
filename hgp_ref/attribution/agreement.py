"""How well predicted changes meet actual ones: the paper's R² and F1, and rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from hgp_ref.results import Result


@dataclass(frozen=True)
class Scores(Result):
    """Agreement of predicted with actual changes; NaN where a score is undefined (constant or no negative values)."""

    r2: float
    f1: float
    spearman: float


def r2_score(actual: np.ndarray, predicted: np.ndarray) -> float:
    """R² = 1 − Σ(a − p)² / Σ(a − ā)²: 1 for p = a; below 0 if the mean ā of the actual changes predicts better."""
    residual = float(np.sum((actual - predicted) ** 2))
    total = float(np.sum((actual - np.mean(actual)) ** 2))
    return 1 - residual / total if total > 0 else float("nan")


def f1_negative(actual: np.ndarray, predicted: np.ndarray) -> float:
    """F1 = 2TP / (2TP + FP + FN) for finding the instances whose removal lowers the cost (change < 0)."""
    true, found = actual < 0, predicted < 0
    hits = int(np.sum(true & found))
    misses = int(np.sum(true ^ found))
    return 2 * hits / (2 * hits + misses) if hits + misses else float("nan")


def spearman(actual: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties sharing their mean rank."""
    a, p = (rank - np.mean(rank) for rank in (rankdata(actual), rankdata(predicted)))
    size = float(np.sqrt(np.sum(a**2) * np.sum(p**2)))
    return float(np.sum(a * p)) / size if size > 0 else float("nan")


def scores(actual: np.ndarray, predicted: np.ndarray) -> Scores:
    """All three for `actual` (R,) against `predicted` (R,)."""
    actual, predicted = np.asarray(actual, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if actual.ndim != 1 or actual.shape != predicted.shape or actual.size == 0:
        raise ValueError(f"actual {actual.shape} and predicted {predicted.shape}, needed the same (R,) with R >= 1")
    return Scores(r2_score(actual, predicted), f1_negative(actual, predicted), spearman(actual, predicted))
