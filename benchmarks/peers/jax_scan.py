"""Hyper-Gradient Push as one would write it in JAX: one jitted program, a scan over m, clients and seeds by vmap."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def inner(x: Any, lam: Any, X: Any, y: Any) -> Any:
    """g of one client: mean log loss and L2 rates."""
    a = X @ x
    return jnp.mean(jnp.logaddexp(0.0, a) - y * a) + 0.5 * jnp.sum(lam * x * x)


def outer(x: Any, X_val: Any, y_val: Any) -> Any:
    """f of one client."""
    a = X_val @ x
    return jnp.mean(jnp.logaddexp(0.0, a) - y_val * a)


def push_sum(key: Any, rates: Any, u: Any, steps: int) -> Any:
    """Algorithm 1 over `steps` graphs drawn from `key`; the weights are a column of their own."""
    n = u.shape[0]
    drawn = jax.random.bernoulli(key, rates, (steps, n, n)) | jnp.eye(n, dtype=bool)
    W = drawn.astype(u.dtype) / drawn.sum(axis=1, keepdims=True)
    start = jnp.concatenate([u, jnp.ones((n, 1), u.dtype)], axis=1)
    z, _ = lax.scan(lambda z, step: (step @ z, None), start, W)
    return z[:, :-1] / z[:, -1:]


def hypergradient(
    key: Any, data: tuple[Any, ...], x: Any, lam: Any, *, steps: int, iterations: int, history: bool, eta: float = 1.0
) -> tuple[Any, Any]:
    """Algorithm 2 for one seed: v, and v^(1) .. v^(M) on request."""
    X, y, X_val, y_val = data
    n = x.shape[0]
    key, one = jax.random.split(key)
    rates = jax.random.uniform(one, (n, n), x.dtype, 0.4, 0.8)
    gradient = jax.vmap(jax.grad(inner), in_axes=(0, 0, 0, 0))
    _, hvp = jax.linearize(lambda point: gradient(point, lam, X, y), x)  # the point does not move
    _, cross = jax.vjp(lambda rate: gradient(x, rate, X, y), lam)

    def iterate(carry: tuple[Any, Any], key: Any) -> tuple[tuple[Any, Any], Any]:
        u, v = carry
        ubar = push_sum(key, rates, u, steps)
        v = v - eta * cross(ubar)[0]
        return (ubar - eta * hvp(ubar), v), v if history else None

    start = jax.vmap(jax.grad(outer))(x, X_val, y_val), jnp.zeros_like(lam)
    (_, v), past = lax.scan(iterate, start, jax.random.split(key, iterations))
    return v, past


def compiled(data: tuple[np.ndarray, ...], x: np.ndarray, lam: np.ndarray, seeds: int, **options: Any) -> Any:
    """The program for `seeds` seeds at once, compiled for these shapes, as a call without arguments."""
    one = functools.partial(hypergradient, **options)
    keys = jax.random.split(jax.random.key(0), seeds)
    arguments = (keys, tuple(jnp.asarray(a) for a in data), jnp.asarray(x), jnp.asarray(lam))
    program = jax.jit(jax.vmap(one, in_axes=(0, None, None, None))).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def hvp(data: tuple[np.ndarray, ...], x: np.ndarray, lam: np.ndarray) -> Any:
    """u ↦ ∂²_x g u for all clients, jitted; the linearization is stored."""
    X, y = (jnp.asarray(a) for a in data[:2])
    gradient = jax.vmap(jax.grad(inner), in_axes=(0, 0, 0, 0))
    _, along = jax.linearize(lambda point: gradient(point, jnp.asarray(lam), X, y), jnp.asarray(x))
    program = jax.jit(along)
    return lambda u: jax.block_until_ready(program(u))
