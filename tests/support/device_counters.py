"""Launches and transfers of the real CuPy, as the rig that runs it on the CPU counts them (tests/cupy_on_cpu)."""

from __future__ import annotations

from typing import Any


class DeviceCounters:
    """What happened on the device since the last `reset`; a launch is a kernel, a cuBLAS call, a sort or a memset."""

    def __init__(self, rig: Any) -> None:
        self._rig = rig
        self.reset()

    def reset(self) -> None:
        self._rig.reset()

    def _count(self, *names: str) -> int:
        counters = self._rig.counters()
        return sum(counters[name] for name in names)

    @property
    def launches(self) -> int:
        return self._count("launches", "blas", "sorts", "memsets")

    @property
    def to_device(self) -> int:
        return self._count("h2d")

    @property
    def to_device_bytes(self) -> int:
        return self._count("h2d_bytes")

    @property
    def to_host(self) -> int:
        return self._count("d2h")

    @property
    def to_host_bytes(self) -> int:
        return self._count("d2h_bytes")

    @property
    def number(self) -> int:
        return self._count("h2d", "d2h")

    @property
    def nbytes(self) -> int:
        return self._count("h2d_bytes", "d2h_bytes")

    @property
    def kernels(self) -> dict[str, int]:
        """Launches by the name of the kernel."""
        return self._rig.kernels()
