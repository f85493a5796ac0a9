"""Every method with one parameter from a grid of six; what else it has follows from the problem by rule.

With L the largest and α the smallest eigenvalue of any client's Hessian, which all may know:

    HGP           Algorithm 2, η = 1/L                           S from STEPS
    Chebyshev     the spectrum found by the clients              S from STEPS
    Refined       Chebyshev in four cycles, 40 steps between     S from STEPS
    Tracking      Push-DIGing, S = 1                             η = r/L, r from RATIOS
    MA-DSBO, D-SOBA, SPARKLE, DBO                                the step r/L
    GBDSBO        ℓ = L, a polynomial of degree 4L/α (at most 400)      β = r/4
    FAB           c = 1e5 (x is exact here)                    r/(cL)
    FedNest       ℓ = L                                          N from TERMS: each N is a point, not a curve
    MDBO, VRDBO   ℓ = L, nothing to choose: nothing is sent
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import hgp_ref as hgp
from figures.comparison_cases import NETWORKS, Case
from hgp_ref import methods
from hgp_ref.mixing import Channel
from hgp_ref.networks import Network

STEPS = (1, 2, 4, 8, 16, 32)
RATIOS = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05)
TERMS = (4, 8, 16, 32, 64, 128)
PENALTY = 1e5
POINTS = 100  # of a curve
DRAWS = 16  # of FedNest's N'

Curve = np.ndarray  # (points, 3): floats per client in units of d_x, rounds, error


@dataclass(frozen=True)
class Method:
    """Its name, what it computes, where it works, its grid, and a run: (case, net, parameter, budget) → Curve."""

    name: str
    kind: str  # Global, Client or Local
    networks: str
    grid: tuple[float, ...]
    run: Callable[[Case, Network, float, float], Curve]
    parameter: str = "{}"  # what a value of the grid means

    def chosen(self, value: float) -> str:
        """A value of the grid in words."""
        return self.parameter.format(f"{value:g}") if len(self.grid) > 1 else "nothing to choose"

    def works_on(self, network: str) -> bool:
        return self.networks == NETWORKS[1] or (network == NETWORKS[0])


class WatchedPushSum(hgp.PushSum):
    """Push-Sum whose channel can be looked at while a run uses it."""

    channel: Channel

    def connect(self) -> Channel:
        self.channel = super().connect()
        return self.channel


def unit(case: Case) -> int:
    """Floats of one vector of d_x from every client."""
    return case.problem.n_clients * case.problem.dim_x


def pushed(make: Callable[[Case, float], methods.Method], steps: Callable[[float], int]) -> Callable[..., Curve]:
    """A run of `hypergradient` over Push-Sum with S = steps(parameter)."""

    def run(case: Case, net: Network, parameter: float, budget: float) -> Curve:
        avg, points = WatchedPushSum(net, steps(parameter)), []
        a_call = (net.expected_edges - net.n) * avg.steps * (case.problem.dim_x + 1) / unit(case)
        method = make(case, parameter)
        M = max(2, int(budget / (a_call * (2 if isinstance(method, methods.Tracking) else 1))))
        marks = checkpoints(M)

        def look(m: int, v: np.ndarray) -> bool:
            if m in marks:
                sent = avg.channel.traffic
                points.append((sent.floats / unit(case), sent.rounds, case.error(v)))
            return m in marks and case.settled(v)

        try:
            hgp.hypergradient(case.problem, case.x, case.lam, avg, method=method, iterations=M, callback=look)
        except (hgp.DivergenceError, ValueError) as error:
            if isinstance(error, ValueError) and "diverged" not in str(error):
                raise
        return np.array(points).reshape(-1, 3)

    return run


def frozen(name: str, settings: Callable[[Case, float], dict[str, object]], sent: Callable[[Case], float]
           ) -> Callable[..., Curve]:  # fmt: skip
    """A run of `baselines.at_point`; `sent` says how many units of d_x one message carries."""

    def run(case: Case, net: Network, parameter: float, budget: float) -> Curve:
        edges = (net.expected_edges - net.n) / net.n
        M = int(max(2, budget / max(edges * sent(case), 1e-3))) if sent(case) else 1
        every = max(1, M // POINTS)
        end = lambda m, v: case.settled(v)  # noqa: E731
        try:
            est = hgp.baselines.at_point(case.problem, case.x, case.lam, net, name, iterations=M, every=every,
                                         callback=end, **settings(case, parameter))  # fmt: skip
        except hgp.DivergenceError:
            return np.empty((0, 3))
        errors = [case.error(v) for v in est.history]
        return np.stack([est.floats / unit(case), est.rounds, errors], axis=1)

    return run


def checkpoints(M: int) -> set[int]:
    """About POINTS iterations from 1 to M, evenly in the logarithm."""
    return set(np.unique(np.geomspace(1, M, POINTS).round().astype(int)).tolist())


def fednest(case: Case, net: Network, terms: float, budget: float) -> Curve:
    """Root mean square error over N', floats and rounds on average: one point."""
    N, points = int(terms), []
    server = hgp.mixing.ServerAverage(case.problem.n_clients)
    for draw in range(DRAWS):
        method = methods.RandomTerm(N, case.high, draw=draw)
        est = hgp.hypergradient(case.problem, case.x, case.lam, server, method=method, iterations=method.last + 1)
        points.append((est.traffic.floats / unit(case), est.traffic.rounds, case.error(est.value) ** 2))
    floats, rounds, square = np.mean(points, axis=0)
    return np.array([(floats, rounds, square**0.5)])


def _columns(case: Case) -> float:
    """Columns of DBO's matrices: those of λ of all clients."""
    return float(case.problem.n_clients * case.problem.dim_lam)


def _polynomial(case: Case) -> int:
    return int(min(400, np.ceil(4 * case.high / case.low)))


def _step(case: Case, r: float) -> dict[str, object]:
    return {"step": r / case.high}


def _rule(rule: str) -> Callable[[Case, float], dict[str, object]]:
    return lambda case, r: {"rule": rule, "step": r / case.high}


STATIC, DIRECTED = NETWORKS
METHODS = (
    Method("HGP", "Global", DIRECTED, STEPS, pushed(lambda c, S: methods.Neumann(1 / c.high), int), "S = {}"),
    Method("Chebyshev", "Global", DIRECTED, STEPS, pushed(lambda c, S: methods.Chebyshev(), int), "S = {}"),
    Method("Refined", "Global", DIRECTED, STEPS,
           pushed(lambda c, S: methods.Refined(methods.Chebyshev(), cycles=4, steps=40), int), "S = {}"),
    Method("Tracking", "Global", DIRECTED, RATIOS, pushed(lambda c, r: methods.Tracking(r / c.high), lambda r: 1),
           "η = {}/L"),
    Method("FAB", "Global", DIRECTED, RATIOS,
           frozen("fab", lambda c, r: {"step": r / (PENALTY * c.high), "penalty": PENALTY}, lambda c: 2.0),
           "η = {}/(cL)"),
    Method("SPARKLE-ED", "Global", STATIC, RATIOS, frozen("sparkle", _rule("ED"), lambda c: 1.0), "step {}/L"),
    Method("SPARKLE-EXTRA", "Global", STATIC, RATIOS, frozen("sparkle", _rule("EXTRA"), lambda c: 1.0),
           "step {}/L"),
    Method("SPARKLE-GT", "Global", STATIC, RATIOS, frozen("sparkle", _rule("GT"), lambda c: 2.0), "step {}/L"),
    Method("MA-DSBO", "Global", STATIC, RATIOS, frozen("ma_dsbo", _step, lambda c: 2.0), "step {}/L"),
    Method("D-SOBA", "Global", STATIC, RATIOS, frozen("dsoba", _step, lambda c: 1.0), "step {}/L"),
    Method("DBO", "Client, Global", STATIC, RATIOS,
           frozen("dbo", _step, lambda c: (2 + 1 / c.problem.dim_x) * _columns(c)), "step {}/L"),
    Method("GBDSBO", "Global", STATIC, RATIOS,
           frozen("gbdsbo", lambda c, r: {"step": r / 4, "ell": c.high, "terms": _polynomial(c)},
                  lambda c: c.problem.dim_x + 1.0), "β = {}/4"),
    Method("FedNest", "Global", "server", TERMS, fednest, "N = {}"),
    Method("MDBO, VRDBO", "Local", STATIC, (1.0,),
           frozen("mdbo", lambda c, _: {"terms": _polynomial(c), "ell": c.high}, lambda c: 0.0)),
)  # fmt: skip


def quiet(run: Callable[..., Curve], *given: object) -> Curve:
    """A run without warnings of what has not converged: the curve says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return run(*given)
