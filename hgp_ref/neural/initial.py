"""Initial parameters by counters: number j of client i is U(-b_j, b_j), b_j = 1/√fan_in, from word j of (seed, i).

This is PyTorch's default for its Linear and Conv2d (Kaiming's uniform with a = √5, and the same bound for the bias).
Words are Philox4x32-10's on the host, so that every library, device and order of asking gets the same numbers:
(2 (w + 1/2) / 2³² - 1) b in float64, then rounded to the dtype asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.compiled import njit
from hgp_ref.memory import room
from hgp_ref.philox import INITIAL_PARAMETERS, key, philox4x32, step_words


def draw(parts: list[tuple[int, int]], n: int, seed: int, like: Array | None, dtype: Any, same: bool) -> Array:
    """Parameters of n clients; `parts` lists how many numbers share a fan-in, in order.  # (n, d)"""
    if like is not None:
        arguments.array("like", like)
    if dtype is None:
        dtype = np.dtype(np.float64) if like is None else host_dtype(like)
    dtype = arguments.real_floating("dtype", dtype)
    bound = np.concatenate([np.full(size, 1 / math.sqrt(fan_in)) for size, fan_in in parts])
    room(f"n={n}", n * len(bound))
    host = np.empty((n, len(bound)), dtype=dtype)
    for i in range(1 if same else n):
        unit = np.empty(-(-len(bound) // 4) * 4)
        _uniform(unit, i, INITIAL_PARAMETERS, *key(seed))
        host[i] = unit[: len(bound)] * bound
    if same:
        host[1:] = host[0]
    return host if like is None else from_host(host, like=like)


@njit(cache=True, nogil=True)
def _uniform(out, client, stream, k0, k1):
    """Independent numbers, uniform on (-1, 1)."""
    c2, c3 = step_words(0, stream)
    for block in range(out.size // 4):
        words = philox4x32(block, client, c2, c3, k0, k1)
        for w in range(4):
            out[4 * block + w] = (words[w] + 0.5) / 2.0**31 - 1.0
