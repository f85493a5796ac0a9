"""Influence: by how much the total validation cost changes when training data are removed, without retraining.

Client i weighs its training instances, g_i(x, λ_i) = (1/N_i) Σ_k λ_ik ℓ(ξ_ik, x) + regulariser, with λ_ik = 1 while
they are all there. To remove instance k of client i is to set λ_ik to 0, so to first order

    f(x(λ − λ_ik e_ik)) − f(x(λ)) ≈ −λ_ik (d_λ f)_ik,        f = Σ_j f_j,

and Hyper-Gradient Push gives (d_λ f)_i to client i alone, over any time-varying directed network. A group, or all of a
client's training data, is the sum over its instances.

Sign.   Positive: without the instance the validation cost rises, it was helpful. Negative: the cost falls, it did harm.
        This is the change upon removal, as in the paper. Koh and Liang's I_up,loss [1] is the derivative with
        respect to the weight of an instance added to the mean loss: the opposite sign.
Scale.  f is the sum over clients of each client's mean validation cost (not their mean: divide by n for that), and a
        removal keeps the divisor N_i, so the client counts as much as before with one term missing. In [1] with one
        client and N instances, ours = −I_up,loss / N. Removal with division by N_i − 1 multiplies the remaining
        weights by N_i/(N_i − 1), which is a further change of −(1/(N_i − 1)) Σ_{l≠k} predicted_il to first order.
Client. Removing a client removes its training data; its regulariser, its validation cost and its place in the network
        remain. First order is a long way for so large a change: check it with `retrain`.

[1] P. W. Koh, P. Liang. Understanding Black-box Predictions via Influence Functions. ICML 2017.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from hgp_ref import validation
from hgp_ref.attribution.retraining import Pair, Removal, all_instances, as_removals, instance_counts
from hgp_ref.backend import Array, host_float64, to_host
from hgp_ref.methods import Estimate, Method, hypergradient
from hgp_ref.mixing import Averaging
from hgp_ref.problems import MiniBatches
from hgp_ref.problems.base import Problem
from hgp_ref.results import Result


@dataclass(frozen=True)
class Influence(Result):
    """Predicted changes of Σ_k f_k; see the top of this module for sign and scale. Arrays are on the host.

    Attributes
    ----------
    predicted : (R,), one for each removal.
    removals : R tuples of (client, index).
    per_instance : (n, N_max), the prediction for every single instance; 0 beyond a client's N_i.
    counts : (n,), N_i.
    estimate : the run behind it: traffic, w, settings; pass it to `certify` for an error bound.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> x = hgp.exact.inner_solution(problem, ones)
    >>> net = hgp.networks.RandomDirected(n=2, seed=0)
    >>> predictions = hgp.influence(problem, x, ones, hgp.PushSum(net, steps=20), iterations=200)
    >>> predictions.per_instance.shape, predictions.most_influential(2)
    ((2, 20), [(0, 10), (1, 10)])
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
            traffic=self.estimate.traffic.in_words(),
        )

    def most_influential(self, count: int) -> list[Pair]:
        """The `count` single instances with the largest |prediction| over all clients, the largest first.

        `retrain` takes them as they are: one removal each.

        Parameters
        ----------
        count : how many.

        Returns
        -------
        list of (client, index), the largest |prediction| first.
        """
        pairs = [removal[0] for removal in all_instances(self.counts)]
        if validation.integer("count", count, 0) > len(pairs):
            raise ValueError(f"count={count} given, there are {len(pairs)} training instances")
        size = np.abs(np.array([self.per_instance[pair] for pair in pairs]))
        return [pairs[j] for j in np.argsort(-size, kind="stable")[:count]]


def influence(
    problem: Problem,
    x: Array,
    lam: Array,
    avg: Averaging,
    method: Method | None = None,
    *,
    iterations: int = 1000,
    tol: float | None = None,
    batches: MiniBatches | int | None = None,
    instances: Iterable[Pair] | None = None,
    groups: Iterable[Iterable[Pair]] | None = None,
    clients: Iterable[int] | None = None,
    progress: bool = False,
) -> Influence:
    """Predict how the total validation cost Σ_k f_k changes when training data are removed.

    λ_ik is the weight of training instance k of client i, so that −λ_ik (d_λ Σ_k f_k)_ik predicts the change when the
    instance is removed. One run of `hypergradient` predicts all removals.

    Parameters
    ----------
    problem : a problem with a weight on each training instance as λ, such as `InstanceWeights`.
    x, lam : (n, d_x) and (n, N_max), the inner solution and the weights there, usually ones.
    method, iterations, tol, batches : as in `hypergradient`, with one averaging and one seed. With mini-batches the
        prediction is unbiased if averaging is exact, and noisy: instance k is in one of N_i/b batches and counts N_i/b
        times there, which alone gives a variance of (N_i/b − 1) Σ_m (λ_ik η J_ik ū^(m))², J_ik the row of ∂²_{xλ} g_i
        for the instance. `MiniBatches(full_jacobian=True)` removes this part of the noise.
    instances, groups, clients : what is removed: (client, index) pairs, groups of such pairs, or clients. By default
        each instance alone. Over MPI ranks, clients are numbered from 0 on each rank.

    Examples
    --------
    Four instances of one client, the last one mislabelled. Removing it is predicted to lower the validation cost, and
    retraining agrees:

    >>> from hgp_ref.attribution import retrain
    >>> X = np.array([[[-2.0], [-1.0], [1.0], [2.0]]]); y = np.array([[0, 0, 1, 0]])
    >>> problem = hgp.problems.InstanceWeights(X, y, np.array([[[-1.0], [1.0]]]), np.array([[0, 1]]), l2=1.0)
    >>> lam = np.ones((1, 4))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> found = hgp.influence(problem, x, lam, hgp.ExactAverage(1), method=hgp.methods.Neumann(0.5), iterations=200)
    >>> [f"{value:+.3f}" for value in found.predicted]
    ['+0.061', '+0.033', '+0.033', '-0.083']
    >>> [f"{value:+.3f}" for value in retrain(problem, lam, found.removals).actual]
    ['+0.074', '+0.035', '+0.035', '-0.093']
    """
    if not isinstance(avg, Averaging):
        raise TypeError(f"avg must be one averaging (PushSum, ExactAverage, Gossip), got {avg!r}")
    counts = instance_counts(problem)
    removals = as_removals(counts, instances, groups, clients)
    estimate = hypergradient(
        problem, x, lam, avg, method, iterations=iterations, tol=tol, batches=batches, progress=progress
    )
    per_instance = -host_float64(lam) * to_host(estimate.value)  # (n, N_max)
    per_instance[np.arange(per_instance.shape[1]) >= counts[:, None]] = 0.0
    predicted = np.array([sum(per_instance[pair] for pair in removal) for removal in removals], dtype=np.float64)
    return Influence(predicted, removals, per_instance, counts, estimate)


# ----------------------------------------------------------------------------------------------------
# How well predicted changes meet actual ones: the paper's R² and F1, and rank correlation.


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
    a, p = validation.host_array("actual", actual), validation.host_array("predicted", predicted)
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
