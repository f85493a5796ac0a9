"""A fingerprint of the point at which an estimate was made: the problem's values, x and λ, client by client.

`resume` continues only at the same point: elsewhere the state of the earlier run belongs to another equation, and the
result would be silently wrong. For each client the fingerprint holds

    x, λ, ∂_x f, ∂_λ f, ∂_x g        where the problem has an inner gradient,
    H u and J u                      for one fixed vector u; on a few instances in runs of mini-batches,

each as the sum Σ_j r_j a_j with fixed weights r and its size Σ_j |a_j|. Sums are computed on the device of the arrays,
so what is copied to the host does not grow with d. A rank has the rows of its own clients.

Two values are equal if they differ by at most eps^(3/4) times their size. Another machine, number of threads or library
rounds differently, by some multiples of eps; one changed label of N changes gradients by about 1/N. Where x and λ are
NumPy arrays, a digest compares them bit by bit as well.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, array_namespace, device, host_float64, is_numpy
from hgp_ref.methods.base import Derivatives
from hgp_ref.problems.base import FullProblem, optional
from hgp_ref.results import Result

FEW = 8  # instances of each client on which second derivatives are compared in runs of mini-batches
ALWAYS = ("x", "lam", "outer gradient along x", "outer gradient along lam")
MODULI = (46337, 30011, 65521)  # of the weights: products stay below 2^31, as JAX has no larger integers by default


@dataclass(frozen=True)
class Fingerprint(Result):
    """The point at which an estimate was made.

    Attributes
    ----------
    names : of the P arrays that are compared.
    values : (P, n, 2), for each array and client the weighted sum and the size.
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
        """Whether `earlier` belongs to another point, judged by the clients of this process."""
        if not _well_formed(earlier) or earlier.values.shape[1] != self.values.shape[1]:
            return True
        digests = (self.digest, earlier.digest)
        if all(d is not None for d in digests) and not np.array_equal(*digests):  # type: ignore[arg-type]
            return True
        common = [name for name in self.names if name in earlier.names]
        if not set(ALWAYS) <= set(common) or len(common) == len(ALWAYS):
            return True
        a, b = (f.values[[f.names.index(name) for name in common]] for f in (self, earlier))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.maximum(a[..., 1], b[..., 1])[..., None]
        with np.errstate(invalid="ignore"):  # infinities that are not equal
            close = np.isfinite(size) & (np.abs(a - b) <= eps**0.75 * size)
        return not bool(np.all(same | close))


def fingerprint(
    problem: FullProblem, x: Array, lam: Array, outer: tuple[Array, Array], derivatives: Derivatives
) -> Fingerprint:
    """The fingerprint of this point; `outer` are ∂_x f and ∂_λ f, of several outer costs a weighted sum of all."""
    xp = array_namespace(x)
    if outer[0].ndim > 2:
        r = _weights(outer[0].shape[0], x)[:, None, None]
        outer = (xp.sum(r * outer[0], axis=0), xp.sum(r * outer[1], axis=0))
    weights = {x.shape[-1]: _weights(x.shape[-1], x), lam.shape[-1]: _weights(lam.shape[-1], x)}
    u = xp.broadcast_to(weights[x.shape[-1]], x.shape) + xp.zeros_like(x)
    arrays = dict(zip(ALWAYS, (x, lam, *outer), strict=True))
    with np.errstate(all="ignore"):  # the run reports values that are not finite
        if callable(optional(problem.wrapped, "inner_grad")):  # hyper-gradients do not need it
            with suppress(NotImplementedError):
                arrays["inner gradient"] = problem.inner_grad(x, lam)
        if derivatives.sampled:
            linearization = problem.linearize(x, lam, batch=_first_instances(problem, x))
            suffix = f" on {FEW} instances"
        else:
            linearization, suffix = derivatives.full(), ""
        arrays[f"hvp(u){suffix}"], arrays[f"cross(u){suffix}"] = linearization.products(u)
        rows = []
        for a in arrays.values():
            rows.append(xp.stack([xp.sum(a * weights[a.shape[-1]], axis=-1), xp.sum(xp.abs(a), axis=-1)], axis=-1))
        values = host_float64(xp.stack(rows, axis=0))
    return Fingerprint(tuple(arrays), values, _digest(x, lam) if is_numpy(x) else None)


def _first_instances(problem: FullProblem, x: Array) -> Array:
    """The first FEW instances of each client as a mini-batch."""
    assert problem.counts is not None  # without them there are no mini-batches
    numbers = np.arange(min(FEW, int(problem.counts.max())))
    batch = np.where(numbers < problem.counts[:, None], numbers, -1)
    return problem.prepare_batches(batch[None, None], like=x)[0, 0]


def _weights(d: int, like: Array) -> Array:
    """r_j in (−1/2, 1/2), without a pattern in j; the same numbers in every library.  # (d,)"""
    xp, (a, b, c) = array_namespace(like), MODULI
    j = xp.arange(d, dtype=xp.int32, device=device(like))
    mixed = ((j % a + 1) * b + (j // a) * 7919) % c
    return (xp.astype(mixed, like.dtype) + 0.5) / c - 0.5


def _digest(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """A digest of each client's rows, (n, 16) bytes; −0 counts as 0."""
    x, lam = x + x.dtype.type(0), lam + lam.dtype.type(0)
    digests = bytearray()
    for i in range(len(x)):
        digests += hashlib.blake2b(x[i].tobytes() + lam[i].tobytes(), digest_size=16).digest()
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(len(x), 16)


def _well_formed(loaded: object) -> bool:
    """Whether an object from a file is a valid fingerprint."""
    return (
        isinstance(loaded, Fingerprint)
        and isinstance(loaded.names, tuple)
        and isinstance(loaded.values, np.ndarray)
        and loaded.values.dtype == np.float64
        and loaded.values.ndim == 3
        and loaded.values.shape[0::2] == (len(loaded.names), 2)
        and (loaded.digest is None or isinstance(loaded.digest, np.ndarray))
    )
