"""Θ̂ as an operator: what every averaging offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from hgp_ref import arguments
from hgp_ref.averaging.mean import Mean
from hgp_ref.backend import Array
from hgp_ref.channels import BALANCED, Channel, Traffic
from hgp_ref.channels.base import Weights
from hgp_ref.networks import Network


class Averaging(ABC):
    """An estimate Θ̂_m of the mean over clients, for calls m = 0, 1, ...

    Call m takes S_m graphs of the network, after those of the calls before it: mS+1 .. (m+1)S where all S_m are S.
    An averaging says what it asks of a channel (`steps_of`, `weights`); it holds no state but its `ledger`, to which
    every run and every `apply` adds what was sent.

    Examples
    --------
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=0), steps=20)
    >>> isinstance(avg, hgp.averaging.Averaging), avg.graphs_before(2)
    (True, 40)
    """

    n: int
    steps: int | tuple[int, ...]  # S, or S_0, S_1, ..., the last of which repeats
    net: Network | None = None  # whose graphs are looked at for clients that are cut off
    ledger = Traffic()  # of an object whose class has an __init__ of its own, too
    weights: Weights = BALANCED  # what travels beside the vectors
    conserves = False  # whether an iteration goes on from the sums ω ū instead of the means ū

    def __init__(self) -> None:
        self.ledger = Traffic()

    @abstractmethod
    def connect(self) -> Channel:
        """A channel of its own, at the first graph.

        Returns
        -------
        Channel.
        """

    def steps_of(self, first: int, calls: int) -> Sequence[int]:
        """S_m of the calls m = first .. first + calls - 1.

        Parameters
        ----------
        first : m of the first call.
        calls : how many.

        Returns
        -------
        sequence of S_m.
        """
        first = arguments.integer("first", first, 0)
        calls = arguments.integer("calls", calls, 0, arguments.LONGEST)
        if isinstance(self.steps, int):
            return (self.steps,) * calls
        given = self.steps[first : first + calls]
        return given + self.steps[-1:] * (calls - len(given))

    def graphs_before(self, call: int) -> int:
        """S_0 + ... + S_{m-1}: how many graphs the calls before call m use.

        Parameters
        ----------
        call : m.

        Returns
        -------
        int.
        """
        call = arguments.integer("call", call, 0, arguments.LONGEST)
        if isinstance(self.steps, int):
            return call * self.steps
        given = self.steps[:call]
        return sum(given) + (call - len(given)) * self.steps[-1]

    def apply(self, u: Array, call: int = 0) -> Array:
        """ū = Θ̂_call u: client i's estimate of the mean of the rows of u.

        u is (n, d), or (..., n, d) with run axes; the result has its library, device and dtype. A pure function of
        (u, call); beside its result it adds what was sent to `ledger`.

        Parameters
        ----------
        u : (..., n, d), a row for each client.
        call : m: which graphs are used.

        Returns
        -------
        array like u.
        """
        call = arguments.integer("call", call, 0, arguments.LONGEST)
        arguments.same_kind(u=u)
        channel = self.connect()
        rows = channel.clients.stop - channel.clients.start
        if u.ndim < 2 or u.shape[-2] != rows:
            raise ValueError(f"u: shape {tuple(u.shape)} given, needed (..., {rows}, d): one row per client")
        mean = Mean([self], channel, like=u, first=call, calls=1)
        averaged = mean(u)
        self.ledger += channel.traffic
        return averaged


def read_steps(steps: object) -> int | tuple[int, ...]:
    """The number of steps S, or a sequence S_0, S_1, ... of them, each at least 1."""
    if not isinstance(steps, Iterable) or isinstance(steps, str | bytes) or getattr(steps, "ndim", 1) == 0:
        return arguments.integer("steps", steps, 1, arguments.LONGEST)
    given = tuple(arguments.integer(f"steps[{m}]", S, 1, arguments.LONGEST) for m, S in enumerate(steps))
    if not given:
        raise ValueError("steps: empty sequence given, needed at least one integer >= 1")
    return given


def check_network(net: Network) -> Network:
    """TypeError unless `net` is a network."""
    if isinstance(net, Network) and not hasattr(net, "n"):
        raise TypeError(f"net: {type(net).__name__} has no n, needed super().__init__(n) in its __init__")
    if not isinstance(net, Network):
        raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
    return net
