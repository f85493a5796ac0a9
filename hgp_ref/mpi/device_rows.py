"""A step of mixing between ranks on arrays of any library: take and add, as the simulation does there.

Rows that cross go to MPI as they lie on the device where it can read them (`direct`), else by the host door.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref._kernels.mixing import padded_rows
from hgp_ref.backend import Array, addressable, array_namespace, device, from_host, host_dtype, settle, to_host
from hgp_ref.mpi.rank_step import RankStep
from hgp_ref.mpi.ranks import Ranks
from hgp_ref.mpi.route import Route


class DeviceRows:
    """What clients here hold, (..., m, d)."""

    def __init__(self, ranks: Ranks, z: Array, direct: bool) -> None:
        if direct and not addressable(z):
            raise TypeError(
                f"direct=True given, but MPI cannot write into arrays of {array_namespace(z).__name__}; needed "
                "hgp.mpi.spread(..., direct=False), the host door"
            )
        self.ranks, self.held = ranks, z
        self.exchange = self._direct if direct else self._by_host

    def step(self, route: RankStep, meanwhile: Callable[[], Any]) -> None:
        """held ← W_s held; `meanwhile` is done while messages travel."""
        z, xp = self.held, array_namespace(self.held)
        come = self.exchange(route, meanwhile)
        known = z if come is None else xp.concat([z, come], axis=-2)
        senders, shares = self._padded(route)
        total = xp.zeros_like(z)
        for k in range(senders.shape[1]):
            total = total + shares[:, k][:, None] * xp.take(known, senders[:, k], axis=-2)
        self.held = total

    def _padded(self, route: RankStep) -> tuple[Array, Array]:
        """(m, width) places of the senders and their shares, on the device."""
        rows = route.rows()
        senders, shares = padded_rows(*rows, int(np.diff(rows[0]).max()))
        to_device = (senders, shares.astype(host_dtype(self.held)))
        return from_host(to_device[0], like=self.held), from_host(to_device[1], like=self.held)

    def _sent(self, route: Route) -> Array:
        """The rows that go out, (..., rows, d)."""
        return array_namespace(self.held).take(self.held, from_host(route.sends, like=self.held), axis=-2)

    def _by_host(self, route: Route, meanwhile: Callable[[], Any]) -> Array | None:
        lead, d = self.held.shape[:-2], self.held.shape[-1]
        out = to_host(self._sent(route)) if route.to else np.empty((*lead, 0, d), host_dtype(self.held))
        packed = np.ascontiguousarray(np.moveaxis(out, -2, 0))
        come = np.empty((route.elsewhere, *lead, d), packed.dtype)
        self._post(route, lambda a, b: come[a:b].reshape(-1).view(np.uint8),
                   lambda a, b: packed[a:b].reshape(-1).view(np.uint8), packed.nbytes, meanwhile)  # fmt: skip
        return from_host(np.ascontiguousarray(np.moveaxis(come, 0, -2)), like=self.held) if route.come else None

    def _direct(self, route: Route, meanwhile: Callable[[], Any]) -> Array | None:
        xp, lead, d = array_namespace(self.held), self.held.shape[:-2], self.held.shape[-1]
        options = {"dtype": self.held.dtype, "device": device(self.held)}
        parts = {a: xp.empty((*lead, b - a, d), **options) for _, a, b in route.come}
        out = self._sent(route) if route.to else self.held[..., :0, :]
        packed = {a: xp.asarray(out[..., a:b, :], copy=True) for _, a, b in route.to}  # contiguous, each for itself
        settle(self.held)
        nbytes = int(np.prod(out.shape, dtype=np.int64)) * host_dtype(self.held).itemsize
        self._post(route, lambda a, b: parts[a], lambda a, b: packed[a], nbytes, meanwhile)
        return xp.concat([parts[a] for _, a, _ in route.come], axis=-2) if parts else None

    def _post(self, route: Route, into: Callable[[int, int], Any], out: Callable[[int, int], Any], nbytes: int,
              meanwhile: Callable[[], Any]) -> None:  # fmt: skip
        comm = self.ranks.comm
        requests = [comm.Irecv(into(a, b), q) for q, a, b in route.come]
        requests += [comm.Isend(out(a, b), q) for q, a, b in route.to]
        self.ranks.count(len(route.to), route.sends.size, nbytes)
        meanwhile()
        self.ranks.wait(requests, f"step {route.step}", [q for q, _, _ in (*route.come, *route.to)])
