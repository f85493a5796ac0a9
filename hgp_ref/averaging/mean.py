"""The mean as an iteration meets it: call after call over one channel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.channels import Channel, Runs, Traffic
from hgp_ref.networks.connectivity import obstacle

if TYPE_CHECKING:
    from hgp_ref.averaging.base import Averaging


class Mean:
    """ū = Θ̂_m u for calls m = first, first + 1, ...: all that a method knows of the network.

        ubar = mean(u)           the next call
        mean.kept(ubar)          what an iteration goes on from: ū, or the sums ω ū where mass is conserved
        mean.divided(u)          the reverse

    With `runs`, u has a leading run axis and run r meets averaging r; `channel` is then one over all of them.
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
        steps: Any = _steps_of_runs(averagings, first, calls) if runs else averagings[0].steps_of(first, calls)
        self._steps: Sequence[Any] = steps
        self._weights: Any = tuple(a.weights for a in averagings) if runs else averagings[0].weights
        if first:
            passed = tuple(a.graphs_before(first) for a in averagings)
            asked: dict[str, Any] = {"graphs": passed if runs else passed[0], "weights": self._weights}
            channel.skip(**asked, like=like)
        channel.foresee(steps)
        conserving = np.array([a.conserves for a in averagings])
        self._some = bool(conserving.any())
        self._mask: Array | None = None  # which runs conserve, where some do and some do not
        if self._some and not conserving.all():
            self._mask = from_host(conserving.astype(host_dtype(like))[:, None, None], like=like)

    def __call__(self, u: Array) -> Array:
        steps = self._steps[self.calls]
        self.calls += 1
        return self.channel.average(u, steps, self._weights)

    def kept(self, ubar: Array) -> Array:
        """ū, or ω ū where the averaging conserves sums: they are what the next iterate starts from."""
        return ubar * self._factor() if self._some else ubar

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
    """
    channels = [a.connect() for a in averagings]
    for averaging, channel in zip(averagings, channels, strict=True):
        held = channel.clients.stop - channel.clients.start
        if held != rows:
            raise ValueError(f"avg: {averaging!r} averages {held} clients, but the problem has {rows}")
    _warn_of_obstacles(averagings, calls)
    channel = Runs(channels) if runs else channels[0]
    return Mean(averagings, channel, like, calls, runs=runs)


def _warn_of_obstacles(averagings: Sequence[Averaging], calls: int) -> None:
    """One warning for each averaging whose graphs over the whole run cannot make a mean."""
    seen: set[tuple[int, int]] = set()
    for a in averagings:
        graphs = a.graphs_before(calls)
        if a.net is None or (id(a.net), graphs) in seen:
            continue
        seen.add((id(a.net), graphs))
        missing = obstacle(a.net, 1, graphs)
        if missing is not None:
            warnings.warn(f"{a!r}: {missing.message}", RuntimeWarning, stacklevel=4)
