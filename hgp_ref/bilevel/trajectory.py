"""What the outer loop records: its state, its steps, and the path of λ that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, to_host
from hgp_ref.certificates.point import NOT_INCLUDED
from hgp_ref.mixing import Traffic
from hgp_ref.networks import Network
from hgp_ref.results import Result


@dataclass(frozen=True)
class OuterStep(Result):
    """What was done between λ_k and λ_{k+1}.

    Attributes
    ----------
    train : traffic of training at λ_k.
    estimate : traffic of the hyper-gradient at λ_k, including attempts that diverged.
    gradient_norm : ‖v‖ over all clients; None if every attempt diverged.
    iterations : of the estimate.
    scale : fraction of the update's step that was taken, 0 if it was refused. With certified steps, γ.
    note : what went wrong, if anything.
    bound : with certified steps, a bound on ‖v − ∇F(λ_k)‖.
    averaging_steps : with certified steps, S.
    interval : with certified steps, an interval that contains F(λ_{k+1}).
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


@dataclass
class CertifiedState(Result):
    """What a loop with certified steps carries from step to step."""

    gamma: float = 0.0  # the next step length
    S: int = 0
    M: int = 0
    w: Array | None = None  # of the last estimate
    refinements: int = 0
    interval: tuple[float, float] = (-np.inf, np.inf)  # contains F(λ_k)
    best: int = 0  # of the measure, before λ_k
    best_x: Array | None = None


@dataclass
class LoopState(Record, Result):
    """What changes while the loop of `optimise` runs: all that the next step depends on, and the entries of the path.

    With `log=True` in the update, `lam` holds the logarithms θ. Every graph and every mini-batch is used once;
    `traffic` and `batches` count them.
    """

    x: Array = None  # at λ_k
    update_state: tuple[Any, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)
    batches: int = 0  # mini-batches used
    training: Traffic = field(default_factory=Traffic)  # of the last training
    steps: list[OuterStep] = field(default_factory=list)
    measure: list[float] = field(default_factory=list)
    best: int = 0  # where the measure was lowest, and x there
    best_x: Array | None = None
    shrink: float = 1.0  # factor of η, after hyper-gradients that diverged
    refused: int = 0  # steps in a row
    certified: CertifiedState = field(default_factory=CertifiedState)
    stopped: str = ""  # why the loop has ended
    note: str = ""  # an explanation of `stopped`

    @property
    def k(self) -> int:
        """Outer steps made."""
        return len(self.lam) - 1

    def remaining(self, net: Network) -> Network:
        """`net` from its first unused graph on; a round uses one graph."""
        return net.after(int(self.traffic.rounds))

    def consume(self, sent: Traffic, batches: int) -> None:
        self.traffic += sent
        self.batches += int(batches)


@dataclass(frozen=True)
class Path(Result):
    """λ_0, …, λ_K with F(λ) = Σ_k f_k(x_k(λ), λ_k) at each of them, and the traffic.

    `floats` and `rounds` are cumulative: entry k is the traffic until `outer_cost[k]` was known.

    Attributes
    ----------
    lam : (K+1, n, d_λ).
    x : (n, d_x), trained at the last λ.
    outer_cost, floats, rounds : (K+1,).
    traffic : the total.
    stopped : "steps", "callback", "patience" or "divergence"; with certified steps also "certificate", "resolution" or
        "stationary".
    method : which bilevel method.
    settings : its settings, as text.
    steps : an `OuterStep` for each of the K steps; empty for baselines.
    measure : (K+1,), of the monitor.
    best, best_x : the step at which the measure was smallest, and x (n, d_x) there.
    note : an explanation of `stopped`, with certified steps.
    rounding_complete : whether certificates include the rounding of the problem's own sums, which they do if it has
        `term_sizes`; None without certified steps.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> path = hgp.bilevel.optimise(problem, lam, hgp.networks.FullyConnected(3), outer_steps=2,
    ...     train=hgp.training.SGP(100, lr=0.5), estimate=hgp.bilevel.Estimator(1, 50, eta=1.0))
    >>> path.lam.shape, path.outer_cost.shape, path.steps[0].iterations
    ((3, 3, 2), (3,), 50)
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
        refused, gradient = sum(bool(step.note) for step in self.steps), ""
        if self.steps and self.steps[-1].gradient_norm is not None:
            bound = self.steps[-1].bound
            certified = "" if bound is None else f", certified to {bound:.1e}"
            gradient = f"norm {self.steps[-1].gradient_norm:.2e} in the last step{certified}"
        return validation.table(
            f"hyper-parameters of {n} clients, {d} numbers each: {len(costs) - 1} outer steps of {self.method}",
            outer_cost=f"{costs[0]:.4g} to {costs[-1]:.4g}, lowest {costs[lowest]:.4g} at step {lowest}",
            measure="" if self.measure is None else f"lowest {self.measure[self.best]:.4g} at step {self.best}",
            gradient=gradient,
            rounding=NOT_INCLUDED if self.rounding_complete is False else "",
            trouble=f"in {refused} of {len(self.steps)} steps, see the notes of path.steps" if refused else "",
            stopped=validation.stop_reason(self.stopped) + (f": {validation.cut(self.note, 200)}" if self.note else ""),
            traffic=self.traffic.one_line(),
        )

    def plot(self, over: str = "step") -> Any:
        """Draw the outer cost and the entries of λ over `over`, which is "step", "floats" or "rounds".

        Returns pyplot's current figure. Needs `pip install 'hgp_ref[figures]'`.
        """
        return plot_path(self, over)


MOST_LINES = 40  # entries of λ that are drawn one by one


def plot_path(path: Path, over: str) -> Any:
    """A figure with two panels: the outer cost, and the entries of λ."""
    plt = validation.pyplot()
    axes = {
        "step": ("outer step", np.arange(len(path.outer_cost))),
        "floats": ("numbers sent", path.floats),
        "rounds": ("rounds", path.rounds),
    }
    name, along = axes[validation.choice("over", over, axes)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    left.plot(along, path.outer_cost, "o-", ms=3, lw=1.4, color="C0", label="outer cost, all clients together")
    if path.measure is not None:
        twin = left.twinx()
        twin.plot(along, path.measure, "s--", ms=2.5, lw=1.0, color="C1")
        twin.set_ylabel("measure", color="C1")
        left.axvline(along[path.best], color="C1", lw=0.8, ls=":")
    noted = [k for k, step in enumerate(path.steps) if step.note]
    if noted:
        left.plot(along[noted], path.outer_cost[noted], "x", color="C3", ms=7, label="shrunk or refused step after")
    left.set(xlabel=name, title=f"{path.method}: {path.outer_cost[0]:.4g} to {path.outer_cost[-1]:.4g}")
    left.legend(frameon=False, fontsize="small")
    entries = to_host(path.lam).reshape(len(along), -1)
    if entries.shape[1] > MOST_LINES:
        for percent, alpha in ((0, 0.12), (10, 0.2), (25, 0.35)):
            low, high = np.percentile(entries, [percent, 100 - percent], axis=1)
            right.fill_between(along, low, high, color="C0", alpha=alpha, lw=0,
                               label=f"{percent}–{100 - percent} % of entries")  # fmt: skip
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
