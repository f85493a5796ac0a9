"""Programs on several ranks, each in a process of its own with a limit in time: a hang is a failure."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NEEDED = "HGP_REF_NEEDS_MPI"  # set by `make test-all`: these tests must run
# Open MPI refuses root, and more ranks than cores, unless told otherwise; others do not read these.
OPEN_MPI = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")


@dataclass(frozen=True)
class Run:
    """How a program on several ranks ended."""

    status: int
    out: str
    err: str
    seconds: float
    pids: tuple[int, ...]  # of the ranks, where the program has printed "pid <number>"

    def survivors(self) -> list[int]:
        """Ranks that are still there."""
        return [pid for pid in self.pids if _alive(pid)]


def launcher() -> str:
    """mpiexec beside this Python, else the system's; without one a skip that says so, a failure where it is needed."""
    if not os.environ.get(NEEDED):
        pytest.importorskip("mpi4py", reason="MPI not exercised: mpi4py is not installed (extra mpi)")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None and not os.environ.get(NEEDED):
        pytest.skip("MPI not exercised: there is no mpiexec (pip install mpich)")
    assert found is not None, f"{NEEDED} is set, but there is no mpiexec"
    return found


def run(ranks: int, program: str, *arguments: str, seconds: float = 300.0,
        meanwhile: Callable[[subprocess.Popen[str], list[int]], None] | None = None) -> Run:  # fmt: skip
    """tests/mpi/<program>.py on so many ranks, or what follows "-m".

    `meanwhile` gets the launcher and the pids that the ranks have said.
    """
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   **dict.fromkeys(OPEN_MPI, "1")}  # fmt: skip
    called = [program, *arguments] if program == "-m" else [str(HERE / f"{program}.py"), *arguments]
    command = [launcher(), "-n", str(ranks), sys.executable, "-u", *called]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                               env=environment, start_new_session=True)  # fmt: skip
    early = ""
    try:
        if meanwhile is not None:
            while len(_pids(early)) < ranks and (line := process.stdout.readline()):
                early += line
            started = time.monotonic()
            meanwhile(process, _pids(early))
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        out, err = _ended(process)
        pytest.fail(f"{program} on {ranks} ranks hangs: not over after {seconds:.0f} s\n{early}{out}\n{err}")
    finally:
        if process.poll() is None:
            _ended(process)
    taken = time.monotonic() - started
    return Run(process.returncode, early + out, err, taken, tuple(_pids(early + out)))


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End the launcher, upon which it ends its ranks; what they have said."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def _pids(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^pid (\d+)$", text, re.MULTILINE)]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
