"""A plain cost written in PyTorch or JAX as a `Problem`; every derivative by automatic differentiation.

    inner_cost(i, x_i, lam_i, batch_i) -> scalar g_i        i a Python int, x_i (dim_x,), lam_i (dim_lam,)
    outer_cost(i, x_i, lam_i) -> scalar f_i                 batch_i (b,) instance indices without padding, or None

The clients' costs are summed, and since client i's depends on row i alone, one derivative of the sum gives all rows.
hvp and cross are double-backward in PyTorch, with the graph of the gradient kept by the linearization, and
forward-over-reverse in JAX, compiled once; finite differences are never used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import get_backend

Array = Any


def from_torch(inner_cost: Callable[..., Array], outer_cost: Callable[..., Array], n_clients: int, dim_x: int,
               dim_lam: int, *, counts: Any = None) -> TorchProblem:  # fmt: skip
    """A Problem from costs on torch tensors; counts (n,) instances of each client, if there are mini-batches."""
    get_backend("torch")  # an ImportError that names the extra
    return TorchProblem(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts)


def from_jax(inner_cost: Callable[..., Array], outer_cost: Callable[..., Array], n_clients: int, dim_x: int,
             dim_lam: int, *, counts: Any = None) -> JaxProblem:  # fmt: skip
    """A Problem from costs on JAX arrays, which must be traceable by jax.jit; counts as in `from_torch`."""
    get_backend("jax")
    return JaxProblem(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts)


class _Adapter:
    """Sizes, checks and the list of client costs."""

    def __init__(self, inner: Any, outer: Any, n_clients: int, dim_x: int, dim_lam: int, counts: Any) -> None:
        for name, cost in (("inner_cost", inner), ("outer_cost", outer)):
            if not callable(cost):
                raise TypeError(f"{name}: {type(cost).__name__} given, needed a function")
        sizes = {"n_clients": n_clients, "dim_x": dim_x, "dim_lam": dim_lam}
        for name, value in sizes.items():
            if operator.index(value) < 1:
                raise ValueError(f"{name}: {value} given, needed an integer of at least 1")
        self.n_clients, self.dim_x, self.dim_lam = n_clients, dim_x, dim_lam
        if counts is not None:
            self.counts = np.asarray(counts, dtype=np.int64)
            if self.counts.shape != (n_clients,):
                raise ValueError(f"counts: shape {self.counts.shape} given, needed ({n_clients},) = (n_clients,)")
        self._inner, self._outer = inner, outer

    def _check(self, x: Array, lam: Array) -> None:
        arguments.same_kind(x=x, lam=lam)
        self._check_shape("x", x, self.dim_x)
        self._check_shape("lam", lam, self.dim_lam)

    def _check_shape(self, name: str, a: Array, d: int) -> None:
        if tuple(a.shape) != (self.n_clients, d):
            raise ValueError(f"{name}: shape {tuple(a.shape)} given, needed {(self.n_clients, d)}")

    def _rows(self, batch: Array | None) -> list[Array | None]:
        """Each client's indices without padding."""
        if batch is None:
            return [None] * self.n_clients
        if not hasattr(self, "counts"):
            raise ValueError("batch: given, but the problem was made without counts; needed None, or counts=...")
        if batch.ndim != 2 or batch.shape[0] != self.n_clients or batch.shape[1] < 1:
            raise ValueError(f"batch: shape {tuple(batch.shape)} given, needed ({self.n_clients}, b) with b >= 1")
        return [batch[i][batch[i] >= 0] for i in range(self.n_clients)]

    def _inner_costs(self, x: Array, lam: Array, rows: list[Array | None]) -> list[Array]:
        each = [self._inner(i, x[i, :], lam[i, :], rows[i]) for i in range(self.n_clients)]
        return _check_scalars("inner_cost", each)

    def _outer_costs(self, x: Array, lam: Array) -> list[Array]:
        each = [self._outer(i, x[i, :], lam[i, :]) for i in range(self.n_clients)]
        return _check_scalars("outer_cost", each)


def _check_scalars(name: str, each: list[Array]) -> list[Array]:
    for i, cost in enumerate(each):
        if tuple(getattr(cost, "shape", (None,))) != ():
            given = f"shape {tuple(cost.shape)}" if hasattr(cost, "shape") else type(cost).__name__
            raise ValueError(f"{name}: client {i} returned {given}, needed a scalar array of shape ()")
    return each


class TorchProblem(_Adapter):
    """Costs on torch tensors; see the module for their form."""

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        import torch

        self._check(x, lam)
        with torch.no_grad():
            return torch.stack(self._inner_costs(x, lam, self._rows(batch)))

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        import torch

        self._check(x, lam)
        with torch.no_grad():
            return torch.stack(self._outer_costs(x, lam))

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        self._check(x, lam)
        x = _leaf(x)
        return _torch_grad(lambda: sum(self._inner_costs(x, lam.detach(), self._rows(batch))), [x])[0]

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        self._check(x, lam)
        x, lam = _leaf(x), _leaf(lam)
        along_x, along_lam = _torch_grad(lambda: sum(self._outer_costs(x, lam)), [x, lam])
        return along_x, along_lam

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> TorchLinearization:
        """The gradient with its graph, differentiated once more for each vector."""
        self._check(x, lam)
        x, lam = _leaf(x), _leaf(lam)
        (grad,) = _torch_grad(lambda: sum(self._inner_costs(x, lam, self._rows(batch))), [x], keep=True)
        return TorchLinearization(self, x, lam, grad)


class TorchLinearization:
    """u -> d<d_x g, u>/dx and d<d_x g, u>/dlam through the kept graph."""

    def __init__(self, problem: TorchProblem, x: Array, lam: Array, grad: Array) -> None:
        self._problem, self._x, self._lam, self._grad = problem, x, lam, grad

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i (the Hessian is symmetric).  # (n, d_x)"""
        return self._pull(self._x, u)

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._pull(self._lam, u)

    def _pull(self, along: Array, u: Array) -> Array:
        arguments.same_kind(x=self._x, u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        return _torch_grad(lambda: (self._grad * u.detach()).sum(), [along], retain=True)[0]


def _leaf(a: Array) -> Array:
    return a.detach().clone().requires_grad_(True)


def _torch_grad(cost: Callable[[], Array], inputs: list[Array], *, keep: bool = False, retain: bool = False) -> Any:
    """Gradients of a scalar along `inputs`, zero where it does not depend on them; `keep` records their own graph."""
    import torch

    with torch.enable_grad():
        total = cost()
        if not total.requires_grad:
            return [torch.zeros_like(a) for a in inputs]
        return torch.autograd.grad(
            total, inputs, create_graph=keep, retain_graph=keep or retain, materialize_grads=True
        )


class JaxProblem(_Adapter):
    """Costs on JAX arrays; see the module for their form. Compiled on first use, again for new batch lengths."""

    def __init__(self, *args: Any) -> None:
        import jax
        import jax.numpy as jnp

        super().__init__(*args)
        inner, outer = self._inner_costs, self._outer_costs

        def both(x: Array, lam: Array, rows: Any) -> tuple[Array, Array]:
            return jax.grad(lambda p, q: sum(inner(p, q, rows)), argnums=(0, 1))(x, lam)

        def push(x: Array, lam: Array, rows: Any, u: Array, which: int) -> Array:
            return jax.jvp(lambda p: both(p, lam, rows)[which], (x,), (u,))[1]

        self._jit_inner = jax.jit(lambda x, lam, rows: jnp.stack(inner(x, lam, rows)))
        self._jit_outer = jax.jit(lambda x, lam: jnp.stack(outer(x, lam)))
        self._jit_inner_grad = jax.jit(lambda x, lam, rows: both(x, lam, rows)[0])
        self._jit_outer_grad = jax.jit(jax.grad(lambda x, lam: sum(outer(x, lam)), argnums=(0, 1)))
        self._jit_push = jax.jit(push, static_argnums=4)

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        self._check(x, lam)
        return self._jit_inner(x, lam, self._rows(batch))

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        self._check(x, lam)
        return self._jit_outer(x, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        self._check(x, lam)
        return self._jit_inner_grad(x, lam, self._rows(batch))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        self._check(x, lam)
        return self._jit_outer_grad(x, lam)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> JaxLinearization:
        """The point; the compiled products are shared by all linearizations."""
        self._check(x, lam)
        return JaxLinearization(self, x, lam, self._rows(batch))


class JaxLinearization:
    """u -> the derivatives of d_x g and d_lam g along u."""

    def __init__(self, problem: JaxProblem, x: Array, lam: Array, rows: list[Array | None]) -> None:
        self._problem, self._x, self._lam, self._rows = problem, x, lam, rows

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (n, d_x)"""
        return self._push(u, 0)

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._push(u, 1)

    def _push(self, u: Array, which: int) -> Array:
        arguments.same_kind(x=self._x, u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        return self._problem._jit_push(self._x, self._lam, self._rows, u, which)
