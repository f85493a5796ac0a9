"""Local: every client trains its own model on its own data, x_i = argmin g_i, and sends nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace

from hgp_ref.networks import Network, SelfLoops
from hgp_ref.personalization.global_model import fedavg
from hgp_ref.personalization.recipes import Recipe, Rounds, need_recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task


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
