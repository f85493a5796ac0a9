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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.bilevel import Adam, optimise
from hgp_ref.data import Clients
from hgp_ref.networks import Network
from hgp_ref.personalization.recipes import AVERAGINGS, Recipe, Rounds, need_recipe
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task
from hgp_ref.problems.weighed import Weighed
from hgp_ref.training import Fit


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
    >>> hgp.personalization.Outer(iterations=0).estimate()["iterations"]  # M = 0: ∂_λ f alone
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
        arguments.choice("averaging", self.averaging, AVERAGINGS)
        arguments.choice("outer_on", self.outer_on, ("train", "validation"))
        for name, low in {"outer_steps": 0, "iterations": 0, "steps": 1}.items():
            arguments.integer(name, getattr(self, name), low, arguments.LONGEST)
        for name in ("rate", "eta"):
            arguments.positive(name, getattr(self, name))
        arguments.nonnegative("outer_l2", self.outer_l2)
        arguments.boolean("as_published", self.as_published)
        if self.batch_size is not None:
            arguments.integer("batch_size", self.batch_size, 1, 2**31 - 1)

    def data(self, data: Clients) -> tuple[Any, ...]:
        """What a problem is made of: training data and, where f is theirs, validation data."""
        return data.train if self.outer_on == "train" else (*data.train, *data.validation)

    def estimate(self) -> Mapping[str, Any]:
        """Keywords of the hyper-gradient."""
        asked = dict(steps=self.steps, iterations=self.iterations, average=AVERAGINGS[self.averaging])
        if self.iterations:
            asked |= dict(eta=self.eta, batch_size=self.batch_size, shared_batch=self.batch_size is not None)
        return asked


def need_outer(outer: Outer) -> Outer:
    """TypeError unless it is one."""
    arguments.kind("outer", outer, Outer)
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

    def train(_: Any, *given: Any, **options: Any) -> Fit:
        return recipe(problem, *given, **options)

    def look(k: int, lam: Array, x: Array, cost: float) -> None:
        judge.look(k, x, lam)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        path = optimise(
            problem if sizes is None else Weighed(problem, sizes / sizes.mean()),
            net,
            task.zeros(problem.dim_lam) if start is None else start,
            outer.outer_steps,
            train=train,
            estimate=outer.estimate(),
            update=Adam(outer.rate),
            project=project,
            warm_start=False,
            seed=task.seed,
            x0=task.start(problem.model),
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
