"""Scales and products that neither overflow nor underflow on the way; norms that do not are in `hgp_ref.rigorous`.

    s = 2^k next to the largest entry of a: a/s is exact, and its squares stay inside the range;
    x y z … = (product of mantissas) · 2^(sum of exponents): only the result may leave the range.

A positive product below the smallest normal number is rounded up to it, so that what bounds an error from above still
does; one beyond the largest is infinite.
"""

from __future__ import annotations

import math
import sys

import numpy as np


def power_of_two(a: np.ndarray) -> float:
    """2^k with max|a|/2^k in [1/2, 1); 1 if `a` is zero."""
    largest = float(np.abs(a).max())
    return 1.0 if largest == 0 else math.ldexp(1.0, min(max(math.frexp(largest)[1], -1021), 1023))


def product(*factors: float) -> float:
    """The product of non-negative factors, rounded up to the smallest normal number if it is positive; NaN stays."""
    if any(math.isnan(x) for x in factors):
        return math.nan
    if any(x == 0 for x in factors):
        return 0.0
    if any(math.isinf(x) for x in factors):
        return math.inf
    mantissa, exponent = 1.0, 0
    for x in factors:
        m, e = math.frexp(mantissa * x) if 1e-3 < x < 1e3 else _split(mantissa, x)
        mantissa, exponent = m, exponent + e
    try:
        return max(math.ldexp(mantissa, exponent), sys.float_info.min)
    except OverflowError:
        return math.inf


def _split(mantissa: float, x: float) -> tuple[float, int]:
    """mantissa · x as (m, e)."""
    m, e = math.frexp(x)
    m, more = math.frexp(mantissa * m)
    return m, e + more
