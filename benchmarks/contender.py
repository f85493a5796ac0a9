"""`python -m benchmarks.contender`: one version of the package in a process of its own, asked by `versus` line by line.

A question is a line of JSON, and so is its answer:

    {"workload": NAME, "quick": false}   makes the workload and calls it once   → {"first": CPU seconds, "again": ...}
    {"number": k}                        calls it k times                       → {"cpu": ..., "wall": ...} of one call
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TextIO

import hgp_ref
from benchmarks.harness import many, once
from benchmarks.workloads import TIMED, Call


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer until there are no more questions; the first answer says where the package was found."""
    call: Call | None = None
    _say(answers, {"package": str(Path(hgp_ref.__file__).resolve().parent)})
    for line in questions:
        asked = json.loads(line)
        if "workload" in asked:
            call = None  # what it held is free before the next is made
            gc.collect()
            call = TIMED[asked["workload"]](asked["quick"])
            _say(answers, {"first": once(call)[1], "again": once(call)[1]})
        else:
            assert call is not None, "a number of calls asked before any workload"
            cpu, wall = many(call, asked["number"])
            _say(answers, {"cpu": cpu / asked["number"], "wall": wall / asked["number"]})


def _say(answers: TextIO, what: dict[str, object]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
