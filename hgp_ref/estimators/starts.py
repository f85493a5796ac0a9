"""Where a run begins: at w = 0, at a first guess, or where an earlier run has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace, detached, from_host, host_dtype, is_numpy
from hgp_ref.estimators.estimate import Estimate
from hgp_ref.estimators.fingerprint import Fingerprint
from hgp_ref.methods import Method
from hgp_ref.problems.protocol import FullLinearization
from hgp_ref.results import Described


@dataclass(frozen=True)
class Start:
    """w^(0), ∂_x f − ∂²_x g w^(0) and v^(0); what an earlier run had left, where there was one."""

    w: Array
    g: Array
    v: Array
    zero: bool = False  # whether w^(0) is 0
    carried: Array | None = None

    @property
    def left(self) -> Array:
        """What the method begins with."""
        return self.g if self.carried is None else self.carried

    def state(self, method: Method) -> Any:
        """The state before the first step."""
        if self.carried is not None:
            return method.resume(self.g, self.w, self.carried)
        return method.start(self.g) if self.zero else method.start_from(self.g, self.w)


def starting_point(
    whole: Callable[[], FullLinearization],
    average: Mean,
    f_x: Array,
    f_lam: Array,
    method: Method,
    w0: Array | None,
    resume: Estimate | None,
    point: Fingerprint,
) -> Start:
    """The start that was asked for; errors name `w0` or `resume`."""
    if w0 is not None and resume is not None:
        raise ValueError("w0: given beside resume, needed one of them")
    if resume is not None:
        return _earlier(whole, average, method, resume, f_x, f_lam, point)
    if w0 is not None:
        return _first_guess(whole(), average, w0, f_x, f_lam)
    return Start(array_namespace(f_x).zeros_like(f_x), f_x, f_lam, zero=True)


def _first_guess(linearization: FullLinearization, average: Mean, w0: Array, f_x: Array, f_lam: Array) -> Start:
    """w^(0) = the average of w0.

    Clients average w0 first because w* is what solves mean_i H_i w = mean_i ∂_x f_i for one w that all share.
    """
    arguments.same_kind(x=f_x, w0=w0)
    arguments.finite("w0", w0)
    if tuple(w0.shape) not in (tuple(f_x.shape), tuple(f_x.shape[-2:])):
        raise ValueError(f"w0: shape {tuple(w0.shape)} given, needed {tuple(f_x.shape)} = (..., n, d_x)")
    xp = array_namespace(f_x)
    w = average(xp.broadcast_to(detached(w0), f_x.shape) + xp.zeros_like(f_x))
    bent, crossed = linearization.products(w)
    return Start(w, f_x - bent, f_lam - crossed)


def _earlier(
    whole: Callable[[], FullLinearization],
    average: Mean,
    method: Method,
    resume: Any,
    f_x: Array,
    f_lam: Array,
    point: Fingerprint,
) -> Start:
    """The end of an earlier run: nothing is averaged, its method goes on."""
    arguments.kind("resume", resume, Estimate)
    if average.channel.anyone(resume.fingerprint is None):
        raise ValueError(
            "resume must be an estimate with a fingerprint of its problem, x and lam, got one without (saved by an "
            "earlier version?); to start from its w, pass w0=est.w"
        )
    if resume.carried is None or _class_name(resume.method) != _class_name(method):
        raise ValueError(
            f"resume: an estimate by {resume.method!r} given, needed one by a {type(method).__name__} that tells what "
            "it carries (over links that delay, part of that may be under way at the end of a run: give w0 instead)"
        )
    parts = {"w": f_x.shape, "carried": f_x.shape, "value": f_lam.shape}
    w, carried, v = (_part(resume, name, f_x, tuple(shape)) for name, shape in parts.items())
    eps = float(np.finfo(host_dtype(f_x)).eps)
    elsewhere = point.differs(resume.fingerprint, eps)
    if average.channel.anyone(elsewhere):  # all ranks raise, or some would wait for the others
        raise ValueError(
            "resume must be an estimate at the same problem, x and lam; to start from its w elsewhere, pass w0=est.w"
        )
    return Start(w, f_x - whole().hvp(w), v, carried=carried)


def _part(resume: Estimate, name: str, like: Array, shape: tuple[int, ...]) -> Array:
    """One array of an earlier estimate; host arrays, as `load` makes them, go to the library and device of this run."""
    part = getattr(resume, name)
    if isinstance(part, np.ndarray) and not is_numpy(like) and part.dtype == host_dtype(like):
        part = from_host(part, like=like)
    arguments.same_kind(**{"x": like, f"resume.{name}": part})
    arguments.finite(f"resume.{name}", part)
    if tuple(part.shape) != shape:
        raise ValueError(f"resume.{name}: shape {tuple(part.shape)} given, needed {shape} as in this run")
    return detached(part)


def _class_name(method: object) -> str:
    """Module and name of a method's class, also of one that a file describes."""
    return method.kind if isinstance(method, Described) else f"{type(method).__module__}.{type(method).__qualname__}"
