"""pFedMe: personal models as proximal points of a shared one,

    min_w Σ_i F_i(w),    F_i(w) = min_θ g_i(θ) + (μ/2) ‖θ − w‖²,    ∂F_i(w) = μ (w − θ_i(w)),   θ_i(w) the minimiser.

In a round [1] every client starts from w_i = w. For each mini-batch of its epoch it takes `inner_steps` gradient steps
towards θ_i on that batch, from where θ_i is, and then w_i ← w_i − ν μ (w_i − θ_i). The round ends with
w ← (1 − β) w + β Σ_i (N_i/N) w_i. Judged are the personal models θ_i.

The published program is another method (`as_published=True`): θ_i is never set back, each mini-batch is one

    θ_i ← θ_i − a (∂g_i(θ_i) + μ (θ_i − w)),      then  w = Σ_i (N_i/N) θ_i.

[1] C. T. Dinh, N. H. Tran, T. D. Nguyen. Personalized federated learning with Moreau envelopes. NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import Recipe, need_rounds
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import as_problem
from hgp_ref.problems.epochs import Epochs
from hgp_ref.training.descent import Descent
from hgp_ref.training.rounds import open_weighted


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
    recipe, mu = need_rounds(recipe, "pFedMe"), arguments.positive("mu", mu)
    inner_steps, published = (
        arguments.integer("inner_steps", inner_steps, 1, arguments.LONGEST),
        arguments.boolean("as_published", as_published),
    )
    nu = 1 / mu if local_rate is None else arguments.positive("local_rate", local_rate)
    beta = arguments.positive("beta", beta)
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    rule, steps = Descent(problem, lam, prox=mu), Epochs(problem, recipe.batch_size, task.seed, lam)
    theta = w = task.start()
    average = open_weighted(recipe.average(net), w, recipe.turns, recipe.weights(problem))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for turn, rate in enumerate(recipe.rates().tolist(), start=1):
            epochs = range((turn - 1) * recipe.epochs, turn * recipe.epochs)
            if published:
                theta = _epochs_towards(rule, steps, epochs, rate, theta, w)
                w = average(theta)
            else:
                theta, own = _envelope_epochs(rule, steps, epochs, rate, theta, w, inner_steps, nu * mu)
                w = (1 - beta) * w + beta * average(own)
            if judge.due(turn):
                judge.look(turn, theta, lam)
    settings = {"net": net, **asdict(recipe), "momentum": 0.0, "mu": mu, "as_published": published}
    settings |= {} if published else {"inner_steps": inner_steps, "local_rate": nu, "beta": beta}
    return judge.result("pFedMe", theta, None, average.mean.charge(), settings)


def _envelope_epochs(rule: Descent, steps: Epochs, epochs: range, rate: float, theta: Array, w: Array, inner_steps: int,
                     pull: float) -> tuple[Array, Array]:  # fmt: skip
    """θ and w_i after the mini-batches of these epochs."""
    for epoch in epochs:
        for batch, there in steps.steps(epoch):
            before = theta
            for _ in range(inner_steps):
                theta = theta - rate * rule.direction(theta, batch, None, w)
            theta = _where(there, theta, before)
            w = _where(there, w - pull * (w - theta), w)
    return theta, w


def _epochs_towards(rule: Descent, steps: Epochs, epochs: range, rate: float, theta: Array, w: Array) -> Array:
    """θ after one proximal step for each mini-batch of these epochs."""
    for epoch in epochs:
        for batch, there in steps.steps(epoch):
            theta = _where(there, theta - rate * rule.direction(theta, batch, None, w), theta)
    return theta


def _where(there: Array | None, moved: Array, stayed: Array) -> Array:
    return moved if there is None else array_namespace(moved).where(there, moved, stayed)
