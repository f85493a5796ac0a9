"""What a certificate says of a planned run: one number over all clients, in the units of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.certificates import Certificate
from hgp_ref.certificates.result import AT_POINT
from hgp_ref.channels import connect
from hgp_ref.estimators import Estimate
from hgp_ref.planning.result import Plan
from hgp_ref.rigorous import norms

MARGIN = 0.5  # of the target, which a continuation aims at
ROOM = 0.9  # of the target, up to which what x adds leaves room for the run
ROUNDED = 1e-13  # relative error of norms over all clients, at most


@dataclass(frozen=True)
class Judged:
    """What a certificate says of an estimate, over all clients and in the units of the target."""

    bound: float  # against what `against` names
    at_x: float  # against the formula at the given x, which is what a run can improve
    from_x: float  # of `bound`, what x may add by not being the inner solution; no run can reduce it
    against: str

    def done(self, target: float) -> bool:
        """Whether the target is met, or is out of reach because of x and met by the run."""
        return self.bound <= target or (self.at_x <= target and self.from_x > ROOM * target)

    def left_to_gain(self, target: float) -> float:
        """The share of `at_x` at which the target would be met, by MARGIN."""
        room = target - self.from_x if self.from_x <= ROOM * target else target
        return MARGIN * room / self.at_x if 0 < self.at_x < math.inf else 1.0


def judge(plan: Plan, certificate: Certificate, est: Estimate, by_clients: bool, at_solution: bool) -> Judged:
    """The certificate of an estimate in the units of the target.

    `at_solution`: against the hyper-gradient at the exact inner solution where the certificate knows what x adds. Where
    only someone who sees all clients knows, and the clients judge, the bound is ∞.
    """
    own = certificate.decentralised if by_clients else certificate.centralised
    term = certificate.decentralised_inexact if by_clients else certificate.inexact
    if own is None:
        return Judged(math.inf, math.inf, 0.0, certificate.against if at_solution else AT_POINT)
    at_x = _in_units(plan, own, est)
    if not at_solution or certificate.against == AT_POINT:
        return Judged(at_x, at_x, 0.0, AT_POINT)
    if term is None:
        return Judged(math.inf, at_x, math.inf, certificate.against)
    return Judged(_in_units(plan, own + term, est), at_x, _in_units(plan, term, est), certificate.against)


def _in_units(plan: Plan, per_client: np.ndarray, est: Estimate) -> float:
    """Bounds of clients' errors ‖v_i − d_i‖, (n,), as one over all clients in the units of the target.

    As a share of ‖d‖ ≥ ‖v‖ − bound where the target is relative: ∞ where d is not told from 0. Below the normal
    numbers sizes are known to a few units of the smallest number, which `blur` counts. Relative errors are not defined
    where v = 0 and no normal number is left of the bound: the hyper-gradient is 0 to working precision then, and the
    bound itself is returned.
    """
    kind = np.finfo(host_dtype(plan.x))
    blur = (plan.net.n + 4) * float(np.finfo(np.float64).smallest_subnormal)
    bound = (1 + ROUNDED) * _size(plan, per_client) + blur
    if not plan.relative:
        return bound
    size = _size(plan, est.value)
    if size == 0 and bound <= 4 * plan.net.n * float(kind.smallest_normal):
        return bound
    least = (1 - ROUNDED) * size - blur - bound
    return (1 + ROUNDED) * bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over all clients, wherever they live, of the rows (n, ...) of those here; squares stay within range."""
    channel, each = connect(plan.net), norms(host_float64(rows).reshape(rows.shape[0], -1))
    top = float(channel.max_over_clients(each))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(plan.net.n * float(channel.mean_over_clients((each / top)[:, None] ** 2)[0, 0]))
