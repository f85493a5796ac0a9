"""Averaging, Algorithm 2, Chebyshev and gradient push as plain loops over dense matrices, for random settings.

Nothing of the package is called but `net.mixing_matrix`, `net.edges`, the problem's derivatives and `sample_batches`.
"""

from __future__ import annotations

import warnings

import numpy as np

import hgp_ref as hgp
from hgp_ref import networks
from hgp_ref.problems import InstanceWeights, LogisticRegression, Quadratic, SoftmaxRegression, sample_batches

KINDS = ("reset", "keep", "conserve", "gossip", "exact")


def random_network(rng, n, doubly=False):
    """A network of n clients, perhaps from a later step on; with `doubly` its matrices are doubly stochastic."""
    seed = int(rng.integers(1 << 30))
    if doubly:
        net = networks.StaticUndirected(n, p=0.8, seed=seed, weights="metropolis")
    else:
        net = [
            lambda: networks.RandomDirected(n, seed=seed),
            lambda: networks.RandomUndirected(n, seed=seed),
            lambda: networks.OnePeerExponential(n),
            lambda: networks.RandomOut(n, min(2, n - 1), seed=seed) if n > 1 else networks.RandomDirected(n, seed=seed),
            lambda: networks.Schedule(random_matrices(rng, n)),
        ][rng.integers(5)]()
    return net.after(int(rng.integers(1, 40))) if rng.random() < 0.4 else net


def random_matrices(rng, n):
    """Three column-stochastic matrices with unequal shares and self-loops."""
    P = rng.random((3, n, n)) * (rng.random((3, n, n)) < 0.7) + 0.3 * np.eye(n)
    return P / P.sum(axis=1, keepdims=True)


class Average:
    """An averaging of the package and the same by hand: one call after the other, with its traffic."""

    def __init__(self, rng, n):
        self.kind = KINDS[rng.integers(5)]
        self.steps = int(rng.integers(1, 5)) if rng.random() < 0.5 else tuple(rng.integers(1, 5, 3).tolist())
        mode = ("composed", "stepping", "auto")[rng.integers(3)]
        self.n, self.net = n, None if self.kind == "exact" else random_network(rng, n, self.kind == "gossip")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of debias="keep"
            if self.kind == "exact":
                self.avg = hgp.ExactAverage(n)
            elif self.kind == "gossip":
                self.avg = hgp.Gossip(self.net, self.steps, mode=mode)
            else:
                self.avg = hgp.PushSum(self.net, self.steps, debias=self.kind, mode=mode)
        self.restart()

    def restart(self):
        self.s, self.m, self.omega = 0, 0, np.ones(self.n)
        self.messages = self.floats = self.rounds = 0

    def average(self, u):
        """The next call, for rows u (n, d)."""
        if self.kind == "exact":
            self._count(self.n * (self.n - 1), u.shape[1])
            return np.tile(u.mean(axis=0), (self.n, 1))
        S = self.steps if isinstance(self.steps, int) else self.steps[min(self.m, len(self.steps) - 1)]
        self.m += 1
        omega = self.omega if self.kind in ("keep", "conserve") else np.ones(self.n)
        for _ in range(S):
            self.s += 1
            W = self.net.mixing_matrix(self.s)
            u, omega = W @ u, W @ omega
            senders, receivers = self.net.edges(self.s)
            self._count(int(np.sum(np.asarray(senders) != np.asarray(receivers))), u.shape[1] + (self.kind != "gossip"))
        self.omega = omega
        return u if self.kind == "gossip" else u / omega[:, None]

    def _count(self, messages, numbers):
        self.messages += messages
        self.floats += messages * numbers
        self.rounds += 1

    def carry(self, ubar):
        return ubar * self.omega[:, None] if self.kind == "conserve" else ubar

    def debias(self, u):
        return u / self.omega[:, None] if self.kind == "conserve" else u

    def traffic(self, itemsize=8):
        return self.messages, self.floats, self.floats * itemsize, self.rounds


def counted(traffic, run=None):
    fields = (traffic.messages, traffic.floats, traffic.bytes, traffic.rounds)
    return tuple(int(f if run is None else f[run]) for f in fields)


def random_problem(rng, instances=False):
    """(problem, x, lam), clients of unequal size; the mean Hessian is positive definite."""
    n, kind = int(rng.integers(1, 6)), int(rng.integers(0 if not instances else 1, 5))
    if kind == 0:
        problem = Quadratic.random(n, int(rng.integers(1, 5)), int(rng.integers(1, 4)), seed=int(rng.integers(1 << 30)))
    else:
        d, classes = int(rng.integers(1, 6)), 3 if kind in (2, 4) else 2
        counts, val = rng.integers(2, 9, n), rng.integers(1, 5, n)
        X, X_val = ([rng.standard_normal((k, d)) for k in part] for part in (counts, val))
        y, y_val = ([rng.integers(0, classes, k) for k in part] for part in (counts, val))
        style = ("coordinate", "client")[rng.integers(2)]
        if kind == 1:
            problem = LogisticRegression(X, y, X_val, y_val, regularization=style)
        elif kind == 2:
            problem = SoftmaxRegression(X, y, X_val, y_val, 3, regularization=style)
        elif kind == 3:
            problem = InstanceWeights(X, y, X_val, y_val, l2=0.3)
        else:
            problem = InstanceWeights(X, y, X_val, y_val, loss="softmax", n_classes=3, l2=0.3)
    x = rng.standard_normal((problem.n_clients, problem.dim_x))
    return problem, x, rng.uniform(0.2, 0.8, (problem.n_clients, problem.dim_lam))


def dense(problem, x, lam, batch=None):
    """H (n, d, d) and J (n, d_lam, d) from products with unit vectors."""
    lin, n, d = problem.linearize(x, lam) if batch is None else problem.linearize(x, lam, batch), *x.shape
    units = [np.tile(row, (n, 1)) for row in np.eye(d)]
    return np.stack([lin.hvp(e) for e in units], axis=2), np.stack([lin.cross(e) for e in units], axis=2)


def times(A, u):
    return np.einsum("nij,nj->ni", A, u)


class Loop:
    """v, w, the norms of what is left, for Algorithm 2 (eta) or Chebyshev (low, high)."""

    def __init__(self, problem, x, lam, average, M, *, eta=None, interval=None, w0=None, batches=None, tol=None):
        f_x, f_lam = problem.outer_grad(x, lam)
        H, J = dense(problem, x, lam)
        w, v, r = np.zeros_like(f_x), f_lam, f_x
        if w0 is not None:
            w = average.average(w0)
            r, v = f_x - times(H, w), f_lam - times(J, w)
        first, self.history, self.iterations = np.linalg.norm(r, axis=1).max(), [], M
        p, rho = np.zeros_like(w), 0.0
        for m in range(M):
            if batches is not None:
                J, H = dense(problem, x, lam, batches[0][m])[1], dense(problem, x, lam, batches[-1][m])[0]
            rbar = average.average(r)
            if eta is not None:
                p = eta * rbar
            else:
                p, rho = chebyshev_step(rbar, p, rho, m, *interval)
            r = average.carry(rbar) - times(H, p)
            w, v = w + p, v - times(J, p)
            self.history.append(v)
            self.growth = np.linalg.norm(average.debias(r), axis=1).max() / (first or 1.0)
            if tol is not None and self.growth <= tol:
                self.iterations = m + 1
                break
        self.w, self.v = w, v


def chebyshev_step(r, p, rho, k, low, high):
    """From T_{k+1} = 2σT_k − T_{k-1} with σ = c/h: ρ_k = T_k(σ)/T_{k+1}(σ), p_k = 2ρ_k/h r + ρ_k ρ_{k-1} p_{k-1}."""
    c, h = (low + high) / 2, (high - low) / 2
    if k == 0 or h == 0:
        return r / c, h / c
    T = np.polynomial.chebyshev.Chebyshev.basis
    rho_k = T(k)(c / h) / T(k + 1)(c / h)
    return 2 * rho_k / h * r + rho_k * rho * p, rho_k


def draw(problem, size, seed, M, *, shared, replace, first):
    streams = (0,) if shared else (0, 1)
    return [sample_batches(problem.counts, size, seed, first, M, stream, replace) for stream in streams]
