"""What a run of a method returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import texts
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array
from hgp_ref.channels import Traffic
from hgp_ref.estimators.fingerprint import Fingerprint
from hgp_ref.methods import Method
from hgp_ref.results import Result


@dataclass(frozen=True)
class Estimate(Result):
    """v^(M) and what a reader needs to judge and repeat it.

    With a list of averagings or seeds, `value`, `w`, `history`, `growth` and the fields of `traffic` carry a leading
    run axis.

    Attributes
    ----------
    value : v^(M), (n, d_lam).
    w : w^(M), (n, d_x): each client's estimate of w* = (Σ H)⁻¹ Σ ∂_x f.
    history : v^(1) .. v^(M), (M, n, d_lam).
    traffic : what clients sent.
    eta : of Algorithm 2; None for a method without it.
    iterations : how many were done.
    batch_size : of the mini-batches; None for full batches.
    averaging : the averaging, or the list of them.
    stopped : "iterations", "tolerance" or "callback".
    growth : max_i ‖r_i^(M)‖ / max_i ‖r_i^(0)‖: what is left (r is u in Algorithm 2).
    method : how w* was approached.
    seed : of the mini-batches.
    first_batch : where their sequence began.
    shared_batch : whether one batch served H and J.
    replace : whether they were drawn with replacement.
    tol : the tolerance asked for.
    norms : max_i ‖r_i^(m)‖ where it was looked at, (looks, [runs]); the first is at m = 0.
    looks : these m, (looks,).
    whole_cross : whether J was of full batches.
    carried : what the method had left, from which `resume` goes on, (n, d_x).
    fingerprint : of the problem's values, x and λ, so that `resume` can tell whether it is at the same point.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> est.value.shape, est.w.shape, est.stopped, est.iterations
    ((3, 2), (3, 4), 'iterations', 200)
    """

    value: Array
    w: Array
    history: Array | None
    traffic: Traffic
    eta: float | None
    iterations: int
    batch_size: int | None
    averaging: Averaging | list[Averaging]
    stopped: str
    growth: float | np.ndarray
    method: Method
    seed: int | list[int]
    first_batch: int
    shared_batch: bool
    replace: bool
    tol: float | None
    norms: np.ndarray
    looks: np.ndarray
    whole_cross: bool = False
    carried: Array | None = None
    fingerprint: Fingerprint | None = None

    def _summary(self) -> list[str]:
        n, d = self.value.shape[-2:]
        runs = f", {self.value.shape[0]} runs" if self.value.ndim > 2 else ""
        averagings = self.averaging if isinstance(self.averaging, list) else [self.averaging]
        more = f" and {len(averagings) - 1} more" if len(averagings) > 1 else ""
        batches = "" if self.batch_size is None else f", mini-batches of {self.batch_size}"
        met = {"tolerance": True, "iterations": False}.get(self.stopped)
        return texts.table(
            f"hyper-gradient of {n} clients, {d} numbers each{runs}: {self.iterations} iterations of "
            f"{texts.cut(repr(self.method))}{batches}",
            averaging=texts.cut(repr(averagings[0]), 100) + more,
            residual_left=f"{texts.largest(self.growth)} of the first; hgp.certify bounds the error",
            stopped=texts.ending(self.stopped, self.tol, met),
            traffic=self.traffic.in_words(),
        )

    def plot(self, truth: Array | None = None, ax: Any = None) -> Any:
        """Draw what is left of the series over m, and with `history` how far v^(m) is from `truth`, or from v^(M).

        Needs the extra `figures`. `truth` is (n, d_lam), such as `hgp.exact.hypergradient(problem, x, lam)`. Returns
        the axes that were drawn on.

        Parameters
        ----------
        truth : (n, d_λ), to compare with.
        ax : axes to draw into; new ones by default.

        Returns
        -------
        matplotlib Axes, new ones in pyplot's current figure: `plt.savefig` writes it, `plt.close(axes.figure)` frees
        it. Needs `pip install 'hgp_ref[figures]'`.
        """
        from hgp_ref.estimators.plot import plot_estimate

        return plot_estimate(self, truth, ax)
