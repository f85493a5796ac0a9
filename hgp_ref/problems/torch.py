"""Costs written in PyTorch as a problem, with all derivatives by automatic differentiation.

    inner_cost(i, x_i, lam_i, batch_i) -> scalar g_i        i a Python int, x_i (dim_x,), lam_i (dim_lam,)
    outer_cost(i, x_i, lam_i) -> scalar f_i                 batch_i (b,) instance indices without padding, or None

The cost of client i depends on row i alone. One derivative of the sum of several costs therefore gives the gradients of
all these clients, and one derivative of ⟨∂_x Σ_i g_i, u⟩ gives H_i u_i and J_i u_i. Costs that are functions of one
client give a graph per client; a torch.nn.Module that runs under `vmap` gives one graph for many clients.

Two mistakes would give derivatives that are wrong without an error, so they are detected here:

- PyTorch reports a zero derivative for a cost without a graph to x, whether it is independent of x or detached. A cost
  that changes when x does has been detached.
- Some operations have a wrong second derivative (weight_norm in PyTorch 2.13). A Hessian must be symmetric.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, get_backend, to_host
from hgp_ref.problems.base import CURVATURES, Clients, array_mover, check_batch, client_indices
from hgp_ref.problems.instances import digest, require_existing
from hgp_ref.problems.torch_data import Data, TorchInstances, of_datasets, read_instances
from hgp_ref.validation import Function, Optional, check_memory, checked, returned_array

if TYPE_CHECKING:
    from torch.nn import Module

Cost = Callable[..., Array]
Loss = Callable[..., Array]  # (outputs, y) or (outputs, y, lam) ↦ (N,)
Penalty = Callable[..., Array]  # (x) or (x, lam) ↦ ()
ClientsAndCosts = tuple[slice, str, Cost]  # clients, whose they are ("client 3's"), and (x, lam) ↦ their costs (k,)


@overload
def from_torch(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
               counts: Sequence[int] | np.ndarray | None = None,
               curvature: str = "hessian") -> TorchProblem: ...  # fmt: skip


@overload
def from_torch(module: Module, loss: Loss, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None, *,
               dim_lam: int | None = None, outer_loss: Loss | None = None, penalty: Penalty | None = None,
               outer_penalty: Penalty | None = None, chunk: int | None = None,
               curvature: str = "hessian") -> TorchModuleProblem: ...  # fmt: skip


def from_torch(*args: Any, **options: Any) -> Any:
    """A problem from costs on torch tensors, or from a torch.nn.Module and the data of the clients that train it.

    from_torch(inner_cost, outer_cost, n_clients, dim_x, dim_lam, *, counts=None, curvature="hessian"): costs as above.
    counts (n,) are the instances of each client, needed for mini-batches.

    from_torch(module, loss, X, y=None, X_val=None, y_val=None, *, dim_lam=None, outer_loss=None, penalty=None,
    outer_penalty=None, chunk=None, curvature="hessian"): one call of torch.func's vmap computes all clients. Without
    dim_lam, λ weighs the training instances, as `influence` needs it:

        loss(outputs, y) -> (N,)    one number per instance; g_i is the mean of λ_ik loss_k. outputs (N, ...) of the
                                    module on N instances of one client, their y (N, ...)
        penalty(x) -> scalar        added to g_i; x (dim_x,) are the module's parameters in PyTorch's order

    With dim_lam, λ enters as you write it: loss(outputs, y, lam) and penalty(x, lam) with lam (dim_lam,), and g_i is
    the mean loss plus the penalty. In both cases f_i is the mean of outer_loss (default: `loss`) over X_val, y_val
    (default: X, y), plus outer_penalty.

    X and y are arrays (n, N, ...) or lists of n arrays (N_i, ...) of PyTorch or NumPy. Or X is a list of n Datasets or
    DataLoaders of pairs (input, label), and y is None. Such data are not copied: clients that are Subsets of one
    Dataset share it, and instances are read when they are needed, those of a mini-batch alone with `batches=`. They
    have fixed numbers, so a DataLoader must not shuffle. At most `chunk` clients share a call (default: all); memory
    for gradients grows with it. `to("torch", dtype, device)` moves data and module.

    With curvature="gauss-newton" the derivatives of the module count as constant in second derivatives along x. With
    J = ∂outputs/∂x the products are Jᵀ (∂²loss/∂outputs²) J u plus those with the Hessian of the penalty, positive
    semi-definite if loss and penalty are convex. Costs that are functions of one client must then be a `Composite`.

    Parameters with requires_grad=False are not part of x. The module runs in the mode it is in (train or eval). Modules
    that draw random numbers are refused. So are modules whose output for an instance depends on other instances, such
    as batch normalisation in training mode, if clients have different numbers of instances.

    RuntimeError is raised if a cost changes with x or lam but has no graph to it, if a second derivative is not
    symmetric, and for derivatives under torch.inference_mode().

    Examples
    --------
    >>> import torch
    >>> inner = lambda i, x, lam, batch=None: ((x - i) ** 2).sum() / 2 + lam[0] * (x**2).sum() / 2
    >>> problem = hgp.problems.from_torch(inner, lambda i, x, lam: x.sum(), n_clients=2, dim_x=3, dim_lam=1)
    >>> tuple(problem.inner_grad(torch.ones(2, 3), torch.zeros(2, 1)).shape)
    (2, 3)

    A module, with a weight on each of the five training instances of two clients:

    >>> X, y = torch.randn(2, 5, 4), torch.randint(3, (2, 5))
    >>> cross_entropy = lambda outputs, y: torch.nn.functional.cross_entropy(outputs, y, reduction="none")
    >>> hgp.problems.from_torch(torch.nn.Linear(4, 3), cross_entropy, X, y, penalty=lambda x: 0.1 * (x @ x))
    <TorchModuleProblem of a Linear: n_clients=2, dim_x=15, dim_lam=5>
    """
    get_backend("torch")  # an ImportError that names the extra
    import torch

    first = args[0] if args else options.get("module")
    third = args[2] if len(args) > 2 else None
    sized = "n_clients" in options or (hasattr(third, "__index__") and not hasattr(third, "shape"))
    of_module = isinstance(first, torch.nn.Module) and not sized  # a module may also be a cost
    if not of_module and ("X" in options or hasattr(third, "shape") or isinstance(third, list | tuple)):
        raise TypeError(f"module must be a torch.nn.Module with data X, got {type(first).__name__}")
    kind: Any = TorchModuleProblem if of_module else TorchProblem
    try:
        inspect.signature(kind).bind(*args, **options)
    except TypeError as error:
        form = "module, loss, X, y, ..." if of_module else "inner_cost, outer_cost, n_clients, dim_x, dim_lam, ..."
        raise TypeError(f"from_torch({form}): {error}") from None
    return kind(*args, **options)


@checked(outputs=Function(), loss=Function(), penalty=Optional(Function()))
@dataclass(frozen=True)
class Composite:
    """An inner cost whose model and loss are separate functions, as the Gauss–Newton matrix needs them.

        g_i(x, λ_i) = loss(i, outputs(i, x, batch), lam, batch) + penalty(i, x, lam).

    With J = ∂outputs/∂x, curvature="gauss-newton" of `from_torch` and `from_jax` multiplies by Jᵀ (∂²loss/∂z²) J plus
    the Hessian of the penalty. This is positive semi-definite if the loss is convex in z and the penalty in x.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> cost = hgp.problems.Composite(
    ...     outputs=lambda i, x, batch=None: jnp.tanh(x) * jnp.arange(1.0, 4.0),
    ...     loss=lambda i, z, lam, batch=None: jnp.sum((z - lam) ** 2) / 2,
    ... )
    >>> problem = hgp.problems.from_jax(cost, lambda i, x, lam: jnp.sum(x), 2, 3, 3, curvature="gauss-newton")
    >>> bool((problem.linearize(jnp.ones((2, 3)), jnp.zeros((2, 3))).hvp(jnp.ones((2, 3))) > 0).all())
    True
    """

    outputs: Callable[..., Any]
    loss: Callable[..., Any]
    penalty: Callable[..., Any] | None = None

    def __call__(self, i: int, x: Array, lam: Array, batch: Any = None) -> Array:
        """g_i."""
        data = self.loss(i, self.outputs(i, x, batch), lam, batch)
        return data if self.penalty is None else data + self.penalty(i, x, lam)


class ClientCosts:
    """Costs of single clients as a problem, for PyTorch and JAX: sizes, validation and restriction."""

    def __init__(self, inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int,
                 counts: Sequence[int] | np.ndarray | None = None, curvature: str = "hessian") -> None:  # fmt: skip
        self.curvature = validation.choice("curvature", curvature, CURVATURES)
        validation.function("inner_cost", inner_cost)
        validation.function("outer_cost", outer_cost)
        self.n_clients = validation.integer("n_clients", n_clients)
        self.dim_x, self.dim_lam = validation.integer("dim_x", dim_x), validation.integer("dim_lam", dim_lam)
        check_memory(
            f"n_clients={n_clients}, dim_x={dim_x}, dim_lam={dim_lam}", self.n_clients * (self.dim_x + self.dim_lam + 1)
        )
        self.counts = None if counts is None else _read_counts(counts, self.n_clients)
        self.clients = np.arange(self.n_clients)
        self._inner, self._outer = inner_cost, outer_cost

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: n_clients={self.n_clients}, dim_x={self.dim_x}, dim_lam={self.dim_lam}>"

    def restrict(self, clients: Clients) -> Any:
        """The same problem for some of its clients; costs are still called with the clients' original numbers."""
        which, part = client_indices(clients, self.n_clients), copy.copy(self)
        part.clients = self.clients[which]
        part.n_clients = len(part.clients)
        part.counts = None if self.counts is None else self.counts[which]
        return part

    def _check(self, x: Array, lam: Array, batch: Array | None = None) -> None:
        validation.same_kind(x=x, lam=lam)
        self._check_shape("x", x, self.dim_x)
        self._check_shape("lam", lam, self.dim_lam)
        if batch is None:
            return
        if self.counts is None:
            raise ValueError("batch must be None for a problem without counts, got an array; pass counts=...")
        if check_batch(batch, x, self.n_clients):
            raise ValueError(f"batch must have shape ({self.n_clients}, b), b >= 1, got {tuple(batch.shape)}")
        require_existing(to_host(batch), self.counts)  # JAX would use the last instance in place of a missing one

    def _check_shape(self, name: str, a: Array, d: int) -> None:
        if tuple(a.shape) != (self.n_clients, d):
            raise ValueError(f"{name} must have shape {(self.n_clients, d)}, got {tuple(a.shape)}")

    def _cost_of(self, name: str, i: int, x: Array, lam: Array, batch: Any) -> Array:
        """The cost `name` of client i at its rows of x and lam; batch[i] are its indices without padding."""
        number = int(self.clients[i])
        if name == "outer_cost":
            return scalar_cost(name, number, self._outer(number, x, lam))
        return scalar_cost(name, number, self._inner(number, x, lam, None if batch is None else batch[i]))


def check_costs(inner_cost: Cost, outer_cost: Cost, curvature: str) -> None:
    """TypeError unless both can be called as costs of one client, and have the parts that the curvature needs."""
    validation.check_signature("inner_cost", inner_cost, "i", "x", "lam", "batch")
    validation.check_signature("outer_cost", outer_cost, "i", "x", "lam")
    if curvature == "gauss-newton" and not isinstance(inner_cost, Composite):
        raise TypeError(
            "inner_cost must be a hgp.problems.Composite(outputs, loss) for curvature='gauss-newton', got "
            f"{type(inner_cost).__name__}"
        )


def scalar_cost(name: str, client: int | str, cost: Array) -> Array:
    """What the cost of a client returned, which must be an array with one real floating-point number."""
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


# ------------------------------------------------------------------------------------- derivatives of groups of clients


@dataclass(frozen=True)
class Member:
    """Neighbouring clients whose costs are one function of their rows of x and lam."""

    costs: Cost  # (x, lam) ↦ (k,)
    leaves: dict[str, Array]  # their rows "x" and "lam" at the point, from which graphs start
    owner: str  # for messages: "client 3's" or "the"

    def slope(self, x: Array, lam: Array) -> Array:
        """∂_x of the costs at any point, without a graph."""
        import torch

        x = _leaf(x)
        with torch.enable_grad():
            costs = self.costs(x, lam.detach())
        if not costs.requires_grad:
            return torch.zeros_like(x)
        (slope,) = torch.autograd.grad(costs, x, torch.ones_like(costs), allow_unused=True)
        return torch.zeros_like(x) if slope is None else slope


class Group:
    """Clients that are differentiated by one call of PyTorch, for one of the two costs at a point."""

    def __init__(self, name: str, members: list[Member], independent: set[tuple[str, ...]]) -> None:
        self._name, self._members = name, members
        self._independent = independent  # derivatives that are known to be zero
        self.slope: Array = None  # ∂_x of the costs with its graph, once it is recorded

    def gradients(self, along: tuple[str, ...], *, create_graph: bool = False) -> list[Array]:
        """The derivatives of the costs along "x", "lam" or both; `create_graph` records their own graph."""
        import torch

        with torch.enable_grad():
            costs = torch.cat([member.costs(**member.leaves) for member in self._members])
        return self._differentiate(costs, along, "derivative", create_graph=create_graph, retain_graph=create_graph)

    def products(self, along: tuple[str, ...], u: Array) -> list[Array]:
        """The derivatives of ⟨∂_x g_i, u_i⟩ along "x", "lam" or both: H_i u_i and J_i u_i."""
        import torch

        with torch.enable_grad():
            product = (self.slope * u).sum()
        return self._differentiate(product, along, "second derivative", create_graph=False, retain_graph=True)

    def _differentiate(self, value: Array, along: tuple[str, ...], order: str, **graphs: bool) -> list[Array]:
        """The derivatives of the sum of `value`; zero where no graph leads from it to a leaf."""
        import torch

        targets = [(member, name) for name in along for member in self._members]
        leaves = [member.leaves[name] for member, name in targets]
        rows: list[Any] = [None] * len(leaves)
        if value.requires_grad:
            rows = list(torch.autograd.grad(value, leaves, torch.ones_like(value), allow_unused=True, **graphs))
        for k, (member, name) in enumerate(targets):
            if rows[k] is None:
                self._require_independent(member, name, order)
                rows[k] = torch.zeros_like(leaves[k])
        size = len(self._members)
        with torch.set_grad_enabled(graphs["create_graph"]):
            return [torch.cat(rows[k * size : (k + 1) * size]) for k in range(len(along))]

    def _require_independent(self, member: Member, name: str, order: str) -> None:
        """RuntimeError if a cost changes with `name`, although there is no graph from one to the other."""
        key = (self._name, member.owner, order, name)
        if key in self._independent:
            return
        point = {key: a.detach() for key, a in member.leaves.items()}
        function = member.costs if order == "derivative" else member.slope
        if _changes(lambda a: function(**{**point, name: a}), point[name]):
            raise RuntimeError(
                f"{self._name}: {member.owner} cost changes with {name}, but carries no graph to it (detached, or "
                f"computed under no_grad, in integers or outside of PyTorch): its {order} would be zero"
            )
        self._independent.add(key)


def _leaf(a: Array) -> Array:
    """A copy of `a` from which graphs start."""
    return a.detach().clone().requires_grad_(True)


def _changes(function: Callable[[Array], Array], a: Array) -> bool:
    """Whether `function` depends on its argument; False if it differs between two calls with the same argument."""
    import torch

    with torch.no_grad():
        value, again, other = (
            function(b).detach() for b in (a, a.clone(), a + 0.5 * (1 + a.abs()) * _generic_direction(a))
        )
    return _same(value, again) and not _same(value, other)


def _same(a: Array, b: Array) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan())


def _generic_direction(like: Array) -> Array:
    """Numbers in [-1, 1] without any structure that a problem could share."""
    import torch

    k = torch.arange(like.numel(), dtype=like.dtype, device=like.device).reshape(like.shape)
    return torch.cos(1 + k * k)


class TorchCosts(ClientCosts):
    """A problem on torch tensors, whose clients are differentiated group by group."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._symmetric = False  # whether a second derivative was found to be symmetric
        self._independent: set[tuple[str, ...]] = set()  # derivatives that are known to be zero

    def _groups(self, name: str, x: Array, batch: Array | None) -> Iterator[list[ClientsAndCosts]]:
        """All clients in order, with the function (x, lam) ↦ their costs `name`; a list is differentiated at once."""
        raise NotImplementedError

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        return self._costs("inner_cost", x, lam, batch)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        return self._costs("outer_cost", x, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._gradients("inner_cost", ("x",), x, lam, batch)[0]

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        f_x, f_lam = self._gradients("outer_cost", ("x", "lam"), x, lam)
        return f_x, f_lam

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> TorchLinearization:
        """The gradient with its graph, which is differentiated once more for each vector."""
        groups = list(self._points("inner_cost", x, lam, batch))
        if self.curvature == "hessian":
            return TorchLinearization(self, groups)
        return GaussNewtonLinearization(self, groups, list(self._composites(x.detach(), lam.detach(), batch)))

    def _composites(self, x: Array, lam: Array, batch: Array | None) -> Iterator[Factors]:
        """All clients in order, with their outputs, losses and penalties as functions."""
        raise NotImplementedError

    def _check(self, x: Array, lam: Array, batch: Array | None = None) -> None:
        import torch

        super()._check(x, lam, batch)
        if not isinstance(x, torch.Tensor):
            validation.wrong_type("x and lam", x, "tensors of PyTorch like the costs")

    def _costs(self, name: str, x: Array, lam: Array, batch: Array | None = None) -> Array:
        import torch

        self._check(x, lam, batch)
        with torch.no_grad():
            groups = self._groups(name, x, batch)
            return torch.cat(
                [costs(x[rows].detach(), lam[rows].detach()) for group in groups for rows, _, costs in group]
            )

    def _gradients(self, name: str, along: tuple[str, ...], x: Array, lam: Array, batch: Array | None = None) -> Any:
        import torch

        parts = [point.gradients(along) for point in self._points(name, x, lam, batch)]
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]

    def _points(self, name: str, x: Array, lam: Array, batch: Array | None) -> Iterator[Group]:
        import torch

        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{name} must be differentiated outside of torch.inference_mode(), in which PyTorch records no graph "
                "and every derivative would be zero (torch.no_grad() is fine)"
            )
        self._check(x, lam, batch)
        for group in self._groups(name, x, batch):
            members = [
                Member(costs, {"x": _leaf(x[rows]), "lam": _leaf(lam[rows])}, owner) for rows, owner, costs in group
            ]
            yield Group(name, members, self._independent)


class TorchLinearization:
    """H_i u_i and J_i u_i, by pulling u back through the recorded graph of ∂_x g."""

    def __init__(self, problem: TorchCosts, groups: list[Group]) -> None:
        self._problem, self._groups = problem, groups
        for group in groups:
            (group.slope,) = group.gradients(("x",), create_graph=True)

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (n, d_x)"""
        return self._check_symmetry(u, self._pull(("x",), u)[0])

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (n, d_λ)"""
        return self._pull(("lam",), u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass through the graph."""
        Hu, Ju = self._pull(("x", "lam"), u)
        return self._check_symmetry(u, Hu), Ju

    def _pull(self, along: tuple[str, ...], u: Array) -> list[Array]:
        import torch

        slopes = [group.slope for group in self._groups]
        validation.same_kind(x=slopes[0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        vectors = u.detach().split([len(slope) for slope in slopes])
        parts = [group.products(along, vector) for group, vector in zip(self._groups, vectors, strict=True)]
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]

    def _check_symmetry(self, u: Array, Hu: Array) -> Array:
        """Hu, after a check that ⟨H u, v⟩ = ⟨u, H v⟩ for some v; once per problem."""
        import torch

        if self._problem._symmetric or not bool(Hu.any()):
            return Hu
        v = _generic_direction(u)
        (Hv,) = self._pull(("x",), v)
        difference = ((Hu * v).sum(1) - (u * Hv).sum(1)).abs()
        size = Hu.norm(dim=1) * v.norm(dim=1) + u.norm(dim=1) * Hv.norm(dim=1)
        if bool((difference > torch.finfo(u.dtype).eps ** 0.5 * size).any()):
            raise RuntimeError(
                "inner_cost: the Hessian from PyTorch is not symmetric, so some operation has a wrong second "
                "derivative (weight_norm does in PyTorch 2.13); use operations that can be differentiated twice"
            )
        self._problem._symmetric = True
        return Hu


@dataclass(frozen=True)
class Factors:
    """Neighbouring clients whose rows x have outputs z(x), a total loss of z, and a total penalty on x."""

    x: Array
    outputs: Callable[[Array], Array]
    loss: Callable[[Array], Array]
    penalty: Callable[[Array], Array] | None

    def product(self, u: Array) -> Array:
        """Jᵀ (∂²loss/∂z²) J u + ∂²penalty u, by derivatives in reverse mode alone, which every module has."""
        from torch.func import grad, vjp

        pulled: Any = vjp(self.outputs, self.x)
        z, pull = pulled
        (Ju,) = vjp(lambda c: pull(c)[0], z.detach())[1](u)  # c ↦ Jᵀ c is linear, and its transpose is J
        (c_dot,) = vjp(grad(self.loss), z.detach())[1](Ju)
        (product,) = pull(c_dot)
        if self.penalty is None:
            return product.detach()
        return (product + vjp(grad(self.penalty), self.x)[1](u)[0]).detach()


class GaussNewtonLinearization(TorchLinearization):
    """Products with the Gauss–Newton matrix, and J_i u_i as before."""

    def __init__(self, problem: TorchCosts, groups: list[Group], factors: list[Factors]) -> None:
        super().__init__(problem, groups)
        self._factors = factors

    def hvp(self, u: Array) -> Array:
        """The Gauss–Newton matrix of each client times u_i.  # (n, d_x)"""
        import torch

        validation.same_kind(x=self._factors[0].x, u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        parts = u.detach().split([len(part.x) for part in self._factors])
        return torch.cat([factors.product(part) for factors, part in zip(self._factors, parts, strict=True)])

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u)."""
        return self.hvp(u), self.cross(u)


class TorchProblem(TorchCosts):
    """Costs as functions of one client; see `from_torch`. Each client has leaves of its own."""

    def __init__(self, inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
                 counts: Sequence[int] | np.ndarray | None = None, curvature: str = "hessian") -> None:  # fmt: skip
        check_costs(inner_cost, outer_cost, curvature)
        super().__init__(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts, curvature)

    def _composites(self, x: Array, lam: Array, batch: Array | None) -> Iterator[Factors]:
        cost: Any = self._inner
        for i in range(self.n_clients):
            number, chosen = int(self.clients[i]), None if batch is None else batch[i][batch[i] >= 0]

            def outputs(x: Array, number: int = number, chosen: Any = chosen) -> Array:
                return cost.outputs(number, x[0], chosen)

            def loss(z: Array, i: int = i, number: int = number, chosen: Any = chosen) -> Array:
                return cost.loss(number, z, lam[i], chosen)

            def penalty(x: Array, i: int = i, number: int = number) -> Array:
                return cost.penalty(number, x[0], lam[i])

            yield Factors(x[i : i + 1], outputs, loss, None if cost.penalty is None else penalty)

    def _groups(self, name: str, x: Array, batch: Array | None) -> Iterator[list[ClientsAndCosts]]:
        indices = None if batch is None else [row[row >= 0] for row in batch]

        def costs_of(i: int) -> Cost:
            return lambda x, lam: self._cost_of(name, i, x[0], lam[0], indices).reshape(1)

        yield [(slice(i, i + 1), f"client {self.clients[i]}'s", costs_of(i)) for i in range(self.n_clients)]


# ------------------------------------------------------------------------------------------ clients that train a module


class TorchModuleProblem(TorchCosts):
    """Clients that train a torch.nn.Module; see `from_torch`. Up to `chunk` clients are one call and share a graph.

        g_i(x_i, λ_i) = Σ_k mean_ik loss(net(X_i; x_i), y_i, λ_i)_k + penalty(x_i, λ_i)
        f_i(x_i, λ_i) = Σ_k mean'_ik outer_loss(net(X'_i; x_i), y'_i, λ_i)_k + outer_penalty(x_i, λ_i)

    Without dim_lam, λ_ik weighs instance k and is not an argument of the functions. x_i holds the trained parameters in
    the order of `torch.nn.utils.parameters_to_vector`.
    """

    def __init__(self, module: Module, loss: Loss, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None, *,
                 dim_lam: int | None = None, outer_loss: Loss | None = None, penalty: Penalty | None = None,
                 outer_penalty: Penalty | None = None, chunk: int | None = None,
                 curvature: str = "hessian") -> None:  # fmt: skip
        functions = {"loss": loss, "outer_loss": outer_loss, "penalty": penalty, "outer_penalty": outer_penalty}
        self.weighs_instances: bool | None = True if dim_lam is None else None  # None: see `Problem`
        for name, function in functions.items():
            if not callable(function) and (function is not None or name == "loss"):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
            if function is not None:
                first = ("x",) if "penalty" in name else ("outputs", "y")
                _require_arguments(name, function, first if self.weighs_instances else (*first, "lam"))
        if (X_val is None) != (y_val is None) and not of_datasets(X_val):
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"X_val and y_val must be passed together, got {missing}=None")
        self.chunk = None if chunk is None else validation.integer("chunk", chunk)
        self._set_module(module)
        train = read_instances(("X", "y"), X, y)
        val = train if X_val is None else read_instances(("X_val", "y_val"), X_val, y_val)
        if len(val.counts) != len(train.counts):
            raise ValueError(f"X_val must have {len(train.counts)} clients like X, got {len(val.counts)}")
        dim_x = sum(p.numel() for p in self._trained)
        if dim_x == 0:
            raise ValueError(f"module must have parameters to train, got {type(module).__name__}, which has none")
        self._data: dict[str, Data] = {"inner_cost": train, "outer_cost": val}
        self._losses = {"inner_cost": loss, "outer_cost": outer_loss or loss}
        self._penalties = {"inner_cost": penalty, "outer_cost": outer_penalty}
        self._separable: set[str] = set()  # costs whose instances were found not to depend on each other
        if dim_lam is None:
            dim_lam = int(train.counts.max())
        super().__init__(loss, outer_loss or loss, len(train.counts), dim_x, dim_lam, train.counts, curvature)

    def _set_module(self, module: Module) -> None:
        self.module, self._trained = module, _trained(module)
        self._slots = _slots(module, self._trained)

    def __repr__(self) -> str:
        sizes = f"n_clients={self.n_clients}, dim_x={self.dim_x}, dim_lam={self.dim_lam}"
        return f"<{type(self).__name__} of a {type(self.module).__name__}: {sizes}>"

    def parameters(self) -> Array:
        """The parameters of the module, the same for every client: a point to start from.  # (n, d_x)"""
        import torch

        row = torch.nn.utils.parameters_to_vector(self._trained).detach()
        return row.repeat(self.n_clients, 1)

    def data_digest(self) -> str:
        """SHA-256 of the clients' data. The module and the losses are functions and do not enter."""
        clients = ([data[i : i + 1] for i in range(self.n_clients)] for data in self._data.values())
        return digest(self, *(digest(self, *client.clients()[0]) for part in clients for client in part))

    def to(self, target: Any, dtype: Any = None, device: Any = None) -> TorchModuleProblem:
        """The same problem with its data and a copy of its module on another device, or of another dtype.

        `target` is "torch" or a tensor; `device` belongs to "torch", as in `hgp.backend.get_backend`.
        """
        import torch

        move = array_mover(target, dtype, device)
        parameters = move(self._trained[0])
        if not isinstance(parameters, torch.Tensor):
            raise TypeError(f"target must be 'torch' or a tensor, since the module runs in PyTorch, got {target!r}")
        other = copy.copy(self)
        other._set_module(copy.deepcopy(self.module).to(device=parameters.device, dtype=parameters.dtype))
        other._data = {name: data.to(move) for name, data in self._data.items()}
        return other

    def restrict(self, clients: Clients) -> TorchModuleProblem:
        """The same problem for some of its clients, a slice or indices."""
        part = super().restrict(clients)
        which = client_indices(clients, self.n_clients)
        part._data = {name: data[which] for name, data in self._data.items()}
        return part

    @property
    def validation_counts(self) -> np.ndarray:
        """Validation instances of each client, on the host.  # (n,)"""
        return self._data["outer_cost"].counts

    def validation_grad(self, x: Array, lam: Array, batch: Array) -> Array:
        """The gradient of the mean of outer_loss on a mini-batch (n, b) of validation instances.  # (n, d_x)"""
        alone = copy.copy(self)
        alone.counts, alone._penalties = self.validation_counts, {**self._penalties, "outer_cost": None}
        return alone._gradients("outer_cost", ("x",), x, lam, batch)[0]

    def _groups(self, name: str, x: Array, batch: Array | None) -> Iterator[list[ClientsAndCosts]]:
        whole = self._data[name]
        if whole.X.is_floating_point():
            validation.same_kind(x=x, X=whole.X)

        def costs_of(data: TorchInstances) -> Cost:
            return lambda x, lam: self._mapped_costs(name, x, lam, data)

        for clients, data in self._chunks(name, batch):
            yield [(clients, "the", costs_of(data))]

    def _chunks(self, name: str, batch: Array | None) -> Iterator[tuple[slice, TorchInstances]]:
        """The clients that share a call, with their instances for the cost `name`."""
        size = self.chunk or self.n_clients
        for start in range(0, self.n_clients, size):
            clients = slice(start, start + size)
            yield clients, self._data[name][clients].select(None if batch is None else batch[clients])

    def _composites(self, x: Array, lam: Array, batch: Array | None) -> Iterator[Factors]:
        from torch.func import vmap

        penalty = self._penalties["inner_cost"]
        for rows, data in self._chunks("inner_cost", batch):

            def outputs(x: Array, data: TorchInstances = data) -> Array:
                return vmap(self._outputs)(x, data.X)

            def loss(z: Array, data: TorchInstances = data, rows: slice = rows) -> Array:
                losses = vmap(partial(self._of_outputs, "inner_cost"))(z, data.y, lam[rows])
                return (self._weight("inner_cost", lam[rows], data, losses) * losses).sum()

            def penalties(x: Array, rows: slice = rows) -> Array:
                return vmap(partial(self._penalty, "inner_cost"))(x, lam[rows]).sum()

            yield Factors(x[rows], outputs, loss, None if penalty is None else penalties)

    def _mapped_costs(self, name: str, x: Array, lam: Array, data: TorchInstances) -> Array:
        """The cost `name` of the clients of `data`, by one call of vmap.  # (n,)"""
        import torch
        from torch.func import vmap

        def cost(x: Array, lam: Array, X: Array, y: Array, weight: Array) -> Array:
            try:
                losses = self._instance_losses(name, x, lam, X, y)
            except ValueError as error:  # of a loss whose outputs and labels have different shapes
                raise RuntimeError(str(error)) from error
            if getattr(losses, "shape", None) == () != weight.shape:
                raise ValueError(
                    f"{name}.loss must return shape {tuple(weight.shape)}, got (): one number per instance, as losses "
                    "of PyTorch return with reduction='none'"
                )
            returned_array("loss", losses, tuple(weight.shape), like=weight, owner=name)
            total = (weight * losses).sum()
            if self._penalties[name] is None:
                return total
            return total + returned_array("penalty", self._penalty(name, x, lam), (), owner=name)

        try:
            costs = vmap(cost)(x, lam, data.X, data.y, self._weight(name, lam, data, x))
        except (RuntimeError, IndexError) as error:
            if self.module.training and any(reason in str(error) for reason in ("random", "in-place", "in place")):
                raise RuntimeError(
                    f"module must be in evaluation mode, {type(self.module).__name__} draws random numbers or changes "
                    "its buffers in training mode (dropout, running statistics), which one call for all clients "
                    f"cannot do; use module.eval() ({error})"
                ) from error
            if isinstance(error, torch.OutOfMemoryError):
                raise
            (X, y) = (f"{tuple(a.shape[1:])} {a.dtype}" for a in (data.X, data.y))
            raise RuntimeError(
                f"{name}: module and loss must take the inputs and labels of a client, got inputs {X}, labels {y} and "
                f"this error: {error}"
            ) from error
        self._check_separable(name, x, lam, data)
        return costs

    def _instance_losses(self, name: str, x: Array, lam: Array, X: Array, y: Array) -> Array:
        """The loss of every instance of one client.  # (N,)"""
        return self._of_outputs(name, self._outputs(x, X), y, lam)

    def _of_outputs(self, name: str, outputs: Array, y: Array, lam: Array) -> Array:
        return self._losses[name](outputs, y) if self.weighs_instances else self._losses[name](outputs, y, lam)

    def _penalty(self, name: str, x: Array, lam: Array) -> Array:
        penalty: Any = self._penalties[name]
        return penalty(x) if self.weighs_instances else penalty(x, lam)

    def _weight(self, name: str, lam: Array, data: TorchInstances, like: Array) -> Array:
        """The weight of each instance in the sum of losses, 0 for padding.  # (n, N)"""
        mean = data.mean(like)
        return mean * data.pick(lam) if self.weighs_instances and name == "inner_cost" else mean

    def _outputs(self, x: Array, X: Array) -> Array:
        """The outputs of the module on the instances X of one client.  # (N, ...)"""
        from torch.func import functional_call

        parts = x.split([p.numel() for p in self._trained])
        parameters = [part.view(p.shape) for part, p in zip(parts, self._trained, strict=True)]
        values = {slot: parameters[k] for slot, k in self._slots.items()}
        for slot, buffer in self.module.named_buffers():
            values[slot] = buffer.detach().clone()  # a call may change it
        return functional_call(self.module, values, (X,), tie_weights=False)

    def _check_separable(self, name: str, x: Array, lam: Array, data: TorchInstances) -> None:
        """ValueError if padding changes the losses of a client's instances; tested once, for one padded client."""
        import torch

        if name in self._separable or (i := data.padded_client()) is None:
            return
        valid = data.valid[i]
        with torch.no_grad():
            point = (name, x[i].detach(), lam[i].detach())
            padded = self._instance_losses(*point, data.X[i], data.y[i])[valid]
            plain = self._instance_losses(*point, data.X[i][valid], data.y[i][valid])
        tolerance = torch.finfo(plain.dtype).eps ** 0.5
        scale = float(plain.abs().nan_to_num().max())
        if not torch.allclose(padded, plain, tolerance, tolerance * scale, equal_nan=True):
            raise ValueError(
                f"{name}: module and loss must treat each instance by itself, but the loss of an instance changes with "
                "the others of its call (batch normalisation in training mode?), so that padding would change it; use "
                "module.eval(), clients of equal size, or costs that are functions of one client"
            )
        self._separable.add(name)


def _require_arguments(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """TypeError if a function, or the forward of a module, cannot be called with `arguments`."""
    import torch

    called = function.forward if isinstance(function, torch.nn.Module) else function
    where = "with dim_lam" if "lam" in arguments else "where lam weighs instances, or dim_lam be given"
    try:
        inspect.signature(called).bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function of ({', '.join(arguments)}) {where}, "
            f"got {getattr(function, '__name__', type(function).__name__)}{inspect.signature(called)}"
        ) from error
    except ValueError:
        return  # a function without a signature


def _trained(module: Module) -> list[Any]:
    """The parameters that require a gradient."""
    from torch.nn.parameter import is_lazy

    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in trained:
        if is_lazy(p):
            raise ValueError(f"module must have initialised parameters, got {name} without a shape; call it once")
        if not p.is_floating_point():
            raise TypeError(f"module must have real floating-point parameters, got {name} of {p.dtype}")
    return [p for _, p in trained]


def _slots(module: Module, trained: list[Any]) -> dict[str, int]:
    """Every attribute of the module that holds a trained parameter, and the position of that parameter in `trained`.

    A parameter that two layers share has an attribute in each. A layer that the module has under two names is listed
    once: `functional_call` would otherwise replace its parameter twice, and leave the last replacement there.
    """
    number = {id(p): k for k, p in enumerate(trained)}
    return {
        f"{prefix}.{name}" if prefix else name: number[id(p)]
        for prefix, layer in module.named_modules()
        for name, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        if id(p) in number
    }
