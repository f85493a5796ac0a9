"""Problems: the interface of client costs, and the adapter that completes a problem written by a user.

Client i of n has an inner cost g_i(x_i, λ_i), which the clients minimise together under consensus x_1 = … = x_n, and an
outer cost f_i(x_i, λ_i), whose sum is differentiated with respect to λ:

    x(λ) = argmin_x Σ_k g_k(x, λ_k),    d_{λ_i} Σ_k f_k = ∂_λ f_i − J_i (Σ_k H_k)⁻¹ Σ_k ∂_x f_k,

with the Hessians H_i = ∂²_x g_i and the mixed derivatives J_i = ∂²_{xλ} g_i. `Problem` documents the interface. Public
functions call `as_problem` once. It returns built-in problems unchanged and wraps others in a `ProblemAdapter`, which
supplies missing members, loops over runs and validates results.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import array_api_compat as compat
import numpy as np

from hgp_ref import validation
from hgp_ref.backend import (
    Array,
    Namespace,
    array_namespace,
    class_name,
    computes_on_device,
    detached,
    device,
    elsewhere,
    from_host,
    get_backend,
    is_numpy,
    on_device_of,
    to_host,
)

Shape = tuple[int, ...]
Clients = slice | Sequence[int] | np.ndarray

SIZES = ("n_clients", "dim_x", "dim_lam")
CURVATURES = ("hessian", "gauss-newton")  # of problems that have a choice
METHODS = ("inner_cost", "inner_grad", "outer_cost", "outer_grad", "linearize")


@runtime_checkable
class Linearization(Protocol):
    """Second derivatives of g at a fixed point (x, λ) and batch, applied to vectors as often as needed.

    A linearization may also have `products(u)`, which returns (hvp(u), cross(u)) where both share work.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> problem.linearize(x, lam).hvp(x).shape, problem.linearize(x, lam).cross(x).shape
    ((3, 4), (3, 2))
    """

    def hvp(self, u: Array) -> Array:
        """The Hessian-vector products H_i u_i.  # (n, d_x)"""
        ...

    def cross(self, u: Array) -> Array:
        """J_i u_i, the derivative of ⟨∂_x g_i, u_i⟩ along λ_i.  # (n, d_λ)"""
        ...


class FullLinearization(Linearization, Protocol):
    """A linearization with `products`, as every problem that `as_problem` returns has."""

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u).  # (n, d_x), (n, d_λ)"""
        ...


class OneByOne:
    """A linearization that is applied to one vector (n, d_x) of u (..., n, d_x) at a time."""

    def __init__(self, linearization: FullLinearization) -> None:
        self._linearization = linearization

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (..., n, d_x)"""
        return self._each(self._linearization.hvp, u)

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (..., n, d_λ)"""
        return self._each(self._linearization.cross, u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u)."""
        return self.hvp(u), self.cross(u)

    @staticmethod
    def _each(product: Callable[[Array], Array], u: Array) -> Array:
        lead, xp = tuple(u.shape[:-2]), array_namespace(u)
        if not lead:
            return product(u)
        rows = [product(u[(*run, ...)]) for run in np.ndindex(*lead)]
        return xp.reshape(xp.stack(rows), (*lead, *rows[0].shape))


def separately(linearization: FullLinearization) -> FullLinearization:
    """A linearization whose products with u (..., n, d_x) are those with each vector alone, on NumPy bit for bit.

    A linearization may have a faster way, its own method `separately()`.
    """
    separately = optional(linearization, "separately")
    return OneByOne(linearization) if separately is None else separately()


@runtime_checkable
class Problem(Protocol):
    """Client costs g_i (inner) and f_i (outer) with the derivatives that hyper-gradients need.

    Any object with these members is a problem; it need not inherit from anything. `isinstance(p, Problem)` tells
    whether a member is missing, and `check_derivatives` whether derivatives and the other rules hold.

    *Shapes.* The client axis comes first: x and u are (n, dim_x), lam is (n, dim_lam). Row i of every argument and of
    every result belongs to client i alone. Results have the array library, device and dtype of x.

    *Batches.* `batch` is None for all instances of every client, or an integer array (n, b). Row i lists instances of
    client i; entries of -1 are padding. The mini-batch cost is the mean over the valid entries of a client, and must be
    an unbiased estimate of the full cost under uniform sampling. A problem without instances raises ValueError if a
    batch is passed.

    *Rules.* A problem must not modify its arguments. NumPy arrays are passed as read-only views; arrays of other
    mutable libraries are compared with a copy at the first call of each method. It may return the same array again with
    new contents: results are copied.

    *Optional members*, used where present:

    - `counts` (n,): integers, the instances of each client. Required for mini-batches.
    - `clients` (n,): the numbers of the clients of a restricted problem, which draw the mini-batches of the whole one.
    - `to(target, dtype=None)`: the same problem on another array library.
    - `broadcasts = True`: every method also takes leading run axes, x (..., n, dim_x), lam (..., n, dim_lam),
      u (..., n, dim_x), batch (..., n, b), which broadcast against each other. Otherwise there is one call per run.
    - `hessian(x, lam, batch=None)` (n, dim_x, dim_x), `jacobian(x, lam, batch=None)` (n, dim_lam, dim_x): H_i and J_i
      in closed form. The explicit reference otherwise applies hvp and cross to unit vectors.
    - `weighs_instances`: True if lam_ik is the weight of training instance k of client i, so that 0 removes it
      (needed for influence). By default true if dim_lam is the largest of `counts`.
    - `validation_counts` (n,), `validation_grad(x, lam, batch)` (n, dim_x): the validation instances of each client,
      and the gradient of each client's mean loss on a mini-batch (n, b) of them. Needed for influence on single losses.
    - `restrict(clients)`: the same problem for some of its clients (a slice or indices). Required by MPI.
    - `lipschitz(lam)`: a `Lipschitz`, a mapping with its fields, or None. Certificates need it for statements about the
      exact inner solution.
    - `jacobian_norms(x, lam)` (n,): upper bounds on the norms of J_i. Certificates otherwise use dim_x cross products.
    - `term_sizes(x, lam)`: a `TermSizes`. With it certificates include rounding errors; otherwise they state that they
      do not.
    - `data_digest()`: a string that identifies the data. Checkpoints of `bilevel.optimise` compare it; otherwise they
      compare costs and gradient norms at one point.
    - `prepare_batches(host_batches, like)`: mini-batches (count, streams, [runs,] n, b) on the device of `like`. Entry
      [k, stream] of the result is passed as `batch`.

    Examples
    --------
    >>> isinstance(hgp.problems.Quadratic.random(3, 4, 2), hgp.problems.Problem)
    True
    """

    n_clients: int
    dim_x: int
    dim_lam: int

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i(x_i, λ_i).  # (n,)"""
        ...

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """∂_x g_i(x_i, λ_i).  # (n, dim_x)"""
        ...

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x_i, λ_i); the outer cost is their sum.  # (n,)"""
        ...

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, dim_x), (n, dim_lam)"""
        ...

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> Linearization:
        """Second derivatives at (x, λ). The result must not change if x or lam is modified later."""
        ...


# ---------------------------------------------------------------------------------------- problems with all members


# Members beside METHODS that compute with arrays.
MEMBERS_WITH_ARRAYS = (
    *("hessian", "jacobian", "jacobian_norms", "term_sizes", "lipschitz", "validation_grad", "accuracy", "weights"),
    *("responsibilities", "_term_sizes", "_with_mu", "_lipschitz"),
)


class OnDevice(ABC):  # noqa: B024 - its subclasses are abstract
    """The constructor and the methods of a subclass run on the device of the CuPy arrays that they are called with."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("__init__", *METHODS, *MEMBERS_WITH_ARRAYS):
            if callable(member := vars(cls).get(name)):
                setattr(cls, name, _linearizes_on_device(member) if name == "linearize" else computes_on_device(member))


def _linearizes_on_device(linearize: Any) -> Any:
    """`linearize` on the device of x. Its result computes there too, if that is not CuPy's current device."""

    @functools.wraps(linearize)
    def on_device(*args: Any, **options: Any) -> Any:
        x = elsewhere(*args, *options.values())
        if x is None:
            return linearize(*args, **options)
        with on_device_of(x):
            return LinearizationElsewhere(linearize(*args, **options), x)

    return on_device


class LinearizationElsewhere:
    """A linearization whose products run on the device of x."""

    def __init__(self, inner: Any, x: Array) -> None:
        self._inner, self._x = inner, x

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (n, d_x)"""
        with on_device_of(self._x):
            return self._inner.hvp(u)

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (n, d_λ)"""
        with on_device_of(self._x):
            return self._inner.cross(u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u).  # (n, d_x), (n, d_λ)"""
        with on_device_of(self._x):
            return self._inner.products(u)


class FullProblem(OnDevice):
    """A problem with all members, as `as_problem` returns it.

    Methods take leading run axes. Results share no memory with later ones and carry no graph of automatic
    differentiation.

    A built-in class sets `trusted = True`: it validates its arguments itself, and its results need no validation. A
    subclass does not inherit the trust, since it may override any method.
    """

    broadcasts = True
    n_clients: int
    dim_x: int
    dim_lam: int
    clients: np.ndarray  # the numbers of these clients in the problem that this one is a restriction of

    # Optional members; None where the problem has none.
    counts: Any = None  # (n,), the training instances of each client, on the host
    hessian: Any = None  # the function (x, lam, batch=None) ↦ H_i in closed form, (n, d_x, d_x)
    jacobian: Any = None  # the function (x, lam, batch=None) ↦ J_i in closed form, (n, d_λ, d_x)
    lipschitz: Any = None  # the function lam ↦ `Lipschitz` constants along x
    jacobian_norms: Any = None  # the function (x, lam) ↦ upper bounds on the norms of J_i, (n,)
    term_sizes: Any = None  # the function (x, lam) ↦ `TermSizes`

    @abstractmethod
    def inner_cost(self, x: Array, lam: Array, batch: Any = None) -> Array: ...

    @abstractmethod
    def inner_grad(self, x: Array, lam: Array, batch: Any = None) -> Array: ...

    @abstractmethod
    def outer_cost(self, x: Array, lam: Array) -> Array: ...

    @abstractmethod
    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]: ...

    @abstractmethod
    def linearize(self, x: Array, lam: Array, batch: Any = None) -> FullLinearization: ...

    @abstractmethod
    def restrict(self, clients: Clients) -> Any:
        """The same problem for some of its clients, a slice or indices."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in SIZES)
        return f"<{type(self).__name__}: {sizes}>"

    @property
    def wrapped(self) -> Any:
        """The problem as the user passed it."""
        return self

    def sampled(self, x: Array, lam: Array) -> Callable[[Any], FullLinearization]:
        """The function batch ↦ linearize(x, lam, batch), with what depends on the point alone computed once."""
        return getattr(self.linearize(x, lam), "on", None) or (lambda batch: self.linearize(x, lam, batch=batch))

    def gradient_at(self, lam: Array) -> Callable[..., Array]:
        """The function (x, batch=None) ↦ ∂_x g(x, λ), with what depends on λ alone computed once; x is not checked."""
        return partial(self.inner_grad, lam=lam)

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> Any:
        """Mini-batches (count, streams, [runs,] n, b) on the device of `like`; entry [k, stream] is a `batch`."""
        return BatchArray(from_host(host_batches, like=like))

    def device_batches(self, size: int, replace: bool, like: Array) -> Any | None:
        """Draws mini-batches on the device of `like` (`instances.DeviceBatches`); None if the host draws them."""
        return None


class BatchArray:
    """Mini-batches of a problem that does not prepare them itself; entry [k, stream] is a `batch`."""

    def __init__(self, batches: Array) -> None:
        self._batches = batches

    def __getitem__(self, key: tuple[int, int]) -> Array:
        return self._batches[(*key, ...)]


def as_problem(problem: Problem, needs: Sequence[str] = METHODS) -> FullProblem:
    """`problem` with all optional members: built-in NumPy problems unchanged, others in a `ProblemAdapter`.

    Parameters
    ----------
    needs : the methods that the caller will use. The problem must have these and may lack the others.

    Raises
    ------
    TypeError
        Members are missing; the message lists all of them.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2)
    >>> hgp.problems.as_problem(problem).n_clients
    3
    """
    if needs is not METHODS and (
        not isinstance(needs, Sequence)
        or isinstance(needs, str)
        or not set(map(repr, needs)) <= set(map(repr, METHODS))
    ):
        raise ValueError(f"needs must be some of {', '.join(METHODS)}, got {needs!r}")
    if isinstance(problem, ProblemAdapter):
        _require_members(problem.wrapped, needs)
        return problem
    if _trusted(problem) and (like := optional(problem, "_like")) is not None and is_numpy(like()):
        trusted: Any = problem
        return trusted
    return ProblemAdapter(problem, needs)


def _trusted(problem: object) -> bool:
    """Whether the class of `problem` is built in and no method was replaced in this instance."""
    return vars(type(problem)).get("trusted") is True and vars(problem).keys().isdisjoint(METHODS)


def _require_members(problem: object, needs: Sequence[str]) -> None:
    missing = [name for name in SIZES if not hasattr(problem, name)]
    missing += [f"{name}(...)" for name in needs if not callable(optional(problem, name))]
    if missing:
        raise TypeError(
            "problem must have the members of hgp_ref.problems.Problem, got "
            f"{type(problem).__name__} without {', '.join(missing)}"
        )


def optional(problem: object, name: str) -> Any:
    """An optional member of a problem, or None."""
    return getattr(problem, name, None)


def closed_form(problem: object, name: str) -> Any:
    """An optional member, or None if a subclass has overridden a method that it must agree with.

    A subclass that overrides `linearize` and inherits `hessian` has the Hessian of its parent. Lipschitz constants must
    also agree with the gradients, and term sizes with all methods.
    """
    mro = type(problem).__mro__

    def depth(member: str) -> int:
        """How far up the class hierarchy `member` is defined; -1 for an attribute of the instance."""
        if member in getattr(problem, "__dict__", ()):
            return -1
        return next((k for k, cls in enumerate(mro) if member in vars(cls)), len(mro))

    related = {"lipschitz": ("inner_grad", "outer_grad", "linearize"), "term_sizes": METHODS}.get(name, ("linearize",))
    return None if depth(name) > min(map(depth, related)) else optional(problem, name)


class ProblemAdapter(FullProblem):
    """A user's problem with all optional members, run axes and validated results.

    Only metadata of results are checked, so that nothing waits for a device. A built-in problem on another library than
    NumPy is wrapped as well, to cut the graph of automatic differentiation; its results are not validated.
    """

    def __init__(self, wrapped: Problem, needs: Sequence[str] = METHODS) -> None:
        _require_members(wrapped, needs)
        self._wrapped = wrapped
        self.n_clients, self.dim_x, self.dim_lam = (
            validation.integer(f"problem.{name}", getattr(wrapped, name), 1, validation.LONGEST) for name in SIZES
        )
        self.counts = _read_counts(optional(wrapped, "counts"), self.n_clients)
        numbers = optional(wrapped, "clients")
        self.clients = np.arange(self.n_clients) if numbers is None else np.asarray(numbers, dtype=np.int64)
        self._loops = not validation.boolean("problem.broadcasts", optional(wrapped, "broadcasts") or False)
        self._trusted = _trusted(wrapped)
        built_in = type(wrapped).__module__.partition(".")[0] == __name__.partition(".")[0]
        self._checker = None if built_in else ArgumentChecker()
        for name in ("lipschitz", "jacobian_norms", "term_sizes"):
            setattr(self, name, closed_form(wrapped, name))
        for name, shape in (("hessian", (self.dim_x, self.dim_x)), ("jacobian", (self.dim_lam, self.dim_x))):
            if closed_form(wrapped, name) is not None:
                setattr(self, name, partial(self._call, name, shape))
        self.validation_counts = _read_counts(
            optional(wrapped, "validation_counts"), self.n_clients, "validation_counts"
        )
        if optional(wrapped, "validation_grad") is not None:
            self.validation_grad = partial(self._call, "validation_grad", (self.dim_x,))

    @property
    def wrapped(self) -> Any:
        """The problem as the user passed it."""
        return self._wrapped

    def inner_cost(self, x: Array, lam: Array, batch: Any = None) -> Array:
        return self._call("inner_cost", (), x, lam, batch)

    def inner_grad(self, x: Array, lam: Array, batch: Any = None) -> Array:
        return self._call("inner_grad", (self.dim_x,), x, lam, batch)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        return self._call("outer_cost", (), x, lam)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        return self._call("outer_grad", [(self.dim_x,), (self.dim_lam,)], x, lam)

    def linearize(self, x: Array, lam: Array, batch: Any = None) -> FullLinearization:
        x, lam = detached(x), detached(lam)
        if self._trusted:
            return self._wrapped.linearize(x, lam, **_keyword(batch))  # type: ignore[return-value]
        lead = _run_axes(x, lam, batch)

        def of_each_run(x: Array, lam: Array) -> dict[Shape, Linearization]:
            if not (lead and self._loops):
                return {(): _check_linearization(self._wrapped.linearize(x, lam, **_keyword(batch)))}
            return {
                run: _check_linearization(
                    self._wrapped.linearize(*(select_run(a, run) for a in (x, lam)), **_keyword(batch, run))
                )
                for run in np.ndindex(*lead)
            }

        if self._checker is None:
            return AdaptedLinearization(self, of_each_run(x, lam), lead, x)
        return AdaptedLinearization(self, self._checker("linearize(x, lam)", of_each_run, x, lam), lead, x)

    def sampled(self, x: Array, lam: Array) -> Callable[[Any], FullLinearization]:
        on = optional(self.linearize(x, lam), "on") if self._trusted else None
        return on or (lambda batch: self.linearize(x, lam, batch=batch))

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> Any:
        prepare = optional(self._wrapped, "prepare_batches") or super().prepare_batches
        return prepare(host_batches, like)

    def device_batches(self, size: int, replace: bool, like: Array) -> Any | None:
        drawer = optional(self._wrapped, "device_batches")
        return None if drawer is None else drawer(size, replace, like)

    def restrict(self, clients: Clients) -> FullProblem:
        restrict = optional(self._wrapped, "restrict")
        if not callable(restrict):
            raise TypeError(
                f"problem must have a method restrict(clients), got {type(self._wrapped).__name__}, which has none"
            )
        return as_problem(restrict(clients))

    def _call(self, name: str, shape: Shape | list[Shape], x: Array, lam: Array, batch: Any = None) -> Any:
        """Call a method of the wrapped problem; `shape` is that of its result per client, a list if there are two."""
        method = getattr(self._wrapped, name)
        x, lam = detached(x), detached(lam)
        if self._trusted:
            return method(x, lam, **_keyword(batch))

        def of_run(run: Shape, x: Array, lam: Array) -> Any:
            return method(x, lam, **_keyword(batch, run))

        return self.evaluate(f"{name}(x, lam)", shape, of_run, (x, lam), _run_axes(x, lam, batch), like=x)

    def evaluate(
        self,
        name: str,
        shape: Shape | list[Shape],
        function: Callable[..., Any],
        arguments: tuple[Array, ...],
        lead: Shape,
        like: Array,
    ) -> Any:
        """function(run, *arguments), validated: one call for all runs, or one for each run of the run axes `lead`."""
        xp = array_namespace(like)

        def call(*arguments: Array) -> Any:
            if not (lead and self._loops):
                return self._validate(name, shape, function((), *arguments), lead, like)
            runs = [
                self._validate(name, shape, function(run, *(select_run(a, run) for a in arguments)), (), like)
                for run in np.ndindex(*lead)
            ]
            if not isinstance(shape, list):
                return xp.reshape(xp.stack(runs), (*lead, *runs[0].shape))
            return tuple(xp.reshape(xp.stack(parts), (*lead, *parts[0].shape)) for parts in zip(*runs, strict=True))

        return call(*arguments) if self._checker is None else self._checker(name, call, *arguments)

    def _validate(self, name: str, shape: Shape | list[Shape], returned: Any, lead: Shape, like: Array) -> Any:
        """Copies of the returned arrays, without graphs; an error if shape, library, device or dtype are wrong."""
        if isinstance(shape, list):
            if not isinstance(returned, tuple | list) or len(returned) != len(shape):
                raise TypeError(f"problem: {name} must return a tuple of two arrays, got {type(returned).__name__}")
            parts = enumerate(zip(shape, returned, strict=True))
            return tuple(self._validate(f"{name}[{k}]", part, a, lead, like) for k, (part, a) in parts)
        valid = validation.returned_array(name, returned, (*lead, self.n_clients, *shape), like=like)
        return array_namespace(like).asarray(detached(valid), copy=True)


class AdaptedLinearization:
    """Validated products of a user's linearizations, one for each run of the point with run axes `lead`."""

    def __init__(self, adapter: ProblemAdapter, of_run: Mapping[Shape, Any], lead: Shape, x: Array) -> None:
        self._adapter, self._of_run, self._lead, self._x = adapter, of_run, lead, x

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (..., n, d_x)"""
        return self._call("hvp", (self._adapter.dim_x,), u)

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (..., n, d_λ)"""
        return self._call("cross", (self._adapter.dim_lam,), u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u), by the user's `products` where there is one."""
        if not all(hasattr(lin, "products") for lin in self._of_run.values()):
            return self.hvp(u), self.cross(u)
        return self._call("products", [(self._adapter.dim_x,), (self._adapter.dim_lam,)], u)

    def _call(self, name: str, shape: Shape | list[Shape], u: Array) -> Any:
        u = detached(u)

        def product(run: Shape, u: Array) -> Any:
            axes = run[len(run) - len(self._lead) :] if run else ()
            index = tuple(k if size > 1 else 0 for k, size in zip(axes, self._lead, strict=True)) if axes else ()
            return getattr(self._of_run[index], name)(u)

        lead = run_axes(point=self._lead, u=tuple(u.shape[:-2]))
        return self._adapter.evaluate(f"{name}(u)", shape, product, (u,), lead, like=self._x)


class ArgumentChecker:
    """Calls methods of a user's problem and raises ValueError if one of them modifies its arguments.

    `u *= h; return u` in an hvp modifies a vector that the caller continues to use, and results would be silently
    wrong. NumPy arrays are passed as read-only views; JAX arrays are immutable; other arrays are compared with a copy
    at the first call of each method.
    """

    def __init__(self) -> None:
        self._compared: set[str] = set()

    def __call__(self, name: str, call: Callable[..., Any], *arguments: Array) -> Any:
        """call(*arguments); `name` is the user's method inside it."""
        message = f"problem: {name} must not modify its arguments, it must return another array"
        arguments = tuple(read_only(a) for a in arguments)
        mutable = [a for a in arguments if not (is_numpy(a) or compat.is_jax_array(a))]
        copies = [] if name in self._compared else [array_namespace(a).asarray(a, copy=True) for a in mutable]
        try:
            result = call(*arguments)
        except ValueError as error:
            if "read-only" in str(error) and any(map(is_numpy, arguments)):
                raise ValueError(message) from error
            raise
        for a, copy in zip(mutable, copies, strict=False):
            if not bool(to_host(array_namespace(a).all((a == copy) | (a != a)))):
                raise ValueError(message)
        self._compared.add(name)
        return result


def read_only(a: Array) -> Array:
    """A read-only view of a NumPy array; arrays of other libraries unchanged."""
    if not is_numpy(a):
        return a
    view = a.view()
    view.flags.writeable = False
    return view


def select_run(a: Array, run: Shape) -> Array:
    """The (n, k) entry of `a` for `run`, an index into the run axes that those of `a` broadcast to."""
    axes = tuple(a.shape[:-2])
    return a[(*(k if size > 1 else 0 for k, size in zip(run[len(run) - len(axes) :], axes, strict=True)), ...)]


def _keyword(batch: Any, run: Shape = ()) -> dict[str, Any]:
    """`batch` as a keyword argument, left out if there is none."""
    return {} if batch is None else {"batch": select_run(batch, run) if run else batch}


def _run_axes(x: Array, lam: Array, batch: Any) -> Shape:
    leads = {"x": tuple(x.shape[:-2]), "lam": tuple(lam.shape[:-2])}
    if batch is not None:
        leads["batch"] = tuple(batch.shape[:-2])
    return run_axes(**leads)


def _check_linearization(returned: Any) -> Linearization:
    for name in ("hvp", "cross"):
        if not callable(optional(returned, name)):
            raise TypeError(
                "problem: linearize(x, lam) must return a linearization with hvp(u) and cross(u), "
                f"got {type(returned).__name__} without the method {name}(u)"
            )
    return returned


def _read_counts(counts: Any, n: int, name: str = "counts") -> np.ndarray | None:
    if counts is None:
        return None
    counts = np.asarray(counts)
    if counts.shape != (n,) or not np.issubdtype(counts.dtype, np.integer):
        raise TypeError(
            f"problem.{name} must be ({n},) integers, one per client, got shape {counts.shape} of {counts.dtype}"
        )
    for i in np.flatnonzero(counts < 1)[:1]:
        raise ValueError(f"problem.{name} must be >= 1, got {counts[i]} for client {i}")
    return counts.astype(np.int64)


# ------------------------------------------------------------------------------ what the built-in problems share


class Portable(OnDevice):
    """A problem that holds arrays of one library; `_xp` is its namespace, which pickling leaves out."""

    _xp: Namespace
    n_clients: int
    clients: np.ndarray

    @abstractmethod
    def _like(self) -> Array:
        """An array of the problem's library, device and dtype."""

    @abstractmethod
    def _with(self, change: Callable[[Array], Array], clients: slice | np.ndarray | None = None) -> Any:
        """A copy with `change` applied to every array; if there are `clients`, it selects their rows."""

    def restrict(self, clients: Clients) -> Any:
        """The same problem for some of its clients, a slice or indices; d_λ does not change."""
        which = client_indices(clients, self.n_clients)
        part = self._with(take_rows(which), which)
        part.clients = self.clients[which]
        part.n_clients = len(part.clients)
        return part

    def to(self, target: Any, dtype: Any = None, device: Any = None) -> Any:
        """The same problem in another library (its name, or one of its arrays), and optionally another dtype.

        `device` chooses the device of a library given by its name, as in `hgp.backend.get_backend`.
        """
        other = self._with(array_mover(target, dtype, device))
        other._xp = array_namespace(other._like())
        return other

    @staticmethod
    def _refuse_run_axes(name: str, lead: Shape) -> None:
        """ValueError if the argument `name` has leading run axes."""
        if lead:
            raise ValueError(f"{name} must have no leading run axes, got {lead}; call once for each run")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_xp"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._xp = array_namespace(self._like())


def check_argument(name: str, a: Array, like: Array, shape: Shape, meaning: str) -> Shape:
    """The leading run axes of `a`, whose last axes must be `shape`; library, device and dtype must be those of `like`.

    Values are not read, so that nothing waits for a device.
    """
    if type(a) is not type(like):
        if isinstance(a, np.ma.MaskedArray | np.matrix):  # their products and sums are not those of arrays
            raise TypeError(f"{name} must be a plain array, got {class_name(a)}")
        if a is None:
            raise TypeError(f"{name} must be an array of shape (..., {', '.join(map(str, shape))}), got None")
        try:
            same = array_namespace(a) is array_namespace(like)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if not same:
            raise TypeError(
                f"{name} must be a {class_name(like)} as the problem's data, got {class_name(a)}; use problem.to(...)"
            )
    if a.dtype != like.dtype:
        raise TypeError(f"{name} must have the problem's dtype {like.dtype}, got {a.dtype}")
    if type(a) is not np.ndarray and device(a) != device(like):
        raise TypeError(f"{name} must be on the problem's device {device(like)}, got {device(a)}")
    if a.shape[-len(shape) :] != shape:
        expected = f"(..., {', '.join(map(str, shape))}) = (..., {meaning})"
        raise ValueError(f"{name} must have shape {expected}, got {tuple(a.shape)}")
    return tuple(a.shape[: -len(shape)])


def check_point(problem: FullProblem, x: Array, lam: Array) -> tuple[Array, Array]:
    """x (n, d_x) and lam (n, d_λ), checked, without graphs of automatic differentiation."""
    validation.same_kind(x=x, lam=lam)
    validation.shape("x", x, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    validation.finite("x", x)
    validation.finite("lam", lam)
    return detached(x), detached(lam)


def check_lam(problem: FullProblem, lam: Array, run_axes: bool = False) -> None:
    """TypeError or ValueError unless λ fits the problem and is of its library, device and dtype."""
    validation.same_kind(lam=lam)
    validation.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=run_axes)
    validation.finite("lam", lam)
    data = optional(problem.wrapped, "_like")  # of built-in problems
    if data is not None:
        check_argument("lam", lam, data(), (problem.n_clients, problem.dim_lam), "n_clients, dim_lam")


def check_batch(batch: Array, like: Array, n: int) -> Shape:
    """The leading run axes of `batch`, an integer array (..., n, b) on the device of `like`."""
    if batch is None:
        raise TypeError("batch must be an integer array of instance numbers, got None")
    try:
        xp = array_namespace(batch, like)
    except TypeError as error:
        raise TypeError(f"batch: {error}") from error
    if not xp.isdtype(batch.dtype, "signed integer"):
        raise TypeError(f"batch must hold signed integers (instance numbers, -1 for padding), got {batch.dtype}")
    if device(batch) != device(like):
        raise TypeError(f"batch must be on the problem's device {device(like)}, got {device(batch)}")
    if batch.ndim < 2 or batch.shape[-2] != n or batch.shape[-1] < 1:
        raise ValueError(f"batch must have shape (..., {n}, b) = (..., n_clients, b), b >= 1, got {tuple(batch.shape)}")
    return tuple(batch.shape[:-2])


def run_axes(**leads: Shape) -> Shape:
    """The run axes to which those of the named arguments broadcast."""
    different = set(leads.values()) - {()}
    if len(different) <= 1:  # the common case
        return different.pop() if different else ()
    try:
        return np.broadcast_shapes(*different)
    except ValueError as error:
        listing = ", ".join(f"{name} has {lead}" for name, lead in leads.items())
        raise ValueError(f"leading run axes must broadcast, got: {listing}") from error


def expand(a: Array, lead: Shape, trailing: int, *, xp: Namespace) -> Array:
    """`a` broadcast to the run axes `lead` in front of its last `trailing` axes."""
    if a.ndim - trailing == len(lead) and a.shape[: len(lead)] == lead:
        return a
    return xp.broadcast_to(a, lead + tuple(a.shape[a.ndim - trailing :]))


def matmul_runs(
    matrix: Array, columns: Array, product: Callable[[Array, Array], Array] | None = None, *, xp: Namespace
) -> Array:
    """matrix_i columns_i for every client, with run axes of `columns` as further columns of one product.

    One product per client with R times as many columns reads each matrix once, not R times. `product` multiplies
    stacks of matrices, xp.matmul by default.
    matrix (n, p, q) or (..., n, p, q); columns (..., n, q, c); result (..., n, p, c).
    """
    multiply = xp.matmul if product is None else product
    if matrix.ndim > 3 or columns.ndim == 3:
        return multiply(matrix, columns)
    lead, (n, q, c) = tuple(columns.shape[:-3]), tuple(columns.shape[-3:])
    runs = math.prod(lead)
    wide = xp.permute_dims(xp.reshape(columns, (runs, n, q, c)), (1, 2, 0, 3))  # (n, q, R, c)
    together = multiply(matrix, xp.reshape(wide, (n, q, runs * c)))  # (n, p, R c)
    p = together.shape[-2]
    narrow = xp.permute_dims(xp.reshape(together, (n, p, runs, c)), (2, 0, 1, 3))  # (R, n, p, c)
    return xp.reshape(narrow, (*lead, n, p, c))


def matvec(matrix: Array, u: Array, *, xp: Namespace, joined: bool = True) -> Array:
    """matrix_i u_i for every client and run; without `joined` one product for each run.  # (..., n, p)"""
    if u.ndim == 2 or matrix.ndim > 3 or not joined:
        return xp.matmul(matrix, u[..., None])[..., 0]
    if u.ndim == 3:  # `matmul_runs` in fewer calls
        return xp.permute_dims(xp.matmul(matrix, xp.permute_dims(u, (1, 2, 0))), (2, 0, 1))
    return matmul_runs(matrix, u[..., None], xp=xp)[..., 0]


def client_indices(clients: Clients, n: int) -> slice | np.ndarray:
    """`clients` of 0 … n−1 as a slice or an array of distinct indices, at least one."""
    if isinstance(clients, slice):
        indices = range(n)[clients]
        if not indices:
            raise ValueError(f"clients must select at least one of the {n} clients, got {clients}")
        return slice(indices.start, indices.stop) if indices.step == 1 else np.array(indices, dtype=np.int64)
    if not isinstance(clients, Sequence | np.ndarray) or isinstance(clients, str):
        raise TypeError(f"clients must be a slice or a sequence of indices, got {clients!r}")
    if isinstance(clients, np.ndarray) and clients.ndim != 1:
        raise ValueError(f"clients must be a slice or a sequence of indices, got an array of shape {clients.shape}")
    numbers = [validation.integer(f"clients[{k}]", i, 0, n - 1) for k, i in enumerate(clients)]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"clients must be distinct indices, at least one, got {clients!r}")
    return np.array(numbers, dtype=np.int64)


def take_rows(clients: slice | np.ndarray) -> Callable[[Array], Array]:
    """The function a ↦ a[clients]: a view for a slice, a copy for indices."""
    if isinstance(clients, slice):
        return lambda a: a[clients, ...]

    def take(a: Array) -> Array:
        with on_device_of(a):
            return array_namespace(a).take(a, from_host(clients, like=a), axis=0)

    return take


def array_mover(target: Any, dtype: Any = None, device: Any = None) -> Any:
    """A function that moves an array to `target`, the name of a library or an array, and floats to `dtype`.

    `device` belongs to a library given by its name.
    """
    if dtype is not None:
        dtype = validation.real_floating("dtype", dtype)
    if target is None:
        raise TypeError("target must be the name of a library or an array, got None")
    try:
        backend = get_backend(target, device) if isinstance(target, str) else None
        if backend is None:
            array_namespace(target)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error) if str(error).startswith("device") else f"target: {error}") from error
    if backend is None and device is not None:
        raise ValueError(f"device must be None if target is an array, which has a device already, got {device!r}")

    def move(a: Array) -> Array:
        host = to_host(a)
        if dtype is not None and np.issubdtype(host.dtype, np.floating):
            host = host.astype(dtype)
        return backend.asarray(host) if backend is not None else from_host(host, like=target)

    return move
