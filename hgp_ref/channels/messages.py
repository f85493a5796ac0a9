"""How many messages a graph carries: its edges that are not self-loops."""

from __future__ import annotations

import numpy as np

from hgp_ref.networks import Network


def messages_of(net: Network, indptr: np.ndarray, others: np.ndarray) -> int:
    """The messages of a graph of `net`, from its lists by sender or by receiver."""
    if net.self_loops:  # everybody has one
        return others.size - net.n
    own = np.repeat(np.arange(net.n), np.diff(indptr))
    return int(np.count_nonzero(own != others))
