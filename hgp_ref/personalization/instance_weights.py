"""HGP-weights: one network for all, for which each client weighs its own training instances,

    g_i(x, λ_i) = (1/N_i) Σ_k λ_ik l_ik(x) + (l2/2) ‖x‖²,    0 ≤ λ_ik ≤ 1,      f_i = mean loss on validation instances,

x trained together, λ_i by hyper-gradients from λ = 1 on (`outer_loop`). λ has no part in the prediction, so ∂_λ f = 0
and all of the hyper-gradient comes through x: with M = 0 nothing moves. For clients some of whose labels are wrong.
"""

from __future__ import annotations

from dataclasses import replace

from hgp_ref.bilevel import Box
from hgp_ref.networks import Network
from hgp_ref.personalization.outer_loop import Outer, need_outer, personalize
from hgp_ref.personalization.recipes import Recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import NeuralInstanceWeights

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
