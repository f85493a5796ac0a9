"""Where the numbers come from: machine, versions, threads."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from reporting.provenance import commit, installed_version

ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "Agg",
}
LIBRARIES = ("numpy", "scipy", "numba", "torch", "jax", "networkx")


def describe() -> dict[str, object]:
    """What a reader needs to know to interpret or repeat the numbers."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 2),
        "threads": "1 unless a figure says otherwise",
        "versions": {name: installed_version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
