"""What training returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import texts
from hgp_ref.backend import Array
from hgp_ref.channels import Traffic
from hgp_ref.results import Result


@dataclass(frozen=True)
class Fit(Result):
    """The trained parameters and what a reader needs to judge and repeat them.

    With a run axis on `lam`, or several seeds, `x` has it too; gap, norm and the fields of `traffic` are arrays then.

    Attributes
    ----------
    x : (n, d_x), each client's debiased parameters.
    consensus_gap : max_i ‖x_i − x̄‖.
    grad_norm : ‖mean_i ∂_x g_i(x̄, λ_i)‖ on full batches, with weight decay: zero at the inner solution.
    steps : how many were done; of local rounds, rounds.
    traffic : what clients sent.
    lr : the rate at the start.
    milestones : where it fell.
    decay : by which factor.
    variant : "assran" or "nedic"; "rounds" of local rounds.
    batch_size : None for full batches.
    seed : of the mini-batches.
    first_batch : where their sequence began; of local rounds, the first epoch.
    tol : the tolerance asked for.
    stopped : "steps", "tolerance" or "callback".
    momentum : of the steps.
    weight_decay : beside what the problem has.
    prox : weight of the pull towards the model of the round.
    rates : of each step or round that was done, (steps,).
    epochs : local epochs of a round; None for gradient push.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> fit = hgp.sgp(problem, hgp.networks.FullyConnected(3), lam, steps=300, lr=0.5)
    >>> fit.x.shape, fit.steps
    ((3, 4), 300)
    """

    x: Array
    consensus_gap: float | np.ndarray
    grad_norm: float | np.ndarray
    steps: int
    traffic: Traffic
    lr: float
    milestones: tuple[int, ...]
    decay: float
    variant: str
    batch_size: int | None
    seed: int | list[int]
    first_batch: int
    tol: float | None
    stopped: str
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    rates: np.ndarray | None = None
    epochs: int | None = None

    def _summary(self) -> list[str]:
        n, d = self.x.shape[-2:]
        lead = self.x.shape[:-2]
        runs = f", {int(np.prod(lead))} runs" if lead else ""
        work = f"{self.steps} steps of gradient push ({self.variant})"
        if self.epochs is not None:
            work = f"{self.steps} rounds of {self.epochs} local epochs"
        return texts.table(
            f"parameters of {n} clients, {d} numbers each{runs}: {work}"
            + ("" if self.batch_size is None else f", mini-batches of {self.batch_size}"),
            mean_gradient=texts.largest(self.grad_norm),
            consensus_gap=texts.largest(self.consensus_gap),
            stopped=texts.ending(self.stopped, self.tol, True if self.stopped == "tolerance" else None),
            traffic=self.traffic.in_words(),
        )
