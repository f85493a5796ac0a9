"""What a run of Hyper-Gradient Push returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref.averaging import Traffic
from hgp_ref.backend import Array


@dataclass(frozen=True)
class Estimate:
    """v^(M) of Algorithm 2 and what a reader needs to judge it.

    With a list of averagings or seeds, `value`, `w`, `history`, `growth` and the fields of `traffic` carry a leading
    run axis.
    """

    value: Array  # v^(M), (n, d_lam)
    w: Array  # η Σ_m ū^(m), (n, d_x): each client's estimate of w* = (Σ H)⁻¹ Σ ∂_x f
    history: Array | None  # v^(1) .. v^(M), (M, n, d_lam)
    traffic: Traffic
    eta: float
    iterations: int  # how many were done
    batch_size: int | None
    averaging: Any  # the averaging, or the list of them
    stopped: str  # "iterations" or "callback"
    growth: Any  # max_i ‖u_i^(M)‖ / max_i ‖u_i^(0)‖: what is left of the series' first term
