"""The bilevel methods of others as plain loops over dense matrices; of the package only costs and explicit derivatives.

Each returns λ after every outer iteration, (K, n, p). `shared` decides whether λ is mixed.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import exact


class At:
    """Explicit derivatives of a problem at a point."""

    def __init__(self, problem, x, lam):
        self.f_x, self.f_lam = problem.outer_grad(x, lam)
        self.H, self.J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)

    def bend(self, w):
        return np.einsum("nij,nj->ni", self.H, w)

    def cross(self, w):
        return np.einsum("nij,nj->ni", self.J, w)


def dsoba(problem, W, lam, x, K, lr, inner_lr, aux_lr, momentum, shared):
    z, h, out = np.zeros_like(x), None, []
    for _ in range(K):
        at = At(problem, x, lam)
        u = at.f_lam - at.cross(z)
        h = u if h is None else (1 - momentum) * h + momentum * u
        g = problem.inner_grad(x, lam)
        x, z = W @ (x - inner_lr * g), W @ (z - aux_lr * (at.bend(z) - at.f_x))
        lam = W @ (lam - lr * h) if shared else lam - lr * h
        out.append(lam)
    return np.stack(out), x


def _eliminated(kind, W, s, before, d, d_before, step):
    """The next s from the last two and their directions, in the eliminated form; before is None at first."""
    lazy = (np.eye(len(W)) + W) / 2
    if kind == "ED":
        return lazy @ (s - step * d) if before is None else lazy @ (2 * s - before - step * (d - d_before))
    if kind == "EXTRA":
        return lazy @ s - step * d if before is None else 2 * lazy @ s - lazy @ before - step * (d - d_before)
    if before is None:
        return W @ (s - step * W @ d)
    return 2 * W @ s - W @ W @ before - step * W @ W @ (d - d_before)


def sparkle(problem, W, lam, x, K, lr, inner_lr, aux_lr, rules, shared):
    z, out, before = np.zeros_like(x), [], None
    for _ in range(K):
        at = At(problem, x, lam)
        now = (x, z, lam)
        d = (problem.inner_grad(x, lam), at.bend(z) - at.f_x, at.f_lam - at.cross(z))
        nxt = []
        for i, (kind, step) in enumerate(zip(rules, (inner_lr, aux_lr, lr), strict=True)):
            if i == 2 and not shared:
                nxt.append(lam - lr * d[2])
                continue
            old, d_old = (None, None) if before is None else (before[0][i], before[1][i])
            nxt.append(_eliminated(kind, W, now[i], old, d[i], d_old, step))
        before = (now, d)
        x, z, lam = nxt
        out.append(lam)
    return np.stack(out), x


def ma_dsbo(problem, W, lam, x, K, lr, inner_lr, higp_lr, T, N, momentum, shared):
    z, r, out = np.zeros_like(x), None, []
    for _ in range(K):
        for _ in range(T):
            x = W @ x - inner_lr * problem.inner_grad(x, lam)
        at = At(problem, x, lam)
        d = s = at.bend(z) - at.f_x
        for _ in range(N):
            z = W @ z - higp_lr * d
            new = at.bend(z) - at.f_x
            d, s = W @ d + new - s, new
        u = at.f_lam - at.cross(z)
        r = u if r is None else (1 - momentum) * r + momentum * u
        lam = W @ lam - lr * r if shared else lam - lr * r
        out.append(lam)
    return np.stack(out), x


def jhip(at, W, Z, gamma, N, shared):
    """Z (n, q, k) after N steps."""
    n, p, _ = at.J.shape
    if shared:
        B = np.swapaxes(at.J, 1, 2)
    else:
        B = np.zeros((n, at.J.shape[2], n * p))
        for i in range(n):
            B[i, :, i * p : (i + 1) * p] = at.J[i].T
    Z = np.zeros_like(B) if Z is None else Z
    R = grad = at.H @ Z - B
    for _ in range(N):
        Z = np.einsum("ij,jkl->ikl", W, Z) - gamma * R
        new = at.H @ Z - B
        R, grad = np.einsum("ij,jkl->ikl", W, R) + new - grad, new
    return Z


def dbo(problem, W, lam, x, K, lr, inner_lr, jhip_lr, T, N, shared, tracking):
    n, p = lam.shape
    Z, out, t, last = None, [], None, None
    for _ in range(K):
        for _ in range(T):
            x = W @ x - inner_lr * problem.inner_grad(x, lam)
        at = At(problem, x, lam)
        if shared:
            Z = jhip(at, W, Z, jhip_lr, N, True)
            u = at.f_lam - np.einsum("nqk,nq->nk", Z, at.f_x)
            if tracking:
                t = u if t is None else W @ t + u - last
                last = u
            lam = W @ lam - lr * (t if tracking else u)
        else:
            y = products = None
            for _ in range(N + 1):  # tracked products beside Z, which restarts with every inner loop
                Z0 = np.zeros((n, x.shape[1], n * p)) if Z is None else Z
                now = -np.einsum("nqk,nq->nk", Z0, at.f_x)
                y = now if y is None else W @ y + now - products
                products = now
                if _ < N:
                    if _ == 0:
                        state = _Jhip(at, W, Z0, jhip_lr)
                    Z = state.step()
            own = np.stack([y[i, i * p : (i + 1) * p] for i in range(n)])
            lam = lam - lr * (at.f_lam + n * own)
        out.append(lam)
    return np.stack(out), x


class _Jhip:
    def __init__(self, at, W, Z, gamma):
        n, p, q = at.J.shape
        self.B = np.zeros((n, q, n * p))
        for i in range(n):
            self.B[i, :, i * p : (i + 1) * p] = at.J[i].T
        self.at, self.W, self.Z, self.gamma = at, W, Z, gamma
        self.R = self.grad = at.H @ Z - self.B

    def step(self):
        self.Z = np.einsum("ij,jkl->ikl", self.W, self.Z) - self.gamma * self.R
        new = self.at.H @ self.Z - self.B
        self.R, self.grad = np.einsum("ij,jkl->ikl", self.W, self.R) + new - self.grad, new
        return self.Z


def gbdsbo(problem, W, lam, x, K, lr, inner_lr, mixing, ell, terms, shared):
    at = At(problem, x, lam)
    h, V, s, U = at.f_x, at.H, at.f_lam, at.J
    mix = lambda a: np.einsum("ij,j...->i...", W, a)  # noqa: E731
    out = []
    for _ in range(K):
        at = At(problem, x, lam)
        v = np.empty_like(lam)
        for i in range(len(x)):
            Q = np.eye(x.shape[1])
            for _ in range(terms):
                Q = np.eye(x.shape[1]) + (np.eye(x.shape[1]) - V[i] / ell) @ Q
            w = Q @ h[i] / ell
            v[i] = s[i] - U[i] @ w if shared else at.f_lam[i] - at.J[i] @ w
        g = problem.inner_grad(x, lam)
        lam = W @ lam - lr * v if shared else lam - lr * v
        x = W @ x - inner_lr * g
        h, V, s, U = ((1 - mixing) * mix(a) + mixing * b for a, b in ((h, at.f_x), (V, at.H), (s, at.f_lam), (U, at.J)))
        out.append(lam)
    return np.stack(out), x


def local(at, ell, terms):
    w = np.zeros_like(at.f_x)
    for i in range(len(w)):
        B = np.eye(w.shape[1]) - at.H[i] / ell
        w[i] = sum(np.linalg.matrix_power(B, j) for j in range(terms)) @ at.f_x[i] / ell
    return at.f_lam - at.cross(w)


def mdbo(problem, W, lam, x, K, lr, inner_lr, ell, terms, eta, momentum, shared):
    u = ux = t = tx = None
    out = []
    for _ in range(K):
        at = At(problem, x, lam)
        d, dx = local(at, ell, terms), problem.inner_grad(x, lam)
        new = d if u is None else (1 - momentum) * u + momentum * d
        newx = dx if ux is None else (1 - momentum) * ux + momentum * dx
        t = new if t is None else W @ t + new - u
        tx = newx if tx is None else W @ tx + newx - ux
        u, ux = new, newx
        lam = lam + eta * (W @ lam - lr * t - lam) if shared else lam - eta * lr * u
        x = x + eta * (W @ x - inner_lr * tx - x)
        out.append(lam)
    return np.stack(out), x


def lam_gradient(problem, x, lam, h=1e-3):
    """∂_λ g by differences in λ, in which g is linear in the problems used here."""
    out = np.empty_like(lam)
    for k in range(lam.shape[1]):
        e = np.zeros_like(lam)
        e[:, k] = h
        out[:, k] = (problem.inner_cost(x, lam + e) - problem.inner_cost(x, lam - e)) / (2 * h)
    return out


def fab(problem, matrices, lam, x, K, lr, inner_lr, penalty, shared):
    y, t, last = x, None, None
    out = []
    for B in matrices[:K]:
        A = B / B.sum(axis=1, keepdims=True)
        f_y, f_lam = problem.outer_grad(y, lam)
        d = [
            f_lam + penalty * (lam_gradient(problem, y, lam) - lam_gradient(problem, x, lam)),
            f_y + penalty * problem.inner_grad(y, lam),
            penalty * problem.inner_grad(x, lam),
        ]
        t = d if t is None else [mixed + now - old for mixed, now, old in zip(t, d, last, strict=True)]
        lam = A @ lam - lr * t[0] if shared else lam - lr * d[0]
        y, x = A @ y - inner_lr * t[1], A @ x - inner_lr * t[2]
        t, last = [B @ a for a in t], d
        out.append(lam)
    return np.stack(out), x


def fednest(problem, lam, x, K, lr, inner_lr, ell, terms, lengths, T, tau, shared):
    mean = lambda a: np.tile(a.mean(axis=0), (len(a), 1))  # noqa: E731
    out = []
    for k in range(K):
        for _ in range(T):
            d, y = problem.inner_grad(x, lam), x
            for _ in range(tau):
                y = y - inner_lr * (problem.inner_grad(y, lam) - d + mean(d))
            x = mean(y)
        at = At(problem, x, lam)
        p = terms / ell * mean(at.f_x)
        for _ in range(lengths[k]):
            p = mean(p - at.bend(p) / ell)
        h = at.f_lam - at.cross(p)
        if shared:
            y = lam
            for _ in range(tau):
                there = At(problem, x, y)
                y = y - lr * (there.f_lam - there.cross(p) - h + mean(h))
            lam = mean(y)
        else:
            lam = lam - lr * h
        out.append(lam)
    return np.stack(out), x
