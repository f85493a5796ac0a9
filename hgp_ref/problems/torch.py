"""Costs written in PyTorch as a problem, with all derivatives by automatic differentiation.

    inner_cost(i, x_i, lam_i, batch_i) -> scalar g_i        i a Python int, x_i (dim_x,), lam_i (dim_lam,)
    outer_cost(i, x_i, lam_i) -> scalar f_i                 batch_i (b,) instance indices without padding, or None

The cost of client i depends on row i alone, so that one derivative of the sum of all costs gives all rows. hvp and
cross are double backward; the linearization keeps the graph of the gradient. In a restricted problem i is still the
number of the client in the whole one. A torch.nn.Module with data needs no loop over clients: one call of torch.func's
vmap computes all of them, with the same numbers up to rounding.

PyTorch reports a zero derivative for a tensor without a graph to x, whether it is independent of x or detached. The
code distinguishes the two: a cost that changes when x does has been detached, which is an error.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, get_backend, to_host
from hgp_ref.problems.base import check_batch, client_indices
from hgp_ref.problems.instances import digest, require_existing
from hgp_ref.validation import check_memory

if TYPE_CHECKING:
    from torch.nn import Module

Cost = Callable[..., Array]


@overload
def from_torch(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
               counts: Sequence[int] | np.ndarray | None = None) -> TorchProblem: ...  # fmt: skip


@overload
def from_torch(module: Module, loss: Loss, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, dim_lam: int,
               outer_loss: Loss | None = None, penalty: Penalty | None = None, outer_penalty: Penalty | None = None,
               chunk: int | None = None) -> TorchModuleProblem: ...  # fmt: skip


def from_torch(*args: Any, **options: Any) -> Any:
    """A Problem from costs on torch tensors, or from a torch.nn.Module and the data of the clients that train it.

    from_torch(inner_cost, outer_cost, n_clients, dim_x, dim_lam, *, counts=None): costs as above; counts (n,)
    instances of each client, if there are mini-batches.

    from_torch(module, loss, X, y, X_val=None, y_val=None, *, dim_lam, outer_loss=None, penalty=None,
    outer_penalty=None, chunk=None): all clients by one call (torch.func's vmap). λ enters as you write it:

        loss(outputs, y, lam) -> (N,)    a number for each instance, of which g_i is the mean; outputs (N, ...) of the
                                         module on N instances of one client, their y (N, ...), lam (dim_lam,)
        penalty(x, lam) -> scalar        added to g_i; x (dim_x,) are the module's parameters in PyTorch's order

    f_i is the mean of outer_loss (by default `loss`) over X_val, y_val (by default X, y), plus outer_penalty. X, y:
    arrays (n, N, ...) or lists of n arrays (N_i, ...), torch's or NumPy's; shorter clients are padded. An instance that
    needs a λ of its own carries its number in y. chunk: how many clients share a call, all by default; memory for
    gradients grows with it. The module is used as it stands (train or eval), with its parameters that have
    requires_grad=False, which are no part of x. One that draws random numbers is refused by vmap; one whose outputs
    for an instance depend on other instances (batch normalisation in training mode) where there is padding.

    A cost that changes with x or lam but carries no graph to it (detached, or computed with integers) is a
    RuntimeError, as is any derivative under torch.inference_mode(): both would be zero without a word. So is a second
    derivative that is not symmetric, because PyTorch has a wrong one for an operation (weight_norm in 2.13).

    Examples
    --------
    >>> import torch
    >>> inner = lambda i, x, lam, batch=None: ((x - i) ** 2).sum() / 2 + lam[0] * (x**2).sum() / 2
    >>> problem = hgp.problems.from_torch(inner, lambda i, x, lam: x.sum(), n_clients=2, dim_x=3, dim_lam=1)
    >>> tuple(problem.inner_grad(torch.ones(2, 3), torch.zeros(2, 1)).shape)
    (2, 3)
    """
    get_backend("torch")  # an ImportError that names the extra
    import torch

    first = args[0] if args else options.get("module")
    sized = "n_clients" in options or (
        len(args) > 2 and hasattr(args[2], "__index__") and not hasattr(args[2], "shape")
    )
    if isinstance(first, torch.nn.Module) and not sized:  # a module may also be a cost
        return TorchModuleProblem(*args, **options)
    if "X" in options or (len(args) > 2 and (hasattr(args[2], "shape") or isinstance(args[2], list | tuple))):
        raise TypeError(f"module must be a torch.nn.Module with data X, got {type(first).__name__}")
    return TorchProblem(*args, **options)


class ClientCosts:
    """Costs of single clients as one problem: sizes, validation and restriction, for PyTorch and JAX."""

    def __init__(self, inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int,
                 counts: Sequence[int] | np.ndarray | None = None,
                 clients: np.ndarray | None = None) -> None:  # fmt: skip
        for name, cost in (("inner_cost", inner_cost), ("outer_cost", outer_cost)):
            if not callable(cost):
                raise TypeError(f"{name} must be a function, got {type(cost).__name__}")
        self.n_clients = validation.integer("n_clients", n_clients)
        self.dim_x, self.dim_lam = validation.integer("dim_x", dim_x), validation.integer("dim_lam", dim_lam)
        check_memory(
            f"n_clients={n_clients}, dim_x={dim_x}, dim_lam={dim_lam}", self.n_clients * (self.dim_x + self.dim_lam + 1)
        )
        self.counts = None if counts is None else _read_counts(counts, self.n_clients)
        self.clients = np.arange(self.n_clients) if clients is None else clients
        self._inner, self._outer = inner_cost, outer_cost

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> Any:
        """The same problem with some of its clients, a slice or indices; costs still get the clients' own numbers."""
        which = client_indices(clients, self.n_clients)
        numbers = self.clients[which]
        counts = None if self.counts is None else self.counts[which]
        sizes = (len(numbers), self.dim_x, self.dim_lam)
        return type(self)(self._inner, self._outer, *sizes, counts, numbers, **self._options())

    def _options(self) -> dict[str, Any]:
        """Further arguments of the class."""
        return {}

    def _check(self, x: Array, lam: Array) -> None:
        validation.same_kind(x=x, lam=lam)
        self._check_shape("x", x, self.dim_x)
        self._check_shape("lam", lam, self.dim_lam)

    def _check_shape(self, name: str, a: Array, d: int) -> None:
        if tuple(a.shape) != (self.n_clients, d):
            raise ValueError(f"{name} must have shape {(self.n_clients, d)}, got {tuple(a.shape)}")

    def _rows(self, batch: Array | None, x: Array) -> list[Array | None]:
        """Each client's indices without padding."""
        self._check_batch(batch, x)
        if batch is None:
            return [None] * self.n_clients
        return [batch[i][batch[i] >= 0] for i in range(self.n_clients)]

    def _check_batch(self, batch: Array | None, x: Array) -> None:
        """A look at the indices too: JAX takes the last instance for one that does not exist."""
        if batch is None:
            return
        if self.counts is None:
            raise ValueError("batch must be None, the problem was made without counts; pass counts=...")
        if check_batch(batch, x, self.n_clients):
            raise ValueError(f"batch must have shape ({self.n_clients}, b), b >= 1, got {tuple(batch.shape)}")
        require_existing(to_host(batch), self.counts)

    def _inner_of(self, i: int, x: Array, lam: Array, rows: Array | None) -> Array:
        """g_i at row x (dim_x,) and row lam (dim_lam,)."""
        number = int(self.clients[i])
        return scalar_cost("inner_cost", number, self._inner(number, x, lam, rows))

    def _outer_of(self, i: int, x: Array, lam: Array) -> Array:
        """f_i at row x and row lam."""
        number = int(self.clients[i])
        return scalar_cost("outer_cost", number, self._outer(number, x, lam))


def scalar_cost(name: str, client: int | str, cost: Array) -> Array:
    """What a client's cost returned, which must be one real floating-point number in an array."""
    if tuple(getattr(cost, "shape", (None,))) != ():
        returned = f"shape {tuple(cost.shape)}" if hasattr(cost, "shape") else type(cost).__name__
        raise ValueError(f"{name} must return a scalar array of shape (), got {returned} for client {client}")
    if not array_namespace(cost).isdtype(cost.dtype, "real floating"):
        raise TypeError(f"{name} must return a real floating-point number, got {cost.dtype} for client {client}")
    return cost


def _read_counts(counts: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    read = validation.host_array("counts", counts)
    if read.shape != (n,):
        raise ValueError(f"counts must have shape ({n},) = (n_clients,), got {read.shape}")
    return np.array([validation.integer(f"counts[{i}]", k) for i, k in enumerate(read)], dtype=np.int64)


# ---------------------------------------------------------------------------------------- graphs of derivatives


def require_recording(name: str) -> None:
    """RuntimeError where PyTorch records nothing, so that every derivative of the cost `name` would be zero."""
    import torch

    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{name} must be differentiated outside of torch.inference_mode(), in which PyTorch records no graph and "
            "every derivative would be zero (torch.no_grad() is fine)"
        )


def leaf(a: Array) -> Array:
    """A copy of `a` from which graphs start."""
    return a.detach().clone().requires_grad_(True)


def gradients(costs: Sequence[Array], inputs: Sequence[Array], *, keep: bool = False,
              retain: bool = False) -> list[Array | None]:  # fmt: skip
    """Derivatives of the sum of `costs`, None where no graph leads from it to an input.

    keep: record the graph of the derivatives; retain: leave that of the costs for further use.
    """
    import torch

    alive = [cost for cost in costs if cost.requires_grad]
    if not alive:
        return [None] * len(inputs)
    ones = [torch.ones_like(cost) for cost in alive]
    return list(torch.autograd.grad(alive, inputs, ones, create_graph=keep, retain_graph=retain, allow_unused=True))


def changes(value: Callable[[Array], Array], at: Array) -> bool:
    """Whether `value` depends on its argument; one that is different each time it is asked tells nothing."""
    import torch

    moved = at + 0.5 * (1 + at.abs()) * no_special_direction(at)
    with torch.no_grad():
        here, again, there = (value(a).detach() for a in (at, at.clone(), moved))
    return _same(here, again) and not _same(here, there)


def _same(a: Array, b: Array) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan())


def no_special_direction(like: Array) -> Array:
    """Numbers in [-1, 1] that no problem is likely to know."""
    import torch

    k = torch.arange(like.numel(), dtype=like.dtype, device=like.device).reshape(like.shape)
    return torch.cos(1 + k * k)


class PulledBack(ABC):
    """Second derivatives of g by pulling u back through the kept graph of d_x g.

    A Hessian is symmetric. Some of PyTorch's operations have a wrong second derivative (weight_norm in 2.13), and what
    they give is not: the first product of a problem is looked at by one more.
    """

    _problem: Any

    @abstractmethod
    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        """d<d_x g_i, u_i> along each of "x", "lam" that is asked for."""

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i (the Hessian is symmetric).  # (n, d_x)"""
        return self._check_symmetry(u, self._pull(("x",), u)[0])

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._pull(("lam",), u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass through the graph."""
        hvp, cross = self._pull(("x", "lam"), u)
        return self._check_symmetry(u, hvp), cross

    def _check_symmetry(self, u: Array, Hu: Array) -> Array:
        """Hu after a check that ⟨H u, v⟩ = ⟨u, H v⟩ for some v, once per problem."""
        import torch

        if self._problem._symmetric or not bool(Hu.any()):
            return Hu
        v = no_special_direction(u)
        other = self._pull(("x",), v)[0]
        gap = ((Hu * v).sum(1) - (u * other).sum(1)).abs()
        size = Hu.norm(dim=1) * v.norm(dim=1) + u.norm(dim=1) * other.norm(dim=1)
        if bool((gap > torch.finfo(u.dtype).eps ** 0.5 * size).any()):
            raise RuntimeError(
                "inner_cost: its second derivative by PyTorch is not symmetric, so an operation in it has a wrong one "
                "(weight_norm has in PyTorch 2.13); use operations that can be differentiated twice"
            )
        self._problem._symmetric = True
        return Hu


# ----------------------------------------------------------------------------------------------------
# Costs on torch tensors as a problem: gradients by backward, second derivatives by double backward.


Rows = list[Array]


class TorchProblem(ClientCosts):
    """Costs on torch tensors; see `from_torch` for their form."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._symmetric = False  # whether a second derivative was seen to be
        self._independent: set[tuple[str, str, str, int]] = set()  # what has been asked for and depends on nothing

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        import torch

        self._check(x, lam)
        rows = self._rows(batch, x)
        with torch.no_grad():
            return torch.stack([self._inner_of(i, x[i], lam[i], rows[i]) for i in range(self.n_clients)])

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        import torch

        self._check(x, lam)
        with torch.no_grad():
            return torch.stack([self._outer_of(i, x[i], lam[i]) for i in range(self.n_clients)])

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        import torch

        self._check(x, lam)
        return torch.stack(_Differentiation(self, "inner_cost", x, lam, self._rows(batch, x)).gradients(("x",)))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        import torch

        self._check(x, lam)
        both = _Differentiation(self, "outer_cost", x, lam, None).gradients(("x", "lam"))
        return torch.stack(both[: self.n_clients]), torch.stack(both[self.n_clients :])

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> TorchLinearization:
        """The gradient with its graph, differentiated once more for each vector."""
        self._check(x, lam)
        return TorchLinearization(_Differentiation(self, "inner_cost", x, lam, self._rows(batch, x)))


class _Differentiation:
    """One of the costs at a point whose rows are leaves of their own, so that each client's graph can be looked at."""

    def __init__(self, problem: TorchProblem, name: str, x: Array, lam: Array, rows: list[Array | None] | None) -> None:
        require_recording(name)
        self.problem, self.name, self.rows = problem, name, rows
        self.leaves = {"x": _leaves(x), "lam": _leaves(lam)}

    def cost(self, i: int, x: Array, lam: Array) -> Array:
        if self.rows is None:
            return self.problem._outer_of(i, x, lam)
        return self.problem._inner_of(i, x, lam, self.rows[i])

    def gradients(self, along: tuple[str, ...], *, keep: bool = False) -> Rows:
        """Derivatives of every client's cost along each name, one after the other; `keep` records their own graph."""
        import torch

        clients = range(self.problem.n_clients)
        with torch.enable_grad():
            costs = [self.cost(i, self.leaves["x"][i], self.leaves["lam"][i]) for i in clients]
        rows = gradients(costs, [row for name in along for row in self.leaves[name]], keep=keep, retain=keep)
        slots = [(name, i) for name in along for i in clients]
        return [
            self._zero(name, i, self.cost, "its derivative") if row is None else row
            for (name, i), row in zip(slots, rows, strict=True)
        ]

    def slope(self, i: int, x: Array, lam: Array) -> Array:
        """d_x of client i's cost at any point, without a graph."""
        import torch

        moved = leaf(x)
        with torch.enable_grad():
            (row,) = gradients([self.cost(i, moved, lam.detach())], [moved])
        return torch.zeros_like(moved) if row is None else row

    def _zero(self, name: str, i: int, value: Callable[..., Array], what: str) -> Array:
        """Zero, after a look that `value` of client i really does not depend on `name`."""
        import torch

        point = {key: rows[i].detach() for key, rows in self.leaves.items()}
        question = (self.name, what, name, i)
        if question in self.problem._independent:
            return torch.zeros_like(point[name])
        if changes(lambda moved: value(i, **{**point, name: moved}), point[name]):
            raise RuntimeError(
                f"{self.name}: client {int(self.problem.clients[i])}'s cost changes with {name}, but carries no graph "
                f"to it (detached, or computed under no_grad, in integers or outside of PyTorch): {what} would be zero"
            )
        self.problem._independent.add(question)
        return torch.zeros_like(point[name])


class TorchLinearization(PulledBack):
    """u -> d<d_x g, u>/dx and d<d_x g, u>/dlam through the kept graph."""

    def __init__(self, point: _Differentiation) -> None:
        self._point, self._problem = point, point.problem
        self._slopes = point.gradients(("x",), keep=True)

    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        import torch

        validation.same_kind(x=self._point.leaves["x"][0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        with torch.enable_grad():
            products = [(slope * row).sum() for slope, row in zip(self._slopes, u.detach(), strict=True)]
        rows = gradients(products, [row for name in along for row in self._point.leaves[name]], retain=True)
        n = self._problem.n_clients
        return [torch.stack([self._row(name, i, rows[k * n + i]) for i in range(n)]) for k, name in enumerate(along)]

    def _row(self, name: str, i: int, row: Array | None) -> Array:
        return self._point._zero(name, i, self._point.slope, "its second derivative") if row is None else row


def _leaves(a: Array) -> Rows:
    return [leaf(row) for row in a]


# ----------------------------------------------------------------------------------------------------
# Instances of n clients as torch tensors of one shape, padded with zero weight, for functions that run under vmap.


class TorchInstances:
    """Inputs X (n, N, ...), labels y (n, N, ...) and whether an instance is a client's own, (n, N).

    Padding repeats an instance of the same client: where that one's loss is a number, so is the padding's, and its
    weight zero makes it nothing.
    """

    def __init__(self, X: Array, y: Array, counts: Array) -> None:
        import torch

        self.X, self.y, self._limit = X, y, counts
        self.valid = torch.arange(X.shape[1], device=X.device) < counts[:, None]

    @property
    def counts(self) -> np.ndarray:
        """Instances of each client, on the host.  # (n,)"""
        return self._limit.cpu().numpy()

    def mean(self, like: Array) -> Array:
        """The weight of each instance in its client's mean, 0 for padding.  # (n, N)"""
        number = self.valid.sum(1, keepdim=True)
        return self.valid.to(like.dtype) / number.clamp(min=1)

    def padded_client(self) -> int | None:
        """A client that has padding behind instances of its own, as many of these as any; None if there is none."""
        number, longest = self.valid.sum(1), self.valid.shape[1]
        own = number * (number < longest)
        return int(own.argmax()) if bool(own.any()) else None

    def __getitem__(self, clients: slice | Array) -> TorchInstances:
        """The instances of some clients."""
        some = object.__new__(type(self))
        some.X, some.y, some._limit = self.X[clients], self.y[clients], self._limit[clients]
        some.valid = self.valid[clients]
        return some

    def select(self, batch: Array | None) -> TorchInstances:
        """The instances of a mini-batch (n, b), -1 for padding."""
        import torch

        if batch is None:
            return self
        batch = batch.long()  # short integers are no indices to PyTorch
        valid = batch >= 0
        first = batch.gather(1, valid.to(torch.int8).argmax(1, keepdim=True))  # one that the batch has
        index = torch.where(valid, batch, first).clamp(min=0)
        rows = torch.arange(len(batch), device=batch.device)[:, None]
        some = object.__new__(type(self))
        some.X, some.y, some._limit, some.valid = self.X[rows, index], self.y[rows, index], self._limit, valid
        return some


def read_tensors(names: tuple[str, str], X: Any, y: Any) -> TorchInstances:
    """Arrays (n, N, ...), or lists of n arrays (N_i, ...), torch's or NumPy's."""
    parts = [_parts(name, a) for name, a in zip(names, (X, y), strict=True)]
    if len(parts[0]) != len(parts[1]):
        raise ValueError(f"{names[1]} must have {len(parts[0])} clients as {names[0]}, got {len(parts[1])}")
    for i, (a, b) in enumerate(zip(*parts, strict=True)):
        if a.ndim < 1 or b.ndim < 1 or len(a) < 1 or len(b) != len(a):
            raise ValueError(
                f"{names[0]}[{i}] and {names[1]}[{i}] must have shapes (N_i, ...) with the same N_i >= 1, "
                f"got {tuple(a.shape)} and {tuple(b.shape)}"
            )
    import torch

    counts = [len(part) for part in parts[0]]
    inputs, labels = (_stacked(name, part, max(counts)) for name, part in zip(names, parts, strict=True))
    return TorchInstances(inputs, labels, torch.tensor(counts, device=inputs.device))


def _parts(name: str, a: Any) -> list[Array]:
    import torch

    if not isinstance(a, torch.Tensor | np.ndarray | Sequence) or isinstance(a, str) or len(a) < 1:
        raise TypeError(f"{name} must be an array (n, N, ...) or a list of n arrays, got {type(a).__name__}")
    return [torch.as_tensor(part) for part in a]


def _stacked(name: str, parts: list[Array], longest: int) -> Array:
    import torch

    kinds = {(tuple(part.shape[1:]), part.dtype, part.device) for part in parts}
    if len(kinds) > 1:
        listing = "; ".join(f"{shape}, {dtype}, {device}" for shape, dtype, device in sorted(kinds, key=str))
        raise ValueError(f"{name} must have the same shape, dtype and device for all clients, got {listing}")
    return torch.stack([torch.cat([part, part[:1].expand(longest - len(part), *part.shape[1:])]) for part in parts])


# ----------------------------------------------------------------------------------------------------
# Derivatives of the costs of clients that share a graph, at a point: first ones, and products with second ones.


class Point:
    """One of the costs at a point, for clients that share a graph."""

    def __init__(self, problem: TorchModuleProblem, name: str, x: Array, lam: Array, data: TorchInstances) -> None:
        self.problem, self.name, self.data = problem, name, data
        self.leaves = {"x": leaf(x), "lam": leaf(lam)}

    def costs(self, x: Array, lam: Array) -> Array:
        return self.problem.costs(self.name, x, lam, self.data)

    def gradients(self, along: tuple[str, ...], *, keep: bool = False) -> list[Array]:
        """Derivatives along each name; `keep` records their own graph."""
        import torch

        with torch.enable_grad():
            costs = self.costs(**self.leaves)
        rows = gradients([costs], [self.leaves[name] for name in along], keep=keep, retain=keep)
        return [self.or_zero(row, name, self.costs, "derivative") for row, name in zip(rows, along, strict=True)]

    def slopes(self, x: Array, lam: Array) -> Array:
        """d_x of the costs at any point, without a graph."""
        import torch

        moved = leaf(x)
        with torch.enable_grad():
            (rows,) = gradients([self.costs(moved, lam.detach())], [moved])
        return torch.zeros_like(moved) if rows is None else rows

    def or_zero(self, rows: Array | None, name: str, value: Callable[..., Array], what: str) -> Array:
        """`rows`; zero if there is no graph, after a look that `value` really does not depend on `name`."""
        import torch

        if rows is not None:
            return rows
        point = {key: a.detach() for key, a in self.leaves.items()}
        question = (self.name, what, name)
        if question not in self.problem._independent:
            if changes(lambda moved: value(**{**point, name: moved}), point[name]):
                raise RuntimeError(
                    f"{self.name}: it changes with {name}, but carries no graph to it (detached, or computed under "
                    f"no_grad, in integers or outside of PyTorch): its {what} would be zero"
                )
            self.problem._independent.add(question)
        return torch.zeros_like(point[name])


class ModuleLinearization(PulledBack):
    """u -> d<d_x g, u>/dx and d<d_x g, u>/dlam through the kept graphs."""

    def __init__(self, problem: TorchModuleProblem, points: list[Point]) -> None:
        self._problem, self._points = problem, points
        self._slopes = [point.gradients(("x",), keep=True)[0] for point in points]

    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        import torch

        validation.same_kind(x=self._slopes[0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        vectors = u.detach().split([len(slope) for slope in self._slopes])
        parts = []
        for point, slope, vector in zip(self._points, self._slopes, vectors, strict=True):
            with torch.enable_grad():
                product = (slope * vector).sum()
            rows = gradients([product], [point.leaves[name] for name in along], retain=True)
            parts.append(
                [point.or_zero(row, name, point.slopes, "second derivative")
                 for row, name in zip(rows, along, strict=True)]
            )  # fmt: skip
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]


# ----------------------------------------------------------------------------------------------------
# Clients that train a torch.nn.Module, all of them by one call: torch.func's functional_call under its vmap.
#
#     g_i(x_i, λ_i) = Σ_k mean_ik loss(net(X_i; x_i), y_i, λ_i)_k + penalty(x_i, λ_i)
#     f_i(x_i, λ_i) = Σ_k mean'_ik outer_loss(net(X'_i; x_i), y'_i, λ_i)_k + outer_penalty(x_i, λ_i)
#
# x_i holds the module's parameters in PyTorch's order, as `torch.nn.utils.parameters_to_vector` gives them and
# `hgp_ref.neural` has them; those with requires_grad=False stay as they are, like buffers. Clients share the graph of
# Σ_i g_i; since g_i depends on row i alone, one derivative of the sum gives all rows, and one derivative of <∂_x Σ g,
# u> all products.


if TYPE_CHECKING:
    from torch.nn import Module

Loss = Callable[[Array, Array, Array], Array]
Penalty = Callable[[Array, Array], Array]


class TorchModuleProblem(ClientCosts):
    """See `adapters.from_torch` for the arguments."""

    def __init__(self, module: Module, loss: Loss, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *,
                 dim_lam: int, outer_loss: Loss | None = None, penalty: Penalty | None = None,
                 outer_penalty: Penalty | None = None, chunk: int | None = None) -> None:  # fmt: skip
        functions = {"loss": loss, "outer_loss": outer_loss, "penalty": penalty, "outer_penalty": outer_penalty}
        for name, function in functions.items():
            if not callable(function) and (function is not None or name == "loss"):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        if (X_val is None) != (y_val is None):
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"X_val and y_val must be passed together, got {missing}=None")
        self.module, self._trained = module, [p for _, p in _trained(module)]
        self._slots = _slots(module, self._trained)
        self.chunk = None if chunk is None else validation.integer("chunk", chunk)
        train = read_tensors(("X", "y"), X, y)
        val = train if X_val is None else read_tensors(("X_val", "y_val"), X_val, y_val)
        if len(val.X) != len(train.X):
            raise ValueError(f"X_val must have {len(train.X)} clients as X, got {len(val.X)}")
        dim_x = sum(p.numel() for p in self._trained)
        if dim_x == 0:
            raise ValueError(f"module must have parameters to train, got {type(module).__name__} without")
        self._data: dict[str, TorchInstances] = {"inner_cost": train, "outer_cost": val}
        self._penalties = {"inner_cost": penalty, "outer_cost": outer_penalty}
        self._symmetric = False  # whether a second derivative was seen to be
        self._independent: set[tuple[str, str, str]] = set()  # what has been asked for and depends on nothing
        self._alone: set[str] = set()  # costs that were seen to treat each instance by itself
        super().__init__(loss, outer_loss or loss, len(train.X), dim_x, dim_lam, train.counts)

    def __repr__(self) -> str:
        sizes = f"n_clients={self.n_clients}, dim_x={self.dim_x}, dim_lam={self.dim_lam}"
        return f"<{type(self).__name__} of a {type(self.module).__name__}: {sizes}>"

    def parameters(self) -> Array:
        """The module's own parameters, the same for every client: a point to start from.  # (n, d_x)"""
        import torch

        row = torch.nn.utils.parameters_to_vector(self._trained).detach()
        return row.repeat(self.n_clients, 1)

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        return self._cost("inner_cost", x, lam, batch)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        return self._cost("outer_cost", x, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        import torch

        return torch.cat([point.gradients(("x",))[0] for point in self._points("inner_cost", x, lam, batch)])

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        import torch

        each = [point.gradients(("x", "lam")) for point in self._points("outer_cost", x, lam)]
        along_x, along_lam = (torch.cat(parts) for parts in zip(*each, strict=True))
        return along_x, along_lam

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> ModuleLinearization:
        """The gradient with its graph, differentiated once more for each vector."""
        return ModuleLinearization(self, list(self._points("inner_cost", x, lam, batch)))

    def data_digest(self) -> str:
        """SHA-256 of the clients' data; see `digests`. The module and the losses are functions and leave no trace."""
        parts = [part for data in self._data.values() for part in (data.X, data.y, data.counts)]
        return digest(self, *parts)

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> TorchModuleProblem:
        """The same problem with some of its clients, a slice or indices."""
        which, some = client_indices(clients, self.n_clients), copy.copy(self)
        some._data = {name: data[which] for name, data in self._data.items()}
        some.clients, some.counts = self.clients[which], some._data["inner_cost"].counts
        some.n_clients = len(some.clients)
        return some

    def costs(self, name: str, x: Array, lam: Array, data: TorchInstances) -> Array:
        """The cost `name` of the clients of `data`, one call for all.  # (n,)"""
        from torch.func import vmap

        penalty = self._penalties[name]

        def one(x: Array, lam: Array, X: Array, y: Array, mean: Array) -> Array:
            each = self._losses(name, x, lam, X, y)
            _check_losses(name, each, mean)
            total = (mean * each).sum()
            return total if penalty is None else total + _scalar(name, penalty(x, lam))

        try:
            costs = vmap(one)(x, lam, data.X, data.y, data.mean(x))
        except RuntimeError as error:
            if self.module.training and any(word in str(error) for word in ("random", "in-place", "in place")):
                raise RuntimeError(
                    f"module must be in evaluation mode, {type(self.module).__name__} draws random numbers or changes "
                    "its buffers in training mode (dropout, running statistics), which one call for all clients "
                    f"cannot do; use module.eval() ({error})"
                ) from error
            raise
        self._check_alone(name, x, lam, data)
        return costs

    def _losses(self, name: str, x: Array, lam: Array, X: Array, y: Array) -> Array:
        """The loss of every instance of one client.  # (N,)"""
        from torch.func import functional_call

        parts = x.split([p.numel() for p in self._trained])
        own = [part.view(p.shape) for part, p in zip(parts, self._trained, strict=True)]
        values = {slot: own[k] for slot, k in self._slots.items()}
        values |= {
            slot: buffer.detach().clone() for slot, buffer in self.module.named_buffers()
        }  # a call may change them
        outputs = functional_call(self.module, values, (X,), tie_weights=False)
        return (self._inner if name == "inner_cost" else self._outer)(outputs, y, lam)

    def _check_alone(self, name: str, x: Array, lam: Array, data: TorchInstances) -> None:
        """ValueError where padding changes the losses of a client's own instances; one client with padding tells."""
        import torch

        if name in self._alone or (i := data.padded_client()) is None:
            return
        own = data.valid[i]
        with torch.no_grad():
            at = (name, x[i].detach(), lam[i].detach())
            padded, plain = (
                self._losses(*at, data.X[i], data.y[i])[own],
                self._losses(*at, data.X[i][own], data.y[i][own]),
            )
        near = torch.finfo(plain.dtype).eps ** 0.5
        if not torch.allclose(padded, plain, near, near * float(plain.abs().nan_to_num().max()), equal_nan=True):
            raise ValueError(
                f"{name}: module and loss must treat each instance by itself, but the loss of an instance changes with "
                "the others of its call (batch normalisation in training mode?), so that padding would change it; use "
                "module.eval(), clients of equal size, or costs that go client by client"
            )
        self._alone.add(name)

    def _cost(self, name: str, x: Array, lam: Array, batch: Array | None = None) -> Array:
        import torch

        with torch.no_grad():
            return torch.cat(
                [self.costs(name, p, q, data) for p, q, data in self._chunks(name, x.detach(), lam.detach(), batch)]
            )

    def _points(self, name: str, x: Array, lam: Array, batch: Array | None = None) -> Iterator[Point]:
        require_recording(name)
        for own_x, own_lam, data in self._chunks(name, x, lam, batch):
            yield Point(self, name, own_x, own_lam, data)

    def _chunks(self, name: str, x: Array, lam: Array,
                batch: Array | None) -> Iterator[tuple[Array, Array, TorchInstances]]:  # fmt: skip
        self._check(x, lam)
        self._check_batch(batch, x)
        whole = self._data[name]
        if whole.X.is_floating_point():
            validation.same_kind(x=x, X=whole.X)
        size = self.chunk or self.n_clients
        for start in range(0, self.n_clients, size):
            own = slice(start, start + size)
            yield x[own], lam[own], whole[own].select(None if batch is None else batch[own])


def _trained(module: Module) -> list[tuple[str, Any]]:
    """Names and parameters that require a gradient."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in trained:
        if not p.is_floating_point():
            raise TypeError(f"module must have real floating-point parameters, got {name} of {p.dtype}")
    return trained


def _slots(module: Module, trained: list[Any]) -> dict[str, int]:
    """Every place of the module that holds one of its trained parameters, and which of them.

    A parameter that two layers share has a place in each. A layer that the module has under two names is one layer
    with one place: `functional_call` would exchange its parameter twice, and leave the last one there.
    """
    number = {id(p): k for k, p in enumerate(trained)}
    return {
        f"{prefix}.{name}" if prefix else name: number[id(p)]
        for prefix, layer in module.named_modules()
        for name, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        if id(p) in number
    }


def _check_losses(name: str, each: Array, mean: Array) -> None:
    if tuple(getattr(each, "shape", (None,))) != tuple(mean.shape):
        returned = f"shape {tuple(each.shape)}" if hasattr(each, "shape") else type(each).__name__
        raise ValueError(
            f"{name}: the loss must return shape {tuple(mean.shape)}, one number per instance, got {returned}"
        )
    if each.dtype != mean.dtype:
        raise TypeError(f"{name}: the loss must return {mean.dtype} as x is, got {each.dtype}")


def _scalar(name: str, value: Array) -> Array:
    if tuple(getattr(value, "shape", (None,))) != ():
        returned = f"shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"{name}: the penalty must return a scalar of shape (), got {returned}")
    return value
