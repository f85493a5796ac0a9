"""What a bilevel method returns: the path of λ, what it cost, and what it gained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, to_host
from hgp_ref.certificates.point import NOT_INCLUDED
from hgp_ref.mixing import Traffic
from hgp_ref.results import Result


@dataclass(frozen=True)
class OuterStep(Result):
    """What was done between λ_k and λ_{k+1}.

    Attributes
    ----------
    train : of training at λ_k.
    estimate : of the hyper-gradient at λ_k, refused ones included.
    gradient_norm : ‖v‖ over all clients; None where there is none.
    iterations : of the estimate.
    scale : share of the update's step that was taken, 0 where it was refused; γ, where steps are certified.
    note : what went wrong, if anything.
    bound : on ‖v − ∇F(λ_k)‖, where steps are certified.
    averaging_steps : S, where it may change.
    interval : in which F(λ_{k+1}) lies, where steps are certified.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> path = hgp.bilevel.optimise(problem, lam, hgp.networks.FullyConnected(3), outer_steps=1,
    ...     train=hgp.training.SGP(100, lr=0.5), estimate=hgp.bilevel.Estimator(1, 50, eta=1.0))
    >>> path.steps[0].iterations
    50
    """

    train: Traffic
    estimate: Traffic
    gradient_norm: float | None
    iterations: int
    scale: float = 1.0
    note: str = ""
    bound: float | None = None
    averaging_steps: int | None = None
    interval: tuple[float, float] | None = None


@dataclass
class Record:
    """The entries of a path, one after the other."""

    lam: list[Array] = field(default_factory=list)
    outer_cost: list[float] = field(default_factory=list)
    floats: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def append(self, lam: Array, outer_cost: float, traffic: Traffic) -> None:
        self.lam.append(lam)
        self.outer_cost.append(outer_cost)
        self.floats.append(int(traffic.floats))
        self.rounds.append(int(traffic.rounds))

    def path(self, x: Array, traffic: Traffic, **fields: Any) -> Path:
        """The path of these entries, with its other fields."""
        return Path(
            lam=array_namespace(x).stack(self.lam),
            x=x,
            outer_cost=np.array(self.outer_cost),
            traffic=traffic,
            floats=np.array(self.floats, dtype=np.int64),
            rounds=np.array(self.rounds, dtype=np.int64),
            **fields,
        )


@dataclass(frozen=True)
class Path(Result):
    """λ_0, ..., λ_K with Σ_k f_k(x_k(λ), λ_k) at each of them, and what was sent until it was known.

    `floats` and `rounds` are cumulative: entry k is what it took until `outer_cost[k]` was known, the last one is the
    total. They are what outer costs of different methods are drawn over.

    Attributes
    ----------
    lam : (K+1, n, d_λ).
    x : (n, d_x), trained at the last λ.
    outer_cost : (K+1,), Σ_k f_k.
    traffic : in all.
    floats : (K+1,), sent until each λ was known.
    rounds : (K+1,), of the network until then.
    stopped : "steps", "callback", "patience" or "divergence", and what a method has besides.
    method : which bilevel method.
    settings : what repeats it.
    steps : what each of the K steps took, where the method tells.
    measure : (K+1,), what the caller's measure said, the smaller the better.
    best : where it was smallest.
    best_x : (n, d_x), trained at that λ.
    note : what ended it, in words, where a certificate did.
    rounding_complete : whether bounds and intervals include the rounding of the problem's own sums, as where it offers
        `term_sizes`; None where steps are not certified.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> path = hgp.bilevel.optimise(problem, lam, hgp.networks.FullyConnected(3), outer_steps=2,
    ...     train=hgp.training.SGP(100, lr=0.5), estimate=hgp.bilevel.Estimator(1, 50, eta=1.0))
    >>> path.lam.shape, path.outer_cost.shape, len(path.steps)
    ((3, 3, 2), (3,), 2)
    """

    lam: Array
    x: Array
    outer_cost: np.ndarray
    traffic: Traffic
    floats: np.ndarray
    rounds: np.ndarray
    stopped: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    steps: tuple[OuterStep, ...] = ()
    measure: np.ndarray | None = None
    best: int | None = None
    best_x: Array | None = None
    note: str = ""
    rounding_complete: bool | None = None

    def _summary(self) -> list[str]:
        n, d = self.lam.shape[-2:]
        costs, lowest = self.outer_cost, int(np.argmin(self.outer_cost))
        last = self.steps[-1] if self.steps else None
        refused = sum(bool(step.note) for step in self.steps)
        return validation.table(
            f"hyper-parameters of {n} clients, {d} numbers each: {len(costs) - 1} outer steps of {self.method}",
            outer_cost=f"{costs[0]:.4g} to {costs[-1]:.4g}, lowest {costs[lowest]:.4g} at step {lowest}",
            measure="" if self.measure is None else f"lowest {self.measure[self.best]:.4g} at step {self.best}",
            gradient=_gradient(last),
            rounding=NOT_INCLUDED if self.rounding_complete is False else "",
            trouble=f"in {refused} of {len(self.steps)} steps, see the notes of path.steps" if refused else "",
            stopped=validation.stop_reason(self.stopped) + (f": {validation.cut(self.note, 200)}" if self.note else ""),
            traffic=self.traffic.in_words(),
        )

    def plot(self, over: str = "step") -> Any:
        """A matplotlib figure of the outer cost and of λ over steps, "floats" or "rounds".

        Needs `pip install 'hgp_ref[figures]'`.

        Parameters
        ----------
        over : "step", "floats" or "rounds".

        Returns
        -------
        matplotlib Figure, pyplot's current one: `plt.savefig` writes it, `plt.close(figure)` frees it. Needs
        `pip install 'hgp_ref[figures]'`.
        """

        return plot_path(self, over)


def _gradient(last: OuterStep | None) -> str:
    """The norm of the last hyper-gradient, and the bound on its error where steps are certified."""
    if last is None or last.gradient_norm is None:
        return ""
    certified = "" if last.bound is None else f", certified to {last.bound:.1e}"
    return f"norm {last.gradient_norm:.2e} in the last step{certified}"


# ----------------------------------------------------------------------------------------------------
# A path as a picture: the outer cost over what was sent, and where λ went.


OVER = ("step", "floats", "rounds")
MOST_LINES = 40  # entries of λ that are drawn one by one


def plot_path(path: Path, over: str) -> Any:
    """A figure with two panels; matplotlib's."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    validation.choice("over", over, OVER)
    steps = np.arange(len(path.outer_cost))
    along = {"step": steps, "floats": path.floats, "rounds": path.rounds}[over]
    name = {"step": "outer step", "floats": "numbers sent", "rounds": "rounds"}[over]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    left.plot(along, path.outer_cost, "o-", ms=3, lw=1.4, color="C0", label="outer cost, all clients together")
    if path.measure is not None:
        twin = left.twinx()
        twin.plot(along, path.measure, "s--", ms=2.5, lw=1.0, color="C1")
        twin.set_ylabel("measure", color="C1")
        left.axvline(along[path.best], color="C1", lw=0.8, ls=":")
    shrunk = [k for k, step in enumerate(path.steps) if step.note]
    if shrunk:
        left.plot(along[shrunk], path.outer_cost[shrunk], "x", color="C3", ms=7, label="shrunk or refused step after")
    left.set(xlabel=name, title=f"{path.method}: {path.outer_cost[0]:.4g} to {path.outer_cost[-1]:.4g}")
    left.legend(frameon=False, fontsize="small")
    entries = to_host(path.lam).reshape(len(steps), -1)
    if entries.shape[1] > MOST_LINES:
        for share, alpha in ((0, 0.12), (10, 0.2), (25, 0.35)):
            low, high = np.percentile(entries, [share, 100 - share], axis=1)
            right.fill_between(along, low, high, color="C0", alpha=alpha, lw=0,
                               label=f"{share}–{100 - share} % of entries")  # fmt: skip
        right.plot(along, np.median(entries, axis=1), color="C0", lw=1.4, label="median")
        right.legend(frameon=False, fontsize="small")
    else:
        right.plot(along, entries, lw=0.9)
    if entries.min() > 0 and entries.max() > 20 * entries.min():
        right.set_yscale("log")
    right.set(xlabel=name, title=r"entries of $\lambda$")
    for ax in (left, right):
        ax.grid(alpha=0.3)
    return figure
