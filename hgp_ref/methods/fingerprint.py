"""A fingerprint of the point at which an estimate was made: the problem's values, x and λ, client by client.

`resume` continues only at the same point. Elsewhere the residual that an earlier run carries belongs to another
equation, and the result would be wrong without any sign of it. For each client the fingerprint holds

    x, λ, ∂_x f, ∂_λ f, ∂_x g        where the problem has an inner gradient,
    ∂²_x g u and ∂²_{xλ} g u         for one fixed vector u; on a few instances in runs of mini-batches,

each as the sum Σ_j r_j a_j with fixed weights r and its size Σ_j |a_j|. Sums are formed where the arrays live, so that
what travels to the host does not grow with d. Rows belong to clients: ranks that hold some of them have their rows.

Two values are equal if they differ by at most eps^(3/4) times their size. Another machine, number of threads or library
rounds differently, by some multiples of eps; one changed label of N changes gradients by about 1/N. Where x and λ are
NumPy arrays, a digest compares them bit by bit as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, array_namespace, device, host_float64, is_numpy
from hgp_ref.problems.base import FullLinearization, FullProblem, optional
from hgp_ref.results import Result

FEW = 8  # instances of each client that second derivatives are compared on, in runs of mini-batches
ALWAYS = ("x", "lam", "outer gradient along x", "outer gradient along lam")
MODULI = (46337, 30011, 65521)  # of the weights: products stay below 2^31, as JAX has no larger integers by default


@dataclass(frozen=True)
class Fingerprint(Result):
    """Where an estimate was made.

    Attributes
    ----------
    names : what is compared, P names.
    values : (P, n, 2), for each client the weighted sum of what is named and its size.
    digest : (n, 16) bytes, of the rows of x and λ; None unless they are NumPy arrays.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), iterations=5)
    >>> est.fingerprint.values.shape
    (7, 3, 2)
    """

    names: tuple[str, ...]
    values: np.ndarray
    digest: np.ndarray | None = None

    def differs(self, earlier: Fingerprint, eps: float) -> bool:
        """Whether `earlier` was taken elsewhere, as seen by the clients of this process."""
        if not _well_formed(earlier) or earlier.values.shape[1] != self.values.shape[1]:
            return True
        digests = (self.digest, earlier.digest)
        if all(d is not None for d in digests) and not np.array_equal(*digests):  # type: ignore[arg-type]
            return True
        common = [name for name in self.names if name in earlier.names]
        if not set(ALWAYS) <= set(common) or len(common) == len(ALWAYS):
            return True
        here, there = (f.values[[f.names.index(name) for name in common]] for f in (self, earlier))
        same = (here == there) | (np.isnan(here) & np.isnan(there))
        size = np.maximum(here[..., 1], there[..., 1])[..., None]
        with np.errstate(invalid="ignore"):  # infinities that are not equal
            close = np.isfinite(size) & (np.abs(here - there) <= eps**0.75 * size)
        return not bool(np.all(same | close))


def fingerprint(
    problem: FullProblem,
    x: Array,
    lam: Array,
    outer: tuple[Array, Array],
    whole: Callable[[], FullLinearization],
    mini_batches: bool,
) -> Fingerprint:
    """The fingerprint of this point; `outer` are ∂_x f and ∂_λ f, whole() is the linearization on full batches."""
    u = _broadcast(_weights(x), x)
    arrays = dict(zip(ALWAYS, (x, lam, *outer), strict=True))
    with np.errstate(all="ignore"):  # values that are not finite are for the run to report
        gradient = _inner_gradient(problem, x, lam)
        if gradient is not None:
            arrays["inner gradient"] = gradient
        if mini_batches:
            of = f" on {FEW} instances"
            bent, crossed = problem.linearize(x, lam, batch=_first_instances(problem, x)).products(u)
        else:
            of, (bent, crossed) = "", whole().products(u)
        arrays |= {f"hvp(u){of}": bent, f"cross(u){of}": crossed}
        xp = array_namespace(x)
        rows = [xp.stack([xp.sum(a * _weights(a), axis=-1), xp.sum(xp.abs(a), axis=-1)], axis=-1)
                for a in arrays.values()]  # fmt: skip
        values = host_float64(xp.stack(rows, axis=0))
    return Fingerprint(tuple(arrays), values, _digest(x, lam) if is_numpy(x) else None)


def _inner_gradient(problem: FullProblem, x: Array, lam: Array) -> Array | None:
    """∂_x g on full batches; None where the problem has none, which hyper-gradients do not need."""
    if not callable(optional(problem.wrapped, "inner_grad")):
        return None
    try:
        return problem.inner_grad(x, lam)
    except NotImplementedError:
        return None


def _first_instances(problem: FullProblem, x: Array) -> Array:
    """The first FEW instances of each client as a mini-batch."""
    assert problem.counts is not None  # without them there are no mini-batches
    numbers = np.arange(min(FEW, int(problem.counts.max())))
    batch = np.where(numbers < problem.counts[:, None], numbers, -1)
    return problem.prepare_batches(batch[None, None], like=x)[0, 0]


def _weights(like: Array) -> Array:
    """r_j in (−1/2, 1/2), without a pattern in j; the same numbers in every library.  # (d,)"""
    xp, (a, b, c) = array_namespace(like), MODULI
    j = xp.arange(like.shape[-1], dtype=xp.int32, device=device(like))
    mixed = ((j % a + 1) * b + (j // a) * 7919) % c
    return (xp.astype(mixed, like.dtype) + 0.5) / c - 0.5


def _broadcast(row: Array, like: Array) -> Array:
    """`row` (d,) for every client, in an array of its own.  # (n, d)"""
    xp = array_namespace(like)
    return xp.broadcast_to(row, like.shape) + xp.zeros_like(like)


def _digest(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """(n, 16) bytes; −0 counts as 0."""
    both = [np.ascontiguousarray(a + a.dtype.type(0)) for a in (x, lam)]
    rows = [hashlib.blake2b(a.tobytes() + b.tobytes(), digest_size=16).digest() for a, b in zip(*both, strict=True)]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), 16)


def _well_formed(given: object) -> bool:
    """Whether what a file held is a fingerprint."""
    return (
        isinstance(given, Fingerprint)
        and isinstance(given.names, tuple)
        and isinstance(given.values, np.ndarray)
        and given.values.dtype == np.float64
        and given.values.ndim == 3
        and given.values.shape[0::2] == (len(given.names), 2)
        and (given.digest is None or isinstance(given.digest, np.ndarray))
    )
