"""Random settings for the search: problems, networks, steps and lengths over the whole range that is claimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import hgp_ref as hgp
from verification.cases import Case, case_at, case_of, logistic, same_row

NETWORKS = (
    "RandomDirected",
    "RandomUndirected",
    "FullyConnected",
    "StaticUndirected",
    "SelfLoops",
    "Schedule",
    "OnePeerExponential",
    "RandomOut",
    "SparseErdosRenyi",
)
PROBLEMS = ("quadratic", "quadratic", "quadratic", "non-convex", "logistic", "softmax", "weights")
DOUBLY_STOCHASTIC = ("FullyConnected", "StaticUndirected", "OnePeerExponential")
EXTREMES = ("", "condition", "scale", "")  # take turns among the quadratics: conditioning to 1e12, scales to 1e±150
EXPONENTS = (-150, -75, 0, 75, 150)


@dataclass(frozen=True)
class Setting:
    """One random setting."""

    case: Case
    avg: Any
    network: str
    eta: float
    M: int
    description: str
    extreme: str = ""  # "condition" or "scale"
    S: int = 1


def draw(rng: np.random.Generator, index: int) -> Setting:
    """Setting number `index`. Kinds of networks and problems alternate, everything else is random."""
    n, d = int(rng.integers(1, 13)), int(rng.integers(1, 11))
    network = NETWORKS[index % len(NETWORKS)]
    kind = PROBLEMS[(index // len(NETWORKS)) % len(PROBLEMS)]
    extreme = EXTREMES[index % len(EXTREMES)] if kind in ("quadratic", "non-convex") else ""
    condition = 10 ** (rng.uniform(4, 12) if extreme == "condition" else rng.uniform(0, 4))
    exponents = draw_exponents(rng) if extreme == "scale" else (0, 0, 0)
    case = make_case(kind, n, d, condition, rng, exponents)
    S = round(10 ** rng.uniform(0, 2))
    M = round(10 ** rng.uniform(0, 1.8))
    largest = case.L if kind != "non-convex" else float(np.linalg.eigvalsh(case.H.mean(axis=0))[-1])
    eta = float(rng.uniform(0.1, 1.9) / largest)
    net = make_network(network, n, rng)
    gossip = network in DOUBLY_STOCHASTIC and rng.random() < 0.3
    avg = hgp.Gossip(net, S) if gossip else hgp.PushSum(net, S)
    name = f"{network}{' gossip' if gossip else ''}"
    description = f"{case.name}, n={n}, d={case.x.shape[1]}, {name}, S={S}, M={M}, η={eta:.2g}"
    return Setting(case, avg, network, eta, M, description, extreme, S)


def make_network(name: str, n: int, rng: np.random.Generator) -> Any:
    """A network of the given kind with random parameters."""
    seed = int(rng.integers(2**31))
    networks = hgp.networks
    if name in ("RandomDirected", "RandomUndirected"):
        low, high = np.sort(rng.uniform(0.05, 1, 2))
        return getattr(networks, name)(n, low=float(low), high=float(high), seed=seed)
    if name == "StaticUndirected":
        return networks.StaticUndirected(n, p=0.9, seed=seed, weights="metropolis")
    if name == "Schedule":
        weights = rng.random((int(rng.integers(1, 4)), n, n)) ** 3 + np.eye(n)
        weights = weights / weights.sum(axis=1, keepdims=True)
        single = rng.random() < 0.5  # columns then sum to 1 up to 1e-7 only
        return networks.Schedule(list(weights.astype(np.float32) if single else weights))
    if name == "RandomOut":
        return networks.RandomOut(n, int(rng.integers(0, n)), seed=seed) if n > 1 else networks.SelfLoops(1)
    if name == "SparseErdosRenyi":
        return networks.SparseErdosRenyi(n, float(rng.uniform(0, n - 1)), seed=seed) if n > 1 else networks.SelfLoops(1)
    return getattr(networks, name)(n)


def make_case(
    kind: str, n: int, d: int, condition: float, rng: np.random.Generator, exponents: tuple[int, int, int] = (0, 0, 0)
) -> Case:
    """A problem of the given kind at its inner solution; conditioning and exponents are those of quadratics."""
    if kind == "logistic":
        return logistic(
            n, d, seed=int(rng.integers(2**31)), rate=10 ** rng.uniform(-3, 0), instances=8, name="logistic"
        )
    if kind in ("softmax", "weights"):
        return classifier(kind, n, min(d, 4), rng)
    return random_quadratic(kind, n, d, condition, rng, exponents)


def draw_exponents(rng: np.random.Generator) -> tuple[int, int, int]:
    """Powers of ten for H, J and f of which w ~ f/H, v ~ f J/H and λ ~ H/J stay within 1e±150."""
    while True:
        h, j, f = (int(e) for e in rng.choice(EXPONENTS, 3))
        if max(abs(h - j), abs(f - h), abs(f + j - h)) <= 150 and (h, j, f) != (0, 0, 0):
            return h, j, f


def random_quadratic(
    kind: str, n: int, d: int, condition: float, rng: np.random.Generator, exponents: tuple[int, int, int]
) -> Case:
    """Quadratic inner and outer costs of similar or different clients; the mean Hessian is positive definite.

    g = ½xᵀAx − bᵀx + λᵀCx and f = ½(x − t)ᵀQ(x − t) + λᵀDx: A and b scale with h, C with j, λ with h/j, Q with f and D
    with f j/h, all by powers of two, so that x does not change.
    """
    d_lam = int(rng.integers(1, 11))
    spectrum = condition ** -np.linspace(0, 1, d) if d > 1 else np.ones(1)
    bases = np.linalg.qr(rng.normal(size=(n + 1, d, d)))[0]
    each = (bases * spectrum) @ np.swapaxes(bases, 1, 2)
    mix = rng.uniform(0, 1)
    A = (1 - mix) * each[:1] + mix * each[1:]
    if kind == "non-convex" and n > 1:
        apart = rng.normal(size=(n, d, d))
        apart = apart + np.swapaxes(apart, 1, 2)
        A = A + rng.uniform(0, 0.5) * (apart - apart.mean(axis=0)) / d
    A = (A + np.swapaxes(A, 1, 2)) / 2
    Q = rng.normal(size=(n, d, d))
    b = rng.normal(size=(n, d))
    C = rng.normal(size=(n, d_lam, d)) * 10 ** rng.uniform(-1, 1, (n, 1, 1))
    target = rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 1)
    D = rng.normal(size=(n, d_lam, d)) * rng.integers(0, 2)
    lam = rng.normal(size=(n, d_lam))
    x = np.linalg.solve(A.sum(axis=0), (b - np.einsum("nlx,nl->nx", C, lam)).sum(axis=0))
    h, j, f = (2.0 ** round(e / np.log10(2)) for e in exponents)
    problem = hgp.problems.Quadratic(
        h * A, h * b, j * C, target, outer_hessian=f * (Q @ np.swapaxes(Q, 1, 2) / d), coupling=f / h * j * D
    )
    units = " H·1e{} J·1e{} f·1e{}".format(*exponents) if any(exponents) else ""
    return case_at(f"{kind} κ={condition:.3g}{units}", problem, same_row(x, n), h / j * lam)


def classifier(kind: str, n: int, d: int, rng: np.random.Generator) -> Case:
    """Softmax regression with a rate per coordinate, or weights of instances, on random labels."""
    N, classes = 6, 3
    X, X_val = rng.normal(size=(2, n, N, d))
    y, y_val = rng.integers(0, classes, (2, n, N))
    if kind == "softmax":
        problem = hgp.problems.SoftmaxRegression(X, y, X_val, y_val, n_classes=classes)
        lam = 10 ** rng.uniform(-2, 0) * np.ones((n, problem.dim_lam))
    else:
        problem = hgp.problems.InstanceWeights(
            X, y, X_val, y_val, loss="softmax", n_classes=classes, l2=10 ** rng.uniform(-2, 0)
        )
        lam = np.ones((n, problem.dim_lam))
    return case_of(kind, problem, lam)
