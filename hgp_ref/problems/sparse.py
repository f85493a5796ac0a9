"""Sparse features of all clients as one stacked CSR matrix, and the products of linear models with them.

Client i has a sparse matrix X_i (N_i, d). The rows of all clients are stacked: row r has the entries
`values[starts[r]:starts[r + 1]]` in `columns[starts[r]:starts[r + 1]]`. `SparseRows` selects rows of this stack for
every client, all of them or those of a mini-batch, and stands in for a dense array (..., n, N, d). A mini-batch copies
row numbers, not entries. Nothing of the size N_i × d is formed, except by `outer`, whose result is dense by definition.

A sum runs over the entries of a row, or over the rows of a client, in their order. It is therefore the same bit for bit
whichever clients, runs and columns share the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from hgp_ref import validation
from hgp_ref._numba import njit, over_rows
from hgp_ref.backend import Array, Namespace, add_at, array_namespace, class_name, device, from_host, is_numpy, to_host
from hgp_ref.problems.base import matmul_runs

FORM = "a list of n sparse matrices (N_i, d), one per client"


class SparseRows:
    """Rows of a stacked CSR matrix with d columns; rows (..., n, N) are row numbers of the stack, −1 for padding.

    On NumPy products are compiled loops. On other libraries they gather and add entries (`backend.add_at`): all entries
    of the stack, or those of a mini-batch with every row padded to the longest one.
    """

    def __init__(self, values: Array, columns: Array, starts: Array, rows: Array, d: int, longest: int) -> None:
        self.values, self.columns, self.starts, self.rows = values, columns, starts, rows
        self.d, self.longest = d, longest  # the largest number of entries of a row, at least 1
        self.shape = (*rows.shape, d)
        self.ndim, self.dtype = len(self.shape), values.dtype
        self._all: tuple[Array, Array] | None = None  # for all entries of the stack, see `_entries`; not on NumPy

    def select(self, index: Array, valid: Array) -> SparseRows:
        """The rows of a mini-batch: instance index[..., i, k] of client i, padding where not valid."""
        xp = array_namespace(self.values)
        rows = xp.where(valid, self.rows[:, :1] + index, -1)  # instances of a client are consecutive rows of the stack
        return SparseRows(self.values, self.columns, self.starts, rows, self.d, self.longest)

    def restrict(self, clients: slice | np.ndarray) -> SparseRows:
        """The rows of some clients, with a stack of these rows alone."""
        host = self.on_host()
        chosen = host.rows[clients]
        valid = chosen[chosen >= 0]
        lengths = np.diff(host.starts)[valid]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(host.starts[valid] - starts[:-1], lengths) + np.arange(starts[-1])
        rows = np.full(chosen.shape, -1, dtype=np.int64)
        rows[chosen >= 0] = np.arange(len(valid))
        part = SparseRows(host.values[entries], host.columns[entries], starts, rows, self.d, self.longest)
        return part.to(lambda a: from_host(a, like=self.values))

    def absolute(self) -> SparseRows:
        """The same rows with |X| in place of X."""
        values = array_namespace(self.values).abs(self.values)
        other = SparseRows(values, self.columns, self.starts, self.rows, self.d, self.longest)
        other._all = self._all
        return other

    def to(self, move: Callable[[Array], Array]) -> SparseRows:
        """The same rows with `move` applied to every array."""
        host = self.on_host()
        values, columns, starts, rows = (move(a) for a in (host.values, host.columns, host.starts, host.rows))
        result = SparseRows(values, columns, starts, rows, self.d, self.longest)
        if not is_numpy(result.values):
            add_at(result.values[:0], result.rows[0, :0], result.values[:0])  # an error here if the library cannot
            client, k = np.nonzero(host.rows >= 0)
            lengths = np.diff(host.starts)
            position = np.repeat(client * host.shape[1] + k, lengths)  # rows of clients are in the order of the stack
            target = np.repeat(client, lengths) * self.d + host.columns.astype(np.int64)
            result._all = move(position), move(target)
        return result

    def on_host(self) -> SparseRows:
        """The same rows in NumPy arrays."""
        if is_numpy(self.values):
            return self
        values, columns, starts, rows = map(to_host, (self.values, self.columns, self.starts, self.rows))
        return SparseRows(values, columns, starts, rows, self.d, self.longest)

    def of_client(self, i: int) -> csr_array:
        """The matrix of client i in float64, for all its instances (NumPy)."""
        mine = self.rows[i][self.rows[i] >= 0]
        starts = self.starts[mine[0] : mine[-1] + 2]
        entries = slice(starts[0], starts[-1])
        values = self.values[entries].astype(np.float64)
        return csr_array((values, self.columns[entries], starts - starts[0]), shape=(len(mine), self.d))

    def times(self, U: Array, *, xp: Namespace) -> Array:
        """X_i U_i for U (..., n, d, c).  # (..., n, N, c)"""
        return matmul_runs(self, U, _times if is_numpy(U) else _gathered_times, xp=xp)

    def transposed_times(self, R: Array, *, xp: Namespace) -> Array:
        """X_iᵀ R_i for R (..., n, N, c).  # (..., n, d, c)"""
        return matmul_runs(self, R, _transposed_times if is_numpy(R) else _gathered_transposed_times, xp=xp)

    def gram(self, blocks: np.ndarray) -> np.ndarray:
        """Σ_k X_ikᵀ X_ik ⊗ blocks_ik for blocks (..., n, N, C, C), on NumPy.  # (..., n, d C, d C)"""
        C = blocks.shape[-1]
        rows, blocks, lead = _pairs(self.rows, blocks, 2)
        validation.check_memory(f"Hessians of d_x={self.d * C}", len(rows) * (self.d * C) ** 2)
        out = np.zeros((len(rows), self.d, C, self.d, C), dtype=self.dtype)
        _gram(self.values, self.columns, self.starts, rows, blocks, out)
        return out.reshape(*lead, self.d * C, self.d * C)

    def outer(self, r: Array) -> Array:
        """X_ikᵀ r_ik of every instance, flattened as x is, for r (..., n, N, C).  # (..., n, N, d C)"""
        C = int(r.shape[-1])
        validation.check_memory(f"a Jacobian or Hessian of d_x={self.d * C}", math.prod(r.shape) * self.d)
        if not is_numpy(r):
            return _gathered_outer(self, r)
        rows, r, lead = _pairs(self.rows, r, 1)
        out = np.zeros((*rows.shape, self.d, C), dtype=self.dtype)
        _outer(self.values, self.columns, self.starts, rows, r, out)
        return out.reshape(*lead, rows.shape[1], self.d * C)

    def norms(self) -> np.ndarray:
        """‖X_ik‖ at any scale, as `rounding.norms`; 0 for padding.  # (..., n, N) in float64, on the host"""
        host = self.on_host()
        out = np.zeros(host.rows.size)
        _norms(host.values.astype(np.float64), host.starts, host.rows.ravel(), out)
        return out.reshape(host.rows.shape)


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix of SciPy or a sequence with one."""
    return issparse(X) or (isinstance(X, list | tuple) and any(map(issparse, X)))


def sparse_of_a_device(part: Any) -> str:
    """What `part` is if it is a sparse matrix of another library than SciPy, else ""."""
    layout = str(getattr(part, "layout", ""))
    if layout.startswith("torch.sparse"):
        return f"a tensor of layout {layout}"
    kind = type(part)
    return f"{kind.__module__}.{kind.__name__}" if ".sparse" in kind.__module__ else ""


def read_sparse(name: str, X: Any) -> tuple[SparseRows, np.ndarray]:
    """The stacked rows of sparse matrices, one per client, and their numbers N_i.

    Matrices of any format are converted to CSR once: duplicate entries are added up, and stored zeros are dropped.
    """
    if issparse(X):
        raise TypeError(f"{name} must be {FORM}, got one {type(X).__name__} of shape {tuple(X.shape)}")
    for i, part in enumerate(X):
        if not issparse(part):
            raise TypeError(f"{name} must be {FORM}, got {class_name(part)} in {name}[{i}]")
        if part.ndim != 2 or part.shape[1] != X[0].shape[-1] or part.shape[1] < 1:
            raise ValueError(f"{name} must be {FORM}, got shape {tuple(part.shape)} in {name}[{i}]")
        if part.shape[0] < 1:
            raise ValueError(f"{name} must have at least one instance for every client, got none for client {i}")
    matrices = [_to_csr(f"{name}[{i}]", part) for i, part in enumerate(X)]
    validation.same_kind(**{f"{name}[{i}]": matrix.data for i, matrix in enumerate(matrices)})
    for matrix in matrices:
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    values = np.concatenate([matrix.data for matrix in matrices])
    validation.finite(name, values)
    counts = np.array([matrix.shape[0] for matrix in matrices], dtype=np.int64)
    d = int(matrices[0].shape[1])
    kind = np.int32 if d <= np.iinfo(np.int32).max else np.int64
    columns = np.concatenate([matrix.indices.astype(kind) for matrix in matrices])
    lengths = np.concatenate([np.diff(matrix.indptr) for matrix in matrices]).astype(np.int64)
    first = np.cumsum(counts) - counts
    k = np.arange(counts.max())
    rows = np.where(k < counts[:, None], first[:, None] + k, -1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return SparseRows(values, columns, starts, rows, d, max(1, int(lengths.max()))), counts


def _to_csr(name: str, part: Any) -> csr_array:
    """A copy in CSR. SciPy and the kernels read out of bounds if indices are wrong, so that they are checked first."""
    try:
        if hasattr(part, "check_format"):  # CSR, CSC, BSR
            part.check_format(full_check=True)
            return csr_array(part, copy=True)
        return csr_array(coo_array(part), copy=True)  # COO checks its indices itself
    except (ValueError, IndexError, TypeError) as error:
        got = f"a {type(part).__name__} with this error: {error}"
        raise ValueError(f"{name} must have valid indices, got {got}") from None


def _pairs(rows: np.ndarray, a: np.ndarray, trailing: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """rows (..., n, N) and a (..., n, ·, trailing axes) with one leading axis for pairs of a run and a client."""
    lead = np.broadcast_shapes(rows.shape[:-1], a.shape[: a.ndim - trailing - 1])
    last = a.shape[a.ndim - trailing - 1 :]
    flat = np.ascontiguousarray(np.broadcast_to(rows, (*lead, rows.shape[-1]))).reshape(-1, rows.shape[-1])
    return flat, np.ascontiguousarray(np.broadcast_to(a, (*lead, *last))).reshape(len(flat), *last), lead


def _times(X: SparseRows, U: np.ndarray) -> np.ndarray:
    rows, U, lead = _pairs(X.rows, U, 1)
    out = np.zeros((*rows.shape, U.shape[-1]), dtype=X.dtype)
    _over_pairs(X, rows, U, out, _multiply_vector, _multiply)
    return out.reshape(*lead, rows.shape[1], U.shape[-1])


def _transposed_times(X: SparseRows, R: np.ndarray) -> np.ndarray:
    rows, R, lead = _pairs(X.rows, R, 1)
    out = np.empty((len(rows), X.d, R.shape[-1]), dtype=X.dtype)  # a kernel fills it with 0 where it is about to add
    _over_pairs(X, rows, R, out, _scatter_vector, _scatter)
    return out.reshape(*lead, X.d, R.shape[-1])


def _over_pairs(X: SparseRows, rows: np.ndarray, a: np.ndarray, out: np.ndarray, vector: Any, columns: Any) -> None:
    """One of two kernels: for a single column, whose last axis is dropped, or for several."""
    c = a.shape[-1]
    arrays = (a[..., 0], out[..., 0]) if c == 1 else (a, out)
    over_rows(vector if c == 1 else columns, len(rows), X.values.size * c, X.values, X.columns, X.starts, rows, *arrays)


# Column numbers are cast to unsigned integers, for which Numba omits the test for a negative index.


@njit(cache=True, nogil=True)
def _multiply_vector(begin, end, values, columns, starts, rows, U, out):
    for p in range(begin, end):
        u = U[p]
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            total = values.dtype.type(0)
            for e in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
                total += values[e] * u[np.uint64(columns[e])]
            out[p, k] = total


@njit(cache=True, nogil=True)
def _multiply(begin, end, values, columns, starts, rows, U, out):
    for p in range(begin, end):
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            total = out[p, k]
            for e in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
                value, u = values[e], U[p, np.uint64(columns[e])]
                for c in range(u.size):
                    total[c] += value * u[c]


@njit(cache=True, nogil=True)
def _scatter_vector(begin, end, values, columns, starts, rows, R, out):
    for p in range(begin, end):
        total = out[p]
        total[:] = 0
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            r = R[p, k]
            for e in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
                total[np.uint64(columns[e])] += values[e] * r


@njit(cache=True, nogil=True)
def _scatter(begin, end, values, columns, starts, rows, R, out):
    for p in range(begin, end):
        out[p] = 0
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            r = R[p, k]
            for e in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
                value, total = values[e], out[p, np.uint64(columns[e])]
                for c in range(r.size):
                    total[c] += value * r[c]


@njit(cache=True, nogil=True)
def _gram(values, columns, starts, rows, blocks, out):
    C = blocks.shape[2]
    for p in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            for e in range(starts[row], starts[row + 1]):
                for f in range(starts[row], starts[row + 1]):
                    product = values[e] * values[f]
                    for a in range(C):
                        for b in range(C):
                            out[p, columns[e], a, columns[f], b] += product * blocks[p, k, a, b]


@njit(cache=True, nogil=True)
def _outer(values, columns, starts, rows, r, out):
    for p in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            row = rows[p, k]
            if row < 0:
                continue
            for e in range(starts[row], starts[row + 1]):
                for c in range(r.shape[2]):
                    out[p, k, columns[e], c] = values[e] * r[p, k, c]


@njit(cache=True, nogil=True)
def _norms(values, starts, rows, out):
    for k in range(rows.size):
        if rows[k] < 0:
            continue
        entries = values[starts[rows[k]] : starts[rows[k] + 1]]
        peak = 0.0
        for v in entries:
            peak = max(peak, abs(v))
        exponent = math.frexp(peak)[1]  # squares of entries themselves may overflow
        total = 0.0
        for v in entries:
            shrunk = math.ldexp(v, -exponent)
            total += shrunk * shrunk
        out[k] = math.ldexp(math.sqrt(total), exponent)


# ------------------------------------------------------------------------------------------------- other libraries


def _entries(X: SparseRows) -> tuple[Array, Array, Array]:
    """Positions of entries among the flattened rows (pairs · N), among flattened columns (pairs · d), and values.

    A pair is a run and a client. Entries beyond the end of a row have the value 0.
    """
    if X._all is not None:
        return (*X._all, X.values)
    xp, where = array_namespace(X.values), device(X.values)
    N = int(X.shape[-2])
    flat = xp.reshape(X.rows, (-1,))
    row = xp.where(flat >= 0, flat, xp.zeros_like(flat))
    first, end = xp.take(X.starts, row), xp.take(X.starts, row + 1)
    end = xp.where(flat >= 0, end, first)
    entry = first[:, None] + xp.arange(X.longest, dtype=first.dtype, device=where)  # (pairs · N, longest)
    valid = xp.reshape(entry < end[:, None], (-1,))
    entry = xp.reshape(xp.where(entry < end[:, None], entry, xp.zeros_like(entry)), (-1,))
    position = xp.arange(flat.shape[0], dtype=first.dtype, device=where)[:, None]
    position = xp.reshape(xp.broadcast_to(position, (flat.shape[0], X.longest)), (-1,))
    column = xp.astype(xp.take(X.columns, entry), position.dtype)
    values = xp.take(X.values, entry)
    return position, (position // N) * X.d + column, xp.where(valid, values, xp.zeros_like(values))


def _broadcast_rows(X: SparseRows, a: Array) -> tuple[SparseRows, Array, tuple[int, ...]]:
    """X and a (..., n, ·, c) with the same run axes in front of the clients; and these axes with that of clients."""
    xp = array_namespace(a)
    lead = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(a.shape[:-2]))
    if tuple(X.shape[:-2]) != lead:
        rows = xp.broadcast_to(X.rows, (*lead, X.shape[-2]))
        X = SparseRows(X.values, X.columns, X.starts, rows, X.d, X.longest)
    return X, xp.broadcast_to(a, (*lead, *a.shape[-2:])), lead


def _gathered_times(X: SparseRows, U: Array) -> Array:
    xp, (X, U, lead) = array_namespace(U), _broadcast_rows(X, U)
    position, target, values = _entries(X)
    N, c = X.shape[-2], int(U.shape[-1])
    terms = values[:, None] * xp.take(xp.reshape(U, (-1, c)), target, axis=0)
    out = xp.zeros((math.prod(lead) * N, c), dtype=U.dtype, device=device(U))
    return xp.reshape(add_at(out, position, terms), (*lead, N, c))


def _gathered_transposed_times(X: SparseRows, R: Array) -> Array:
    xp, (X, R, lead) = array_namespace(R), _broadcast_rows(X, R)
    position, target, values = _entries(X)
    c = int(R.shape[-1])
    terms = values[:, None] * xp.take(xp.reshape(R, (-1, c)), position, axis=0)
    out = add_at(xp.zeros((math.prod(lead) * X.d, c), dtype=R.dtype, device=device(R)), target, terms)
    nothing = xp.sum(0 * R, axis=-2, keepdims=True)  # NaN, which marks a wrong index, reaches every column
    return xp.reshape(out, (*lead, X.d, c)) + nothing


def _gathered_outer(X: SparseRows, r: Array) -> Array:
    xp, (X, r, lead) = array_namespace(r), _broadcast_rows(X, r)
    position, target, values = _entries(X)
    N, C = int(X.shape[-2]), int(r.shape[-1])
    terms = values[:, None] * xp.take(xp.reshape(r, (-1, C)), position, axis=0)
    out = xp.zeros((math.prod(lead) * N * X.d, C), dtype=r.dtype, device=device(r))
    return xp.reshape(add_at(out, position * X.d + target % X.d, terms), (*lead, N, X.d * C))
