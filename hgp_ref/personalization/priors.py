"""Class prior: one model for all, whose logits each client shifts by how often it has each class,

    prediction of client i:  z(x) + log p_i − log p̄,      p_i(c) = (N_ic + 1) / (N_i + C),

Bayes' rule for a model that has learnt the classes in the proportions p̄: the mean of the p_i, weighed by N_i where the
recipe weighs clients so (Σ_i N_i p_i / N), as their costs are. Nothing is trained beside x, no gradient along λ is
needed: a control of what a personal layer could learn from class frequencies alone. p̄ is one average of C numbers, and
one more with weights.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from hgp_ref.backend import Array, array_namespace
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import AVERAGINGS, Recipe, Rounds, need_recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import PersonalBias, as_problem
from hgp_ref.training.rounds import open_weighted

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
    mean = open_weighted(average, own, 1, weights)
    xp = array_namespace(own)
    lam: Array = xp.log(own) - xp.log(mean(own))
    mean.mean.charge()
    judge, zero = task.judge(problem, recipe.turns), task.zeros()
    fit = recipe(task.plain, net, zero, x0=task.start(), seed=task.seed, callback=judge.watching(lam))
    settings = {"net": net, **asdict(recipe)}
    return judge.result("class prior", fit.x, lam, fit.traffic + average.ledger, settings)


def class_shares(labels: list[np.ndarray], classes: int) -> np.ndarray:
    """p_i.  # (n, C)"""
    counts = np.stack([np.bincount(y, minlength=classes) for y in labels]) + 1.0
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
