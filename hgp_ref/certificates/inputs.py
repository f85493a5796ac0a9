"""The arguments of a certificate, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array
from hgp_ref.certificates.point import Point
from hgp_ref.problems import Problem
from hgp_ref.problems.constants import Lipschitz


def estimate_arrays(est: Any, problem: Problem) -> tuple[Array, Array]:
    """v and w of an estimate, with at most one run axis."""
    value, w = getattr(est, "value", None), getattr(est, "w", None)
    if value is None or w is None:
        raise ValueError("est: needed an estimate with `value` and `w`, the residual of which is judged")
    arguments.same_kind(**{"est.value": value, "est.w": w})
    arguments.shape("est.value", value, (problem.n_clients, problem.dim_lam), "(..., n, d_lam)")
    arguments.shape("est.w", w, (problem.n_clients, problem.dim_x), "(..., n, d_x)")
    if value.ndim > 3 or value.ndim != w.ndim:
        raise ValueError(f"est: value {tuple(value.shape)} and w {tuple(w.shape)} given, needed at most one run axis")
    arguments.finite("est.value", value)
    arguments.finite("est.w", w)
    return value, w


def point_arrays(problem: Problem, x: Array, lam: Array, value: Array) -> None:
    """x and lam beside the estimate, one row per client."""
    arguments.same_kind(x=x, lam=lam, **{"est.value": value})
    arguments.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    arguments.finite("x", x)
    arguments.finite("lam", lam)


def averagings(avg: Averaging | Sequence[Averaging] | None, clients: int, runs: int | None) -> list[Averaging] | None:
    """One averaging per run, None if none was given."""
    if avg is None:
        return None
    given: list[Any] = list(avg) if isinstance(avg, list | tuple) else [avg]
    for one in given:
        if not isinstance(one, Averaging):
            raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or one per run, got {one!r}")
        if one.n != clients:
            raise ValueError(f"avg: {one!r} averages {one.n} clients, but the problem has {clients}")
    if not isinstance(avg, list | tuple):
        return given * (runs or 1)
    if len(given) != (runs or 1):
        raise ValueError(f"avg: {len(given)} averagings given for {runs or 1} runs, needed one each or a single one")
    return given


def graphs_of(est: Any) -> int:
    """How many graphs the run behind `est` has used, whichever of its runs used most."""
    traffic = getattr(est, "traffic", None)
    if traffic is not None:
        return int(np.max(traffic.rounds))
    averaging, iterations = getattr(est, "averaging", None), getattr(est, "iterations", None)
    if averaging is None or iterations is None:
        raise ValueError("first_call: needed where the estimate tells neither its traffic nor averaging and iterations")
    return max(a.graphs_before(iterations) for a in (averaging if isinstance(averaging, list) else [averaging]))


def modulus(strong_convexity: object) -> float | str | None:
    """A positive number, "lanczos" or None."""
    if strong_convexity is None or isinstance(strong_convexity, str):
        return strong_convexity if strong_convexity is None else arguments.choice(
            "strong_convexity", strong_convexity, ("lanczos",)
        )  # fmt: skip
    return arguments.positive("strong_convexity", strong_convexity)


def constants(lipschitz: object) -> Lipschitz:
    """Lipschitz constants that the caller gives."""
    if not isinstance(lipschitz, Lipschitz):
        raise TypeError(
            f"lipschitz={lipschitz!r} given ({type(lipschitz).__name__}), needed a hgp_ref.problems.Lipschitz"
        )
    return lipschitz


def not_refuted(point: Point, strong_convexity: float | str | None, nu: Lipschitz | None, gap: float) -> None:
    """ValueError where a modulus that was told is above the smallest eigenvalue of the mean Hessian as computed.

    A modulus at common points says less where rows of x are apart: by ν_H · `gap`, unless it `holds_apart`.
    """
    told = {"strong_convexity": strong_convexity}
    if nu is not None and nu.strong_convexity is not None:
        told["lipschitz: strong_convexity"] = nu.strong_convexity - (0.0 if nu.holds_apart else nu.nu_H * gap)
    for name, value in told.items():
        if isinstance(value, float) and value > point.alpha_top:
            raise ValueError(
                f"{name}={value:.6g} given, but the smallest eigenvalue of the mean Hessian at x is at most "
                f"{point.alpha_top:.6g}; needed a lower bound of it"
            )
