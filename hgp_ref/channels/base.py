"""A channel: the only way in which one client's numbers reach another.

n clients talk over the graphs of a network, one after the other. A channel keeps the clock (which graph is next),
mixes what clients hold along these graphs, and counts what it carries. With W_s the mixing matrix of graph s, a call
of S steps after t graphs takes

    z ← P z,    ω ← P ω,    P = W_{t+S} ... W_{t+1},    and, where the sums are divided by the weights,    z_i / ω_i.

What is built on it (averagings, methods, training, certificates) does not know whether all clients live in this
process, whether graphs are composed before they meet z, or whether links lose messages.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype, host_float64, is_numpy
from hgp_ref.channels.traffic import Traffic
from hgp_ref.networks import Network

# What travels beside the vectors.
FRESH = "fresh"  # Push-Sum's weights, ω = 1 before every call
CARRIED = "carried"  # Push-Sum's weights, ω as the call before has left them
BALANCED = None  # no weights: the matrices must be doubly stochastic, P 1 = 1

Weights = str | None


class Channel(ABC):
    """n clients, of whom `clients` live in this process, over successive graphs.

    A subclass provides `mix` and `largest`; it calls `count` for every step it carries and keeps `step` and `weights`
    up to date. The rest follows from these and may be overridden by something faster, not different.

    n          clients in all
    clients    which of them are the rows of the arrays here
    step       graphs used so far
    weights    ω after the last call, (..., n, 1), in the library and dtype of z
    traffic    what was carried since the channel was opened

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> channel = hgp.channels.connect(hgp.networks.RandomDirected(n=3, seed=0))
    >>> isinstance(channel, hgp.channels.Channel), channel.step
    (True, 0)
    """

    def __init__(self, n: int, clients: slice | None = None) -> None:
        self.n = n
        self.clients = slice(0, n) if clients is None else clients
        self.step = 0
        self._sent = Traffic()

    weights: Array = None  # before any call
    keeps_mass = True  # whether Σ_i (P z)_i = Σ_i z_i: all that is sent in a call is received in it
    loses_mass = False  # whether some of it is never received, in no later call either
    underway = False  # whether something that was sent may still arrive in the next call

    @property
    def traffic(self) -> Traffic:
        return self._sent

    @property
    def omega(self) -> np.ndarray:
        """ω after the last call on the host, (..., n), in float64; 1 before any."""
        return np.ones(self.n) if self.weights is None else host_float64(self.weights)[..., 0]

    @abstractmethod
    def mix(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        """The sums P z over the next `steps` graphs, z (..., n, d); `self.weights` becomes P ω (see FRESH, CARRIED).

        Parameters
        ----------
        z : (..., n, d), or the rows of this process's clients.
        steps : graphs of the call.
        weights : FRESH, CARRIED or BALANCED.

        Returns
        -------
        array like z.
        """

    @abstractmethod
    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """Maxima over all clients of the columns of host `values` (n, k), exact, by flooding; sent as dtype of like.

        Parameters
        ----------
        values : (n, k) on the host.
        like : an array in whose dtype they travel.
        max_rounds : after how many steps to give up.

        Returns
        -------
        (k,) on the host, the same for everybody.
        """

    def average(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        """P z, divided by ω where weights travel: client i's estimate of the mean of the rows of z.

        Parameters
        ----------
        z : (..., n, d).
        steps : graphs of the call.
        weights : FRESH, CARRIED or BALANCED.

        Returns
        -------
        array like z.
        """
        mixed = self.mix(z, steps, weights)
        return mixed if weights is BALANCED else mixed / self.weights

    def enclose(
        self, z: Array, steps: int, weights: Weights = FRESH, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """(low, high) like z: the mean of the rows of z lies in the hull of the clients' boxes [low_i, high_i].

        Where sums are kept it is the convex combination Σ_i (ω_i / n) y_i of the averages y, and both are y.
        """
        y = self.average(z, steps, weights)
        return y, y

    def foresee(self, steps: Sequence[int]) -> None:
        """A hint: the numbers of steps of the calls to come, so that their graphs may be prepared together."""
        return None

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
        """P of the next calls, (calls, n, n) on the host, and how many messages each carries; None if it cannot tell.

        Looks ahead only: the clock stays.
        """
        return None

    def composes(self, z: Array, steps: int, weights: Weights = FRESH) -> bool:
        """Whether z is better met by one matrix a call; only where `matrices` can tell."""
        return False

    def forget(self) -> None:
        """Other vectors come next: what is still under way of those before is dropped; clients' weights stay."""
        return None

    def use_running_sums(self) -> None:
        """From now on messages carry totals of what was sent along an edge; where nothing is lost, nothing changes."""
        return None

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        """Let `graphs` graphs pass as if their calls had been made: the clock, and weights that are carried."""
        if weights != CARRIED:
            self.step += graphs
        elif graphs:
            before = self.traffic
            self.mix(like[..., :0], graphs, weights)
            self._sent = before

    def count(self, messages: int, z: Array, weights: Weights, rounds: int = 1) -> None:
        """Add `messages` messages of rows of z to the traffic, once for each entry of its run axes.

        Parameters
        ----------
        messages : how many.
        z : rows of which they carry.
        weights : whether a weight goes with each.
        rounds : steps that this took.
        """
        runs = math.prod(z.shape[:-2])
        floats = z.shape[-1] + (weights is not BALANCED)
        self._sent += Traffic.of(messages * runs, floats, host_dtype(z).itemsize, rounds)

    def meet(self, numbers: np.ndarray) -> None:
        """A problem whose clients have these `numbers` is to be solved here; ValueError if they are not the clients."""
        return None

    def agree(self, what: str, **settings: object) -> None:
        """Everybody must have been told the same: a channel between processes compares, before anything is sent."""
        return None

    # What someone who sees all clients reads off, for reports and to stop runs; not part of what clients send.

    def anyone(self, flag: bool) -> bool:
        """Whether some process says so: a run stops everywhere or nowhere.

        Parameters
        ----------
        flag : of this process.

        Returns
        -------
        bool, the same in every process.
        """
        return flag

    def max_over_clients(self, a: Array) -> np.ndarray:
        """max_i a_i over all clients, a (..., n); on the host, float64.

        Parameters
        ----------
        a : (..., n).

        Returns
        -------
        (...,) on the host.
        """
        return host_float64(array_namespace(a).max(a, axis=-1))

    def mean_over_clients(self, a: Array) -> Array:
        """The mean over all clients of the rows of a (..., n, d), as one row (..., 1, d).

        On NumPy the order of its sums follows the memory, so that is made the same for whoever holds the rows.

        Parameters
        ----------
        a : (..., n, d).

        Returns
        -------
        (..., 1, d).
        """
        a = np.ascontiguousarray(a) if is_numpy(a) else a
        return array_namespace(a).mean(a, axis=-2, keepdims=True)


@singledispatch
def connect(net: Network, mode: str = "auto") -> Channel:
    """A channel over the graphs of `net`, from the first on.

    Kinds of networks that need another channel than the simulation register theirs: `connect.register(kind)`. `mode`
    is "auto", "composed" or "stepping"; a channel that cannot compose refuses "composed".

    Parameters
    ----------
    net : Network
        Who hears whom.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Returns
    -------
    Channel
        At its first graph.

    Raises
    ------
    TypeError
        `net` is no network.

    Examples
    --------
    >>> hgp.channels.connect(hgp.networks.RandomDirected(n=3, seed=0)).n
    3
    """
    raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
