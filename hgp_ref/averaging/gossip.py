"""Gossip: averaging by doubly-stochastic mixing, without weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.base import Averaging, check_network, read_steps
from hgp_ref.channels import Channel, connect
from hgp_ref.channels.calls import check_balanced
from hgp_ref.channels.simulated import MODES
from hgp_ref.networks import Network


class Gossip(Averaging):
    """Θ̂_m = W_{(m+1)S} ... W_{mS+1} ⊗ I with doubly-stochastic W: rows and columns sum to one.

    A message is one vector, no weight. Networks whose matrices are only column-stochastic need PushSum instead: the
    first graphs are looked at here, and later ones as they are used.

    Parameters
    ----------
    net : Network
        With doubly stochastic weights.
    steps : int or sequence
        S, or S_0, S_1, ... whose last entry repeats.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made; the result is the same up to rounding.

    Raises
    ------
    TypeError, ValueError
        `net` must have rows that sum to one and lose nothing, `steps` hold integers ≥ 1.

    Examples
    --------
    >>> avg = hgp.Gossip(hgp.networks.OnePeerExponential(4), steps=2)
    >>> avg.apply(np.array([[0.0], [0.0], [0.0], [4.0]]), 0).ravel()
    array([1., 1., 1., 1.])
    """

    def __init__(self, net: Network, steps: int | Sequence[int], mode: str = "auto") -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps, self.mode = net.n, read_steps(steps), arguments.choice("mode", mode, MODES)
        if not self.connect().keeps_mass:
            raise ValueError(
                f"net: {net!r} given, which loses or delays messages; needed others for Gossip, or PushSum or "
                "RobustPushSum: without weights nobody can tell how much of a sum is missing"
            )
        for s in range(1, (net.period or 1) + 1):
            indptr, _, shares = net.csr(s)
            check_balanced(np.add.reduceat(shares, indptr[:-1]), 1, f"{net!r} (step {s})")

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        return f"Gossip({self.net!r}, steps={self.steps})"
