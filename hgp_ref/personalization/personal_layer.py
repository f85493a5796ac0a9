"""HGP-PL: one network for all, whose logits each client multiplies by a mask of its own,

    prediction of client i:  z(x) ∘ s softmax(λ_i),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²,

x trained together, λ_i by hyper-gradients (`outer_loop`). s = C, the number of classes, so that λ = 0 changes nothing:
what the authors ran. Their text has s = 1 (`as_printed=True`), with which logits begin C times smaller.
"""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.networks import Network
from hgp_ref.personalization.outer_loop import Outer, need_outer, personalize
from hgp_ref.personalization.recipes import Recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task, need_task
from hgp_ref.problems import PersonalMask


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
    scale = 1.0 if arguments.boolean("as_printed", as_printed) else None
    data = outer.data(task.data)
    problem = task.moved(PersonalMask(task.model, *data, l2=task.l2, outer_l2=outer.outer_l2, scale=scale))
    return personalize(task, net, recipe, outer, problem, "HGP-PL")
