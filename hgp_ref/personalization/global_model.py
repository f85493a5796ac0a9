"""SGP / FedAvg: one model for all,

    min_x Σ_i g_i(x),

over whatever network and recipe: gradient push on changing graphs [1], rounds of local epochs with models averaged by
training size where everybody hears everybody (FedAvg [2]). The reference that personal models are to beat.

[1] A. Nedić, A. Olshevsky. Stochastic gradient-push for strongly convex functions on time-varying directed graphs.
    IEEE TAC 2016.
[2] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import Recipe, need_recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task


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
