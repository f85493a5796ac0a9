"""Costs written in JAX as a problem: gradients in reverse mode, second derivatives forward over reverse, compiled.

Costs have the form of those in `problems.torch`. The compiler unrolls a loop over clients, or with vmap=True there is
one batched call, which compiles much faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, get_backend
from hgp_ref.problems.base import Clients
from hgp_ref.problems.torch import ClientCosts, Cost, check_costs, scalar_cost


def from_jax(inner_cost: Cost, outer_cost: Cost, n_clients: int, dim_x: int, dim_lam: int, *,
             counts: Sequence[int] | np.ndarray | None = None, vmap: bool = False,
             curvature: str = "hessian") -> JaxProblem:  # fmt: skip
    """A problem from costs on JAX arrays, which jax.jit must be able to trace; counts as in `from_torch`.

    Parameters
    ----------
    inner_cost, outer_cost : functions of (i, x, lam, batch) and (i, x, lam), the costs of client i.
    counts : instances of each client (n,), needed for mini-batches.
    vmap : compute all clients by one call. i is then a traced integer: costs can use it to index arrays (n, ...), but
        not Python lists. Mini-batches with padding have no common shape and are computed client by client.

    curvature : "hessian", or "gauss-newton" for products Jᵀ (∂²loss/∂z²) J u with J = ∂outputs/∂x; `inner_cost` must
        then be a `Composite`.

    The derivative of what jax.lax.stop_gradient cuts off is zero; unlike in PyTorch this cannot be detected.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> inner = lambda i, x, lam, batch=None: jnp.sum((x - i) ** 2) / 2 + lam[0] * jnp.sum(x**2) / 2
    >>> problem = hgp.problems.from_jax(inner, lambda i, x, lam: jnp.sum(x), n_clients=2, dim_x=3, dim_lam=1)
    >>> problem.inner_grad(jnp.ones((2, 3)), jnp.zeros((2, 1))).shape
    (2, 3)
    """
    get_backend("jax")
    return JaxProblem(inner_cost, outer_cost, n_clients, dim_x, dim_lam, counts, curvature, vmap=vmap)


class JaxProblem(ClientCosts):
    """Costs on JAX arrays; see `from_jax`. Compiled at the first use, and again for new batch lengths."""

    def __init__(self, *args: Any, vmap: bool = False) -> None:
        super().__init__(*args)
        check_costs(self._inner, self._outer, self.curvature)
        self._vmap = validation.boolean("vmap", vmap)
        self._compile()

    def _compile(self) -> None:
        import jax
        import jax.numpy as jnp

        def gradients(x: Array, lam: Array, batch: Any) -> tuple[Array, Array]:
            return jax.grad(lambda x, lam: self._costs("inner_cost", x, lam, batch).sum(), argnums=(0, 1))(x, lam)

        def products(x: Array, lam: Array, batch: Any, u: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda x: gradients(x, lam, batch), (x,), (u,))[1]

        def gauss_newton(i: Any, x: Array, lam: Array, batch: Any, u: Array) -> Array:
            """Jᵀ (∂²loss/∂z²) J u + ∂²penalty u of one client."""
            cost: Any = self._inner

            def outputs(x: Array) -> Array:
                return cost.outputs(i, x, batch)

            z, z_dot = jax.jvp(outputs, (x,), (u,))
            c_dot = jax.jvp(jax.grad(lambda z: cost.loss(i, z, lam, batch)), (z,), (z_dot,))[1]
            (product,) = jax.vjp(outputs, x)[1](c_dot)
            if cost.penalty is None:
                return product
            return product + jax.jvp(jax.grad(lambda x: cost.penalty(i, x, lam)), (x,), (u,))[1]

        def gauss_newton_products(x: Array, lam: Array, rows: Any, u: Array) -> Array:
            if self._vmap and not isinstance(rows, list):
                axes = (0, 0, 0, None if rows is None else 0, 0)
                return jax.vmap(gauss_newton, in_axes=axes)(jnp.asarray(self.clients), x, lam, rows, u)
            batches = [None] * self.n_clients if rows is None else rows
            clients = enumerate(zip(self.clients.tolist(), batches, strict=True))
            return jnp.stack([gauss_newton(number, x[i], lam[i], batch, u[i]) for i, (number, batch) in clients])

        def outer(x: Array, lam: Array) -> Array:
            return self._costs("outer_cost", x, lam, None)

        self._inner_cost = jax.jit(lambda x, lam, batch: self._costs("inner_cost", x, lam, batch))
        self._outer_cost = jax.jit(outer)
        self._inner_grad = jax.jit(lambda x, lam, batch: gradients(x, lam, batch)[0])
        self._outer_grad = jax.jit(jax.grad(lambda x, lam: outer(x, lam).sum(), argnums=(0, 1)))
        self._hvp = jax.jit(lambda *point: products(*point)[0])
        self._cross = jax.jit(lambda *point: products(*point)[1])
        self._products = jax.jit(products)
        if self.curvature == "gauss-newton":
            self._hvp = jax.jit(gauss_newton_products)
            self._products = jax.jit(lambda *point: (gauss_newton_products(*point), products(*point)[1]))

    def restrict(self, clients: Clients) -> JaxProblem:
        """The same problem for some of its clients, compiled for these."""
        part = super().restrict(clients)
        part._compile()
        return part

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        return self._inner_cost(x, lam, self._rows(x, lam, batch))

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        self._check(x, lam)
        return self._outer_cost(x, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._inner_grad(x, lam, self._rows(x, lam, batch))

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        self._check(x, lam)
        return self._outer_grad(x, lam)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> JaxLinearization:
        """The point; all linearizations share the compiled products."""
        return JaxLinearization(self, x, lam, self._rows(x, lam, batch))

    def _check(self, x: Array, lam: Array, batch: Array | None = None) -> None:
        import jax

        super()._check(x, lam, batch)
        if not isinstance(x, jax.Array):
            validation.wrong_type("x and lam", x, "arrays of JAX like the costs")

    def _rows(self, x: Array, lam: Array, batch: Array | None) -> Any:
        """The batch as an array (n, b) for vmap, or as a list of each client's indices without padding."""
        self._check(x, lam, batch)
        if batch is None or (self._vmap and bool((batch >= 0).all())):
            return batch
        return [batch[i][batch[i] >= 0] for i in range(self.n_clients)]

    def _costs(self, name: str, x: Array, lam: Array, rows: Any) -> Array:
        """The cost `name` of every client.  # (n,)"""
        import jax
        import jax.numpy as jnp

        cost: Cost = self._outer
        if name == "inner_cost":
            cost = self._inner if rows is not None else lambda i, x, lam: self._inner(i, x, lam, None)
        arguments = (jnp.asarray(self.clients), x, lam) if rows is None else (jnp.asarray(self.clients), x, lam, rows)
        try:
            if not self._vmap or isinstance(rows, list):
                return jnp.stack([self._cost_of(name, i, x[i], lam[i], rows) for i in range(self.n_clients)])
            return jax.vmap(lambda *client: scalar_cost(name, "i", cost(*client)))(*arguments)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                f"{name} must compute with jax.numpy on arrays of JAX, got a traced array that NumPy cannot convert; "
                "with vmap=True the client's number i is traced, too, so that data must be jnp.asarray(data)"
            ) from error
        except (jax.errors.TracerIntegerConversionError, jax.errors.ConcretizationTypeError) as error:
            raise TypeError(
                f"{name} must not use the client's number i (or another traced number) as a Python number with "
                "vmap=True; use arrays (n, ...) indexed by i, or vmap=False"
            ) from error


class JaxLinearization:
    """H_i u_i and J_i u_i: the derivatives of ∂_x g and ∂_λ g along u."""

    def __init__(self, problem: JaxProblem, x: Array, lam: Array, rows: Any) -> None:
        self._problem, self._point = problem, (x, lam, rows)

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (n, d_x)"""
        return self._problem._hvp(*self._point, self._checked(u))

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (n, d_λ)"""
        return self._problem._cross(*self._point, self._checked(u))

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) by one pass forward over one in reverse."""
        return self._problem._products(*self._point, self._checked(u))

    def _checked(self, u: Array) -> Array:
        validation.same_kind(x=self._point[0], u=u)
        self._problem._check_shape("u", u, self._problem.dim_x)
        return u
