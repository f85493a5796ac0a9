"""A client's numbers depend on that client alone, bit for bit: clients in two places give what all give in one.

Here every place has a restricted problem and computes the rows of its own clients only; sums run over senders in
order. This is what makes a run over several machines equal to the simulation.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import NETWORK_KINDS

import hgp_ref as hgp
from hgp_ref._kernels.mixing import pull_step, pull_vector_step

N, PLACES = 7, (slice(0, 3), slice(3, 7))
KINDS = ("RandomDirected", "RandomOut", "Schedule", "OnePeerExponential")


def problem_of(kind, dtype, equal):
    rng = np.random.default_rng(1)
    sizes = [9] * N if equal else [3, 9, 5, 12, 4, 9, 7]
    X, X_val = ([rng.normal(size=(k, 5)).astype(dtype) for k in sizes] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k).astype(dtype) for k in sizes] for _ in range(2))
    make = {"logistic": hgp.problems.LogisticRegression, "weights": hgp.problems.InstanceWeights}[kind]
    problem = make(X, y, X_val, y_val, **({"l2": 0.1} if kind == "weights" else {}))
    lam = rng.uniform(0.1, 0.4, (N, problem.dim_lam)).astype(dtype)
    return problem, (rng.normal(size=(N, 5)) / 3).astype(dtype), lam


def in_places(problem, call):
    """Rows of every place, computed there: call(restricted problem, its clients)."""
    rows = [call(problem.restrict(clients), clients) for clients in PLACES]
    if isinstance(rows[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))
    return np.concatenate(rows)


def mix(net, s, z, omega):
    """W_s z and W_s ω, the rows of every place by itself."""
    graph = net.csr(s)
    mixed, weights = [], []
    for clients in PLACES:
        out = np.empty((clients.stop - clients.start, z.shape[1]), dtype=z.dtype)
        rows = graph[0][clients.start : clients.stop + 1]
        pull_step(rows, *graph[1:], np.ascontiguousarray(z), out)
        mixed.append(out)
        weights.append(pull_vector_step(rows, *graph[1:], omega))
    return np.concatenate(mixed), np.concatenate(weights)


def draws(problem, size, seed, count, stream=0):
    return in_places(
        problem,
        lambda part, _: np.moveaxis(
            hgp.problems.sample_batches(part.counts, size, seed, 0, count, stream, clients=part.clients), 1, 0
        ),
    ).swapaxes(0, 1)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "equal"), [("logistic", True), ("logistic", False), ("weights", False)])
@pytest.mark.parametrize("network", KINDS)
def test_training_in_two_places_is_training_in_one(network, kind, equal, dtype, batch_size):
    problem, _, lam = problem_of(kind, dtype, equal)
    net, steps = NETWORK_KINDS[network](N), 12
    batches = None if batch_size is None else draws(problem, batch_size, 4, steps)
    z, omega = np.zeros((N, 5), dtype=dtype), np.ones(N)
    x = z
    for s in range(steps):
        gradient = in_places(
            problem,
            lambda part, c, z=z, s=s: part.inner_grad(z[c], lam[c], batch=None if batches is None else batches[s][c]),
        )
        z, omega = mix(net, s + 1, x - 0.25 * gradient, omega)
        z /= omega.astype(dtype)[:, None]
        x = z * omega.astype(dtype)[:, None]
    options = {
        "steps": steps,
        "lr": 0.25,
        "milestones": (),
        "batches": None if batch_size is None else hgp.MiniBatches(batch_size, seed=4),
        "mode": "stepping",
    }
    np.testing.assert_array_equal(hgp.train(problem, lam, net, hgp.training.SGP(**options)).x, z)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "equal"), [("logistic", True), ("logistic", False), ("weights", False)])
@pytest.mark.parametrize("network", KINDS)
def test_a_hypergradient_in_two_places_is_that_in_one(network, kind, equal, dtype, batch_size):
    problem, x, lam = problem_of(kind, dtype, equal)
    net, M, S, eta = NETWORK_KINDS[network](N), 8, 2, 0.5
    batches = None if batch_size is None else [draws(problem, batch_size, 4, M, stream) for stream in (0, 1)]
    u, f_lam = in_places(problem, lambda part, c: part.outer_grad(x[c], lam[c]))
    points = [part.linearize(x[c], lam[c]) for part, c in ((problem.restrict(c), c) for c in PLACES)]
    w, v = np.zeros_like(u), f_lam

    def product(name, vector, stream, m):
        rows = []
        for point, clients in zip(points, PLACES, strict=True):
            at = point if batches is None else point.on(batches[stream][m][clients])
            rows.append(getattr(at, name)(vector[clients]))
        return np.concatenate(rows)

    for m in range(M):
        omega, mixed = np.ones(N), u
        for s in range(m * S + 1, (m + 1) * S + 1):
            mixed, omega = mix(net, s, mixed, omega)
        ubar = mixed / omega.astype(dtype)[:, None]
        p = eta * ubar
        u = ubar - product("hvp", p, 1, m)
        w = w + p
        v = v if batches is None else v - product("cross", p, 0, m)
    v = v if batches is not None else f_lam - product("cross", w, 0, 0)
    avg = hgp.PushSum(net, S, mode="stepping")
    drawn = None if batch_size is None else hgp.MiniBatches(batch_size, seed=4)
    est = hgp.hypergradient(problem, x, lam, avg, eta=eta, iterations=M, batches=drawn)
    np.testing.assert_array_equal(est.w, w)
    np.testing.assert_array_equal(est.value, v)
