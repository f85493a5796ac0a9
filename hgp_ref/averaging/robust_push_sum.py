"""Robust Push-Sum: averaging over links that lose and delay messages, by running sums for every edge."""

from __future__ import annotations

from collections.abc import Sequence

from hgp_ref import arguments
from hgp_ref.averaging.push_sum import PushSum
from hgp_ref.channels import Channel
from hgp_ref.networks import Network

DEBIAS = ("reset", "conserve")


class RobustPushSum(PushSum):
    """Θ̂_m u = diag(P_m 1)⁻¹ P_m u, where P_m is what running sums make of the links of call m.

    Client j, which holds z_j and the weight ω_j, sends to i not its share of step t but the total of all shares so far,

        σ_ij ← σ_ij + W_ij(t) z_j,   and the receiver   z_i ← z_i + (σ_ij − ρ_ij),   ρ_ij ← σ_ij

    (weights alike), whenever a total newer than ρ_ij arrives. A message that is lost or late is made up for by the next
    along the same edge: no mass is lost, it only waits, and ū tends to the mean as S grows. P_m ≥ 0, so that Θ̂_m is
    non-negative with rows that sum to one, and bounds A and B hold with the realised matrices (`exact.push_sum_matrix`
    with `robust=True`, or `avg.connect().matrices`). For certificates C3 and C4 clients keep their averages since the
    oldest share that is still under way, see `channels.Lossy.enclose`. Methods that carry sums from call to call
    (`methods.Tracking`, "conserve") lose nothing either.

    A message carries d numbers and one weight, as in Push-Sum: totals of weights grow, and so tell old from new. Every
    client keeps a total for each client it has ever sent to and each it has ever heard in a call: on graphs that change
    at every step that is up to 2 (n − 1) totals. An edge that is seldom used is seldom made up for, and then by an old
    lump that disturbs the averages: over RandomOut(n, k) with S less than many times n/k, PushSum is nearer.

    Parameters
    ----------
    net : any network; over one that loses nothing this is PushSum.
    steps : S, or S_0, S_1, ... whose last entry repeats. Loss p and delay up to q take about (1 + q/2)/(1 − p) times as
        many steps as PushSum over reliable links.
    debias : "reset" begins every call with ω = 1 and nothing under way, as PushSum does. "conserve" carries weights and
        totals from call to call, and iterations go on from the sums, so that nothing is ever lost: what `sgp` uses.
    mode : as in PushSum.

    Raises
    ------
    TypeError, ValueError
        As PushSum; there is no "keep".

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.RandomDirected(n=4, seed=1), loss=0.1, delay=3, seed=1)
    >>> u = np.arange(8.0).reshape(4, 2)
    >>> bool(np.abs(hgp.RobustPushSum(net, steps=200).apply(u) - u.mean(axis=0)).max() < 1e-12)
    True
    """

    def __init__(self, net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> None:
        super().__init__(net, steps, arguments.choice("debias", debias, DEBIAS), mode)

    def connect(self) -> Channel:
        channel = super().connect()
        channel.use_running_sums()
        return channel

    def __repr__(self) -> str:
        return "Robust" + super().__repr__()


def push_sum_over(net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> PushSum:
    """PushSum where links carry everything in time, RobustPushSum where they lose or delay messages.

    Parameters
    ----------
    net, steps, mode : as in PushSum.
    debias : "reset" or "conserve".

    Returns
    -------
    The averaging.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.FullyConnected(3)
    >>> hgp.averaging.push_sum_over(net, 4)
    PushSum(FullyConnected(n=3), steps=4)
    >>> type(hgp.averaging.push_sum_over(hgp.networks.Unreliable(net, loss=0.1), 4)).__name__
    'RobustPushSum'
    """
    robust = RobustPushSum(net, steps, debias, mode)
    return PushSum(net, steps, debias, mode) if robust.connect().keeps_mass else robust
