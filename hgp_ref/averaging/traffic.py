"""What a run sends: messages, floats, bytes and rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Traffic:
    """Communication of a run, summed over clients.

    A message is one vector, with its Push-Sum weight where there is one, over one edge that is not a self-loop.
    A round is one step of the network, in which all clients send at once. With a run axis every field is an array.
    """

    messages: Any = 0
    floats: Any = 0
    bytes: Any = 0
    rounds: Any = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages + other.messages,
            self.floats + other.floats,
            self.bytes + other.bytes,
            self.rounds + other.rounds,
        )

    @staticmethod
    def of(messages: Any, floats_per_message: int, itemsize: int, rounds: Any) -> Traffic:
        """Traffic of `messages` messages of `floats_per_message` numbers of `itemsize` bytes in `rounds` rounds."""
        messages = messages if getattr(messages, "ndim", 0) else int(messages)
        floats = messages * floats_per_message
        return Traffic(messages, floats, floats * itemsize, rounds)
