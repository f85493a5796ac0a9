"""Clustered-FL: FedAvg inside clusters of clients, which split where their updates point apart.

With Δ_i the update of client i after a round from its cluster's model, a cluster c splits when training has come to
rest on the whole but not for its clients [1]:

    ‖Σ_{i∈c} (N_i/N_c) Δ_i‖ < tol_mean      and      max_{i∈c} ‖Δ_i‖ > tol_client,

into the two groups between which updates are least alike,

    c_1, c_2 = argmin_{c_1 ∪ c_2 = c} max_{i∈c_1, j∈c_2} α_ij,      α_ij = <Δ_i, Δ_j> / (‖Δ_i‖ ‖Δ_j‖).

These are what single linkage has before its last merger: the largest spanning tree of α without its weakest edge. For
every bipartition cuts the tree, at an edge at least as strong, and the two parts of the tree have no stronger edge
between them than the one removed. Clusters of one or two stay whole. Everybody hears everybody, so all members of a
cluster know its updates, and what a server would decide each of them can.

The published program compares the largest *coordinate* of the updates with tol_client instead of the largest norm.
That practically never exceeds it, so that no cluster splits; and it makes the groups by complete linkage:
`as_published=True`.

[1] F. Sattler, K.-R. Müller, W. Samek. Clustered federated learning: model-agnostic distributed multitask optimization
    under privacy constraints. IEEE TNNLS 2021.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from hgp_ref import arguments
from hgp_ref.averaging import ExactAverage
from hgp_ref.backend import Array, array_namespace, host_float64
from hgp_ref.channels import Traffic
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import Recipe, need_rounds
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import as_problem
from hgp_ref.problems.epochs import Epochs
from hgp_ref.training.descent import Descent
from hgp_ref.training.rounds import LocalEpochs, open_weighted

Clusters = list[np.ndarray]  # of client numbers


def clustered_fl(task: Task, net: Network, recipe: Recipe, *, tol_mean: float = 0.4, tol_client: float = 1.6,
                 first_split: int = 20, as_published: bool = False) -> Personalized:  # fmt: skip
    """Rounds inside clusters, from one cluster of all on.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have; `FullyConnected`.
    recipe : how clients train, `Rounds` with averaging "exact".
    tol_mean, tol_client : limits of the mean update and of the largest client's; the defaults are the authors'.
    first_split : no cluster splits before this round.
    as_published : compare the largest coordinate with tol_client, and split by complete linkage.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        Tolerances must be ≥ 0, `first_split` an integer ≥ 1, `net` of as many clients.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.clustered_fl(task, net, personal.Rounds(rounds=10, lr=0.1)).notes  # which round split whom
    ()
    """
    recipe = need_rounds(recipe, "Clustered-FL")
    need_task(task).over(net)
    if recipe.averaging != "exact":
        raise ValueError(f"recipe: averaging={recipe.averaging!r} given, needed 'exact': clusters average exactly")
    recipe.average(net)  # an error unless everybody hears everybody
    limits = arguments.nonnegative("tol_mean", tol_mean), arguments.nonnegative("tol_client", tol_client)
    first_split = arguments.integer("first_split", first_split, 1, arguments.LONGEST)
    published = arguments.boolean("as_published", as_published)
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    steps = Epochs(problem, recipe.batch_size, task.seed, lam)
    work = LocalEpochs(Descent(problem, lam, recipe.momentum), recipe.rates(), steps, recipe.epochs)
    z, clusters, notes, sent = task.start(), [np.arange(task.n)], [], Traffic()
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for turn in range(1, recipe.turns + 1):
            moved = work(turn, z)  # Δ
            mean, carried = means_inside(moved, clusters, recipe.weights(problem))
            sent += carried
            z = z + mean
            if turn >= first_split:
                clusters, split = split_all(clusters, moved, mean, *limits, published)
                notes += [f"round {turn}: {words}" for words in split]
            if judge.due(turn):
                judge.look(turn, z, lam)
    settings = {"net": net, **asdict(recipe), "tol_mean": tol_mean, "tol_client": tol_client}
    settings |= {"first_split": first_split, "as_published": published, "clusters": [c.tolist() for c in clusters]}
    return judge.result("Clustered-FL", z, None, sent, settings, tuple(notes))


def means_inside(u: Array, clusters: Clusters, weights: np.ndarray | None) -> tuple[Array, Traffic]:
    """Each client's mean of the rows of its cluster, and what the members of clusters sent each other."""
    xp, sent, rows = array_namespace(u), Traffic(), dict[int, Array]()
    for members in clusters:
        own = xp.stack([u[int(i), :] for i in members])
        average = open_weighted(ExactAverage(len(members)), own, 1, None if weights is None else weights[members])
        mean = average(own)
        sent += average.mean.charge()
        rows |= {int(i): mean[k, :] for k, i in enumerate(members)}
    return xp.stack([rows[i] for i in range(u.shape[0])]), sent


def split_all(clusters: Clusters, moved: Array, mean: Array, tol_mean: float, tol_client: float, published: bool
              ) -> tuple[Clusters, list[str]]:  # fmt: skip
    """The clusters after the rule, and what was split, in words."""
    delta, centre, after, words = host_float64(moved), host_float64(mean), [], []
    for members in clusters:
        own = delta[members]
        largest = np.abs(own).max() if published else np.linalg.norm(own, axis=1).max()
        rests = np.linalg.norm(centre[members[0]]) < tol_mean and largest > tol_client
        if rests and len(members) > 2:
            pair = bipartition(own, "complete" if published else "single")
            after += [members[side] for side in pair]
            words.append(" | ".join(str(members[side].tolist()) for side in pair))
        else:
            after.append(members)
    return after, words


def bipartition(updates: np.ndarray, method: str = "single") -> tuple[np.ndarray, np.ndarray]:
    """Two groups of rows, neither of them empty, by linkage on 1 − cosine: its last merger undone."""
    unit = updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), np.finfo(float).tiny)
    apart = np.clip(1.0 - unit @ unit.T, 0.0, 2.0)
    np.fill_diagonal(apart, 0.0)
    label = cut_tree(linkage(squareform(apart, checks=False), method), n_clusters=2)[:, 0]
    return np.flatnonzero(label == label[0]), np.flatnonzero(label != label[0])
