"""Costs written in JAX as a problem: gradients in reverse mode, second derivatives forward over reverse, compiled.

Costs have the form of those in `problems.torch`. Clients are a loop that the compiler unrolls, or with vmap=True one
batched call, which compiles much faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, get_backend
from hgp_ref.problems.torch import ClientCosts, Cost, scalar_cost


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

    return JaxProblem(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts, vmap=vmap)


class JaxProblem(ClientCosts):
    """Costs on JAX arrays; see `from_jax` for their form. Compiled on first use, again for new batch lengths."""

    def __init__(self, *args: Any, vmap: bool = False) -> None:
        import jax

        super().__init__(*args)
        self._together = validation.boolean("vmap", vmap)

        def both(x: Array, lam: Array, rows: Any) -> tuple[Array, Array]:
            return jax.grad(lambda p, q: self._inners(p, q, rows).sum(), argnums=(0, 1))(x, lam)

        def push(x: Array, lam: Array, rows: Any, u: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda p: both(p, lam, rows), (x,), (u,))[1]

        self._jit_inner = jax.jit(self._inners)
        self._jit_outer = jax.jit(self._outers)
        self._jit_inner_grad = jax.jit(lambda x, lam, rows: both(x, lam, rows)[0])
        self._jit_outer_grad = jax.jit(jax.grad(lambda x, lam: self._outers(x, lam).sum(), argnums=(0, 1)))
        self._jit_hvp = jax.jit(lambda *point: push(*point)[0])
        self._jit_cross = jax.jit(lambda *point: push(*point)[1])
        self._jit_products = jax.jit(push)

    def _options(self) -> dict[str, Any]:
        return {"vmap": self._together}

    def _inners(self, x: Array, lam: Array, rows: Any) -> Array:
        """g_i of every client; rows: a list, or one array (n, b) of clients that share a shape.  # (n,)"""
        import jax.numpy as jnp

        if self._together and rows is None:
            return self._mapped("inner_cost", lambda i, p, q: self._inner(i, p, q, None), x, lam)
        if self._together and not isinstance(rows, list):
            return self._mapped("inner_cost", self._inner, x, lam, rows)
        return jnp.stack([self._inner_of(i, x[i], lam[i], rows[i]) for i in range(self.n_clients)])

    def _outers(self, x: Array, lam: Array) -> Array:
        """f_i of every client.  # (n,)"""
        import jax.numpy as jnp

        if self._together:
            return self._mapped("outer_cost", self._outer, x, lam)
        return jnp.stack([self._outer_of(i, x[i], lam[i]) for i in range(self.n_clients)])

    def _mapped(self, name: str, cost: Cost, *rows: Array) -> Array:
        """cost(i, *rows_i) of every client by one call."""
        import jax
        import jax.numpy as jnp

        try:
            return jax.vmap(lambda i, *own: scalar_cost(name, "i", cost(i, *own)))(jnp.asarray(self.clients), *rows)
        except (jax.errors.TracerIntegerConversionError, jax.errors.ConcretizationTypeError) as error:
            raise TypeError(
                f"{name} must not use the client's number i (or another traced number) as a Python number with "
                "vmap=True; use arrays (n, ...) indexed by i, or vmap=False"
            ) from error

    def _rows(self, batch: Array | None, x: Array) -> Any:
        """Indices: for each client without padding, or as they are where there is none and clients go together."""
        self._check_batch(batch, x)
        if self._together and (batch is None or bool((batch >= 0).all())):
            return batch
        return super()._rows(batch, x)

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        self._check(x, lam)
        return self._jit_inner(x, lam, self._rows(batch, x))

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        self._check(x, lam)
        return self._jit_outer(x, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i.  # (n, d_x)"""
        self._check(x, lam)
        return self._jit_inner_grad(x, lam, self._rows(batch, x))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, d_x), (n, d_lam)"""
        self._check(x, lam)
        return self._jit_outer_grad(x, lam)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> JaxLinearization:
        """The point; the compiled products are shared by all linearizations."""
        self._check(x, lam)
        return JaxLinearization(self, x, lam, self._rows(batch, x))


class JaxLinearization:
    """u -> the derivatives of d_x g and d_lam g along u."""

    def __init__(self, problem: JaxProblem, x: Array, lam: Array, rows: Any) -> None:
        self._problem, self._point = problem, (x, lam, rows)

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (n, d_x)"""
        return self._problem._jit_hvp(*self._point, self._validated(u))

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._problem._jit_cross(*self._point, self._validated(u))

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass forward over one in reverse."""
        return self._problem._jit_products(*self._point, self._validated(u))

    def _validated(self, u: Array) -> Array:
        validation.same_kind(x=self._point[0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        return u
