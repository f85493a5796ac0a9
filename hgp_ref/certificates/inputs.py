"""The arguments of a certificate, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments, rigorous
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array
from hgp_ref.certificates.lanczos import Lanczos
from hgp_ref.certificates.point import Point
from hgp_ref.channels import Channel
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


def all_here(est: Any) -> None:
    """ValueError where the run of `est` had clients in other processes: without them there is no mean Hessian."""
    used = getattr(est, "averaging", None)
    for one in used if isinstance(used, list | tuple) else [used]:
        net = getattr(one, "net", None)
        if net is not None and net.clients != slice(0, net.n):
            raise ValueError(
                f"avg: None given for a run over {net!r}, needed an averaging over the same network: no process sees "
                "all clients, so that only they can bound the error together (C3, C4)"
            )


def averagings(avg: Averaging | Sequence[Averaging] | None, clients: int, runs: int | None) -> list[Averaging] | None:
    """One averaging per run, None if none was given."""
    if avg is None:
        return None
    given: list[Any] = list(avg) if isinstance(avg, list | tuple) else [avg]
    for one in given:
        if not isinstance(one, Averaging):
            raise TypeError(f"avg: needed an averaging (PushSum, ExactAverage, Gossip) or one per run, got {one!r}")
        held = one.n if one.net is None else one.net.clients.stop - one.net.clients.start
        if held != clients:
            raise ValueError(f"avg: {one!r} averages {held} clients, but the problem has {clients}")
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


def modulus(strong_convexity: object) -> float | Lanczos | None:
    """A positive number, `Lanczos` ("lanczos" is one) or None."""
    if strong_convexity is None or isinstance(strong_convexity, Lanczos):
        return strong_convexity
    if isinstance(strong_convexity, str):
        arguments.choice("strong_convexity", strong_convexity, ("lanczos",))
        return Lanczos()
    return arguments.positive("strong_convexity", strong_convexity)


def constants(lipschitz: object) -> Lipschitz:
    """Lipschitz constants that the caller gives."""
    if not isinstance(lipschitz, Lipschitz):
        raise TypeError(
            f"lipschitz={lipschitz!r} given ({type(lipschitz).__name__}), needed a hgp_ref.problems.Lipschitz"
        )
    return lipschitz


def common_constants(nu: Lipschitz | None, channel: Channel) -> Lipschitz | None:
    """Constants of all clients from those of the clients in each process, None where one has none.

    Lipschitz constants are the largest. The mean Hessian is a mean of those of the processes, each weighed by its
    number of clients, and λ_min is concave: the mean of their moduli is one of it.
    """
    names = ("nu_flam", "nu_fx", "nu_J", "nu_H")
    told = np.zeros(4) if nu is None else np.array([getattr(nu, name) for name in names])
    modulus = None if nu is None else nu.strong_convexity
    flags = [nu is None, modulus is None, nu is None or not nu.holds_apart]
    *top, unknown, without, apart = channel.max_over_clients(np.concatenate([told, flags])[:, None])
    rows = np.full((channel.clients.stop - channel.clients.start, 1), modulus or 0.0)
    mean = float(channel.mean_over_clients(rows)[0, 0]) * (1 - 2 * channel.n * rigorous.EPS)
    if unknown:
        return None
    constants = {name: float(value) for name, value in zip(names, top, strict=True)}
    return Lipschitz(**constants, strong_convexity=None if without else mean, holds_apart=not apart)


def common_modulus(strong_convexity: float | Lanczos | None, nu: Lipschitz | None) -> float:
    """A lower bound on λ_min(H̄) at x that needs no look at all clients; 0 where none is known."""
    if isinstance(strong_convexity, Lanczos):
        raise ValueError(
            "strong_convexity='lanczos' given, for which someone must see all clients, but some of them "
            "live in other processes; needed None or a number"
        )
    by_rates = nu.strong_convexity if nu is not None and nu.holds_apart else None
    return max(strong_convexity or 0.0, by_rates or 0.0)


def not_refuted(point: Point, strong_convexity: float | Lanczos | None, nu: Lipschitz | None, gap: float) -> None:
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
