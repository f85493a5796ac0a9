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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, get_backend, to_host
from hgp_ref.problems.base import Clients, check_batch, client_indices
from hgp_ref.problems.instances import digest, require_existing
from hgp_ref.validation import check_memory, returned_array

if TYPE_CHECKING:
    from torch.nn import Module

Cost = Callable[..., Array]
Loss = Callable[[Array, Array, Array], Array]
Penalty = Callable[[Array, Array], Array]
ClientsAndCosts = tuple[slice, str, Cost]  # clients, whose they are ("client 3's"), and (x, lam) ↦ their costs (k,)


@overload
def from_torch(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
               counts: Sequence[int] | np.ndarray | None = None) -> TorchProblem: ...  # fmt: skip


@overload
def from_torch(module: Module, loss: Loss, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, dim_lam: int,
               outer_loss: Loss | None = None, penalty: Penalty | None = None, outer_penalty: Penalty | None = None,
               chunk: int | None = None) -> TorchModuleProblem: ...  # fmt: skip


def from_torch(*args: Any, **options: Any) -> Any:
    """A problem from costs on torch tensors, or from a torch.nn.Module and the data of the clients that train it.

    from_torch(inner_cost, outer_cost, n_clients, dim_x, dim_lam, *, counts=None): costs as above. counts (n,) are the
    instances of each client, needed for mini-batches.

    from_torch(module, loss, X, y, X_val=None, y_val=None, *, dim_lam, outer_loss=None, penalty=None,
    outer_penalty=None, chunk=None): one call of torch.func's vmap computes all clients. λ enters as you write it:

        loss(outputs, y, lam) -> (N,)    one number per instance; g_i is their mean. outputs (N, ...) of the module on
                                         N instances of one client, their y (N, ...), lam (dim_lam,)
        penalty(x, lam) -> scalar        added to g_i; x (dim_x,) are the module's parameters in PyTorch's order

    f_i is the mean of outer_loss (default: `loss`) over X_val, y_val (default: X, y), plus outer_penalty. X and y are
    arrays (n, N, ...) or lists of n arrays (N_i, ...) of PyTorch or NumPy. An instance that needs a λ of its own can
    carry its number in y. At most `chunk` clients share a call (default: all); memory for gradients grows with it.

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
    """
    get_backend("torch")  # an ImportError that names the extra
    import torch

    first = args[0] if args else options.get("module")
    third = args[2] if len(args) > 2 else None
    sized = "n_clients" in options or (hasattr(third, "__index__") and not hasattr(third, "shape"))
    if isinstance(first, torch.nn.Module) and not sized:  # a module may also be a cost
        return TorchModuleProblem(*args, **options)
    if "X" in options or hasattr(third, "shape") or isinstance(third, list | tuple):
        raise TypeError(f"module must be a torch.nn.Module with data X, got {type(first).__name__}")
    return TorchProblem(*args, **options)


class ClientCosts:
    """Costs of single clients as a problem, for PyTorch and JAX: sizes, validation and restriction."""

    def __init__(self, inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int,
                 counts: Sequence[int] | np.ndarray | None = None) -> None:  # fmt: skip
        for name, cost in (("inner_cost", inner_cost), ("outer_cost", outer_cost)):
            if not callable(cost):
                raise TypeError(f"{name} must be a function, got {type(cost).__name__}")
        self.n_clients = validation.integer("n_clients", n_clients)
        self.dim_x, self.dim_lam = validation.integer("dim_x", dim_x), validation.integer("dim_lam", dim_lam)
        check_memory(
            f"n_clients={n_clients}, dim_x={dim_x}, dim_lam={dim_lam}", self.n_clients * (self.dim_x + self.dim_lam + 1)
        )
        self.counts = None if counts is None else _read_counts(counts, self.n_clients)
        self.clients = np.arange(self.n_clients)
        self._inner, self._outer = inner_cost, outer_cost

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
            raise ValueError("batch must be None, the problem was made without counts; pass counts=...")
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
        return TorchLinearization(self, list(self._points("inner_cost", x, lam, batch)))

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
                "inner_cost: its second derivative by PyTorch is not symmetric, so an operation in it has a wrong one "
                "(weight_norm has in PyTorch 2.13); use operations that can be differentiated twice"
            )
        self._problem._symmetric = True
        return Hu


class TorchProblem(TorchCosts):
    """Costs as functions of one client; see `from_torch`. Each client has leaves of its own."""

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

    x_i holds the trained parameters in the order of `torch.nn.utils.parameters_to_vector`.
    """

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
        self.module, self._trained = module, _trained(module)
        self._slots = _slots(module, self._trained)
        self.chunk = None if chunk is None else validation.integer("chunk", chunk)
        train = read_tensors(("X", "y"), X, y)
        val = train if X_val is None else read_tensors(("X_val", "y_val"), X_val, y_val)
        if len(val.X) != len(train.X):
            raise ValueError(f"X_val must have {len(train.X)} clients as X, got {len(val.X)}")
        dim_x = sum(p.numel() for p in self._trained)
        if dim_x == 0:
            raise ValueError(f"module must have parameters to train, got {type(module).__name__} without")
        self._data = {"inner_cost": train, "outer_cost": val}
        self._losses = {"inner_cost": loss, "outer_cost": outer_loss or loss}
        self._penalties = {"inner_cost": penalty, "outer_cost": outer_penalty}
        self._separable: set[str] = set()  # costs whose instances were found not to depend on each other
        super().__init__(loss, outer_loss or loss, len(train.X), dim_x, dim_lam, to_host(train.counts))

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
        return digest(self, *(part for data in self._data.values() for part in (data.X, data.y, to_host(data.counts))))

    def restrict(self, clients: Clients) -> TorchModuleProblem:
        """The same problem for some of its clients, a slice or indices."""
        part = super().restrict(clients)
        which = client_indices(clients, self.n_clients)
        part._data = {name: data[which] for name, data in self._data.items()}
        return part

    def _groups(self, name: str, x: Array, batch: Array | None) -> Iterator[list[ClientsAndCosts]]:
        whole = self._data[name]
        if whole.X.is_floating_point():
            validation.same_kind(x=x, X=whole.X)

        def costs_of(data: TorchInstances) -> Cost:
            return lambda x, lam: self._mapped_costs(name, x, lam, data)

        size = self.chunk or self.n_clients
        for start in range(0, self.n_clients, size):
            clients = slice(start, start + size)
            data = whole[clients].select(None if batch is None else batch[clients])
            yield [(clients, "the", costs_of(data))]

    def _mapped_costs(self, name: str, x: Array, lam: Array, data: TorchInstances) -> Array:
        """The cost `name` of the clients of `data`, by one call of vmap.  # (n,)"""
        from torch.func import vmap

        penalty = self._penalties[name]

        def cost(x: Array, lam: Array, X: Array, y: Array, mean: Array) -> Array:
            losses = self._instance_losses(name, x, lam, X, y)
            returned_array("loss", losses, tuple(mean.shape), like=mean, owner=name)
            total = (mean * losses).sum()
            return total if penalty is None else total + returned_array("penalty", penalty(x, lam), (), owner=name)

        try:
            costs = vmap(cost)(x, lam, data.X, data.y, data.mean(x))
        except RuntimeError as error:
            if self.module.training and any(reason in str(error) for reason in ("random", "in-place", "in place")):
                raise RuntimeError(
                    f"module must be in evaluation mode, {type(self.module).__name__} draws random numbers or changes "
                    "its buffers in training mode (dropout, running statistics), which one call for all clients "
                    f"cannot do; use module.eval() ({error})"
                ) from error
            raise
        self._check_separable(name, x, lam, data)
        return costs

    def _instance_losses(self, name: str, x: Array, lam: Array, X: Array, y: Array) -> Array:
        """The loss of every instance of one client.  # (N,)"""
        from torch.func import functional_call

        parts = x.split([p.numel() for p in self._trained])
        parameters = [part.view(p.shape) for part, p in zip(parts, self._trained, strict=True)]
        values = {slot: parameters[k] for slot, k in self._slots.items()}
        for slot, buffer in self.module.named_buffers():
            values[slot] = buffer.detach().clone()  # a call may change it
        return self._losses[name](functional_call(self.module, values, (X,), tie_weights=False), y, lam)

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


def _trained(module: Module) -> list[Any]:
    """The parameters that require a gradient."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in trained:
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


@dataclass(frozen=True)
class TorchInstances:
    """Instances of n clients, padded to one length.

    Padding repeats an instance of the same client: if the loss of that one is finite, so is the loss of the padding,
    and its weight zero removes it.
    """

    X: Array  # (n, N, ...)
    y: Array  # (n, N, ...)
    counts: Array  # (n,) instances of each client
    valid: Array  # (n, N) False for padding

    def mean(self, like: Array) -> Array:
        """The weight of each instance in the mean of its client, 0 for padding.  # (n, N)"""
        return self.valid.to(like.dtype) / self.valid.sum(1, keepdim=True).clamp(min=1)

    def padded_client(self) -> int | None:
        """Of the clients with padding, one with most instances; None if there is none."""
        number = self.valid.sum(1)
        number = number * (number < self.valid.shape[1])
        return int(number.argmax()) if bool(number.any()) else None

    def __getitem__(self, clients: slice | Array) -> TorchInstances:
        return TorchInstances(self.X[clients], self.y[clients], self.counts[clients], self.valid[clients])

    def select(self, batch: Array | None) -> TorchInstances:
        """The instances of a mini-batch (n, b), -1 for padding."""
        import torch

        if batch is None:
            return self
        batch = batch.long()  # PyTorch does not index with short integers
        valid = batch >= 0
        first = batch.gather(1, valid.to(torch.int8).argmax(1, keepdim=True))  # an instance of the batch
        index = torch.where(valid, batch, first).clamp(min=0)
        rows = torch.arange(len(batch), device=batch.device)[:, None]
        return TorchInstances(self.X[rows, index], self.y[rows, index], self.counts, valid)


def read_tensors(names: tuple[str, str], X: Any, y: Any) -> TorchInstances:
    """Instances from arrays (n, N, ...) or lists of n arrays (N_i, ...), of PyTorch or NumPy."""
    import torch

    parts = []
    for name, a in zip(names, (X, y), strict=True):
        if not isinstance(a, torch.Tensor | np.ndarray | Sequence) or isinstance(a, str) or len(a) < 1:
            raise TypeError(f"{name} must be an array (n, N, ...) or a list of n arrays, got {type(a).__name__}")
        parts.append([torch.as_tensor(part) for part in a])
    if len(parts[0]) != len(parts[1]):
        raise ValueError(f"{names[1]} must have {len(parts[0])} clients as {names[0]}, got {len(parts[1])}")
    for i, (a, b) in enumerate(zip(*parts, strict=True)):
        if a.ndim < 1 or b.ndim < 1 or len(a) < 1 or len(b) != len(a):
            raise ValueError(
                f"{names[0]}[{i}] and {names[1]}[{i}] must have shapes (N_i, ...) with the same N_i >= 1, "
                f"got {tuple(a.shape)} and {tuple(b.shape)}"
            )
    longest = max(len(part) for part in parts[0])
    inputs, labels = (_pad(name, part, longest) for name, part in zip(names, parts, strict=True))
    counts = torch.tensor([len(part) for part in parts[0]], device=inputs.device)
    return TorchInstances(inputs, labels, counts, torch.arange(longest, device=inputs.device) < counts[:, None])


def _pad(name: str, parts: list[Array], longest: int) -> Array:
    import torch

    kinds = {(tuple(part.shape[1:]), part.dtype, part.device) for part in parts}
    if len(kinds) > 1:
        listing = "; ".join(f"{shape}, {dtype}, {device}" for shape, dtype, device in sorted(kinds, key=str))
        raise ValueError(f"{name} must have the same shape, dtype and device for all clients, got {listing}")
    return torch.stack([torch.cat([part, part[:1].expand(longest - len(part), *part.shape[1:])]) for part in parts])
