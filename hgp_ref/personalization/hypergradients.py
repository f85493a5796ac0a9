"""Personal λ_i by hyper-gradients: what HGP-PL, HGP-MTL and HGP-weights share.

Clients train x(λ) together, estimate v ≈ d_λ Σ_i f_i(x_i(λ), λ_i) by HGP and update their own λ_i, K times from λ = 0,
HGP-weights from λ = 1 (`hgp_ref.bilevel.optimise`: each training starts anew from the same x, with graphs and
mini-batches not used before; a hyper-gradient that diverges is estimated again with η halved and never reaches the
update). λ_0 … λ_K are judged, and validation accuracy chooses among them.

M = 0 is the control: ∂_λ f alone, what each client can compute without asking anybody.

A recipe that weighs models by training size, `Rounds(by_size=True)`, trains x(λ) = argmin_x Σ_i N_i g_i, and v is the
hyper-gradient of that. The published program, which weighs models so over FC, estimates that of argmin_x Σ_i g_i
(`Outer(as_published=True)`): where sizes differ, it does not tend to d_λ F, however large S and M are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace
from hgp_ref.bilevel import Adam, Box, Estimator, Trainer, optimise
from hgp_ref.data import Clients
from hgp_ref.networks import Network
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
from hgp_ref.problems import MiniBatches, NeuralInstanceWeights, PersonalMixture, as_problem
from hgp_ref.problems.batches import Epochs
from hgp_ref.problems.transforms import WeightedClients
from hgp_ref.training import Fit
from hgp_ref.training.gradient_push import LocalGradient
from hgp_ref.training.rounds import LocalEpochs, open_weighted
from hgp_ref.validation import check_memory


@dataclass(frozen=True)
class Outer:
    """The outer loop: K steps of Adam at `rate`, HGP with M = iterations, S = steps and η = eta.

    Parameters
    ----------
    outer_steps : updates of λ.
    rate : of Adam.
    outer_l2 : γ of ½γ‖λ_i‖² in f_i.
    iterations : M.
    steps : S.
    eta : η.
    batch_size : of HGP's products, one batch for u and v together as the paper has it; None for full batches.
    averaging : "push_sum", "gossip" or "exact".
    outer_on : "train" as in the paper, or "validation": whose loss f_i is.
    as_published : estimate d_λ F for x(λ) = argmin Σ_i g_i also where training weighs clients by size.

    Raises
    ------
    TypeError, ValueError
        Numbers of steps must be integers, rates positive, `averaging` and `outer_on` one of theirs.

    Examples
    --------
    >>> hgp.personalization.Outer(iterations=0).estimate().iterations  # M = 0: ∂_λ f alone
    0
    """

    outer_steps: int = 5
    rate: float = 0.1
    outer_l2: float = 1e-3
    iterations: int = 10
    steps: int = 10
    eta: float = 0.1
    batch_size: int | None = 128
    averaging: str = "push_sum"
    outer_on: str = "train"
    as_published: bool = False

    def __post_init__(self) -> None:
        validation.choice("averaging", self.averaging, AVERAGINGS)
        validation.choice("outer_on", self.outer_on, ("train", "validation"))
        for name, low in {"outer_steps": 0, "iterations": 0, "steps": 1}.items():
            validation.integer(name, getattr(self, name), low, validation.LONGEST)
        for name in ("rate", "eta"):
            validation.positive(name, getattr(self, name))
        validation.nonnegative("outer_l2", self.outer_l2)
        validation.boolean("as_published", self.as_published)
        if self.batch_size is not None:
            validation.integer("batch_size", self.batch_size, 1, 2**31 - 1)

    def data(self, data: Clients) -> tuple[Any, ...]:
        """What a problem is made of: training data and, where f is theirs, validation data."""
        return data.train if self.outer_on == "train" else (*data.train, *data.validation)

    def estimate(self, seed: int = 0) -> Estimator:
        """How hyper-gradients are estimated."""
        batches = None if self.batch_size is None else MiniBatches(self.batch_size, seed, share=True)
        return Estimator(self.steps, self.iterations, eta=self.eta, batches=batches, average=AVERAGINGS[self.averaging])


def need_outer(outer: Outer) -> Outer:
    """TypeError unless it is one."""
    validation.instance("outer", outer, Outer)
    return outer


def personalize(
    task: Task,
    net: Network,
    recipe: Recipe,
    outer: Outer,
    problem: Any,
    method: str,
    start: Array | None = None,
    project: Callable[[Array], Array] | None = None,
) -> Personalized:
    """λ_0 = 0, or `start`, … λ_K on `problem`, judged after each training."""
    task.over(net), need_recipe(recipe)
    judge = task.judge(problem, outer.outer_steps)
    sizes = recipe.weights(problem) if isinstance(recipe, Rounds) and not outer.as_published else None

    def train(_: Any, lam: Array, net: Network, **options: Any) -> Fit:
        return recipe(problem, net, lam, seed=task.seed, **options)

    def look(k: int, lam: Array, x: Array, cost: float) -> None:
        judge.look(k, x, lam)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        path = optimise(
            problem if sizes is None else WeightedClients(problem, sizes / sizes.mean()),
            task.zeros(problem.dim_lam) if start is None else start,
            net,
            outer_steps=outer.outer_steps,
            train=Trainer(train, x0=task.start(problem.model), warm_start=False),
            estimate=outer.estimate(task.seed),
            update=Adam(outer.rate),
            project=project,
            callback=look,
        )
    notes = [f"outer step {k}: {step.note}" for k, step in enumerate(path.steps) if step.note]
    notes += [str(one.message) for one in told if str(one.message).startswith("not converged")]
    settings = {
        "net": net,
        **asdict(recipe),
        **{f"outer_{name}": value for name, value in asdict(outer).items()},
    }
    settings |= {"outer_cost": path.outer_cost, "stopped": path.stopped}
    return judge.result(method, path.x, path.lam[-1, ...], path.traffic, settings, tuple(notes))


# ----------------------------------------------------------------------------------------------------
# HGP-weights: one network for all, for which each client weighs its own training instances,
#
#     g_i(x, λ_i) = (1/N_i) Σ_k λ_ik l_ik(x) + (l2/2) ‖x‖²,    0 ≤ λ_ik ≤ 1,      f_i = mean loss on validation
#     instances,
#
# x trained together, λ_i by hyper-gradients from λ = 1 on (`outer_loop`). λ has no part in the prediction, so ∂_λ f = 0
# and all of the hyper-gradient comes through x: with M = 0 nothing moves. For clients some of whose labels are wrong.


OUTER = Outer(rate=0.3, outer_l2=0.0, batch_size=None, outer_on="validation")


def hgp_weights(task: Task, net: Network, recipe: Recipe, outer: Outer | None = None) -> Personalized:
    """Weights of training instances by hyper-gradients.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Push` or `Rounds`.
    outer : the outer loop with outer_on="validation"; by default steps of Adam at 0.3 and full batches. Its outer_l2 is
        not used.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `net` must be of as many clients as the data, `outer` have outer_on="validation".
    DivergenceError
        The first training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.RandomDirected(4, seed=0)
    >>> outer = personal.Outer(outer_steps=1, iterations=0, outer_on="validation")  # M = 0: λ stays 1
    >>> weights = personal.hgp_weights(task, net, personal.Push(steps=30, lr=0.3), outer).lam
    >>> float(weights.min())
    1.0
    """
    need_task(task)
    outer = need_outer(OUTER if outer is None else outer)
    if outer.outer_on != "validation":
        raise ValueError(
            f"outer: outer_on={outer.outer_on!r} given, needed 'validation': weights are learnt from other data"
        )
    problem = task.moved(NeuralInstanceWeights(task.model, *task.data.train, *task.data.validation, task.l2))
    start = task.zeros(problem.dim_lam) + 1
    return personalize(task, net, recipe, replace(outer, outer_l2=0.0), problem, "HGP-weights", start, Box(0.0, 1.0))


# ----------------------------------------------------------------------------------------------------
# FedEM: each client's data come from a mixture of K distributions that all share, p_i = Σ_m π_im p_m.
#
# Expectation and maximisation by rounds [1], for client i, instance k and component m with parameters θ_m:
#
#     E    q_ik(m) ∝ π_im exp(−l(θ_m; x_ik, y_ik)),    π_im = (1/N_i) Σ_k q_ik(m)
#     M    θ_im: local epochs on (1/N_i) Σ_k q_ik(m) l(θ_m; x_ik, y_ik) + (l2/2)|θ_m|² from θ_m
#          θ_m ← Σ_i (N_i/N) θ_im, or with a network's own weights (D-FedEM)
#
# A client predicts by Σ_m π_im softmax(z_m). Component m starts from seed + m. q are the responsibilities of the cost
# −log Σ_m π_m P_m(y) of a mixture.
#
# [1] O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. Federated multi-task learning under a mixture of
#     distributions. NeurIPS 2021.


def fedem(task: Task, net: Network, recipe: Recipe, *, components: int = 3) -> Personalized:
    """EM by rounds; central with averaging "exact", decentral with "gossip" or "push_sum".

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Rounds`.
    components : K.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `components` must be an integer ≥ 1, `net` of as many clients.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.fedem(task, net, personal.Rounds(rounds=10, lr=0.1), components=2).lam.shape  # log π
    (4, 2)
    """
    need_task(task).over(net)
    recipe, K = need_rounds(recipe, "FedEM"), validation.integer("components", components, 1, validation.LONGEST)
    check_memory(f"components={K}", task.n * task.model.dim * K)
    mixture = task.moved(PersonalMixture(task.model, *task.data.train, components=K, l2=task.l2, outer_l2=0.0))
    weighted = as_problem(task.moved(NeuralInstanceWeights(task.model, *task.data.train, *task.data.train, task.l2)))
    judge, theta, log_pi = task.judge(mixture, recipe.turns), task.start(mixture.model), task.zeros(K)
    xp = array_namespace(theta)
    mixer = open_weighted(recipe.average(net), theta, recipe.turns, recipe.weights(mixture))
    works = []
    for _ in range(K):
        steps = Epochs(weighted, recipe.batch_size, task.seed, theta)
        rule = LocalGradient(weighted, task.zeros(weighted.dim_lam), recipe.momentum)
        works.append(LocalEpochs(rule, recipe.rates(), steps, recipe.epochs))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for turn in range(1, recipe.turns + 1):
            q, log_pi = expectation(mixture, theta, log_pi)
            theta = mixer.average(xp.concat(maximisation(works, turn, mixture.model.split(theta), q), axis=1))
            if judge.due(turn):
                judge.look(turn, theta, log_pi)
    settings = {"net": net, **asdict(recipe), "components": K}
    return judge.result("FedEM", theta, log_pi, mixer.mixer.record_traffic(), settings)


def expectation(mixture: PersonalMixture, theta: Array, log_pi: Array) -> tuple[Array, Array]:
    """q and log π.  # (n, N, K), (n, K)"""
    xp = array_namespace(theta)
    q = mixture.responsibilities(theta, log_pi)
    pi = xp.sum(q, axis=1) / xp.sum(q, axis=(1, 2))[:, None]  # Σ_k Σ_m q = N_i: padding has q = 0
    return q, xp.log(xp.maximum(pi, xp.full_like(pi, xp.finfo(pi.dtype).smallest_normal)))


def maximisation(works: list[LocalEpochs], turn: int, theta: list[Array], q: Array) -> list[Array]:
    """θ_im of each component after the local epochs of a round.  # K arrays (n, d)"""
    moved = []
    for m, (work, start) in enumerate(zip(works, theta, strict=True)):
        work.gradient = replace(work.gradient, lam=array_namespace(q).asarray(q[:, :, m], copy=True))
        moved.append(start + work(turn, array_namespace(q).asarray(start, copy=True)))
    return moved
