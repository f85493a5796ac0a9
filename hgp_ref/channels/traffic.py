"""What a run sends: messages, floats, bytes and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.results import Result

FIELDS = ("messages", "floats", "bytes", "rounds")


@dataclass(frozen=True)
class Traffic(Result):
    """Communication of a run, summed over clients.

    A message is one vector, with its Push-Sum weight where there is one, over one edge that is not a self-loop.
    A round is one step of the network, in which all clients send at once. With a run axis every field is an array.

    Parameters
    ----------
    messages : messages between clients.
    floats : numbers in them.
    bytes : bytes in them.
    rounds : steps of the network.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(3)
    >>> est = hgp.hypergradient(hgp.problems.Quadratic.random(3, 4, 2), np.zeros((3, 4)), np.zeros((3, 2)),
    ...     hgp.PushSum(net, steps=1), iterations=10)
    >>> est.traffic.rounds, est.traffic.messages, est.traffic.floats
    (10, 60, 300)
    """

    messages: Any = 0
    floats: Any = 0
    bytes: Any = 0
    rounds: Any = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f) + getattr(other, f) for f in FIELDS))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f) - getattr(other, f) for f in FIELDS))

    @staticmethod
    def of(messages: int, floats_per_message: int, itemsize: int, rounds: int) -> Traffic:
        """Traffic of `messages` messages of `floats_per_message` numbers of `itemsize` bytes in `rounds` rounds.

        Parameters
        ----------
        messages : between clients.
        floats_per_message : numbers in each.
        itemsize : bytes of a number.
        rounds : steps of the network.

        Returns
        -------
        Traffic.
        """
        floats = int(messages) * floats_per_message
        return Traffic(int(messages), floats, floats * itemsize, int(rounds))

    @staticmethod
    def side_by_side(runs: Sequence[Traffic]) -> Traffic:
        """The traffic of several runs along a run axis.

        Parameters
        ----------
        runs : the traffic of each.

        Returns
        -------
        Traffic whose fields are arrays (runs,).
        """
        return Traffic(*(np.array([getattr(run, f) for run in runs]) for f in FIELDS))

    def in_words(self) -> str:
        """One line for a summary; of several runs, the largest of each number.

        Returns
        -------
        str, such as "60 messages, 300 floats, 2,400 bytes in 10 rounds".
        """
        messages, floats, size, rounds = (int(np.max(getattr(self, f))) for f in FIELDS)
        most = " (at most, a run)" if np.ndim(self.messages) else ""
        return f"{messages:,} messages, {floats:,} floats, {size:,} bytes in {rounds:,} rounds{most}"

    def of_run(self, r: int) -> Traffic:
        """The traffic of run r.

        Parameters
        ----------
        r : its number.

        Returns
        -------
        Traffic of plain numbers.
        """
        return Traffic(*(int(getattr(self, f)[r]) for f in FIELDS))

    def per_run(self, lead: tuple[int, ...]) -> Traffic:
        """The traffic of each of the runs `lead`, alike, that went over one channel together.

        Parameters
        ----------
        lead : shape of the run axes.

        Returns
        -------
        Traffic whose fields are arrays of that shape.
        """
        runs = int(np.prod(lead, dtype=np.int64))
        shares = (self.messages // runs, self.floats // runs, self.bytes // runs, self.rounds)
        return Traffic(*(np.full(lead, share) for share in shares)) if lead else self
