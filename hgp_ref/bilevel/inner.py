"""Training inside the outer loop: keywords of `sgp`, or a function of the caller's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hgp_ref.backend import Array, all_finite, array_namespace, detached
from hgp_ref.bilevel.clock import Clock
from hgp_ref.bilevel.inputs import returned, takes
from hgp_ref.channels import connect
from hgp_ref.errors import DivergenceError
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import Normalised
from hgp_ref.training import sgp

OURS = ("problem", "net", "lam", "x0", "seed", "first_batch", "progress")  # what the loop itself says
UNUSED = ("avg", "callback", "history", "w0", "resume")  # of `hypergradient`, what the loop has no use for
Train = Callable[..., Any]


def trainer(train: Mapping[str, Any] | Train) -> Train:
    """train(problem, net, lam, x0=, seed=, first_batch=, outer_step=) → an object with x (n, d_x) and traffic."""
    if callable(train):
        takes("train", train, "problem", "net", "lam", x0="", seed="", first_batch="", outer_step="")
        return train
    settings = read_settings("train", train, sgp)

    def run(problem: Any, net: Network, lam: Array, outer_step: int, **options: Any) -> Any:
        return sgp(problem, net, lam, **options, **settings)

    return run


def read_settings(name: str, given: object, function: Callable[..., Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """A dictionary of keywords of `function`, or `more`, that the loop does not give itself."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}={given!r} given ({type(given).__name__}), needed a dictionary or a function")
    allowed = [key for key in inspect.signature(function).parameters if key not in OURS and key != "x"] + [*more]
    listed = [key for key in allowed if function is sgp or key not in UNUSED]
    for key in given:
        if key not in allowed:
            raise ValueError(f"{name}: {key!r} given, needed some of {', '.join(listed)}")
    return dict(given)


def trained(train: Train, problem: Normalised, net: Network, lam: Array, x0: Array | None, clock: Clock, step: int
            ) -> Array:  # fmt: skip
    """x at λ; the clock moves on, also where training fails. DivergenceError where it is not finite."""
    given = {"x0": own(x0), "seed": clock.seed, "first_batch": clock.batches, "outer_step": step}
    try:
        fit = train(problem.given, clock.net(net), own(lam), **given)
    except DivergenceError as error:
        if error.traffic is not None:  # what was sent was sent, and other graphs may do better
            clock.pass_on(error.traffic, error.steps)
        raise
    x, sent = returned("train", fit, "x", (problem.n_clients, problem.dim_x), "(n, d_x)", lam)
    clock.pass_on(sent, getattr(fit, "steps", 0))
    if connect(net).anyone(not all_finite(x)):
        raise DivergenceError("diverged: training returned NaN or infinite parameters")
    return own(detached(x))


def own(a: Array | None) -> Array | None:
    """A copy, for functions of the caller's that may write into it or go on to use what they returned."""
    return None if a is None else array_namespace(a).asarray(a, copy=True)
