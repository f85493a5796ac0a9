"""The mean as an iteration meets it: call after call over one channel."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.channels import BALANCED, CARRIED, Channel, Runs, Traffic
from hgp_ref.channels.base import Weights
from hgp_ref.networks.connectivity import obstacle
from hgp_ref.philox import MAX_STEP

if TYPE_CHECKING:
    from hgp_ref.averaging.base import Averaging

AHEAD = 2**14  # calls whose steps are listed at once: a run may be allowed many more and end early
SEEN = 10_000  # graphs that are looked at before a run for clients that are cut off


class Mean:
    """ū = Θ̂_m u for calls m = first, first + 1, ...: all that a method knows of the network.

        ubar = mean(u)           the next call
        mean.kept(ubar)          what an iteration goes on from: ū, or the sums ω ū where mass is conserved
        mean.divided(u)          the reverse
        mean.sums(z)             the next call without the division: P z, weights carried from call to call
        mean.forget()            other vectors come next: nothing that is under way belongs to them
        mean.taking(S)           the same mean with calls of S steps that leave the numbering of the others alone

    With `runs`, u has a leading run axis and run r meets averaging r; `channel` is then one over all of them.

    Parameters
    ----------
    averagings : sequence of Averaging
        One for each run.
    channel : Channel
        Over which numbers travel.
    like : array
        Library, device and dtype of what is averaged.
    calls, first : int
        How many calls are to come, and the number of the first.
    runs : bool
        Whether arrays carry a run axis.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mean = hgp.averaging.open_mean([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mean(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """

    def __init__(
        self,
        averagings: Sequence[Averaging],
        channel: Channel,
        like: Array,
        calls: int,
        first: int = 0,
        runs: bool = False,
    ) -> None:
        self.averagings, self.channel, self.calls = averagings, channel, 0
        self._first, self._runs = first, runs
        self._fixed: Any = None  # steps of every call, where it does not follow the averaging
        self._begin, self._steps = 0, self._steps_of(0, min(calls, AHEAD))  # of the calls from number _begin on
        self._weights = self._rule([a.weights for a in averagings])
        self._carried = self._rule([BALANCED if a.weights is BALANCED else CARRIED for a in averagings])
        if first:
            passed = tuple(a.graphs_before(first) for a in averagings)
            asked: dict[str, Any] = {"graphs": passed if runs else passed[0], "weights": self._weights}
            channel.skip(**asked, like=like)
        channel.foresee(self._steps)
        conserving = np.array([a.conserves for a in averagings])
        self._some = bool(conserving.any())
        self._mask: Array | None = None  # which runs conserve, where some do and some do not
        if self._some and not conserving.all():
            self._mask = from_host(conserving.astype(host_dtype(like))[:, None, None], like=like)

    def __call__(self, u: Array) -> Array:
        return self.channel.average(u, self._next(), self._weights)

    def sums(self, z: Array) -> Array:
        """P z over the graphs of the next call; `weights` becomes P ω. ValueError where links lose sums for good."""
        if self.channel.loses_mass:
            raise ValueError(
                f"avg: {self.averagings[0]!r} given, whose links lose messages and with them part of the sums that "
                "must be conserved; needed RobustPushSum over the same network"
            )
        return self.channel.mix(z, self._next(), self._carried)

    def forget(self) -> None:
        """Other vectors come next; what is under way of those before, on links that delay, is dropped."""
        self.channel.forget()

    @property
    def weights(self) -> Array | float:
        """ω after the last call, (..., n, 1): 1 before any, and where none travel."""
        omega = None if all(a.weights is BALANCED for a in self.averagings) else self.channel.weights
        return 1.0 if omega is None else omega

    def taking(self, steps: int) -> Mean:
        """A mean over the same channel whose calls take `steps` steps each; the calls of this one go on as numbered."""
        other = copy.copy(self)
        other._fixed = (steps,) * len(self.averagings) if self._runs else steps
        return other

    def _next(self) -> Any:
        """The steps of the next call."""
        if self._fixed is not None:
            return self._fixed
        if self.calls == self._begin + len(self._steps):  # of a long run, or more calls than were announced
            self._begin, self._steps = self.calls, self._steps_of(self.calls, min(max(1, self.calls), AHEAD))
            self.channel.foresee(self._steps)
        steps = self._steps[self.calls - self._begin]
        self.calls += 1
        return steps

    def _rule(self, each: list[Weights]) -> Any:
        """What travels beside the vectors, as the channel is told: one rule, or one for each run."""
        return tuple(each) if self._runs else each[0]

    def _steps_of(self, begin: int, calls: int) -> Sequence[Any]:
        """The steps of `calls` calls of this mean from number `begin` on."""
        first = self._first + begin
        return (_steps_of_runs(self.averagings, first, calls) if self._runs
                else self.averagings[0].steps_of(first, calls))  # fmt: skip

    def kept(self, ubar: Array) -> Array:
        """ū, or ω ū where the averaging conserves sums: they are what the next iterate starts from."""
        if not self._some:
            return ubar
        return ubar * (self.channel.weights if self._mask is None else self._factor())

    def divided(self, u: Array) -> Array:
        """u / ω where the averaging conserves sums, u elsewhere: comparable between iterations."""
        return u / self._factor() if self._some and self.calls else u

    def _factor(self) -> Array:
        omega = self.channel.weights
        return omega if self._mask is None else self._mask * omega + (1 - self._mask)

    def charge(self) -> Traffic:
        """What the channel has carried, added to the averagings' ledgers; with runs, fields are arrays."""
        sent = self.channel.traffic
        if len(self.averagings) == 1 and not np.ndim(sent.messages):
            self.averagings[0].ledger += sent
        else:
            for r, averaging in enumerate(self.averagings):
                averaging.ledger += sent.of_run(r)
        return sent


def _steps_of_runs(averagings: Sequence[Averaging], first: int, calls: int) -> Sequence[tuple[int, ...]]:
    """The steps of each call, a tuple with an entry for each run."""
    if all(isinstance(a.steps, int) for a in averagings):
        return (tuple(a.steps_of(first, 1)[0] for a in averagings),) * calls
    return tuple(zip(*(a.steps_of(first, calls) for a in averagings), strict=True))


def open_mean(averagings: Sequence[Averaging], rows: int, like: Array, calls: int, runs: bool = False) -> Mean:
    """The mean of `calls` calls from the first graph on, for arrays like `like` with `rows` clients.

    With `runs` there is one averaging for each entry of a leading run axis. Warns where graphs do not connect clients.

    Parameters
    ----------
    averagings : sequence of Averaging
        One for each run.
    rows : int
        Clients of the arrays to come.
    like : array
        Library, device and dtype of what is averaged.
    calls : int
        How many calls are to come.
    runs : bool
        Whether arrays carry a run axis.

    Returns
    -------
    Mean
        At work over a channel of its own.

    Raises
    ------
    TypeError
        What `connect` returns is no channel.
    ValueError
        The averaging has another number of clients than there are rows.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mean = hgp.averaging.open_mean([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mean(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """
    channels = [a.connect() for a in averagings]
    for averaging, channel in zip(averagings, channels, strict=True):
        if not isinstance(channel, Channel):
            raise TypeError(
                f"avg: {type(averaging).__name__}.connect() returned {type(channel).__name__}, needed a Channel"
            )
        held = channel.clients.stop - channel.clients.start
        if held != rows:
            raise ValueError(f"avg: {averaging!r} averages {held} clients, but the problem has {rows}")
    _warn_of_obstacles(averagings, calls)
    channel = Runs(channels) if runs else channels[0]
    kind = {"dtype": host_dtype(like), "run axes": like.shape[:-2], "columns": like.shape[-1]}
    channel.agree("averages", averagings=averagings, calls=calls, runs=runs, **kind)
    return Mean(averagings, channel, like, calls, runs=runs)


def _warn_of_obstacles(averagings: Sequence[Averaging], calls: int) -> None:
    """One warning for each averaging whose graphs over the run, the first SEEN of them, cannot make a mean."""
    seen: set[tuple[int, int]] = set()
    for a in averagings:
        graphs = a.graphs_before(calls)
        if graphs > MAX_STEP:
            raise ValueError(f"avg: {a!r} given, which takes {graphs} graphs in {calls} calls; there are {MAX_STEP}")
        graphs = min(graphs, SEEN)
        if a.net is None or (id(a.net), graphs) in seen:
            continue
        seen.add((id(a.net), graphs))
        missing = obstacle(a.net, 1, graphs)
        if missing is not None:
            warnings.warn(f"{a!r}: {missing.message}", RuntimeWarning, stacklevel=4)
