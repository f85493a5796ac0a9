"""What a problem is: the methods that the rest of the package calls, and nothing more.

Client i of n has an inner cost g_i(x_i, lam_i), which the clients minimise together under consensus
x_1 = ... = x_n, and an outer cost f_i(x_i, lam_i), whose sum is differentiated with respect to lam. A user's own
problem is any object with the members of `Problem`; it need not inherit from anything, and `isinstance(p, Problem)`
tells whether a member is missing.

Shapes. The client axis comes first: `x`, `u` are (n, dim_x), `lam` is (n, dim_lam), and row i of every argument and
of every result belongs to client i alone. Results have the namespace, device and dtype of `x`.

Batches. `batch` is None for all instances of every client, or an integer array (n, b) in the namespace and on the
device of `x`: row i lists instances of client i, -1 is padding and counts for nothing, and the mini-batch cost is the
mean over a client's valid entries. It must be an unbiased estimate of the full cost under uniform sampling. A problem
without instances raises ValueError when a batch is given.

Optional members, each used where it is present and never required:

- `hessian(x, lam, batch=None)` (n, dim_x, dim_x) and `jacobian(x, lam, batch=None)` (n, dim_lam, dim_x): closed forms
  of d²_x g_i and d²_{x lam} g_i for the explicit reference, which otherwise applies hvp and cross to unit vectors.
- `counts`: (n,) NumPy integers on the host, the instances of each client. Needed to draw mini-batches.
- `broadcasts = True`: every method also accepts leading run axes, x (..., n, dim_x), lam (..., n, dim_lam),
  u (..., n, dim_x) and batch (..., n, b), which broadcast against each other; many runs then go as one call.
  Absent or False: the package calls the problem once per run.
- `weighs_instances`: whether lam_ik is the weight of training instance k of client i, so that 0 removes it (needed for
  influence). Absent: decided by dim_lam being the largest of `counts`.
- `restrict(clients)`: the same problem with some of its clients (a slice or indices), for clients spread over machines.
- `lipschitz(lam)`: a `constants.Lipschitz` (or a mapping with its fields, or None) with which certificates speak of the
  exact inner solution, and `jacobian_norms(x, lam)` (n,): upper bounds on |d²_{x lam} g_i|, which certificates of
  large problems otherwise find from dim_x cross products.
- `term_sizes(x, lam)`: a `term_sizes.TermSizes`, how large the terms are that each cost, gradient and product adds.
  With it, certificates include the rounding of these sums; without, they state that they do not.
- `prepare_batches(host_batches, like)`: see `problems.normalised`, which is where every door of the package turns a
  problem into one that has all of these members.
- `data_digest()`: a text that is the same for equal data and another for others, which checkpoints of
  `bilevel.optimise` compare (see `digests`). Without it they compare costs and lengths of gradients at one point.
- `on(batch)` of a built-in full-batch linearization: the same point on a mini-batch, without computing l' and l'' anew.
- `products(u)` of a linearization: (hvp(u), cross(u)) where both share work.

What a problem may do. It may return the same array again and again with new contents: `as_problem` copies its answers.
It must not change its arguments: NumPy arrays are passed as read-only views, those of other mutable libraries are
compared with a copy at the first call of each method (see `unchanged`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import array_api_compat as compat
import numpy as np

from hgp_ref import validation
from hgp_ref.backend import (
    Array,
    Namespace,
    array_namespace,
    detached,
    device,
    from_host,
    get_backend,
    is_numpy,
    to_host,
)
from hgp_ref.problems.term_sizes import TermSizes


@runtime_checkable
class Linearization(Protocol):
    """Second derivatives of g at a fixed point (x, lam, batch), applied to vectors as often as needed.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> problem.linearize(x, lam).hvp(x).shape, problem.linearize(x, lam).cross(x).shape
    ((3, 4), (3, 2))
    """

    def hvp(self, u: Array) -> Array:
        """d²_x g_i(x_i, lam_i) u_i for every client.  # (n, dim_x)

        Parameters
        ----------
        u : (n, d_x).

        Returns
        -------
        (n, d_x).
        """
        ...

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i(x_i, lam_i) u_i, the derivative of <d_x g_i, u_i> along lam_i.  # (n, dim_lam)

        Parameters
        ----------
        u : (n, d_x).

        Returns
        -------
        (n, d_λ).
        """
        ...


class FullLinearization(Linearization, Protocol):
    """A linearization with `products`, as every normalised problem gives."""

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u).  # (n, dim_x), (n, dim_lam)"""
        ...


@runtime_checkable
class Problem(Protocol):
    """Client costs g_i (inner) and f_i (outer) with the derivatives that hyper-gradients need.

    Examples
    --------
    >>> isinstance(hgp.problems.Quadratic.random(3, 4, 2), hgp.problems.Problem)
    True
    """

    n_clients: int
    dim_x: int
    dim_lam: int

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i(x_i, lam_i).  # (n,)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        (n,).
        """
        ...

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i(x_i, lam_i).  # (n, dim_x)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        (n, d_x).
        """
        ...

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x_i, lam_i); the outer objective is their sum.  # (n,)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).

        Returns
        -------
        (n,).
        """
        ...

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, dim_x), (n, dim_lam)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).

        Returns
        -------
        (n, d_x) and (n, d_λ).
        """
        ...

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> Linearization:
        """Fix the point and keep what can be kept; the result must not change if x is changed later.

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        Linearization.
        """
        ...


# ----------------------------------------------------------------------------------------------------
# Checks and batched products shared by the built-in problems; array API standard operations only.


Shape = tuple[int, ...]


class Portable(ABC):
    """Keeps its array library at hand as `_xp`; a module cannot be pickled, so it is found again by `_like`."""

    _xp: Namespace

    @abstractmethod
    def _like(self) -> Array:
        """An array of the problem's library."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_xp"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._xp = array_namespace(self._like())


def check_argument(name: str, a: Array, like: Array, shape: Shape, meaning: str) -> Shape:
    """Leading run axes of `a`, whose trailing axes must be `shape` and whose library, device and dtype those of `like`.

    Looks at metadata only: no values are read, so nothing waits for a device.
    """
    if type(a) is not type(like):
        if isinstance(a, np.ma.MaskedArray | np.matrix):  # their products and sums are not those of arrays
            raise TypeError(f"{name}: needed a plain array, got {type(a).__module__}.{type(a).__name__}")
        try:
            same = array_namespace(a) is array_namespace(like)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if not same:
            given, needed = (f"{type(v).__module__}.{type(v).__name__}" for v in (a, like))
            raise TypeError(f"{name}: {given} given, needed {needed} as the problem's data; problem.to(...) moves it")
    if a.dtype != like.dtype:
        raise TypeError(f"{name}: dtype {a.dtype} given, needed the problem's dtype {like.dtype}")
    if device(a) != device(like):
        raise TypeError(f"{name}: on device {device(a)}, needed the problem's device {device(like)}")
    if tuple(a.shape[-len(shape) :]) != shape:
        raise ValueError(
            f"{name}: shape {tuple(a.shape)} given, needed (..., {', '.join(map(str, shape))}) = (..., {meaning})"
        )
    return tuple(a.shape[: -len(shape)])


def check_batch(batch: Array, like: Array, n: int) -> Shape:
    """Leading run axes of `batch`, an integer array (..., n, b) with b >= 1 beside `like`."""
    try:
        xp = array_namespace(batch, like)
    except TypeError as error:
        raise TypeError(f"batch: {error}") from error
    if not xp.isdtype(batch.dtype, "signed integer"):
        raise TypeError(f"batch: dtype {batch.dtype} given, needed signed integers (instance indices, -1 = padding)")
    if device(batch) != device(like):
        raise TypeError(f"batch: on device {device(batch)}, needed the problem's device {device(like)}")
    if batch.ndim < 2 or batch.shape[-2] != n or batch.shape[-1] < 1:
        raise ValueError(
            f"batch: shape {tuple(batch.shape)} given, needed (..., {n}, b) = (..., n_clients, b) with b >= 1"
        )
    return tuple(batch.shape[:-2])


def run_axes(**leads: Shape) -> Shape:
    """The run axes that the named arguments' run axes broadcast to."""
    given = {lead for lead in leads.values() if lead}
    if len(given) <= 1:  # one kind of run axes, or none: what every step of a run meets
        return given.pop() if given else ()
    try:
        return np.broadcast_shapes(*given)
    except ValueError as error:
        listing = ", ".join(f"{name} has {lead}" for name, lead in leads.items())
        raise ValueError(f"leading run axes do not broadcast: {listing}") from error


def expand(a: Array, lead: Shape, trailing: int, *, xp: Namespace) -> Array:
    """`a` broadcast to the run axes `lead` in front of its last `trailing` axes."""
    if a.ndim - trailing == len(lead) and tuple(a.shape[: len(lead)]) == lead:
        return a
    return xp.broadcast_to(a, lead + tuple(a.shape[a.ndim - trailing :]))


def matmul_runs(
    matrix: Array, columns: Array, product: Callable[[Array, Array], Array] | None = None, *, xp: Namespace
) -> Array:
    """matrix_i columns_i for every client; run axes of `columns` become further columns of one product.

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


def matvec(matrix: Array, u: Array, *, xp: Namespace) -> Array:
    """matrix_i u_i for every client and run.  # (..., n, p)"""
    return matmul_runs(matrix, u[..., None], xp=xp)[..., 0]


def chosen(clients: slice | Sequence[int] | np.ndarray, n: int) -> slice | np.ndarray:
    """`clients` of 0 .. n-1 as a slice or an array of different numbers, at least one."""
    if isinstance(clients, slice):
        numbers = range(n)[clients]
        if not numbers:
            raise ValueError(f"clients={clients} given, which is none of the {n} clients, needed at least one")
        return slice(numbers.start, numbers.stop) if numbers.step == 1 else np.array(numbers, dtype=np.int64)
    if not isinstance(clients, Sequence | np.ndarray) or isinstance(clients, str):
        raise TypeError(f"clients={clients!r} given ({type(clients).__name__}), needed a slice or a list of clients")
    if isinstance(clients, np.ndarray) and clients.ndim != 1:
        raise ValueError(f"clients: shape {clients.shape} given, needed a list of clients")
    given = [validation.integer(f"clients[{k}]", i, 0, n - 1) for k, i in enumerate(clients)]
    if not given or len(set(given)) != len(given):
        raise ValueError(f"clients={clients!r} given, needed different clients, at least one")
    return np.array(given, dtype=np.int64)


def taker(clients: slice | np.ndarray) -> Callable[[Array], Array]:
    """A function that takes the rows of `clients` of an array: a view for a slice, a copy for numbers."""
    if isinstance(clients, slice):
        return lambda a: a[clients, ...]
    return lambda a: array_namespace(a).take(a, from_host(clients, like=a), axis=0)


def mover(target: Any, dtype: Any = None) -> Any:
    """A function that moves an array to `target`, a backend's name or an array to be beside; floats become `dtype`."""
    if dtype is not None:
        dtype = validation.real_floating("dtype", dtype)
    try:
        backend = get_backend(target) if isinstance(target, str) else None
        if backend is None and target is not None:
            array_namespace(target)
    except (TypeError, ValueError) as error:
        raise type(error)(f"target: {error}") from error
    if target is None:
        raise TypeError("target=None given, needed the name of a library or an array")

    def move(a: Array) -> Array:
        host = to_host(a)
        if dtype is not None and np.issubdtype(host.dtype, np.floating):
            host = host.astype(dtype)
        return backend.asarray(host) if backend is not None else from_host(host, like=target)

    return move


# ----------------------------------------------------------------------------------------------------
# Products and sums over each client's own rows, for NumPy arrays in which clients of unequal size are padded.
#
# Zeros appended to a sum do not change its value, but they change the order in which BLAS and NumPy add, and with it
# the
# last bit. Here client i's product has N_i rows whatever the padding, and is made by the very call that a batched
# product
# makes for it where all clients are of one size. Neighbours of equal size still share a call.


class OwnRows:
    """Of (..., n, N, .) arrays, the first rows_i rows of client i."""

    def __init__(self, rows: np.ndarray) -> None:
        ends = [*(int(k) for k in np.flatnonzero(np.diff(rows)) + 1), len(rows)]
        starts = [0, *ends[:-1]]
        # clients start .. end-1 have k rows each; a client without rows has nothing to add
        parts = [(slice(a, b), slice(int(rows[a]))) for a, b in zip(starts, ends, strict=True) if rows[a] > 0]
        whole = slice(None)
        self._parts = [((..., a, whole, whole), (..., a, k, whole), (..., a, whole, k), (..., a, k)) for a, k in parts]

    def times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i, rows beyond a client's own zero.  # (..., n, N, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=matrix.dtype)
        for every, rows, _, _ in self._parts:
            np.matmul(matrix[rows], columns[every], out=product[rows])
        return product

    def transposed_times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i where instances are the columns of matrix_i (..., n, p, N).  # (..., n, p, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=columns.dtype)
        for every, rows, instances, _ in self._parts:
            np.matmul(matrix[instances], columns[rows], out=product[every])
        return product

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum over each client's own entries of (..., n, N).  # (..., n)"""
        sums = np.zeros(values.shape[:-1], dtype=values.dtype)
        for _, rows, _, entries in self._parts:
            sums[rows[:2]] = np.sum(values[entries], axis=-1)
        return sums


# ----------------------------------------------------------------------------------------------------
# Arguments that a user's problem must leave as they are.
#
# `u *= h; return u` in an hvp changes a vector that the caller goes on to use, and the result is wrong without any sign
# of it. NumPy arrays are passed as read-only views, so that writing to them raises an error at that line. JAX arrays
# cannot be changed. Arrays of other libraries are compared with a copy at the first call of each method.


def read_only(a: Array) -> Array:
    """A read-only view of a NumPy array; arrays of other libraries as they are."""
    if not is_numpy(a):
        return a
    view = a.view()
    view.flags.writeable = False
    return view


class Unchanged:
    """Calls methods of a user's problem and sees to it that they leave their arguments alone."""

    def __init__(self) -> None:
        self._seen: set[str] = set()  # methods that were compared with a copy

    def __call__(self, name: str, call: Callable[[], Any], *given: Array) -> Any:
        """call(), which is the method `name` of arguments among `given`; ValueError if it changes one of them."""
        arrays = [a for a in given if not (is_numpy(a) or compat.is_jax_array(a))]
        copies = [] if name in self._seen else [array_namespace(a).asarray(a, copy=True) for a in arrays]
        try:
            answer = call()
        except ValueError as error:
            if "read-only" in str(error) and not all(map(_writeable, given)):
                raise ValueError(_message(name)) from error
            raise
        for a, copy in zip(arrays, copies, strict=False):
            if not bool(to_host(array_namespace(a).all((a == copy) | (a != a)))):
                raise ValueError(_message(name))
        self._seen.add(name)
        return answer


def _writeable(a: Array) -> bool:
    return not isinstance(a, np.ndarray) or a.flags.writeable


def _message(name: str) -> str:
    return f"problem: {name} changes its argument in place; it must leave arguments alone and return another array"


# ----------------------------------------------------------------------------------------------------
# Answers of a problem, checked, and a run axis for problems that know none: one call for each run, stacked.


Answers = Mapping[str, Shape]  # what a call returns, in order: a name for messages, and the shape without run axes


def checked(returned: tuple[Array, ...], answers: Answers, lead: Shape, like: Array) -> tuple[Array, ...]:
    """Copies of what a problem returned, which may reuse its arrays, without graphs.

    An error unless they meet `answers` with run axes `lead`.
    """
    xp = array_namespace(like)
    return tuple(
        xp.asarray(detached(validation.returned_array(name, a, (*lead, *shape), like=like)), copy=True)
        for a, (name, shape) in zip(returned, answers.items(), strict=True)
    )


def each_run(
    call: Callable[[Shape], tuple[Array, ...]], answers: Answers, lead: Shape, like: Array
) -> tuple[Array, ...]:
    """call(r) for every run r, an index into the run axes `lead`; each array of the answers stacked along `lead`."""
    xp = array_namespace(like)
    rows = [checked(call(r), answers, (), like) for r in np.ndindex(*lead)]
    return tuple(
        xp.reshape(xp.stack(column), (*lead, *shape))
        for column, shape in zip(zip(*rows, strict=True), answers.values(), strict=True)
    )


def pick(a: Array, run: Shape, trailing: int) -> Array:
    """The entry of `a` for `run`, an index into run axes that those of `a` broadcast to."""
    axes = tuple(a.shape[: a.ndim - trailing])
    own = run[len(run) - len(axes) :]
    return a[(*(k if size > 1 else 0 for k, size in zip(own, axes, strict=True)), ...)]


class CheckedLinearization:
    """hvp, cross and products of a problem's own linearizations, one for each run of the point (`lead`)."""

    def __init__(
        self,
        each: Mapping[Shape, Linearization],
        lead: Shape,
        loops: bool,
        like: Array,
        sizes: Shape,
        unchanged: Unchanged | None = None,
    ) -> None:
        n, dim_x, dim_lam = sizes
        self._unchanged = unchanged  # of a user's problem
        self._each, self._lead, self._loops, self._like = each, lead, loops, like
        self._hvp, self._cross = {"hvp(u)": (n, dim_x)}, {"cross(u)": (n, dim_lam)}
        self._products = {"products(u)[0]": (n, dim_x), "products(u)[1]": (n, dim_lam)}

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (..., n, d_x)"""
        return self._apply(lambda lin, u: (lin.hvp(u),), self._hvp, u)[0]

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (..., n, d_lam)"""
        return self._apply(lambda lin, u: (lin.cross(u),), self._cross, u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u), with the work shared that the problem's own linearization shares."""
        if not all(hasattr(lin, "products") for lin in self._each.values()):
            return self.hvp(u), self.cross(u)
        return self._apply(lambda lin, u: pair("products(u)", lin.products(u)), self._products, u)

    def _apply(self, product: Callable[[Any, Array], tuple[Array, ...]], answers: Answers, u: Array) -> Any:
        u = detached(u)
        if self._unchanged is None:
            return self._products_of(product, answers, u)
        u, name = read_only(u), next(iter(answers)).removesuffix("[0]")
        return self._unchanged(name, lambda: self._products_of(product, answers, u), u)

    def _products_of(self, product: Callable[[Any, Array], tuple[Array, ...]], answers: Answers, u: Array) -> Any:
        lead = run_axes(point=self._lead, u=tuple(u.shape[:-2]))
        if not (lead and self._loops):
            return checked(product(self._each[()], u), answers, lead, self._like)
        return each_run(lambda r: product(self._at(r), pick(u, r, 2)), answers, lead, self._like)

    def _at(self, run: Shape) -> Linearization:
        own = run[len(run) - len(self._lead) :]
        return self._each[tuple(k if size > 1 else 0 for k, size in zip(own, self._lead, strict=True))]


def pair(name: str, returned: Any) -> tuple[Array, Array]:
    """The two arrays that a method which answers with two returned."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise TypeError(f"problem: {name} returned {type(returned).__name__}, needed a tuple of two arrays")
    return returned[0], returned[1]


# ----------------------------------------------------------------------------------------------------
# Every problem in one form: `as_problem` looks once at what a problem offers, so that nothing else has to.
#
# A user's problem may lack the optional members of the protocol, know no run axis, reuse the arrays that it returns or
# answer in the wrong shape. A `Normalised` problem has every member, takes run axes everywhere and says which method of
# the given problem broke the protocol; only metadata are looked at, so that nothing waits for a device.


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
            validation.integer(f"problem.{name}", getattr(given, name), 1, validation.LONGEST) for name in SIZES
        )
        self.counts = _counts(optional(given, "counts"), self.n_clients)
        numbers = optional(given, "clients")
        self.clients = np.arange(self.n_clients) if numbers is None else np.asarray(numbers, dtype=np.int64)
        self._loops = not validation.boolean("problem.broadcasts", optional(given, "broadcasts") or False)
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
