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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from hgp_ref import validation
from hgp_ref.attribution.retraining import Pair, Removal, instance_counts, read_removals
from hgp_ref.attribution.targets import On, read_on
from hgp_ref.backend import Array, host_float64, to_host
from hgp_ref.methods import Estimate, Method, hypergradient
from hgp_ref.mixing import Averaging
from hgp_ref.problems import MiniBatches, Problem
from hgp_ref.problems.batches import read_batches
from hgp_ref.results import Result


@dataclass(frozen=True)
class Influence(Result):
    """Predicted changes of Σ_k f_k, with sign and scale as in `hgp_ref.attribution.prediction`. Arrays are on the host.

    Attributes
    ----------
    per_instance : (n, N_max), the prediction for every single instance; 0 beyond a client's N_i. On groups of
        validation instances (R, n, N_max).
    counts : (n,), N_i.
    estimate : of the hyper-gradient; `certify` bounds its error.
    on : "total", "instances", "groups" or "self".
    groups : the R groups of validation instances as (client, index) pairs; empty for "total" and "self".
    """

    per_instance: np.ndarray
    counts: np.ndarray
    estimate: Estimate
    on: str = "total"
    groups: tuple[Removal, ...] = ()

    @property
    def removals(self) -> tuple[Removal, ...]:
        """Every instance as a removal of its own, client by client."""
        return tuple((pair,) for pair in self._pairs())

    @property
    def predicted(self) -> np.ndarray:
        """The predictions of `removals`, (Σ_i N_i,); on groups (R, Σ_i N_i)."""
        return self.per_instance[..., np.arange(self.per_instance.shape[-1]) < self.counts[:, None]]

    @property
    def per_client(self) -> np.ndarray:
        """The prediction for removing all training data of a client, (n,); on groups (R, n)."""
        return self.per_instance.sum(axis=-1)

    def of(self, group: int) -> Influence:
        """The influence on one of the `groups`; `estimate` is the run of all of them."""
        if not self.groups:
            raise ValueError(f"of(group) needs an influence on groups of validation instances, got one on {self.on!r}")
        r = validation.integer("group", group, 0, len(self.groups) - 1)
        return replace(self, per_instance=self.per_instance[r], on="groups", groups=())

    def predict(self, removals: Iterable[Removal | Pair]) -> np.ndarray:
        """The predictions for `removals`, as `retrain` takes them: groups of (client, index) pairs, or single pairs.

        On groups of validation instances the result is (R, number of removals). Over MPI ranks, clients are numbered
        from 0 on each rank.
        """
        if self.on == "self":
            raise ValueError("predict needs an influence on one cost, got on='self': every instance has its own")
        lead = self.per_instance.shape[:-2]
        predictions = np.zeros((*lead, len(groups := read_removals(removals, self.counts))))
        for r, group in enumerate(groups):
            predictions[..., r] = sum(self.per_instance[(..., *pair)] for pair in group)
        return predictions

    def most_influential(self, count: int) -> list[Pair]:
        """The `count` instances with the largest |prediction| over all clients, the largest first.

        `retrain` and `predict` take these (client, index) pairs as one removal each.
        """
        return self._first(count, -np.abs(self.predicted))

    def most_harmful(self, count: int) -> list[Pair]:
        """The `count` instances with the smallest predictions: the cost falls most without the first."""
        return self._first(count, self.predicted)

    def most_helpful(self, count: int) -> list[Pair]:
        """The `count` instances with the largest predictions: the cost rises most without the first."""
        return self._first(count, -self.predicted)

    def plot(self, count: int = 5, ax: Any = None) -> Any:
        """Plot the predictions in order of size, with the `count` most harmful and most helpful instances marked.

        Parameters
        ----------
        ax : matplotlib axes; new ones by default, in pyplot's current figure.

        Returns
        -------
        The axes. Needs `pip install 'hgp_ref[figures]'`.
        """
        return plot_influence(self, count, ax)

    def _first(self, count: int, keys: np.ndarray) -> list[Pair]:
        """The pairs with the smallest `keys`."""
        if keys.ndim > 1:
            raise ValueError(
                f"needs predictions for one cost, got {len(self.groups)} groups of validation instances; use of(group)"
            )
        count, pairs = validation.integer("count", count, 0, len(keys)), self._pairs()
        return [pairs[j] for j in np.argsort(keys, kind="stable")[:count]]

    def _pairs(self) -> list[Pair]:
        return [(i, k) for i, count in enumerate(self.counts.tolist()) for k in range(count)]

    def _summary(self) -> list[str]:
        least, most = (float(f(self.predicted)) if self.predicted.size else 0.0 for f in (np.min, np.max))
        residual = validation.largest(self.estimate.residual_ratio)
        of = {
            "total": "the total validation cost",
            "instances": f"the losses of {len(self.groups)} validation instances",
            "groups": f"the mean losses of {max(1, len(self.groups))} groups of validation instances",
            "self": "its own training loss",
        }[self.on]
        return validation.table(
            f"predicted changes of {of} without each of {int(np.sum(self.counts))} training instances of "
            f"{len(self.counts)} clients",
            predicted=f"from {least:+.2e} to {most:+.2e}",
            residual_left=f"{residual} of the first; hgp.certify bounds the error",
            stopped=validation.stop_reason(self.estimate.stopped),
            traffic=self.estimate.traffic.one_line(),
        )


def influence(
    problem: Problem,
    x: Array,
    lam: Array,
    avg: Averaging,
    method: Method | None = None,
    *,
    on: On = "total",
    eta: float | None = None,
    iterations: int = 1000,
    tol: float | None = None,
    batches: MiniBatches | int | None = None,
    resume: Estimate | None = None,
    callback: Callable[[int, Array], object] | None = None,
) -> Influence:
    """Predict how the total validation cost Σ_k f_k changes if training data are removed.

    λ_ik is the weight of training instance k of client i, so that −λ_ik (d_λ Σ_k f_k)_ik predicts the change if the
    instance is removed. One run of `hypergradient` predicts all removals, also where `on` asks for the changes of many
    losses: all of them use one linearization, and one message per round carries the vectors of all.

    Parameters
    ----------
    problem : a problem with a weight on each training instance as λ, such as `InstanceWeights`.
    x, lam : (n, d_x) and (n, N_max), the inner solution and the weights there, usually ones.
    avg, method, eta, iterations, tol, resume, callback : as in `hypergradient`, with one averaging.
    on : the cost whose change is predicted:

        - "total": Σ_k f_k, the total validation cost.
        - "instances": the loss of every validation instance, client by client. `per_instance` is (R, n, N_max).
        - a list of groups of validation instances, each a tuple of (client, index) pairs or a single pair: the mean
          loss of every group. `per_instance` is (R, n, N_max).
        - "self": the loss of the removed training instance itself. Large values show instances that the others do not
          explain, such as wrong labels.

        The prediction for one loss does not depend on the others in the run: on NumPy it is the same bit for bit as in
        a run with this loss alone and as many iterations (with `PreconditionedTracking` up to rounding). With `tol` the
        run goes on until all of them meet it.
    batches : as in `hypergradient`, with one seed. The prediction is unbiased if averaging is exact, and noisy:
        instance k is in one of N_i/b batches and counts N_i/b times there, which alone gives a variance of
        (N_i/b − 1) Σ_m (λ_ik η J_ik ū^(m))², J_ik the row of ∂²_{xλ} g_i for the instance.
        `MiniBatches(full_jacobian=True)` removes this part of the noise.

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
    >>> predictions.most_influential(2), predictions.most_harmful(1)
    ([(0, 3), (0, 0)], [(0, 3)])
    """
    if not isinstance(avg, Averaging):
        raise TypeError(f"avg must be one averaging (PushSum, ExactAverage, Gossip), got {avg!r}")
    sampled = read_batches(batches)
    if sampled is not None and len(sampled.seeds) > 1:
        raise ValueError(f"batches must have one seed, got {batches!r}")
    counts = instance_counts(problem)
    costs, groups = read_on(problem, on, counts)
    net = getattr(avg, "net", None)
    if groups and net is not None and net.clients != slice(0, net.n):
        raise ValueError(f"on must be 'total' if clients are distributed over ranks, got {len(groups)} costs")
    estimate = hypergradient(
        costs,
        x,
        lam,
        avg,
        method,
        eta=eta,
        iterations=iterations,
        tol=tol,
        batches=sampled,
        resume=resume,
        callback=callback,
    )
    per_instance = -host_float64(lam) * to_host(estimate.value)  # ([R,] n, N_max)
    per_instance[..., np.arange(per_instance.shape[-1]) >= counts[:, None]] = 0.0
    if isinstance(on, str) and on == "self":
        by_instance = np.zeros(per_instance.shape[1:])
        for r, ((i, k),) in enumerate(groups):
            by_instance[i, k] = per_instance[r, i, k]
        per_instance, groups = by_instance, ()
    return Influence(per_instance, counts, estimate, on if isinstance(on, str) else "groups", groups)


# ---- Plot

COLOURS = {"harmful": "#c44e52", "helpful": "#4c72b0", "rest": "#b0b0b0"}


def plot_influence(influence: Influence, count: int, ax: Any) -> Any:
    """`Influence.plot`."""
    plt = validation.pyplot()
    if ax is not None:
        validation.axes(ax)
    count = validation.integer("count", count, 0, influence.predicted.shape[-1] // 2)
    ends = {"harmful": influence.most_harmful(count), "helpful": influence.most_helpful(count)}
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    order, number = np.sort(influence.predicted, kind="stable"), influence.predicted.size
    ax.axhline(0.0, color="black", lw=0.6)
    ax.vlines(np.arange(number), 0.0, order, color=COLOURS["rest"], lw=max(0.6, min(4.0, 250 / number)))
    for kind, pairs in ends.items():
        rank = np.arange(count) if kind == "harmful" else number - 1 - np.arange(count)
        ax.vlines(rank, 0.0, order[rank], color=COLOURS[kind], lw=max(0.8, min(4.0, 250 / number)))
        ax.plot(rank, order[rank], "o", ms=4, color=COLOURS[kind], clip_on=False)
        if count:
            side = 0.03 if kind == "harmful" else 0.97
            label = {"harmful": "smallest", "helpful": "largest"}[kind] if influence.on == "self" else f"most {kind}"
            listing = "\n".join(f"client {i}, instance {k}" for i, k in pairs)
            ax.text(side, 0.96 if kind == "harmful" else 0.06, f"{label}\n{listing}", transform=ax.transAxes,
                    color=COLOURS[kind], ha="left" if kind == "harmful" else "right",
                    va="top" if kind == "harmful" else "bottom", fontsize="small")  # fmt: skip
    cost = {"total": "total validation cost", "self": "its own training loss"}.get(
        influence.on, "mean loss of the group"
    )
    ax.set(xlabel="training instances in order", ylabel=f"predicted change of the\n{cost} upon removal")
    ax.margins(x=0.02)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


# ---- Agreement of predicted with actual changes: R² and F1 of the paper, rank correlation, LDS


@dataclass(frozen=True)
class Scores(Result):
    """Agreement of predicted with actual changes. A score that is undefined is NaN.

    Attributes
    ----------
    r2 : R² of the predictions; undefined if all actual changes are equal.
    f1 : F1 of finding the negative changes; undefined if there are none, neither actual nor predicted.
    spearman : rank correlation; undefined if all actual or all predicted changes are equal.
    lds : linear datamodeling score, the rank correlation over random subsets; NaN also without such subsets.
    """

    r2: float
    f1: float
    spearman: float
    lds: float = float("nan")

    def __str__(self) -> str:
        undefined = {
            "R²": "all actual changes are equal",
            "F1": "no change is negative, actual or predicted",
            "Spearman": "all actual or all predicted changes are equal",
        }
        values = zip(undefined, (self.r2, self.f1, self.spearman), strict=True)
        text = ", ".join(f"{k} undefined ({undefined[k]})" if np.isnan(v) else f"{k} {v:.4g}" for k, v in values)
        return text if np.isnan(self.lds) else f"{text}, LDS {self.lds:.4g}"


def scores(
    actual: np.ndarray, predicted: np.ndarray, *, subsets: tuple[np.ndarray, np.ndarray] | None = None
) -> Scores:
    """R², F1 and rank correlation of `predicted` (R,) with `actual` (R,).

    Parameters
    ----------
    subsets : actual and predicted changes for random subsets (`random_removals`), for the score `lds`.

    Examples
    --------
    >>> print(hgp.attribution.scores(np.array([1.0, -2.0, 3.0]), np.array([0.9, -1.8, 3.3])))
    R² 0.9889, F1 1, Spearman 1
    """
    if subsets is not None and not (isinstance(subsets, tuple | list) and len(subsets) == 2):
        raise TypeError(f"subsets must be a pair of arrays, actual and predicted, got {type(subsets).__name__}")
    score = float("nan") if subsets is None else lds(*subsets)
    return Scores(r2_score(actual, predicted), f1_negative(actual, predicted), spearman(actual, predicted), score)


def lds(actual: np.ndarray, predicted: np.ndarray) -> float:
    """The linear datamodeling score of Park et al. [1]: rank correlation over random subsets of the training data.

    `actual` and `predicted` are the changes of a cost without each of S random subsets, (S,); for several costs, such
    as those of single validation instances, (R, S), and the score is the mean over the costs. It is NaN if a cost has
    all actual or all predicted changes equal.

    [1] S. M. Park et al. TRAK: Attributing Model Behavior at Scale. ICML 2023.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> x = hgp.exact.inner_solution(problem, ones)
    >>> found = hgp.influence(problem, x, ones, hgp.ExactAverage(2), iterations=200)
    >>> removals = hgp.attribution.random_removals(problem, 30, fraction=0.5, seed=0)
    >>> actual = hgp.attribution.retrain(problem, ones, removals).actual
    >>> round(hgp.attribution.lds(actual, found.predict(removals)), 2)
    0.89
    """
    a, p = (np.atleast_2d(validation.host_array(k, v)) for k, v in (("actual", actual), ("predicted", predicted)))
    if a.shape != p.shape or a.ndim != 2:
        raise ValueError(f"predicted must have the shape {np.shape(actual)} of actual, got {np.shape(predicted)}")
    if not len(a):
        raise ValueError("actual must have at least one cost, got none")
    return float(np.mean([spearman(*rows) for rows in zip(a, p, strict=True)]))


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
