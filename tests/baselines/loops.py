"""The estimators of other methods as plain loops over dense matrices, in the eliminated forms of their papers.

Nothing of the package is called: H (n, q, q), f (n, q), W (n, n) are given, w (M, n, q) comes out.
"""

from __future__ import annotations

import numpy as np


def apply(H, w):
    return np.einsum("nij,nj->ni", H, w)


def diffusion(H, f, W, a, M):
    w, out = np.zeros_like(f), []
    for _ in range(M):
        w = W @ (w - a * (apply(H, w) - f))
        out.append(w)
    return out


def consensus(H, f, W, a, M):
    w, out = np.zeros_like(f), []
    for _ in range(M):
        w = W @ w - a * (apply(H, w) - f)
        out.append(w)
    return out


def tracking(H, f, W, a, M):
    """s^{k+2} = 2W s^{k+1} − W² s^k − a (d^{k+1} − d^k)."""
    d = lambda w: apply(H, w) - f  # noqa: E731
    s = [np.zeros_like(f)]
    s.append(W @ s[0] - a * d(s[0]))
    while len(s) <= M:
        s.append(2 * W @ s[-1] - W @ W @ s[-2] - a * (d(s[-1]) - d(s[-2])))
    return s[1 : M + 1]


def ed(H, f, W, a, M):
    W = (np.eye(len(W)) + W) / 2
    d = lambda w: apply(H, w) - f  # noqa: E731
    s = [np.zeros_like(f)]
    s.append(W @ (s[0] - a * d(s[0])))
    while len(s) <= M:
        s.append(W @ (2 * s[-1] - s[-2] - a * (d(s[-1]) - d(s[-2]))))
    return s[1 : M + 1]


def extra(H, f, W, a, M):
    W = (np.eye(len(W)) + W) / 2
    d = lambda w: apply(H, w) - f  # noqa: E731
    s = [np.zeros_like(f)]
    s.append(W @ s[0] - a * d(s[0]))
    while len(s) <= M:
        s.append(2 * W @ s[-1] - W @ s[-2] - a * (d(s[-1]) - d(s[-2])))
    return s[1 : M + 1]


def gt(H, f, W, a, M):
    d = lambda w: apply(H, w) - f  # noqa: E731
    s = [np.zeros_like(f)]
    s.append(W @ (s[0] - a * W @ d(s[0])))
    while len(s) <= M:
        s.append(2 * W @ s[-1] - W @ W @ s[-2] - a * W @ W @ (d(s[-1]) - d(s[-2])))
    return s[1 : M + 1]


def push_pull(H, f, matrices, a, M):
    """s ← A s − a t, t ← B t + d⁺ − d, with B = W_s and A = W_s divided by its row sums."""
    s = np.zeros_like(f)
    t = -f
    out = []
    for B in matrices[:M]:
        A = B / B.sum(axis=1, keepdims=True)
        new = A @ s - a * t
        t = B @ t + apply(H, new) - apply(H, s)
        s = new
        out.append(s)
    return out


def hessian_gossip(H, f, W, beta, ell, b, M):
    n, q = f.shape
    h, V, out = f.copy(), H.copy(), []
    for _ in range(M):
        h = (1 - beta) * W @ h + beta * f
        V = (1 - beta) * np.einsum("ij,jkl->ikl", W, V) + beta * H
        w = np.empty_like(f)
        for i in range(n):
            Q = np.eye(q)
            for _ in range(b):
                Q = np.eye(q) + (np.eye(q) - V[i] / ell) @ Q
            w[i] = Q @ h[i] / ell
        out.append(w)
    return out


def local(H, f, eta, M):
    out, w = [], np.zeros_like(f)
    u = f.copy()
    for _ in range(M):
        w = w + eta * u
        u = u - eta * apply(H, u)
        out.append(w)
    return out


def random_term(H, f, N, ell, last):
    mean = lambda z: np.tile(z.mean(axis=0), (len(z), 1))  # noqa: E731
    w = N / ell * mean(f)
    for _ in range(last):
        w = mean(w - apply(H, w) / ell)
    return w


LOOPS = {"diffusion": diffusion, "consensus": consensus, "tracking": tracking, "ED": ed, "EXTRA": extra, "GT": gt}


def lazy_ring(n):
    W = np.zeros((n, n))
    for i in range(n):
        W[i, i] += 0.5
        W[i, (i + 1) % n] += 0.25
        W[i, (i - 1) % n] += 0.25
    return W
