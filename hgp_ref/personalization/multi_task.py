"""HGP-MTL: K networks for all, whose probabilities each client mixes in its own way,

    prediction of client i:  Σ_m softmax(λ_i)_m softmax(z(x_m)),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²,

x_1 … x_K trained together on the mixture's loss, λ_i by hyper-gradients (`outer_loop`).
"""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.memory import room
from hgp_ref.networks import Network
from hgp_ref.personalization.outer_loop import Outer, need_outer, personalize
from hgp_ref.personalization.recipes import Recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import PersonalMixture


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
    components = arguments.integer("components", components, 1, arguments.LONGEST)
    room(f"components={components}", task.n * task.model.dim * components)
    data = outer.data(task.data)
    problem = PersonalMixture(task.model, *data, components=components, l2=task.l2, outer_l2=outer.outer_l2)
    problem = task.moved(problem)
    return personalize(task, net, recipe, outer, problem, "HGP-MTL")
