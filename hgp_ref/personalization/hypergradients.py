"""Personal parameters λ_i by hyper-gradients: HGP-PL, HGP-MTL and HGP-weights.

Clients train x(λ) together, estimate v ≈ d_λ Σ_i f_i(x_i(λ), λ_i) by HGP, and update their λ_i. They do this K times
(`hgp_ref.bilevel.optimise`). Each training starts again from the same x, with graphs and mini-batches that were not
used before. A hyper-gradient that diverges is estimated again with η halved; it never reaches the update. λ_0 … λ_K are
all evaluated, and validation accuracy chooses among them.

M = 0 is the control: v = ∂_λ f, which each client computes without communication.

A trainer that weights models by training size, `LocalSGD(by_size=True)`, trains x(λ) = argmin_x Σ_i N_i g_i, and v is
the hyper-gradient of that x(λ). The published program also weights models so over FC, but estimates the hyper-gradient
for argmin_x Σ_i g_i (`OuterLoop(as_published=True)`). If sizes differ, that does not tend to d_λ F as S and M grow.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hgp_ref import bilevel
from hgp_ref.backend import Array
from hgp_ref.data import Clients
from hgp_ref.networks import Network
from hgp_ref.personalization.methods import PersonalizationMethod
from hgp_ref.personalization.task import Evaluator, Personalized, Task
from hgp_ref.personalization.trainers import AVERAGINGS, Trainer
from hgp_ref.problems import MiniBatches, NeuralInstanceWeights, PersonalMask, PersonalMixture
from hgp_ref.problems.transforms import WeightedClients
from hgp_ref.training import Fit
from hgp_ref.validation import (
    Boolean,
    Choice,
    Count,
    Instance,
    Integer,
    Nonnegative,
    Optional,
    Positive,
    check_memory,
    checked,
)


@checked(
    outer_steps=Count(0),
    lr=Positive(),
    outer_l2=Nonnegative(),
    iterations=Count(0),
    averaging_steps=Count(1),
    eta=Positive(),
    batch_size=Optional(Integer(1, 2**31 - 1)),
    averaging=Choice(*AVERAGINGS),
    outer_data=Choice("train", "validation"),
    as_published=Boolean(),
)
@dataclass(frozen=True)
class OuterLoop:
    """K steps of Adam on λ, with hyper-gradients by HGP.

    Parameters
    ----------
    outer_steps : K.
    lr : the learning rate of Adam.
    outer_l2 : γ of ½γ‖λ_i‖² in f_i.
    iterations : M. With 0, v is ∂_λ f alone.
    averaging_steps : S.
    eta : η.
    batch_size : of HGP's products, one batch for u and v together as in the paper; None for full batches.
    averaging : "push_sum", "gossip" or "exact".
    outer_data : the data of f_i, "train" as in the paper or "validation".
    as_published : estimate the hyper-gradient for x(λ) = argmin Σ_i g_i, even if training weights clients by size.

    Examples
    --------
    >>> hgp.personalization.OuterLoop(iterations=0).estimator().iterations  # M = 0: ∂_λ f alone
    0
    """

    outer_steps: int = 5
    lr: float = 0.1
    outer_l2: float = 1e-3
    iterations: int = 10
    averaging_steps: int = 10
    eta: float = 0.1
    batch_size: int | None = 128
    averaging: str = "push_sum"
    outer_data: str = "train"
    as_published: bool = False

    def data(self, data: Clients) -> tuple[Any, ...]:
        """The arrays that a problem takes: training data, and validation data if f is on these."""
        return data.train if self.outer_data == "train" else (*data.train, *data.validation)

    def estimator(self, seed: int = 0) -> bilevel.Estimator:
        """The estimator of hyper-gradients that `optimise` uses."""
        batches = None if self.batch_size is None else MiniBatches(self.batch_size, seed, share=True)
        average = AVERAGINGS[self.averaging]
        return bilevel.Estimator(self.averaging_steps, self.iterations, eta=self.eta, batches=batches, average=average)


@dataclass(frozen=True)
class _HyperGradientMethod(PersonalizationMethod):
    """The outer loop on the problem of a subclass."""

    _project: ClassVar[Any] = None  # a projection onto the feasible λ
    _initial: ClassVar[float] = 0.0  # every entry of λ_0
    outer: OuterLoop = OuterLoop()

    def _problem(self, task: Task) -> Any:
        raise NotImplementedError

    def _fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        problem, outer = task.to_backend(self._problem(task)), self.outer
        sizes = None if outer.as_published else trainer.weights(problem)
        evaluator = Evaluator(task, problem, outer.outer_steps)

        def train(_: Any, lam: Array, net: Network, *, x0: Array, first_batch: int, outer_step: int) -> Fit:
            return trainer.fit(problem, lam, net, x0=x0, seed=task.seed, first_batch=first_batch)

        def evaluate(k: int, lam: Array, x: Array, cost: float) -> None:
            evaluator.evaluate(k, x, lam)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            path = bilevel.optimise(
                problem if sizes is None else WeightedClients(problem, sizes / sizes.mean()),
                task.zeros(problem.dim_lam) + self._initial,
                net,
                outer_steps=outer.outer_steps,
                train=bilevel.Trainer(train, x0=task.start(problem.model), warm_start=False),
                estimate=outer.estimator(task.seed),
                update=bilevel.Adam(outer.lr),
                project=self._project,
                callback=evaluate,
            )
        notes = [f"outer step {k}: {step.note}" for k, step in enumerate(path.steps) if step.note]
        notes += [str(w.message) for w in caught if str(w.message).startswith("not converged")]
        settings = {**self._settings(net, trainer), "outer_cost": path.outer_cost, "stopped": path.stopped}
        return evaluator.result(self.name, path.x, path.lam[-1, ...], path.traffic, settings, tuple(notes))


@checked(outer=Instance(OuterLoop), as_printed=Boolean())
@dataclass(frozen=True)
class HGPPersonalLayer(_HyperGradientMethod):
    """HGP-PL: one common network, whose logits each client multiplies by a personal mask.

        prediction of client i:  z(x) ∘ s softmax(λ_i),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²

    s = C, the number of classes, so that λ = 0 changes nothing; this is what the authors ran. The paper's text has
    s = 1 (`as_printed=True`), for which logits start C times smaller.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.RandomDirected(4, seed=0)
    >>> method = personal.HGPPersonalLayer(personal.OuterLoop(outer_steps=2, averaging_steps=5))
    >>> method.fit(task, net, personal.GradientPush(steps=60, lr=0.3)).validation.shape  # λ_0, λ_1 and λ_2
    (3, 4)
    """

    name = "HGP-PL"
    as_printed: bool = False

    def _problem(self, task: Task) -> PersonalMask:
        scale = 1.0 if self.as_printed else None
        data = self.outer.data(task.data)
        return PersonalMask(task.model, *data, l2=task.l2, outer_l2=self.outer.outer_l2, scale=scale)


@checked(outer=Instance(OuterLoop), components=Count(1))
@dataclass(frozen=True)
class HGPMultiTask(_HyperGradientMethod):
    """HGP-MTL: K common networks, whose probabilities each client mixes with personal weights.

        prediction of client i:  Σ_m softmax(λ_i)_m softmax(z(x_m)),      f_i = mean loss + (outer_l2/2) ‖λ_i‖²

    x_1 … x_K are trained together on the mixture's loss.

    Parameters
    ----------
    components : K.
    """

    name = "HGP-MTL"
    outer: OuterLoop = OuterLoop(outer_l2=1e-2)
    components: int = 3

    def _problem(self, task: Task) -> PersonalMixture:
        check_memory(f"components={self.components}", task.n * task.model.dim * self.components)
        data, outer_l2 = self.outer.data(task.data), self.outer.outer_l2
        return PersonalMixture(task.model, *data, components=self.components, l2=task.l2, outer_l2=outer_l2)


@checked(outer=Instance(OuterLoop))
@dataclass(frozen=True)
class HGPInstanceWeights(_HyperGradientMethod):
    """HGP-weights: one common network; each client learns weights of its training instances. For wrong labels.

        g_i(x, λ_i) = (1/N_i) Σ_k λ_ik l_ik(x) + (l2/2) ‖x‖²,    0 ≤ λ_ik ≤ 1,      f_i = mean validation loss

    λ starts at 1. It has no part in predictions, so ∂_λ f = 0 and the whole hyper-gradient comes through x. With M = 0
    λ does not move. `outer` must have outer_data="validation"; its outer_l2 is not used.
    """

    name = "HGP-weights"
    _initial = 1.0
    _project = bilevel.Box(0.0, 1.0)
    outer: OuterLoop = OuterLoop(lr=0.3, batch_size=None, outer_data="validation")

    def __post_init__(self) -> None:
        if self.outer.outer_data != "validation":
            raise ValueError(f"outer must have outer_data='validation' for HGP-weights, got {self.outer.outer_data!r}")
        object.__setattr__(self, "outer", replace(self.outer, outer_l2=0.0))

    def _problem(self, task: Task) -> NeuralInstanceWeights:
        return NeuralInstanceWeights(task.model, *task.data.train, *task.data.validation, task.l2)
