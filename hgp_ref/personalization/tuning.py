"""FedAvg+: the shared model, tuned by each client on its own data before it is used,

    x_i = E epochs of client i from z,      z = Σ_i (N_i/N) w_i of FedAvg (or of gradient push).

The tuned models are only looked at; training goes on from z. Momentum starts anew at each look and the rate is that of
the turn. As published, the tuned copy keeps its own optimiser: its rate never falls and its momentum goes on from look
to look (`as_published=True`).

[1] Y. Jiang et al. Improving federated learning personalization via model agnostic meta learning. 2019.
"""

from __future__ import annotations

from dataclasses import asdict

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import Recipe, need_recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import as_problem
from hgp_ref.problems.epochs import Epochs
from hgp_ref.training.descent import Descent
from hgp_ref.training.rounds import LocalEpochs


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
        arguments.integer("epochs", epochs, 1, arguments.LONGEST),
        arguments.boolean("as_published", as_published),
    )
    need_task(task).over(net)
    rates = need_recipe(recipe).rates()
    if tuning_rate is not None:
        rates = rates * 0 + arguments.positive("tuning_rate", tuning_rate)
    elif as_published:
        rates = rates * 0 + rates[0]
    problem, lam, judge = as_problem(task.plain), task.zeros(), task.judge(task.plain, recipe.turns)
    rule = Descent(problem, lam, recipe.momentum)
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
