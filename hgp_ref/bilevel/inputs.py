"""The arguments of `optimise`, checked."""

from __future__ import annotations

import inspect
import os
from pathlib import Path as FilePath

from hgp_ref import arguments
from hgp_ref.averaging.base import check_network
from hgp_ref.backend import Array, array_namespace, detached, to_host
from hgp_ref.bilevel.updates import Adam, Update
from hgp_ref.channels import Channel, Traffic, connect
from hgp_ref.networks import Network
from hgp_ref.problems.arrays import check_argument
from hgp_ref.problems.normalised import Normalised, optional
from hgp_ref.training.start import check_clients, check_lam


def start_of(problem: Normalised, lam: Array, x0: Array | None, log: bool) -> Array:
    """λ_0 in an array of its own, or its logarithm; arrays are looked at."""
    check_lam(problem, lam, x0, run_axes=False)
    data = optional(problem.given, "_like")  # of built-in problems
    if data is not None:
        check_argument("lam", lam, data(), (problem.n_clients, problem.dim_lam), "n_clients, dim_lam")
    if x0 is not None:
        arguments.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
        arguments.finite("x0", x0)
    xp, lam = array_namespace(lam), detached(lam)
    if not arguments.boolean("log", log):
        return xp.asarray(lam, copy=True)
    if not bool(to_host(xp.all(lam > 0))):
        raise ValueError("lam: holds entries that are not positive, needed lam > 0 with log=True")
    return xp.log(lam)


def takes(name: str, function: object, *given: str, **named: str) -> None:
    """TypeError unless `function` can be called with so many arguments, and with those named."""
    arguments.function(name, function)
    needed = f"{name}({', '.join([*given, *(f'{key}=' for key in named)])})"
    try:
        inspect.signature(function).bind(*given, **named)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:  # ValueError: a built-in one that does not tell
        raise TypeError(f"{name}={function!r} given, needed a function that takes {needed}: {error}") from error


def returned(
    name: str, answer: object, field: str, shape: tuple[int, ...], meaning: str, lam: Array
) -> tuple[Array, Traffic]:
    """`field` and the traffic of what the caller's function `name` returned; an error unless it is an array like λ."""
    value, sent = getattr(answer, field, None), getattr(answer, "traffic", None)
    if value is None or not isinstance(sent, Traffic):
        raise TypeError(
            f"{name}: returned {type(answer).__name__}, needed an object with {field} {meaning} and a Traffic"
        )
    what = f"what {name} returned: {field}"
    arguments.same_kind(**{what: value, "lam": lam})
    arguments.shape(what, value, shape, meaning, run_axes=False)
    return value, sent


def check_functions(project: object, measure: object, callback: object) -> None:
    """TypeError unless those that are given can be called as `optimise` calls them."""
    if project is not None:
        takes("project", project, "lam")
    if measure is not None:
        takes("measure", measure, "x", "lam")
    if callback is not None:
        takes("callback", callback, "k", "lam", "x", "outer_cost")


def patience_of(patience: int | None, measure: object) -> int | None:
    if patience is not None and measure is None:
        raise ValueError(f"patience={patience!r} given without measure, needed both")
    return None if patience is None else arguments.integer("patience", patience)


def update_of(update: Update | None) -> Update:
    update = Adam(0.1) if update is None else update
    for name in ("start", "step"):
        if isinstance(update, type) or not callable(getattr(update, name, None)):
            raise TypeError(f"update={update!r} given, needed Adam(...), GradientDescent(...) or an object like them")
    return update


def channel_of(net: Network, clients: int) -> Channel:
    channel = connect(check_network(net))
    check_clients(net, channel, clients)
    return channel


def place_of(file: str | os.PathLike[str] | None, channel: Channel) -> FilePath | None:
    if file is None:
        return None
    if channel.clients != slice(0, channel.n):
        raise ValueError(f"file={file!r} given, but clients live in several processes; needed all of them in this one")
    place = arguments.path("file", file)
    if place.exists() and not place.is_file():
        raise ValueError(f"file={file!r} given, which is no regular file; needed one, or a new name")
    return place
