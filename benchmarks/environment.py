"""Where the numbers come from: machine, versions, threads."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "Agg",
}
LIBRARIES = ("numpy", "scipy", "numba", "torch", "jax", "networkx")


def describe() -> dict[str, object]:
    """Everything a reader needs to judge or repeat the numbers."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 2),
        "threads": "1 unless a figure says otherwise",
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    """None where a peer's library is not installed: the benchmarks without peers run all the same."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() or None
