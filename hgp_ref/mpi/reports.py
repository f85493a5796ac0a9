"""What all ranks find out together, whichever way their channel mixes: agreement, maxima, means over all clients."""

from __future__ import annotations

import warnings

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, to_host
from hgp_ref.channels.base import Channel
from hgp_ref.channels.flooding import Flooded, flood_max, hear
from hgp_ref.channels.traffic import Traffic
from hgp_ref.errors import outside
from hgp_ref.mpi.host_rows import HostRows
from hgp_ref.mpi.network import Spread

MEAN_BYTES = 64 * 2**20  # of all clients' rows that one rank holds at a time to take their mean


class BetweenRanks(Channel):
    """A channel over a spread network; a subclass says how sums are mixed."""

    net: Spread

    def settle(self) -> None:
        """Bring the books up to date before something else than mixing moves the clock."""
        return None

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.settle()
        self.agree("maxima over clients", columns=values.shape[1], dtype=host_dtype(like), max_rounds=max_rounds)
        top, rounds, messages = flood_max(self.net, values, self.step + 1, max_rounds, FloodedRanks(self.net))
        self.step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def meet(self, numbers: np.ndarray) -> None:
        """ValueError on every rank where some rank's problem holds other clients than are there.

        A problem that was made of a rank's own data numbers its clients from 0, as one that was restricted to the first
        clients does: that only warns.
        """
        wrong = not np.array_equal(numbers, np.arange(self.n)[self.clients])
        from_zero = wrong and np.array_equal(numbers, np.arange(len(numbers)))
        if self.anyone(wrong and not from_zero):
            raise ValueError(
                f"problem: it holds clients {numbers[:5].tolist()}, ... on rank {self.net.ranks.rank}, and on some "
                f"rank not those of net.clients, here {self.clients.start} to {self.clients.stop - 1}; needed "
                "problem.restrict(net.clients)"
            )
        if from_zero:
            warnings.warn(
                f"problem: its clients are numbered from 0 on rank {self.net.ranks.rank}, where net.clients are "
                f"{self.clients.start} to {self.clients.stop - 1}: needed problem.restrict(net.clients) of the whole "
                "problem; one made of this rank's data is right, but draws the mini-batches of other clients unless "
                "its attribute `clients` holds their numbers",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def agree(self, what: str, **settings: object) -> None:
        self.net.ranks.agree(what, {"net": self.net, "graphs used": self.step, **settings})

    def anyone(self, flag: bool) -> bool:
        return bool(self.net.ranks.one_each(np.array([flag]), "whether to go on").any())

    def max_over_clients(self, a: Array) -> np.ndarray:
        top = host_float64(array_namespace(a).max(a, axis=-1))
        return self.net.ranks.one_each(top.reshape(-1), "maxima over clients").max(axis=0).reshape(top.shape)

    def mean_over_clients(self, a: Array) -> Array:
        rows = np.moveaxis(to_host(a), -2, 0)  # (m, ..., d)
        d, sizes = rows.shape[-1], np.diff(self.net.starts)
        widest = MEAN_BYTES // max(1, self.n * rows[0, ..., :1].nbytes)
        parts = []
        for columns in column_blocks(d, widest):
            every = self.net.ranks.collect(np.ascontiguousarray(rows[..., columns]), sizes, "a mean over clients")
            parts.append(super().mean_over_clients(np.moveaxis(every, 0, -2)))
        return from_host(np.concatenate(parts, axis=-1), like=a)


def column_blocks(d: int, widest: int) -> list[slice]:
    """Columns 0 .. d-1 in parts of about `widest`, none of them a single column unless d is 1.

    Sums of two columns or more run over rows in order, whatever their number; NumPy adds up one column in another way.
    """
    cuts = list(range(0, d, max(2, widest))) or [0]
    if len(cuts) > 1 and d - cuts[-1] == 1:
        cuts.pop()
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], d], strict=True)]


class FloodedRanks(Flooded):
    """Flooding over the same edges, rows of other ranks by messages."""

    net: Spread

    def top(self, values: np.ndarray) -> np.ndarray:
        return self.net.ranks.one_each(values.max(axis=0), "maxima over clients").max(axis=0)

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        step = self.net.rank_step(s)
        known = HostRows(self.net.ranks, held).exchanged(step)
        indptr, places, _ = step.rows()
        return hear(indptr, places, known)[: len(held)], step.messages

    def anyone(self, flag: bool) -> bool:
        return bool(self.net.ranks.one_each(np.array([flag]), "whether maxima still travel").any())

    def everybody(self, flags: np.ndarray) -> np.ndarray:
        return self.net.ranks.collect(flags[:, None], np.diff(self.net.starts), "whom maxima do not reach")[:, 0]
