"""Every problem in one form: `as_problem` looks once at what a problem offers, so that nothing else has to.

A user's problem may lack the optional members of the protocol, know no run axis, reuse the arrays that it returns or
answer in the wrong shape. A `Normalised` problem has every member, takes run axes everywhere and says which method of
the given problem broke the protocol; only metadata are looked at, so that nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached, from_host, is_numpy
from hgp_ref.problems.arrays import Shape, run_axes
from hgp_ref.problems.protocol import FullLinearization, Linearization, Problem
from hgp_ref.problems.runs import Answers, CheckedLinearization, checked, each_run, pair, pick
from hgp_ref.problems.term_sizes import TermSizes
from hgp_ref.problems.unchanged import Unchanged, read_only

PACKAGE = __name__.partition(".")[0]
METHODS = ("inner_cost", "inner_grad", "outer_cost", "outer_grad", "linearize")
SIZES = ("n_clients", "dim_x", "dim_lam")


def optional(problem: object, name: str) -> Any:
    """The member of a problem that the protocol does not require, None without it: the only place that looks."""
    return getattr(problem, name, None)


def closed_form(problem: object, name: str) -> Any:
    """An optional member that says what others compute, unless a class further down has given these anew.

    A subclass that overrides `linearize` and inherits `hessian` would otherwise be judged by the derivatives of its
    parent; constants speak of the gradients too, and term sizes of everything that is evaluated.
    """
    line = type(problem).__mro__

    def given_by(member: str) -> int:  # the class in line, from the problem's own on; an instance's own comes first
        own = member in getattr(problem, "__dict__", ())
        return -1 if own else next((k for k, cls in enumerate(line) if member in vars(cls)), len(line))

    others = {"lipschitz": ("inner_grad", "outer_grad", "linearize"), "term_sizes": METHODS}.get(name, ("linearize",))
    if given_by(name) > min(map(given_by, others)):
        return None
    return optional(problem, name)


def as_problem(problem: Problem, needs: Sequence[str] = METHODS) -> Normalised:
    """`problem` with all members, its own or made up from the others; itself if it is already so.

    `needs` are the methods that the caller is going to use: the problem must have these, and may lack the others.

    Parameters
    ----------
    problem : Problem
        Any object with the members of the protocol.
    needs : sequence of str
        Members that will be asked for.

    Returns
    -------
    Problem
        With everything else that the core asks for.

    Raises
    ------
    TypeError
        A member of the protocol is missing or cannot be called; the message names all that are.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2)
    >>> hgp.problems.as_problem(problem).n_clients
    3
    """
    if isinstance(problem, Normalised):
        _require_members(problem.given, needs)
        return problem
    return Normalised(problem, needs)


class Normalised:
    """Costs and derivatives of the problem `given`, with every member that the package asks for.

    x, lam, u and batch may carry leading run axes, which broadcast against each other; a problem that knows none is
    called once for each run. Results carry no graph of automatic differentiation. `hessian`, `jacobian`,
    `jacobian_norms`, `lipschitz` and `term_sizes` are None where the problem has none, as is `counts`. `clients` are
    the numbers of the clients in the problem that this one is a restriction of, 0 .. n-1 for a whole one.
    """

    broadcasts = True

    def __init__(self, given: Problem, needs: Sequence[str] = METHODS) -> None:
        _require_members(given, needs)
        self.given = given
        self.n_clients, self.dim_x, self.dim_lam = (
            arguments.integer(f"problem.{name}", getattr(given, name), 1, arguments.LONGEST) for name in SIZES
        )
        self.counts = _counts(optional(given, "counts"), self.n_clients)
        numbers = optional(given, "clients")
        self.clients = np.arange(self.n_clients) if numbers is None else np.asarray(numbers, dtype=np.int64)
        self._loops = not arguments.boolean("problem.broadcasts", optional(given, "broadcasts") or False)
        # A built-in class checks its arguments and answers in form; a class derived from it by a user may not.
        self._unchanged = None if type(given).__module__.partition(".")[0] == PACKAGE else Unchanged()
        self._conforms = vars(type(given)).get("conforms", False) is True
        if self._conforms and is_numpy(given._like()):  # type: ignore[attr-defined]
            # Nothing to check and no graph to cut; a step of training on small data is quick.
            for name in ("inner_cost", "inner_grad", "outer_cost", "linearize"):
                setattr(self, name, getattr(given, name))
        self.hessian = self._closed_form("hessian", (self.dim_x, self.dim_x))
        self.jacobian = self._closed_form("jacobian", (self.dim_lam, self.dim_x))
        self.lipschitz: Callable[[Array], Any] | None = closed_form(given, "lipschitz")
        self.jacobian_norms: Callable[[Array, Array], Any] | None = closed_form(given, "jacobian_norms")
        self.term_sizes: Callable[[Array, Array], TermSizes] | None = closed_form(given, "term_sizes")

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i(x_i, lam_i).  # (..., n)"""
        call = self.given.inner_cost
        return self._ask(lambda *a, **b: (call(*a, **b),), {"inner_cost(x, lam)": (self.n_clients,)}, x, lam, batch)[0]

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i(x_i, lam_i).  # (..., n, d_x)"""
        call, shape = self.given.inner_grad, (self.n_clients, self.dim_x)
        return self._ask(lambda *a, **b: (call(*a, **b),), {"inner_grad(x, lam)": shape}, x, lam, batch)[0]

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x_i, lam_i).  # (..., n)"""
        call = self.given.outer_cost
        return self._ask(lambda *a: (call(*a),), {"outer_cost(x, lam)": (self.n_clients,)}, x, lam)[0]

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i, in arrays of their own.  # (..., n, d_x), (..., n, d_lam)"""
        shapes = {"outer_grad(x, lam)[0]": (self.n_clients, self.dim_x),
                  "outer_grad(x, lam)[1]": (self.n_clients, self.dim_lam)}  # fmt: skip
        f_x, f_lam = self._ask(lambda *a: pair("outer_grad(x, lam)", self.given.outer_grad(*a)), shapes, x, lam)
        xp = array_namespace(x)
        return xp.asarray(f_x, copy=True), xp.asarray(f_lam, copy=True)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> FullLinearization:
        """Second derivatives at the point: hvp(u), cross(u) and products(u) = (hvp(u), cross(u))."""
        x, lam, options = detached(x), detached(lam), {} if batch is None else {"batch": batch}
        if self._conforms:
            conforming: Any = self.given.linearize(x, lam, **options)  # built-in ones have products
            return conforming
        lead = _run_axes(x, lam, batch)

        def linearized(x: Array, lam: Array) -> dict[Shape, Linearization]:
            if not (lead and self._loops):
                return {(): _linearization(self.given.linearize(x, lam, **options))}
            return {r: _linearization(self.given.linearize(*self._at(r, x, lam), **_at_batch(r, batch)))
                    for r in np.ndindex(*lead)}  # fmt: skip

        each, sizes = self._guarded("linearize(x, lam)", linearized, x, lam), (self.n_clients, self.dim_x, self.dim_lam)
        return CheckedLinearization(each, lead, self._loops, x, sizes, self._unchanged)

    def sampled(self, x: Array, lam: Array) -> Callable[[Array], FullLinearization]:
        """batch -> linearize(x, lam, batch) at a point that stays, with what only the point decides computed once."""
        on = getattr(self.given.linearize(detached(x), detached(lam)), "on", None) if self._conforms else None
        return (lambda batch: self.linearize(x, lam, batch=batch)) if on is None else on

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> Any:
        """Mini-batches (count, streams, [runs,] n, b) taken to the device of `like` at once.

        Entry [k, stream] of the result is what the other methods take as `batch`.
        """
        own = optional(self.given, "prepare_batches")
        return Slices(from_host(host_batches, like=like)) if own is None else own(host_batches, like)

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> Normalised:
        """The same problem with some of its clients, a slice or indices; only where the problem itself can."""
        restrict = optional(self.given, "restrict")
        if not callable(restrict):
            raise TypeError(f"problem: {type(self.given).__name__} has no method restrict(clients), needed here")
        return as_problem(restrict(clients))

    def _ask(self, call: Callable[..., tuple[Array, ...]], answers: Answers, x: Array, lam: Array,
             batch: Array | None = None) -> tuple[Array, ...]:  # fmt: skip
        x, lam, options = detached(x), detached(lam), {} if batch is None else {"batch": batch}
        if self._conforms:
            return call(x, lam, **options)
        lead = _run_axes(x, lam, batch)

        def asked(x: Array, lam: Array) -> tuple[Array, ...]:
            if lead and self._loops:
                return each_run(lambda r: call(*self._at(r, x, lam), **_at_batch(r, batch)), answers, lead, x)
            return checked(call(x, lam, **options), answers, lead, x)

        return self._guarded(next(iter(answers)).removesuffix("[0]"), asked, x, lam)

    def _guarded(self, name: str, call: Callable[[Array, Array], Any], x: Array, lam: Array) -> Any:
        """call(x, lam); a user's method `name` inside it must leave both as they are."""
        if self._unchanged is None:
            return call(x, lam)
        x, lam = read_only(x), read_only(lam)
        return self._unchanged(name, lambda: call(x, lam), x, lam)

    def _closed_form(self, name: str, shape: Shape) -> Callable[..., Array] | None:
        call = closed_form(self.given, name)
        if call is None:
            return None
        answers = {f"{name}(x, lam)": (self.n_clients, *shape)}
        return lambda x, lam, batch=None: self._ask(lambda *a, **b: (call(*a, **b),), answers, x, lam, batch)[0]

    @staticmethod
    def _at(run: Shape, x: Array, lam: Array) -> tuple[Array, Array]:
        return pick(x, run, 2), pick(lam, run, 2)


class Slices:
    """Entry [k, stream] of an array of mini-batches."""

    def __init__(self, batches: Array) -> None:
        self._batches = batches

    def __getitem__(self, key: tuple[int, int]) -> Array:
        return self._batches[(*key, ...)]


def _at_batch(run: Shape, batch: Array | None) -> dict[str, Array]:
    return {} if batch is None else {"batch": pick(batch, run, 2)}


def _run_axes(x: Array, lam: Array, batch: Array | None) -> Shape:
    leads = {"x": tuple(x.shape[:-2]), "lam": tuple(lam.shape[:-2])}
    if batch is not None:
        leads["batch"] = tuple(batch.shape[:-2])
    return run_axes(**leads)


def _linearization(returned: Linearization) -> Linearization:
    for name in ("hvp", "cross"):
        if not callable(getattr(returned, name, None)):
            raise TypeError(
                f"problem: linearize(x, lam) returned {type(returned).__name__} without the method {name}(u), "
                "needed a linearization with hvp(u) and cross(u)"
            )
    return returned


def _require_members(problem: object, needs: Sequence[str]) -> None:
    if (
        not isinstance(needs, Sequence)
        or isinstance(needs, str)
        or not set(map(repr, needs)) <= set(map(repr, METHODS))
    ):
        raise ValueError(f"needs={needs!r} given, needed some of {', '.join(METHODS)}")
    missing = [name for name in SIZES if not hasattr(problem, name)]
    missing += [f"{name}(...)" for name in needs if not callable(getattr(problem, name, None))]
    if missing:
        raise TypeError(
            f"problem: {type(problem).__name__} given, which lacks {', '.join(missing)}; "
            "needed the members of hgp_ref.problems.Problem"
        )


def _counts(counts: Any, n: int) -> np.ndarray | None:
    """Instances of each client on the host, (n,) integers >= 1."""
    if counts is None:
        return None
    counts = np.asarray(counts)
    if counts.shape != (n,) or not np.issubdtype(counts.dtype, np.integer):
        raise TypeError(
            f"problem.counts: shape {counts.shape}, dtype {counts.dtype} given, needed ({n},) integers: n_clients"
        )
    for i in np.flatnonzero(counts < 1)[:1]:
        raise ValueError(f"problem.counts: client {i} has {counts[i]} instances, needed at least 1")
    return counts.astype(np.int64)
