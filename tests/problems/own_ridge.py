"""A user-defined problem with every optional member that a ridge regression can have: what docs/problems.md shows."""

from __future__ import annotations

import numpy as np


class Ridge:
    """g_i = mean ½(X_i x − y_i)² + ½ xᵀdiag(exp λ_i)x,  f_i = mean ½(X'_i x − y'_i)² + ½ 0.1 |λ_i|²."""

    broadcasts = True
    weighs_instances = False

    def __init__(self, X, y, X_val, y_val):
        self.X, self.y, self.X_val, self.y_val = X, y, X_val, y_val
        self.n_clients, N, self.dim_x = X.shape
        self.dim_lam, self.counts = self.dim_x, np.full(self.n_clients, N)

    def rows(self, x, batch):
        """X, y and the weights of instances in the mean, in the dtype of x."""
        X, y = self.X.astype(x.dtype), self.y.astype(x.dtype)
        if batch is None:
            return X, y, np.full(y.shape, 1 / y.shape[1], dtype=x.dtype)
        clients = np.arange(self.n_clients)[:, None]
        valid = (batch >= 0).astype(x.dtype)
        return X[clients, batch], y[clients, batch], valid / valid.sum(axis=-1, keepdims=True)

    def inner_cost(self, x, lam, batch=None):
        X, y, mean = self.rows(x, batch)
        r = (X @ x[..., None])[..., 0] - y
        return (mean * r * r).sum(axis=-1) / 2 + (np.exp(lam) * x * x).sum(axis=-1) / 2

    def inner_grad(self, x, lam, batch=None):
        X, y, mean = self.rows(x, batch)
        r = (X @ x[..., None])[..., 0] - y
        return ((mean * r)[..., None, :] @ X)[..., 0, :] + np.exp(lam) * x

    def outer_cost(self, x, lam):
        r = (self.X_val.astype(x.dtype) @ x[..., None])[..., 0] - self.y_val.astype(x.dtype)
        return (r * r).mean(axis=-1) / 2 + (lam * lam).sum(axis=-1) / 20

    def outer_grad(self, x, lam):
        X = self.X_val.astype(x.dtype)
        r = (X @ x[..., None])[..., 0] - self.y_val.astype(x.dtype)
        f_x = (r[..., None, :] @ X)[..., 0, :] / X.shape[1]
        return f_x, np.broadcast_to(lam / 10, np.broadcast_shapes(lam.shape, x.shape[:-1] + (1,)))

    def linearize(self, x, lam, batch=None):
        return RidgeAt(self, x, lam, batch)

    def hessian(self, x, lam, batch=None):
        X, _, mean = self.rows(x, batch)
        H = np.swapaxes(X, -1, -2) @ (mean[..., None] * X)
        H = H + np.exp(lam)[..., None] * np.eye(self.dim_x, dtype=x.dtype)
        return np.broadcast_to(H, np.broadcast_shapes(H.shape, (*x.shape[:-1], 1, 1)))

    def jacobian(self, x, lam, batch=None):
        return (np.exp(lam) * x)[..., None] * np.eye(self.dim_x, dtype=x.dtype)

    def restrict(self, clients):
        return type(self)(self.X[clients], self.y[clients], self.X_val[clients], self.y_val[clients])

    def lipschitz(self, lam):
        nu_fx = max(np.linalg.norm(A.T @ A, 2) / len(A) for A in self.X_val)
        return dict(nu_flam=0.0, nu_fx=1.001 * float(nu_fx), nu_J=float(np.exp(lam).max()), nu_H=0.0)

    def jacobian_norms(self, x, lam):
        return np.abs(np.exp(lam) * x).max(axis=-1)


class RidgeAt:
    """Products with H_i = X_iᵀ diag(mean) X_i + diag(exp λ_i) and J_i = diag(exp(λ_i) x_i)."""

    def __init__(self, problem, x, lam, batch):
        self.X, _, self.mean = problem.rows(x, batch)
        self.x, self.rate = x, np.exp(lam)

    def hvp(self, u):
        Xu = (self.X @ u[..., None])[..., 0]
        return ((self.mean * Xu)[..., None, :] @ self.X)[..., 0, :] + self.rate * u

    def cross(self, u):
        return self.rate * self.x * u

    def products(self, u):
        return self.hvp(u), self.cross(u)
