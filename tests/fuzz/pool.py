"""A worker process that is replaced when it dies or hangs, so that such a call fails without ending the tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIMIT = 20.0  # seconds of the wall clock after which a call counts as hanging; the two seconds are processor time


class Worker:
    """Calls by name in a process of its own, with arguments in an array library."""

    def __init__(self, library: str = "numpy") -> None:
        self.library = library
        self._process: subprocess.Popen[str] | None = None
        self.arguments = self._start()

    def _start(self) -> dict[str, list[str]]:
        path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                "MPLBACKEND": "Agg",
                "HGP_REF_FUZZ_LIBRARY": self.library,
            },
        )
        line = self._process.stdout.readline()
        assert line, "the worker does not start: python -m fuzz.worker"
        return json.loads(line)

    def attempt(self, name: str, bad: dict[str, str]) -> tuple[str, str]:
        """("", "") if the call behaves; otherwise the kind of fault and what was seen."""
        if self._process is None:
            self._start()
        process = self._process
        process.stdin.write(json.dumps([name, bad]) + "\n")
        process.stdin.flush()
        limit = LIMIT if self.library == "numpy" else 10 * LIMIT  # kernels are compiled when they are first used
        ready, _, _ = select.select([process.stdout], [], [], limit)
        line = process.stdout.readline() if ready else ""
        if line:
            kind, seen = json.loads(line)
            return kind, seen
        self.close()
        return ("crash", f"the process ended with {process.returncode}") if ready else ("hang", f"over {limit:.0f} s")

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None
