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


@dataclass(frozen=True)
class Outcome(Estimate):
    """The estimate of a planned run, with its certificate.

    `traffic` holds everything: finding constants, the run, what it went on with, and the clients' certificate if it was
    they who made it.

    Attributes
    ----------
    certificate : the bound on the error, where it was asked for.
    bound : certified, in the units of the target; None where nothing was certified.
    met : whether the bound is at most the target.
    continued : how often the run went on after its first end.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> out = plan.run()
    >>> out.met, out.bound <= 1e-3, out.continued
    (True, True, 0)
    """

    certificate: Certificate | None = None
    bound: float | None = None
    met: bool | None = None
    continued: int = 0

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
    traffic : expected, what was already sent to find constants included.
    error : what the settings aim at, a fixed share of the target; the run is judged by its certificate.
    target : error asked for.
    relative : whether target and error are shares of ‖d‖.
    found : what the clients found out.
    compared : methods and the floats that each was expected to need, the best first.
    problem : to which it belongs.
    x : the point.
    lam : λ there.
    net : the network.
    budget : floats that may be sent in all, where that was asked for.

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

    @property
    def averaging(self) -> PushSum:
        """The averaging of the run, over graphs that come after those that were used to find constants."""
        return push_sum_over(self.net.after(self.found.graphs), self.steps)

    def run(self, *, certify: bool = True, by_clients: bool = False, **certificate: Any) -> Outcome:
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
        certificate : options of `hgp.certify`, such as `strong_convexity`.

        Returns
        -------
        Outcome: an Estimate with its certificate, the bound in units of the target, and whether it is met; one that is
        not warns and says by how much. The bound is against the formula at x: what an inexact x adds, `certificate`
        says where it is known, and no run can change.

        Examples
        --------
        >>> import numpy as np, hgp_ref as hgp
        >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=6, dim_lam=2, seed=1)
        >>> x, lam = np.ones((4, 6)), np.zeros((4, 2))
        >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=4, seed=1), target=1e-4).run()
        >>> truth = hgp.exact.hypergradient(problem, x, lam)
        >>> out.met, bool(np.linalg.norm(out.value - truth) <= 1e-4 * np.linalg.norm(truth))
        (True, True)
        """
        from hgp_ref.planning.running import carry_out

        certify, by_clients = arguments.boolean("certify", certify), arguments.boolean("by_clients", by_clients)
        if not isinstance(self.net, Network):
            raise ValueError("plan: read from a file, which keeps problem and network in words; needed one of hgp.plan")
        elsewhere = self.net.clients != slice(0, self.net.n)
        return carry_out(self, certify, by_clients or elsewhere, certificate)

    def __str__(self) -> str:
        found, unit = self.found, "of the hyper-gradient" if self.relative else "absolute"
        steps = f"S = {self.steps}" if isinstance(self.steps, int) else f"S from {self.steps[0]} to {min(self.steps)}"
        known = f"{found.products} products of the mean Hessian" if found.products else "the clients' own Hessians"
        others = ", ".join(f"{name} {floats:.2g}" for name, floats in self.compared[1:4])
        lines = [
            f"plan for an error of {self.target:.1e} ({unit})" + self._within(),
            f"  {self.method!r}, {steps}, {self.iterations} iterations",
            f"  expected: error {self.error:.1e}, {self.traffic.floats:.3g} floats in {self.traffic.rounds} rounds,"
            f" of which {found.traffic.floats:.3g} are already sent",
            f"  because: spectrum [{found.low:.3g}, {found.high:.3g}] from {known}, clients apart by {found.zeta:.2g},",
            f"           a round of Push-Sum leaves {found.tau:.2g} of a disagreement",
        ]
        return "\n".join([*lines, f"  others would need: {others} floats"] if others else lines)

    def _within(self) -> str:
        return "" if self.budget is None else f", the least within {self.budget:.3g} floats"


def method_name(method: Method) -> str:
    """The name by which methods are compared."""
    inner = getattr(method, "method", None)
    cycles = getattr(method, "cycles", None)
    return f"{type(inner).__name__} × {cycles}" if inner is not None else type(method).__name__
