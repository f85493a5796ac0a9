"""What each method would need for a given relative error, by what is known of problem and network.

Series and Chebyshev. They aim at AIM of the target, since certificates are larger than errors. M follows from their
rate q (error about 2q^M), S_0 from the floor: an average over S_0 rounds leaves τ^{S_0} of a disagreement, which ends
up in w about FLOOR times. S falls to 1 (`falling_steps`). With c cycles, each reaches the c-th root of the target;
within a cycle S_0 leaves CORRECTED of that, since the next one makes up for it, and the averages at the k-th restart
leave its (k+1)-th power. Graphs that differ from each other make short calls fail now and then: UNEVEN on what these
methods need. CORRECTED was chosen, after plans for P3 of `python -m verification communication` had needed 1.44 times
the best of the grid, on problems and networks of that kind with other seeds (2000 to 2002, 900000 to 900005).

No candidate takes more than MOST_ITERATIONS iterations: condition numbers that ask for more have no plan.

Gradient tracking. No floor; rate and S by `tracking_model`, two vectors a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hgp_ref.averaging import falling_steps
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from hgp_ref.planning.enquiry import Found
from hgp_ref.planning.tracking_model import WAVERING, best_pace

AIM = 0.25
FLOOR = 5.0
CORRECTED = 1.0
UNEVEN = 1.3
MOST_CYCLES = 8
MOST_ITERATIONS = 10**6  # of a planned run
SHARE = 0.1  # of its error, which a continuation is expected to leave
SMALLEST, LARGEST = 1e-306, 1e306  # of eigenvalues, whose inverses are step sizes


@dataclass(frozen=True)
class Candidate:
    """A method with its settings, and what it is expected to need."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    rounds: int
    vectors: int  # in a message
    error: float  # relative, expected
    further: int  # rounds of a continuation
    margin: float = 1.0

    def floats(self, d: int) -> float:
        """Numbers per edge that all messages hold, with a margin where graphs may disappoint."""
        return self.margin * self.rounds * (self.vectors * d + 1)


def candidates(known: Found, target: float) -> list[Candidate]:
    """All that can be predicted; none where the spectrum of H̄ has no known positive lower bound."""
    if not SMALLEST < known.low <= known.high < LARGEST or not math.isfinite(known.high / known.low):
        return []
    low, high = known.low, known.high
    kappa = high / low
    root = math.sqrt(kappa)
    neumann = _falling(Neumann(2 / (low + high)), (kappa - 1) / (kappa + 1), known, target, 1)
    chebyshev = [
        _falling(Chebyshev(low, high), (root - 1) / (root + 1), known, target, c) for c in range(1, MOST_CYCLES + 1)
    ]
    offers = [offer for offer in (neumann, *chebyshev) if offer is not None]
    pace = best_pace(known, target)
    if pace is not None and pace.iterations(target) <= MOST_ITERATIONS:
        M = pace.iterations(target)
        further = pace.S * math.ceil(M * math.log(1 / SHARE) / math.log(WAVERING / target))
        offers.append(Candidate(Tracking(pace.step), pace.S, M, pace.S * M, 2, target / 2, further))
    return offers


def _falling(method: Method, q: float, known: Found, target: float, cycles: int) -> Candidate | None:
    """A method with rate q and S that falls, restarted in `cycles` cycles; None where that takes too long."""
    goal = (AIM * target) ** (1 / cycles)
    if q >= 1 or math.log(2 / goal) / -math.log(max(q, 1e-6)) > MOST_ITERATIONS / cycles:
        return None
    M = max(1, math.ceil(math.log(2 / goal) / -math.log(max(q, 1e-6))))
    floor = FLOOR if cycles == 1 else CORRECTED
    one = falling_steps(known.rounds_to(min(goal / floor, 0.5)), M)
    restarts = tuple(known.rounds_to(min(goal**c / FLOOR, 0.5)) for c in range(2, cycles + 1))
    steps = one + one[1:] * (cycles - 1)
    rounds = sum(steps) + 2 * sum(restarts)
    whole = method if cycles == 1 else Refined(method, cycles, restarts)
    further = sum(refinement_cycle(known, method, SHARE, target, 0)[0])
    return Candidate(whole, steps, cycles * M, rounds, 1, AIM * target, further, UNEVEN)


def refinement_cycle(
    known: Found, method: Method, share: float, goal: float, continued: int
) -> tuple[tuple[int, ...], int]:
    """(steps, M) of the cycle by which a run goes on that has done so `continued` times, to `share` of its error.

    First S of the average of w, then S of the M iterations; `goal` is the relative error that is asked for.
    """
    restart = known.rounds_to(min(goal / FLOOR, 0.5)) * (2 + continued) // 2
    if isinstance(method, Chebyshev) and method.low and method.high:
        root = math.sqrt(method.high / method.low)
        q = (root - 1) / (root + 1)
    else:
        q = max(abs(1 - getattr(method, "eta", 0.0) * edge) for edge in (known.low, known.high))
    M = max(2, math.ceil(math.log(share / 2) / math.log(min(max(q, 1e-6), 0.999))))
    falling = falling_steps(min(known.rounds_to(min(share / FLOOR, 0.5)) * (2 + continued) // 2, restart), M)
    return (restart, restart, *falling[1:]), M
