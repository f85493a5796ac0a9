"""Clients that train a torch.nn.Module, all of them by one call: torch.func's functional_call under its vmap.

    g_i(x_i, λ_i) = Σ_k mean_ik loss(net(X_i; x_i), y_i, λ_i)_k + penalty(x_i, λ_i)
    f_i(x_i, λ_i) = Σ_k mean'_ik outer_loss(net(X'_i; x_i), y'_i, λ_i)_k + outer_penalty(x_i, λ_i)

x_i holds the module's parameters in PyTorch's order, as `torch.nn.utils.parameters_to_vector` gives them and
`hgp_ref.neural` has them; those with requires_grad=False stay as they are, like buffers. Clients share the graph of
Σ_i g_i; since g_i depends on row i alone, one derivative of the sum gives all rows, and one derivative of <∂_x Σ g, u>
all products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.problems.adapters import Adapter
from hgp_ref.problems.arrays import chosen
from hgp_ref.problems.digests import digest
from hgp_ref.problems.torch_graph import require_recording
from hgp_ref.problems.torch_instances import TorchInstances, read_tensors
from hgp_ref.problems.torch_point import ModuleLinearization, Point

if TYPE_CHECKING:
    from torch.nn import Module

Loss = Callable[[Array, Array, Array], Array]
Penalty = Callable[[Array, Array], Array]


class TorchModuleProblem(Adapter):
    """See `adapters.from_torch` for the arguments."""

    def __init__(self, module: Module, loss: Loss, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *,
                 dim_lam: int, outer_loss: Loss | None = None, penalty: Penalty | None = None,
                 outer_penalty: Penalty | None = None, chunk: int | None = None) -> None:  # fmt: skip
        given = {"loss": loss, "outer_loss": outer_loss, "penalty": penalty, "outer_penalty": outer_penalty}
        for name, function in given.items():
            if not callable(function) and (function is not None or name == "loss"):
                raise TypeError(f"{name}: {type(function).__name__} given, needed a function")
        if (X_val is None) != (y_val is None):
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"{missing}: None given, needed both X_val and y_val or none")
        self.module, self._trained = module, [p for _, p in _trained(module)]
        self._slots = _slots(module, self._trained)
        self.chunk = None if chunk is None else arguments.integer("chunk", chunk)
        train = read_tensors(("X", "y"), X, y)
        val = train if X_val is None else read_tensors(("X_val", "y_val"), X_val, y_val)
        if len(val.X) != len(train.X):
            raise ValueError(f"X_val: {len(val.X)} clients given, needed {len(train.X)} as in X")
        dim_x = sum(p.numel() for p in self._trained)
        if dim_x == 0:
            raise ValueError(f"module: {type(module).__name__} without parameters given, needed one to train at least")
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
        which, some = chosen(clients, self.n_clients), copy.copy(self)
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
                    f"module: {type(self.module).__name__} in training mode draws random numbers or changes its "
                    "buffers (dropout, running statistics), which one call for all clients cannot do; "
                    f"needed module.eval() ({error})"
                ) from error
            raise
        self._check_alone(name, x, lam, data)
        return costs

    def _losses(self, name: str, x: Array, lam: Array, X: Array, y: Array) -> Array:
        """The loss of every instance of one client.  # (N,)"""
        from torch.func import functional_call

        parts = x.split([p.numel() for p in self._trained])
        own = [part.view(p.shape) for part, p in zip(parts, self._trained, strict=True)]
        given = {slot: own[k] for slot, k in self._slots.items()}
        given |= {
            slot: buffer.detach().clone() for slot, buffer in self.module.named_buffers()
        }  # a call may change them
        outputs = functional_call(self.module, given, (X,), tie_weights=False)
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
                f"{name}: the loss of an instance changes with the others of its call (batch normalisation in training "
                "mode?), so padding of shorter clients or batches would change it; needed a module and a loss that "
                "treat each instance by itself (module.eval()), equal clients, or costs that go client by client"
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
            arguments.same_kind(x=x, X=whole.X)
        size = self.chunk or self.n_clients
        for start in range(0, self.n_clients, size):
            own = slice(start, start + size)
            yield x[own], lam[own], whole[own].select(None if batch is None else batch[own])


def _trained(module: Module) -> list[tuple[str, Any]]:
    """Names and parameters that require a gradient."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in trained:
        if not p.is_floating_point():
            raise TypeError(f"module: parameter {name} of {p.dtype} given, needed real floating-point numbers")
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
        given = f"shape {tuple(each.shape)}" if hasattr(each, "shape") else type(each).__name__
        raise ValueError(
            f"{name}: the loss returned {given}, needed {tuple(mean.shape)}: one number for each instance, not reduced"
        )
    if each.dtype != mean.dtype:
        raise TypeError(f"{name}: the loss returned {each.dtype}, needed {mean.dtype} as x is")


def _scalar(name: str, value: Array) -> Array:
    if tuple(getattr(value, "shape", (None,))) != ():
        given = f"shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"{name}: its penalty returned {given}, needed a scalar of shape ()")
    return value
