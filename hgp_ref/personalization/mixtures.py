"""FedEM: each client's data come from a mixture of K distributions that all share, p_i = Σ_m π_im p_m.

Expectation and maximisation by rounds [1], for client i, instance k and component m with parameters θ_m:

    E    q_ik(m) ∝ π_im exp(−l(θ_m; x_ik, y_ik)),    π_im = (1/N_i) Σ_k q_ik(m)
    M    θ_im: local epochs on (1/N_i) Σ_k q_ik(m) l(θ_m; x_ik, y_ik) + (l2/2)|θ_m|² from θ_m
         θ_m ← Σ_i (N_i/N) θ_im, or with a network's own weights (D-FedEM)

A client predicts by Σ_m π_im softmax(z_m). Component m starts from seed + m. q are the responsibilities of the cost
−log Σ_m π_m P_m(y) of a mixture.

[1] O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. Federated multi-task learning under a mixture of
    distributions. NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace
from hgp_ref.memory import room
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import Recipe, need_rounds
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import NeuralInstanceWeights, PersonalMixture, as_problem
from hgp_ref.problems.epochs import Epochs
from hgp_ref.training.descent import Descent
from hgp_ref.training.rounds import LocalEpochs, open_weighted


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
    recipe, K = need_rounds(recipe, "FedEM"), arguments.integer("components", components, 1, arguments.LONGEST)
    room(f"components={K}", task.n * task.model.dim * K)
    mixture = task.moved(PersonalMixture(task.model, *task.data.train, components=K, l2=task.l2, outer_l2=0.0))
    weighted = as_problem(task.moved(NeuralInstanceWeights(task.model, *task.data.train, *task.data.train, task.l2)))
    judge, theta, log_pi = task.judge(mixture, recipe.turns), task.start(mixture.model), task.zeros(K)
    xp = array_namespace(theta)
    average = open_weighted(recipe.average(net), theta, recipe.turns, recipe.weights(mixture))
    works = []
    for _ in range(K):
        steps = Epochs(weighted, recipe.batch_size, task.seed, theta)
        rule = Descent(weighted, task.zeros(weighted.dim_lam), recipe.momentum)
        works.append(LocalEpochs(rule, recipe.rates(), steps, recipe.epochs))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for turn in range(1, recipe.turns + 1):
            q, log_pi = expectation(mixture, theta, log_pi)
            theta = average(xp.concat(maximisation(works, turn, mixture.model.split(theta), q), axis=1))
            if judge.due(turn):
                judge.look(turn, theta, log_pi)
    settings = {"net": net, **asdict(recipe), "components": K}
    return judge.result("FedEM", theta, log_pi, average.mean.charge(), settings)


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
        work.rule = replace(work.rule, lam=array_namespace(q).asarray(q[:, :, m], copy=True))
        moved.append(start + work(turn, array_namespace(q).asarray(start, copy=True)))
    return moved
