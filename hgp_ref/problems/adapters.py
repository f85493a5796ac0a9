"""A cost written in PyTorch or JAX as a `Problem`; every derivative by automatic differentiation.

    inner_cost(i, x_i, lam_i, batch_i) -> scalar g_i        i a Python int, x_i (dim_x,), lam_i (dim_lam,)
    outer_cost(i, x_i, lam_i) -> scalar f_i                 batch_i (b,) instance indices without padding, or None

The clients' costs are summed, and since client i's depends on row i alone, one derivative of the sum gives all rows.
hvp and cross are double-backward in PyTorch, with the graph of the gradient kept by the linearization, and
forward-over-reverse in JAX, compiled once; finite differences are never used. In a restricted problem `i` is still the
client's number in the whole one.

Clients that share a shape need no loop: `from_torch` of a torch.nn.Module, and `from_jax` with vmap=True, compute all
of them by one call. Their numbers are those of the loop up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, get_backend, to_host
from hgp_ref.problems.base import check_batch, chosen
from hgp_ref.problems.instances import require_existing
from hgp_ref.validation import check_memory

if TYPE_CHECKING:
    from torch.nn import Module

    from hgp_ref.problems.jax_costs import JaxProblem
    from hgp_ref.problems.torch import Loss, Penalty, TorchModuleProblem, TorchProblem

Cost = Callable[..., Array]


@overload
def from_torch(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
               counts: Sequence[int] | np.ndarray | None = None) -> TorchProblem: ...  # fmt: skip


@overload
def from_torch(module: Module, loss: Loss, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, dim_lam: int,
               outer_loss: Loss | None = None, penalty: Penalty | None = None, outer_penalty: Penalty | None = None,
               chunk: int | None = None) -> TorchModuleProblem: ...  # fmt: skip


def from_torch(*given: Any, **named: Any) -> Any:
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

    Parameters
    ----------
    *given, **named
        Costs and sizes, or a module with a loss and data, as above.

    Returns
    -------
    Problem
        On torch tensors.

    Raises
    ------
    TypeError, ValueError
        Data given with something that is no torch.nn.Module, costs that are no functions, sizes that are no integers.
    ImportError
        PyTorch is not installed: `pip install 'hgp_ref[torch]'`.

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

    from hgp_ref.problems.torch import TorchModuleProblem, TorchProblem

    first = given[0] if given else named.get("module")
    sized = "n_clients" in named or (
        len(given) > 2 and hasattr(given[2], "__index__") and not hasattr(given[2], "shape")
    )
    if isinstance(first, torch.nn.Module) and not sized:  # a module may also be a cost
        return TorchModuleProblem(*given, **named)
    if "X" in named or (len(given) > 2 and (hasattr(given[2], "shape") or isinstance(given[2], list | tuple))):
        raise TypeError(f"module: {type(first).__name__} given with data, needed a torch.nn.Module")
    return TorchProblem(*given, **named)


def from_jax(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
             counts: Sequence[int] | np.ndarray | None = None, vmap: bool = False) -> JaxProblem:  # fmt: skip
    """A Problem from costs on JAX arrays, which must be traceable by jax.jit; counts as in `from_torch`.

    vmap=True: all clients share a shape and are computed by one call. `i` is then a traced integer, with which costs
    can index arrays (n, ...) of all clients, but no Python list. A mini-batch that has padding for some clients has no
    shape to share: it is computed client by client.

    What jax.lax.stop_gradient cuts off has derivative zero; unlike in PyTorch this leaves no trace to look for.

    Parameters
    ----------
    inner_cost, outer_cost : functions
        Of (i, x, lam, batch) and (i, x, lam), for client i.
    n_clients, dim_x, dim_lam : int
        Sizes.
    counts : array (n,), optional
        Instances of each client.
    vmap : bool
        Whether all clients are computed by one call.

    Returns
    -------
    Problem
        On JAX arrays.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> inner = lambda i, x, lam, batch=None: jnp.sum((x - i) ** 2) / 2 + lam[0] * jnp.sum(x**2) / 2
    >>> problem = hgp.problems.from_jax(inner, lambda i, x, lam: jnp.sum(x), n_clients=2, dim_x=3, dim_lam=1)
    >>> problem.inner_grad(jnp.ones((2, 3)), jnp.zeros((2, 1))).shape
    (2, 3)
    """
    get_backend("jax")
    from hgp_ref.problems.jax_costs import JaxProblem

    return JaxProblem(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts, vmap=vmap)


class Adapter:
    """Sizes, checks and the list of client costs."""

    def __init__(self, inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int,
                 counts: Sequence[int] | np.ndarray | None = None,
                 clients: np.ndarray | None = None) -> None:  # fmt: skip
        for name, cost in (("inner_cost", inner_cost), ("outer_cost", outer_cost)):
            if not callable(cost):
                raise TypeError(f"{name}: {type(cost).__name__} given, needed a function")
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
        which = chosen(clients, self.n_clients)
        numbers = self.clients[which]
        counts = None if self.counts is None else self.counts[which]
        given = (self._inner, self._outer, len(numbers), self.dim_x, self.dim_lam, counts, numbers)
        return type(self)(*given, **self._options())

    def _options(self) -> dict[str, Any]:
        """Further arguments of the class."""
        return {}

    def _check(self, x: Array, lam: Array) -> None:
        validation.same_kind(x=x, lam=lam)
        self._check_shape("x", x, self.dim_x)
        self._check_shape("lam", lam, self.dim_lam)

    def _check_shape(self, name: str, a: Array, d: int) -> None:
        if tuple(a.shape) != (self.n_clients, d):
            raise ValueError(f"{name}: shape {tuple(a.shape)} given, needed {(self.n_clients, d)}")

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
            raise ValueError("batch: given, but the problem was made without counts; needed None, or counts=...")
        if check_batch(batch, x, self.n_clients):
            raise ValueError(f"batch: shape {tuple(batch.shape)} given, needed ({self.n_clients}, b) with b >= 1")
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
        given = f"shape {tuple(cost.shape)}" if hasattr(cost, "shape") else type(cost).__name__
        raise ValueError(f"{name}: client {client} returned {given}, needed a scalar array of shape ()")
    if not array_namespace(cost).isdtype(cost.dtype, "real floating"):
        raise TypeError(f"{name}: client {client} returned {cost.dtype}, needed a real floating-point number")
    return cost


def _read_counts(counts: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    read = validation.host_array("counts", counts)
    if read.shape != (n,):
        raise ValueError(f"counts: shape {read.shape} given, needed ({n},) = (n_clients,)")
    return np.array([validation.integer(f"counts[{i}]", k) for i, k in enumerate(read)], dtype=np.int64)
