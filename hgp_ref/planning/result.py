"""A plan: a method with its settings, what it is expected to need, and why; and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging import PushSum, push_sum_over
from hgp_ref.backend import Array
from hgp_ref.certificates import Certificate
from hgp_ref.channels import Traffic
from hgp_ref.estimators import Estimate
from hgp_ref.methods import Method
from hgp_ref.networks import Network
from hgp_ref.planning.enquiry import Found
from hgp_ref.results import Result

AGAINST = ("solution", "x")
SHOWN = 4  # stages in print
NOTHING = Traffic()


@dataclass(frozen=True)
class Stage(Result):
    """One run of a method inside a planned run.

    Attributes
    ----------
    method : its repr.
    iterations : how many it made.
    traffic : what clients sent for it.
    diverged : whether it ended by diverging, so that nothing of it was used.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3).run()
    >>> [stage.diverged for stage in out.stages]
    [False]
    """

    method: str
    iterations: int
    traffic: Traffic
    diverged: bool = False


@dataclass(frozen=True)
class Outcome(Estimate):
    """The estimate of a planned run, with its certificate.

    `traffic` and `iterations` count everything: finding constants, every stage, and the clients' certificate if it was
    they who made it. `method`, `averaging`, `growth`, `norms` and `looks` are those of the stage that `value` is from.

    `met` is about `bound`, and `bound` is against what `against` says. Where the problem's Lipschitz constants are
    known, that is the hyper-gradient at the exact inner solution: `bound` then includes what the given x may add, which
    no plan can reduce, and `bound_at_x` is the part that a run can reduce. Elsewhere `against` is the formula at the
    given x, and nothing is said of the error of x.

    Attributes
    ----------
    certificate : the bound on the error, where it was asked for.
    bound : certified, over all clients and in the units of the target; None where nothing was certified.
    met : whether the bound is at most the target.
    continued : how often the run went on after its first end.
    against : which hyper-gradient `bound` and `met` refer to; None where nothing was certified.
    bound_at_x : the bound against the hyper-gradient formula at the given x, in the same units.
    stages : all runs of methods, in order, those that diverged included.
    target : error asked for.
    relative : whether target and bounds are shares of ‖d‖.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> out = plan.run()
    >>> out.met, out.bound <= 1e-3, out.continued, out.against
    (True, True, 0, 'the hyper-gradient at the exact inner solution')
    """

    certificate: Certificate | None = None
    bound: float | None = None
    met: bool | None = None
    continued: int = 0
    against: str | None = None
    bound_at_x: float | None = None
    stages: tuple[Stage, ...] = ()
    target: float | None = None
    relative: bool = True

    def __str__(self) -> str:
        last = f"{self.continued} continuations" if self.continued != 1 else "1 continuation"
        stages = [f"{s.method}: {s.iterations} iterations{', diverged' * s.diverged}" for s in self.stages]
        shown = stages if len(stages) <= SHOWN else [*stages[: SHOWN - 1], f"… {len(stages) - SHOWN} more", stages[-1]]
        lines = [
            f"hyper-gradients of {self.value.shape[-2]} clients after {self.iterations} iterations and {last}",
            *self._accuracy(),
            *(f"  {stage}" for stage in shown),
            f"  {self.traffic.floats:.3g} floats sent in {self.traffic.rounds} rounds",
        ]
        return "\n".join(lines)

    def _accuracy(self) -> list[str]:
        if self.bound is None or self.target is None:
            return ["  not certified"]
        unit, said = "relative" if self.relative else "absolute", "met" if self.met else "NOT met"
        lines = [f"  {unit} error <= {self.bound:.2e} against {self.against}", f"  target {self.target:.2e}: {said}"]
        if self.bound_at_x is not None and self.bound_at_x != self.bound:
            lines.insert(1, f"  of which the run accounts for {self.bound_at_x:.2e}, the error of x for the rest")
        return lines

    @property
    def rounding_complete(self) -> bool | None:
        """Whether `bound` and `met` include the rounding of the problem's own sums; None where nothing was certified.

        Returns
        -------
        bool or None.
        """
        return None if self.certificate is None else self.certificate.rounding_complete


@dataclass(frozen=True)
class Plan(Result):
    """What `hgp.plan` chose.

    Attributes
    ----------
    method : how w* is approached.
    steps : S, or S_0, S_1, … of the averaging.
    iterations : M.
    traffic : expected, what was already sent to find constants included, and a margin for runs that continue.
    error : what the settings aim at, a fixed share of the target; the run is judged by its certificate.
    target : error asked for.
    relative : whether target and error are shares of ‖d‖.
    found : what the clients found out.
    compared : methods and the floats that each was expected to need, the best first; counted as in `traffic`.
    problem : to which it belongs.
    x : the point.
    lam : λ there.
    net : the network.
    budget : floats that may be sent in all, where that was asked for.
    first : expected if the first run suffices, what was already sent included.
    continuation : expected for each time that the run goes on because its certificate misses the target.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> isinstance(plan.method, hgp.methods.Method), plan.iterations >= 1, plan.error <= 1e-3
    (True, True, True)
    """

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    traffic: Traffic
    error: float
    target: float
    relative: bool
    found: Found
    compared: tuple[tuple[str, float], ...]
    problem: Any
    x: Array
    lam: Array
    net: Network
    budget: float | None = None
    first: Traffic = NOTHING
    continuation: Traffic = NOTHING

    @property
    def averaging(self) -> PushSum:
        """The averaging of the run, over graphs that come after those that were used to find constants."""
        return push_sum_over(self.net.after(self.found.graphs), self.steps)

    def run(
        self, *, certify: bool = True, by_clients: bool = False, against: str = "solution", **certificate: Any
    ) -> Outcome:
        """Run the plan and certify it; go on where the certificate misses the target.

        Gradient tracking goes on where it stands, another method by a cycle of refinement: w is averaged again and the
        method solves for what is left. A run that diverges is begun again with a smaller step (a wider interval), one
        that has grown for want of agreement between clients with longer calls. Where a budget was given, a run goes on
        only within it; what clients send for a certificate of their own comes on top. Of all that was certified, the
        best is returned.

        Parameters
        ----------
        certify : whether to bound the error; without, the run ends as planned.
        by_clients : whether the clients compute the bound themselves, over the network and counted, and decide by it;
            they do in any case where some live in other processes.
        against : what the target is about. "solution": the hyper-gradient at the exact inner solution, where Lipschitz
            constants of the problem tell how far x may be from it, and the formula at the given x elsewhere. "x": the
            formula at the given x in any case. A run can only reduce its distance from the formula at x: where x alone
            exceeds the target, it stops once that distance is below the target, and `met` is False.
        certificate : options of `hgp.certify`, such as `strong_convexity`.

        Returns
        -------
        Outcome: an Estimate with its certificate, the bound in units of the target, what it is against, and whether it
        is met; one that is not warns, says by how much, and whether the run or x is the cause.

        Examples
        --------
        >>> import numpy as np, hgp_ref as hgp
        >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=6, dim_lam=2, seed=1)
        >>> lam = np.zeros((4, 2))
        >>> x = hgp.exact.inner_solution(problem, lam)
        >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=4, seed=1), target=1e-4).run()
        >>> truth = hgp.exact.hypergradient(problem, x, lam)
        >>> out.met, bool(np.linalg.norm(out.value - truth) <= 1e-4 * np.linalg.norm(truth))
        (True, True)
        """
        from hgp_ref.planning.running import carry_out

        certify, by_clients = arguments.boolean("certify", certify), arguments.boolean("by_clients", by_clients)
        if not isinstance(self.net, Network):
            raise ValueError("plan: read from a file, which keeps problem and network in words; needed one of hgp.plan")
        at_solution = arguments.choice("against", against, AGAINST) == "solution"
        elsewhere = self.net.clients != slice(0, self.net.n)
        return carry_out(self, certify, by_clients or elsewhere, at_solution, certificate)

    def __str__(self) -> str:
        found, unit = self.found, "of the hyper-gradient" if self.relative else "absolute"
        steps = f"S = {self.steps}" if isinstance(self.steps, int) else f"S from {self.steps[0]} to {min(self.steps)}"
        known = f"{found.products} products of the mean Hessian" if found.products else "the clients' own Hessians"
        others = ", ".join(f"{name} {floats:.2g}" for name, floats in self.compared[1:4])
        lines = [
            f"plan for an error of {self.target:.1e} ({unit})" + self._within(),
            f"  {self.method!r}, {steps}, {self.iterations} iterations",
            f"  expected: error {self.error:.1e}, about {self.traffic.floats:.3g} floats, of which"
            f" {found.traffic.floats:.3g} are already sent;",
            f"            {self.first.floats:.3g} if the first run suffices, and {self.continuation.floats:.3g} more"
            " for each continuation",
            f"  because: spectrum [{found.low:.3g}, {found.high:.3g}] from {known}, clients apart by {found.zeta:.2g},",
            f"           a round of Push-Sum leaves {found.tau:.2g} of a disagreement",
        ]
        return "\n".join([*lines, f"  others would need, counted alike: {others} floats"] if others else lines)

    def _within(self) -> str:
        return "" if self.budget is None else f", the least within {self.budget:.3g} floats"


def method_name(method: Method) -> str:
    """The name by which methods are compared."""
    inner = getattr(method, "method", None)
    cycles = getattr(method, "cycles", None)
    return f"{type(inner).__name__} × {cycles}" if inner is not None else type(method).__name__
