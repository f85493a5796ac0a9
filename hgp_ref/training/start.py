"""Where training starts: λ, x_0 and the network as they are given, looked at."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached, device
from hgp_ref.channels import Channel
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import Normalised


def check_lam(problem: Normalised, lam: Array, x0: Array | None, run_axes: bool = True) -> None:
    """An error unless λ fits the problem, and x_0 is an array of the same kind."""
    arguments.same_kind(lam=lam, **({} if x0 is None else {"x0": x0}))
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=run_axes)
    arguments.finite("lam", lam)


def check_clients(net: Network, channel: Channel, clients: int) -> None:
    """ValueError unless the channel over `net` serves as many clients here as the problem has."""
    held = channel.clients.stop - channel.clients.start
    if held != clients:
        raise ValueError(f"net: {net!r} has {held} clients, but the problem has {clients}")


def one_per_seed(lam: Array, seeds: list[int]) -> Array:
    """lam with a run axis for the seeds."""
    if lam.ndim > 3 or (lam.ndim == 3 and lam.shape[0] != len(seeds)):
        raise ValueError(
            f"seed: {len(seeds)} given for lam of shape {tuple(lam.shape)}, needed one for each of its runs"
        )
    xp = array_namespace(lam)
    shape = (len(seeds), *lam.shape[-2:])
    return xp.broadcast_to(lam, shape) + xp.zeros(shape, dtype=lam.dtype, device=device(lam))


def read_start(problem: Normalised, lam: Array, x0: Array | None) -> Array:
    """x0 for each run of lam, zeros by default.  # (..., n, d_x)"""
    shape = (*lam.shape[:-1], problem.dim_x)
    if x0 is None:
        return array_namespace(lam).zeros(shape, dtype=lam.dtype, device=device(lam))
    arguments.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)")
    arguments.finite("x0", x0)
    if x0.ndim > lam.ndim or tuple(x0.shape[:-2]) not in ((), shape[:-2]):
        raise ValueError(f"x0: shape {tuple(x0.shape)} given, needed {shape} or {shape[-2:]} = (n, d_x)")
    xp = array_namespace(x0)
    return xp.broadcast_to(detached(x0), shape) + xp.zeros_like(detached(x0))
