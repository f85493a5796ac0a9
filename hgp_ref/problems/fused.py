"""X_i^T (s_i (X_i u_i)) + r_i u_i in one pass over the data, for NumPy arrays.

Two matrix products read X twice. Here the sweep over four rows of X_i that makes their products with u_i also adds the
four rows before, still in a cache near the core, to the result: X comes from memory once.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.backend import Array
from hgp_ref.compiled import njit
from hgp_ref.threads import over_rows

ANY_ORDER = {"reassoc", "contract", "nsz"}  # sums in vector registers; NaN and infinity keep their meaning
SMALLEST = 2**15  # bytes of one client's data: below, one pass gains nothing, however many clients there are


def applies(X: Array, s: Array, u: Array) -> bool:
    """Whether `hvp` takes these arrays: NumPy, float32 or float64, contiguous data, one u per X, one logit.

    X (..., n, N, d), s (..., n, N, 1) and u (..., n, d) share their leading axes; where many u meet one X (runs over
    shared data, several classes) products of matrices serve all of them with two reads.
    """
    return (
        isinstance(X, np.ndarray)
        and isinstance(s, np.ndarray)
        and X.dtype in (np.float32, np.float64)
        and X.flags.c_contiguous
        and X.shape[:-2] == u.shape[:-1]
        and X.shape[:-1] + (1,) == s.shape
    )


def hvp(
    X: np.ndarray, s: np.ndarray, r: np.ndarray | float, u: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """X_i^T (s_i (X_i u_i)) + r_i u_i for every client and run; r is a number or broadcasts to u.  # (..., n, d)

    rows (n,): the first rows_i rows of X_i are client i's, the others padding; None if all are.
    """
    N, d = X.shape[-2:]
    pairs = X.size // (N * d)  # of a run and a client
    out = np.empty((pairs, d), dtype=X.dtype)
    rate = np.ascontiguousarray(np.broadcast_to(np.asarray(r, dtype=X.dtype), u.shape)).reshape(pairs, d)
    own = np.full(pairs, N) if rows is None else np.tile(rows, pairs // len(rows))
    data = (X.reshape(pairs, N, d), s.reshape(pairs, N), rate, np.ascontiguousarray(u).reshape(pairs, d))
    over_rows(_hvp, pairs, 2 * X.size, *data, own, out)
    return out.reshape(u.shape)


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _hvp(begin, end, X, s, r, u, own, out):
    d = X.shape[2]
    for i in range(begin, end):
        N, rows, w, total = own[i], X[i], u[i], out[i]
        for c in range(d):
            total[c] = r[i, c] * w[c]
        single = N if N < 4 else N % 4
        for k in range(single):
            _add(s[i, k] * _dot(rows[k], w), rows[k], total)
        if single == N:
            continue
        p0, p1 = _dot(rows[single], w), _dot(rows[single + 1], w)
        p2, p3 = _dot(rows[single + 2], w), _dot(rows[single + 3], w)
        for k in range(single, N - 4, 4):  # add rows k .. k+3, multiply rows k+4 .. k+7
            p0, p1, p2, p3 = p0 * s[i, k], p1 * s[i, k + 1], p2 * s[i, k + 2], p3 * s[i, k + 3]
            a0, a1, a2, a3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
            b0, b1, b2, b3 = rows[k + 4], rows[k + 5], rows[k + 6], rows[k + 7]
            q0 = q1 = q2 = q3 = X.dtype.type(0)
            for c in range(d):
                total[c] += p0 * a0[c] + p1 * a1[c] + p2 * a2[c] + p3 * a3[c]
                q0 += b0[c] * w[c]
                q1 += b1[c] * w[c]
                q2 += b2[c] * w[c]
                q3 += b3[c] * w[c]
            p0, p1, p2, p3 = q0, q1, q2, q3
        for p, k in ((p0, N - 4), (p1, N - 3), (p2, N - 2), (p3, N - 1)):
            _add(p * s[i, k], rows[k], total)


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _dot(a, b):
    total = a.dtype.type(0)
    for c in range(a.size):
        total += a[c] * b[c]
    return total


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _add(p, a, total):
    for c in range(a.size):
        total[c] += p * a[c]
