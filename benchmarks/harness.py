"""Interleaved timing: repetitions of all cases alternate, so that other load on the machine affects them alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.results import Timing

SHORTEST = 0.02  # seconds of one measurement: shorter calls are repeated inside it


def interleave(cases: Mapping[str, Callable[[], Any]], repetitions: int = 9) -> dict[str, Timing]:
    """Call every case once (`first`), then all of them in turn, `repetitions` times."""
    first, number = {}, {}
    for label, call in cases.items():
        first[label] = _once(call)[0]
        number[label] = max(1, math.ceil(SHORTEST / max(_once(call)[1], 1e-7)))
    cpu: dict[str, list[float]] = {label: [] for label in cases}
    wall: dict[str, list[float]] = {label: [] for label in cases}
    gc.collect()
    for _ in range(repetitions):
        for label, call in cases.items():
            seconds = many(call, number[label])
            cpu[label].append(seconds[0] / number[label])
            wall[label].append(seconds[1] / number[label])
    return {label: Timing(cpu[label], wall[label], first[label]) for label in cases}


def once(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of a call, its CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def _once(call: Callable[[], Any]) -> tuple[float, float]:
    return once(call)[1:]


def many(call: Callable[[], Any], number: int) -> tuple[float, float]:
    """CPU and wall seconds of `number` calls."""
    if number > 1:
        call()  # short calls are measured with caches as their own repetition leaves them, not as another case did
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(number):
        call()
    return time.process_time() - cpu, time.perf_counter() - wall
