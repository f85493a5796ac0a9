"""SGP / FedAvg: one model for all,

    min_x Σ_i g_i(x),

over whatever network and recipe: gradient push on changing graphs [1], rounds of local epochs with models averaged by
training size where everybody hears everybody (FedAvg [2]). The reference that personal models are to beat.

[1] A. Nedić, A. Olshevsky. Stochastic gradient-push for strongly convex functions on time-varying directed graphs.
    IEEE TAC 2016.
[2] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, host_float64
from hgp_ref.mixing import ExactAverage, Traffic
from hgp_ref.networks import Network, SelfLoops
from hgp_ref.personalization.hypergradients import Outer, need_outer, personalize
from hgp_ref.personalization.task import (
    AVERAGINGS,
    Personalized,
    Recipe,
    Rounds,
    Task,
    need_recipe,
    need_rounds,
    need_task,
)
from hgp_ref.problems import PersonalBias, PersonalMask, PersonalMixture, as_problem
from hgp_ref.problems.batches import Epochs
from hgp_ref.training.gradient_push import LocalGradient
from hgp_ref.training.rounds import LocalEpochs, open_weighted
from hgp_ref.validation import check_memory


def fedavg(task: Task, net: Network, recipe: Recipe, **options: Any) -> Personalized:
    """Train one model by `recipe` over `net`.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.
    options : more keywords of the training, such as prox=.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.fedavg(task, net, personal.Rounds(rounds=20, lr=0.1)).accuracy() > 0.8
    True
    """
    need_task(task).over(net), need_recipe(recipe)
    lam, judge = task.zeros(), task.judge(task.plain, recipe.turns)
    fit = recipe(task.plain, net, lam, x0=task.start(), seed=task.seed, callback=judge.watching(lam), **options)
    return judge.result("SGP/FedAvg", fit.x, None, fit.traffic, {"net": net, **asdict(recipe), **options})


# ----------------------------------------------------------------------------------------------------
# Local: every client trains its own model on its own data, x_i = argmin g_i, and sends nothing.


def local(task: Task, net: Network, recipe: Recipe) -> Personalized:
    """Train alone, by the same steps that `recipe` takes together.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : not used.
    recipe : how clients train, `Push` or `Rounds`.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.local(task, net, personal.Rounds(rounds=5, lr=0.1)).traffic.messages
    0
    """
    need_task(task), need_recipe(recipe)
    alone = replace(recipe, averaging="gossip", by_size=False) if isinstance(recipe, Rounds) else recipe
    with warnings.catch_warnings():  # that nobody hears anybody is the point
        warnings.filterwarnings("ignore", ".*not jointly strongly connected", RuntimeWarning)
        trained = fedavg(task, SelfLoops(task.n), alone)
    return replace(trained, method="Local")


# ----------------------------------------------------------------------------------------------------
# FedAvg+: the shared model, tuned by each client on its own data before it is used,
#
#     x_i = E epochs of client i from z,      z = Σ_i (N_i/N) w_i of FedAvg (or of gradient push).
#
# The tuned models are only looked at; training goes on from z. Momentum starts anew at each look and the rate is that
# of
# the turn. As published, the tuned copy keeps its own optimiser: its rate never falls and its momentum goes on from
# look
# to look (`as_published=True`).
#
# [1] Y. Jiang et al. Improving federated learning personalization via model agnostic meta learning. 2019.


def fedavg_plus(task: Task, net: Network, recipe: Recipe, *, epochs: int = 1, tuning_rate: float | None = None,
                as_published: bool = False) -> Personalized:  # fmt: skip
    """Train one model by `recipe`, and judge what `epochs` local epochs make of it.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.
    epochs : how many.
    tuning_rate : the rate of these epochs; by default that of the turn (as_published: that of the first turn).
    as_published : keep rate and momentum of the tuned copies, as the published program does.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `epochs` must be an integer ≥ 1, `tuning_rate` positive, `net` of as many clients.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.fedavg_plus(task, net, personal.Rounds(rounds=10, lr=0.1)).accuracy() > 0.8
    True
    """
    epochs, as_published = (
        validation.integer("epochs", epochs, 1, validation.LONGEST),
        validation.boolean("as_published", as_published),
    )
    need_task(task).over(net)
    rates = need_recipe(recipe).rates()
    if tuning_rate is not None:
        rates = rates * 0 + validation.positive("tuning_rate", tuning_rate)
    elif as_published:
        rates = rates * 0 + rates[0]
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    rule = LocalGradient(problem, lam, recipe.momentum)
    steps = Epochs(problem, recipe.batch_size, task.seed, lam, first=2**40)  # orders that training does not use
    work = LocalEpochs(rule, rates, steps, epochs)

    def tuned(turn: int, z: Array) -> Array:
        if not as_published:
            work.last = None
        return z + work(turn, z)

    callback = judge.watching(lam, tuned)
    fit = recipe(task.plain, net, lam, x0=task.start(), seed=task.seed, callback=callback)
    settings = {"net": net, **asdict(recipe), "tuning_epochs": epochs, "as_published": as_published}
    return judge.result("FedAvg+", fit.x, None, fit.traffic, settings | {"tuning_rate": tuning_rate})


# ----------------------------------------------------------------------------------------------------
# Class prior: one model for all, whose logits each client shifts by how often it has each class,
#
#     prediction of client i:  z(x) + log p_i − log p̄,      p_i(c) = (N_ic + 1) / (N_i + C),
#
# Bayes' rule for a model that has learnt the classes in the proportions p̄: the mean of the p_i, weighed by N_i where
# the
# recipe weighs clients so (Σ_i N_i p_i / N), as their costs are. Nothing is trained beside x, no gradient along λ is
# needed: a control of what a personal layer could learn from class frequencies alone. p̄ is one average of C numbers,
# and
# one more with weights.


STEPS = 20  # graphs of the average of class frequencies, where one step is not exact


def class_prior(task: Task, net: Network, recipe: Recipe) -> Personalized:
    """Train one model by `recipe` and shift its logits.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.class_prior(task, net, personal.Rounds(rounds=10, lr=0.1)).lam.shape
    (4, 10)
    """
    need_task(task).over(net), need_recipe(recipe)
    problem = task.moved(PersonalBias(task.model, *task.data.train, l2=task.l2))
    averaging = recipe.averaging if isinstance(recipe, Rounds) else "push_sum"
    average = AVERAGINGS[averaging](net, STEPS)
    own = task.there(class_shares(task.data.y, task.classes))  # (n, C)
    weights = recipe.weights(as_problem(task.plain)) if isinstance(recipe, Rounds) else None
    mixer = open_weighted(average, own, 1, weights)
    xp = array_namespace(own)
    lam: Array = xp.log(own) - xp.log(mixer.average(own))
    mixer.mixer.record_traffic()
    judge, zero = task.judge(problem, recipe.turns), task.zeros()
    fit = recipe(task.plain, net, zero, x0=task.start(), seed=task.seed, callback=judge.watching(lam))
    settings = {"net": net, **asdict(recipe)}
    return judge.result("class prior", fit.x, lam, fit.traffic + average.traffic, settings)


def class_shares(labels: list[np.ndarray], classes: int) -> np.ndarray:
    """p_i.  # (n, C)"""
    counts = np.stack([np.bincount(y, minlength=classes) for y in labels]) + 1.0
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


# ----------------------------------------------------------------------------------------------------
# FedProx: FedAvg whose local epochs are held near the model they started from,
#
#     w_i ≈ argmin_w g_i(w) + (μ/2) ‖w − z‖²,      z = Σ_i (N_i/N) w_i,
#
# by plain proximal gradient steps without momentum, as the published program does too.
#
# [1] T. Li et al. Federated optimization in heterogeneous networks. MLSys 2020.


def fedprox(task: Task, net: Network, recipe: Recipe, *, mu: float = 0.01) -> Personalized:
    """Rounds with the proximal weight μ and no momentum.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Rounds`.
    mu : μ >= 0.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `mu` must be ≥ 0, `net` of as many clients.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.fedprox(task, net, personal.Rounds(rounds=10, lr=0.3)).method
    'FedProx'
    """
    recipe, mu = replace(need_rounds(recipe, "FedProx"), momentum=0.0), validation.nonnegative("mu", mu)
    return replace(fedavg(task, net, recipe, prox=mu), method="FedProx")


# ----------------------------------------------------------------------------------------------------
# pFedMe: personal models as proximal points of a shared one,
#
#     min_w Σ_i F_i(w),    F_i(w) = min_θ g_i(θ) + (μ/2) ‖θ − w‖²,    ∂F_i(w) = μ (w − θ_i(w)),   θ_i(w) the minimiser.
#
# In a round [1] every client starts from w_i = w. For each mini-batch of its epoch it takes `inner_steps` gradient
# steps
# towards θ_i on that batch, from where θ_i is, and then w_i ← w_i − ν μ (w_i − θ_i). The round ends with
# w ← (1 − β) w + β Σ_i (N_i/N) w_i. Judged are the personal models θ_i.
#
# The published program is another method (`as_published=True`): θ_i is never set back, each mini-batch is one
#
#     θ_i ← θ_i − a (∂g_i(θ_i) + μ (θ_i − w)),      then  w = Σ_i (N_i/N) θ_i.
#
# [1] C. T. Dinh, N. H. Tran, T. D. Nguyen. Personalized federated learning with Moreau envelopes. NeurIPS 2020.


def pfedme(task: Task, net: Network, recipe: Recipe, *, mu: float = 15.0, inner_steps: int = 5,
           local_rate: float | None = None, beta: float = 1.0, as_published: bool = False) -> Personalized:  # fmt: skip
    """Moreau envelopes over rounds.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Rounds`; its momentum is not used, as in the method's paper.
    mu : μ > 0.
    inner_steps : gradient steps towards θ_i on a mini-batch, of rate recipe.lr.
    local_rate : ν; 1/μ by default, with which w_i ← θ_i.
    beta : β > 0.
    as_published : the published program's rule.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `beta`, `mu` and `local_rate` must be positive, `inner_steps` an integer ≥ 1.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> result = personal.pfedme(task, net, personal.Rounds(rounds=20, lr=0.1), mu=1.0)
    >>> result.accuracy() > 0.8
    True
    """
    need_task(task).over(net)
    recipe, mu = need_rounds(recipe, "pFedMe"), validation.positive("mu", mu)
    inner_steps, published = (
        validation.integer("inner_steps", inner_steps, 1, validation.LONGEST),
        validation.boolean("as_published", as_published),
    )
    nu = 1 / mu if local_rate is None else validation.positive("local_rate", local_rate)
    beta = validation.positive("beta", beta)
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    rule, steps = LocalGradient(problem, lam, prox=mu), Epochs(problem, recipe.batch_size, task.seed, lam)
    theta = w = task.start()
    mixer = open_weighted(recipe.average(net), w, recipe.turns, recipe.weights(problem))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for turn, rate in enumerate(recipe.rates().tolist(), start=1):
            epochs = range((turn - 1) * recipe.epochs, turn * recipe.epochs)
            if published:
                theta = _epochs_towards(rule, steps, epochs, rate, theta, w)
                w = mixer.average(theta)
            else:
                theta, own = _envelope_epochs(rule, steps, epochs, rate, theta, w, inner_steps, nu * mu)
                w = (1 - beta) * w + beta * mixer.average(own)
            if judge.due(turn):
                judge.look(turn, theta, lam)
    settings = {"net": net, **asdict(recipe), "momentum": 0.0, "mu": mu, "as_published": published}
    settings |= {} if published else {"inner_steps": inner_steps, "local_rate": nu, "beta": beta}
    return judge.result("pFedMe", theta, None, mixer.mixer.record_traffic(), settings)


def _envelope_epochs(rule: LocalGradient, steps: Epochs, epochs: range, rate: float, theta: Array, w: Array,
                     inner_steps: int, pull: float) -> tuple[Array, Array]:  # fmt: skip
    """θ and w_i after the mini-batches of these epochs."""
    for epoch in epochs:
        for batch, there in steps.steps(epoch):
            before = theta
            for _ in range(inner_steps):
                theta = theta - rate * rule.direction(theta, batch, None, w)
            theta = _where(there, theta, before)
            w = _where(there, w - pull * (w - theta), w)
    return theta, w


def _epochs_towards(rule: LocalGradient, steps: Epochs, epochs: range, rate: float, theta: Array, w: Array) -> Array:
    """θ after one proximal step for each mini-batch of these epochs."""
    for epoch in epochs:
        for batch, there in steps.steps(epoch):
            theta = _where(there, theta - rate * rule.direction(theta, batch, None, w), theta)
    return theta


def _where(there: Array | None, moved: Array, stayed: Array) -> Array:
    return moved if there is None else array_namespace(moved).where(there, moved, stayed)


# ----------------------------------------------------------------------------------------------------
# HGP-MTL: K networks for all, whose probabilities each client mixes in its own way,
#
#     prediction of client i:  Σ_m softmax(λ_i)_m softmax(z(x_m)),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²,
#
# x_1 … x_K trained together on the mixture's loss, λ_i by hyper-gradients (`outer_loop`).


def hgp_mtl(task: Task, net: Network, recipe: Recipe, outer: Outer | None = None, *, components: int = 3
            ) -> Personalized:  # fmt: skip
    """Mixture weights by hyper-gradients.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.
    outer : the outer loop, `Outer(outer_l2=1e-2)` by default.
    components : K.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `components` must be an integer ≥ 1, `net` of as many clients.
    DivergenceError
        The first training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.RandomDirected(4, seed=0)
    >>> outer = personal.Outer(outer_steps=1, steps=5)
    >>> personal.hgp_mtl(task, net, personal.Push(steps=60, lr=0.5), outer, components=2).lam.shape
    (4, 2)
    """
    need_task(task)
    outer = need_outer(Outer(outer_l2=1e-2) if outer is None else outer)
    components = validation.integer("components", components, 1, validation.LONGEST)
    check_memory(f"components={components}", task.n * task.model.dim * components)
    data = outer.data(task.data)
    problem = PersonalMixture(task.model, *data, components=components, l2=task.l2, outer_l2=outer.outer_l2)
    problem = task.moved(problem)
    return personalize(task, net, recipe, outer, problem, "HGP-MTL")


# ----------------------------------------------------------------------------------------------------
# HGP-PL: one network for all, whose logits each client multiplies by a mask of its own,
#
#     prediction of client i:  z(x) ∘ s softmax(λ_i),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²,
#
# x trained together, λ_i by hyper-gradients (`outer_loop`). s = C, the number of classes, so that λ = 0 changes
# nothing:
# what the authors ran. Their text has s = 1 (`as_printed=True`), with which logits begin C times smaller.


def hgp_pl(task: Task, net: Network, recipe: Recipe, outer: Outer | None = None, *, as_printed: bool = False
           ) -> Personalized:  # fmt: skip
    """Masks by hyper-gradients.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.
    outer : the outer loop, `Outer()` by default.
    as_printed : s = 1 as in the paper's text, in place of the number of classes.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `net` must be of as many clients as the data.
    DivergenceError
        The first training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.RandomDirected(4, seed=0)
    >>> outer = personal.Outer(outer_steps=2, steps=5)
    >>> personal.hgp_pl(task, net, personal.Push(steps=60, lr=0.3), outer).validation.shape
    (3, 4)
    """
    need_task(task)
    outer = need_outer(Outer() if outer is None else outer)
    scale = 1.0 if validation.boolean("as_printed", as_printed) else None
    data = outer.data(task.data)
    problem = task.moved(PersonalMask(task.model, *data, l2=task.l2, outer_l2=outer.outer_l2, scale=scale))
    return personalize(task, net, recipe, outer, problem, "HGP-PL")


# ----------------------------------------------------------------------------------------------------
# Clustered-FL: FedAvg inside clusters of clients, which split where their updates point apart.
#
# With Δ_i the update of client i after a round from its cluster's model, a cluster c splits when training has come to
# rest on the whole but not for its clients [1]:
#
#     ‖Σ_{i∈c} (N_i/N_c) Δ_i‖ < tol_mean      and      max_{i∈c} ‖Δ_i‖ > tol_client,
#
# into the two groups between which updates are least alike,
#
#     c_1, c_2 = argmin_{c_1 ∪ c_2 = c} max_{i∈c_1, j∈c_2} α_ij,      α_ij = <Δ_i, Δ_j> / (‖Δ_i‖ ‖Δ_j‖).
#
# These are what single linkage has before its last merger: the largest spanning tree of α without its weakest edge. For
# every bipartition cuts the tree, at an edge at least as strong, and the two parts of the tree have no stronger edge
# between them than the one removed. Clusters of one or two stay whole. Everybody hears everybody, so all members of a
# cluster know its updates, and what a server would decide each of them can.
#
# The published program compares the largest *coordinate* of the updates with tol_client instead of the largest norm.
# That practically never exceeds it, so that no cluster splits; and it makes the groups by complete linkage:
# `as_published=True`.
#
# [1] F. Sattler, K.-R. Müller, W. Samek. Clustered federated learning: model-agnostic distributed multitask
# optimization
#     under privacy constraints. IEEE TNNLS 2021.


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
    limits = validation.nonnegative("tol_mean", tol_mean), validation.nonnegative("tol_client", tol_client)
    first_split = validation.integer("first_split", first_split, 1, validation.LONGEST)
    published = validation.boolean("as_published", as_published)
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    steps = Epochs(problem, recipe.batch_size, task.seed, lam)
    work = LocalEpochs(LocalGradient(problem, lam, recipe.momentum), recipe.rates(), steps, recipe.epochs)
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
        mixer = open_weighted(ExactAverage(len(members)), own, 1, None if weights is None else weights[members])
        mean = mixer.average(own)
        sent += mixer.mixer.record_traffic()
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
