"""Influence: by how much the total validation cost changes if training data are removed, without retraining.

Client i weighs its training instances, g_i(x, λ_i) = (1/N_i) Σ_k λ_ik ℓ(ξ_ik, x) + regulariser, with λ_ik = 1 for
complete data. Removing instance k of client i sets λ_ik to 0, so to first order

    f(x(λ − λ_ik e_ik)) − f(x(λ)) ≈ −λ_ik (d_λ f)_ik,        f = Σ_j f_j,

and Hyper-Gradient Push gives (d_λ f)_i to client i alone, over any time-varying directed network. The prediction for a
group of instances, or for all training data of a client, is the sum over its instances.

Sign.   Positive: without the instance the validation cost rises, so it is helpful. Negative: it is harmful. This is the
        change upon removal, as in the paper. Koh and Liang's I_up,loss [1] is the derivative with respect to the weight
        of an instance that is added to the mean loss, with the opposite sign.
Scale.  f is the sum over clients of each client's mean validation cost (divide by n for their mean). A removal keeps
        the divisor N_i. With one client and N instances, our prediction is −I_up,loss / N. Removal with division by
        N_i − 1 multiplies the remaining weights by N_i/(N_i − 1), which is a further change of
        −(1/(N_i − 1)) Σ_{l≠k} predicted_il to first order.
Client. Removing a client removes its training data. Its regulariser, its validation cost and its place in the network
        remain. First order may be inaccurate for so large a change: check it with `retrain`.

[1] P. W. Koh, P. Liang. Understanding Black-box Predictions via Influence Functions. ICML 2017.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from hgp_ref import validation
from hgp_ref.attribution.retraining import Pair, Removal, as_removals, instance_counts
from hgp_ref.backend import Array, host_float64, to_host
from hgp_ref.methods import Estimate, Method, hypergradient
from hgp_ref.mixing import Averaging
from hgp_ref.problems import Problem
from hgp_ref.problems.batches import read_batches
from hgp_ref.results import Result


@dataclass(frozen=True)
class Influence(Result):
    """Predicted changes of Σ_k f_k, with sign and scale as in `hgp_ref.attribution.prediction`. Arrays are on the host.

    Attributes
    ----------
    predicted : (R,), one for each removal.
    removals : R tuples of (client, index).
    per_instance : (n, N_max), the prediction for every single instance; 0 beyond a client's N_i.
    counts : (n,), N_i.
    estimate : of the hyper-gradient; `certify` bounds its error.
    """

    predicted: np.ndarray
    removals: tuple[Removal, ...]
    per_instance: np.ndarray
    counts: np.ndarray
    estimate: Estimate

    def _summary(self) -> list[str]:
        least, most = (float(f(self.predicted)) if self.predicted.size else 0.0 for f in (np.min, np.max))
        residual = validation.largest(self.estimate.residual_ratio)
        return validation.table(
            f"predicted changes of the total validation cost for {len(self.predicted)} removals "
            f"from {len(self.counts)} clients with {int(np.sum(self.counts))} training instances",
            predicted=f"from {least:+.2e} to {most:+.2e}",
            residual_left=f"{residual} of the first; hgp.certify bounds the error",
            stopped=validation.stop_reason(self.estimate.stopped),
            traffic=self.estimate.traffic.one_line(),
        )

    def most_influential(self, count: int) -> list[Pair]:
        """The `count` instances with the largest |prediction| over all clients, the largest first.

        `retrain` takes these (client, index) pairs as one removal each.
        """
        pairs = [removal[0] for removal in as_removals(self.counts)]
        count = validation.integer("count", count, 0, len(pairs))
        sizes = np.abs(np.array([self.per_instance[pair] for pair in pairs]))
        return [pairs[j] for j in np.argsort(-sizes, kind="stable")[:count]]


def influence(
    problem: Problem,
    x: Array,
    lam: Array,
    avg: Averaging,
    method: Method | None = None,
    *,
    instances: Iterable[Pair] | None = None,
    groups: Iterable[Iterable[Pair]] | None = None,
    clients: Iterable[int] | None = None,
    **options: Any,
) -> Influence:
    """Predict how the total validation cost Σ_k f_k changes if training data are removed.

    λ_ik is the weight of training instance k of client i, so that −λ_ik (d_λ Σ_k f_k)_ik predicts the change if the
    instance is removed. One run of `hypergradient` predicts all removals.

    Parameters
    ----------
    problem : a problem with a weight on each training instance as λ, such as `InstanceWeights`.
    x, lam : (n, d_x) and (n, N_max), the inner solution and the weights there, usually ones.
    instances, groups, clients : what is removed: (client, index) pairs, groups of such pairs, or clients. By default
        each instance alone. Over MPI ranks, clients are numbered from 0 on each rank.
    method, options : as in `hypergradient` (`eta`, `iterations`, `tol`, `batches`, …), with one averaging and one seed.
        With mini-batches the prediction is unbiased if averaging is exact, and noisy: instance k is in one of N_i/b
        batches and counts N_i/b times there, which alone gives a variance of (N_i/b − 1) Σ_m (λ_ik η J_ik ū^(m))², J_ik
        the row of ∂²_{xλ} g_i for the instance. `MiniBatches(full_jacobian=True)` removes this part of the noise.

    Examples
    --------
    Four instances of one client, the last one mislabelled. Removing it is predicted to lower the validation cost, and
    retraining agrees:

    >>> X = np.array([[[-2.0], [-1.0], [1.0], [2.0]]]); y = np.array([[0, 0, 1, 0]])
    >>> problem = hgp.problems.InstanceWeights(X, y, np.array([[[-1.0], [1.0]]]), np.array([[0, 1]]), l2=1.0)
    >>> lam = np.ones((1, 4))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> predictions = hgp.influence(problem, x, lam, hgp.ExactAverage(1), eta=0.5, iterations=200)
    >>> [f"{value:+.3f}" for value in predictions.predicted]
    ['+0.061', '+0.033', '+0.033', '-0.083']
    >>> [f"{value:+.3f}" for value in hgp.attribution.retrain(problem, lam, predictions.removals).actual]
    ['+0.074', '+0.035', '+0.035', '-0.093']
    >>> predictions.most_influential(2)
    [(0, 3), (0, 0)]
    """
    if not isinstance(avg, Averaging):
        raise TypeError(f"avg must be one averaging (PushSum, ExactAverage, Gossip), got {avg!r}")
    batches = read_batches(options.get("batches"))
    if batches is not None and len(batches.seeds) > 1:
        raise ValueError(f"batches must have one seed, got {batches!r}")
    counts = instance_counts(problem)
    removals = as_removals(counts, instances, groups, clients)
    estimate = hypergradient(problem, x, lam, avg, method, **options)
    per_instance = -host_float64(lam) * to_host(estimate.value)  # (n, N_max)
    per_instance[np.arange(per_instance.shape[1]) >= counts[:, None]] = 0.0
    predicted = np.array([sum(per_instance[pair] for pair in removal) for removal in removals], dtype=np.float64)
    return Influence(predicted, removals, per_instance, counts, estimate)


# ---- Agreement of predicted with actual changes: R² and F1 of the paper, and rank correlation


@dataclass(frozen=True)
class Scores(Result):
    """Agreement of predicted with actual changes. A score that is undefined is NaN.

    Attributes
    ----------
    r2 : R² of the predictions; undefined if all actual changes are equal.
    f1 : F1 of finding the negative changes; undefined if there are none, neither actual nor predicted.
    spearman : rank correlation; undefined if all actual or all predicted changes are equal.
    """

    r2: float
    f1: float
    spearman: float

    def __str__(self) -> str:
        reasons = {
            "R²": "all actual changes are equal",
            "F1": "no change is negative, actual or predicted",
            "Spearman": "all actual or all predicted changes are equal",
        }
        values = zip(reasons, (self.r2, self.f1, self.spearman), strict=True)
        return ", ".join(f"{k} undefined ({reasons[k]})" if np.isnan(v) else f"{k} {v:.4g}" for k, v in values)


def scores(actual: np.ndarray, predicted: np.ndarray) -> Scores:
    """R², F1 and rank correlation of `predicted` (R,) with `actual` (R,).

    Examples
    --------
    >>> print(hgp.attribution.scores(np.array([1.0, -2.0, 3.0]), np.array([0.9, -1.8, 3.3])))
    R² 0.9889, F1 1, Spearman 1
    """
    return Scores(r2_score(actual, predicted), f1_negative(actual, predicted), spearman(actual, predicted))


def r2_score(actual: np.ndarray, predicted: np.ndarray) -> float:
    """R² = 1 − Σ(a − p)² / Σ(a − ā)²: 1 for p = a, 0 for p = ā, negative if the mean ā predicts better.

    Examples
    --------
    >>> round(hgp.attribution.r2_score(np.array([1.0, 2.0, 3.0]), np.array([1.1, 1.9, 3.2])), 3)
    0.97
    """
    actual, predicted = _checked_changes(actual, predicted)
    residual = float(np.sum((actual - predicted) ** 2))
    total = float(np.sum((actual - np.mean(actual)) ** 2))
    return 1 - residual / total if total > 0 else float("nan")


def f1_negative(actual: np.ndarray, predicted: np.ndarray) -> float:
    """F1 = 2TP / (2TP + FP + FN) for finding the instances whose removal lowers the cost (change < 0).

    Examples
    --------
    >>> round(hgp.attribution.f1_negative(np.array([-1.0, 2.0, -0.5]), np.array([-0.8, 1.0, 0.1])), 3)
    0.667
    """
    actual, predicted = _checked_changes(actual, predicted)
    hits = int(np.sum((actual < 0) & (predicted < 0)))
    misses = int(np.sum((actual < 0) ^ (predicted < 0)))
    return 2 * hits / (2 * hits + misses) if hits + misses else float("nan")


def spearman(actual: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, where ties share their mean rank.

    Examples
    --------
    >>> round(hgp.attribution.spearman(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3])), 3)
    1.0
    """
    actual, predicted = _checked_changes(actual, predicted)
    a, p = (rank - np.mean(rank) for rank in (rankdata(actual), rankdata(predicted)))
    size = float(np.sqrt(np.sum(a**2) * np.sum(p**2)))
    return float(np.sum(a * p)) / size if size > 0 else float("nan")


def _checked_changes(actual: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as (R,) float64 arrays of finite numbers; unequal shapes would be broadcast silently."""
    a = validation.real_array("actual", actual, (None,), "(R,)")
    return a, validation.real_array("predicted", predicted, (len(a),), f"({len(a)},) like actual")
