"""`python -m benchmarks.contender`: one version of the package in its own process, for `versus`.

A request is a line of JSON, and so is its reply:

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


def serve(requests: TextIO, replies: TextIO) -> None:
    """Reply to requests until the input ends. The first line gives the location of the package."""
    call: Call | None = None
    _reply(replies, {"package": str(Path(hgp_ref.__file__).resolve().parent)})
    for line in requests:
        request = json.loads(line)
        if "workload" in request:
            call = None  # what it held is free before the next is made
            gc.collect()
            call = TIMED[request["workload"]](request["quick"])
            _reply(replies, {"first": once(call)[1], "again": once(call)[1]})
        else:
            assert call is not None, "a number of calls was requested before any workload"
            cpu, wall = many(call, request["number"])
            _reply(replies, {"cpu": cpu / request["number"], "wall": wall / request["number"]})


def _reply(replies: TextIO, what: dict[str, object]) -> None:
    replies.write(json.dumps(what) + "\n")
    replies.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
