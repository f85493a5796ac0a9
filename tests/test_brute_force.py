"""Thousands of random settings, a few at a time, against the plain loops of `brute_force`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.brute_force import Average, Loop, counted, draw, random_network, random_problem

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev
from hgp_ref.problems import sample_batches


def settings(few, many):
    """Seeds: a few by default, many where slow tests are asked for."""
    return [*range(few), *(pytest.param(k, marks=pytest.mark.slow) for k in range(few, many))]


def apply_once(seed):
    rng = np.random.default_rng((1, *seed))
    n, d, runs = int(rng.integers(1, 8)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    dtype = ("float32", "float64")[rng.integers(2)]
    one, call = Average(rng, n), int(rng.integers(0, 5))
    u = rng.standard_normal((runs, n, d)).astype(dtype)
    worst = 0.0
    got = one.avg.apply(u, call)
    assert got.dtype == u.dtype
    for r in range(runs):
        one.restart()
        for _ in range(call):
            one.average(np.zeros((n, d)))
        before = one.traffic(u.itemsize)
        expected = one.average(u[r].astype(float))
        sent = np.subtract(one.traffic(u.itemsize), before)
        worst = max(worst, np.abs(got[r] - expected).max() / max(1.0, np.abs(expected).max()) / np.finfo(dtype).eps)
    assert counted(one.avg.traffic) == tuple(sent * [runs, runs, runs, 1])
    return worst


@pytest.mark.parametrize("chunk", settings(2, 20))
def test_one_call(chunk):
    assert max(apply_once((chunk, k)) for k in range(60)) < 200


def estimate_once(seed):
    rng = np.random.default_rng((2, *seed))
    mini = rng.random() < 0.4
    problem, x, lam = random_problem(rng, instances=mini)
    n, M, runs = problem.n_clients, int(rng.integers(1, 13)), int(rng.integers(1, 4))
    many = rng.random() < 0.5
    averages = [Average(rng, n) for _ in range(runs if many else 1)]
    seeds = [int(s) for s in rng.integers(0, 1000, len(averages))]
    options, given = {}, {}
    if mini:
        given = {"shared": bool(rng.integers(2)), "replace": bool(rng.integers(2)), "first": int(rng.integers(4))}
        size = int(rng.integers(1, 10))
        names = {"share": given["shared"], "replace": given["replace"], "offset": given["first"]}
        options = {"batches": hgp.MiniBatches(size, seeds if many else seeds[0], **names)}
    w0 = rng.standard_normal(x.shape) if rng.random() < 0.3 else None
    tol = 10.0 ** -rng.integers(1, 4) if rng.random() < 0.3 and len(averages) == 1 else None
    interval, eta = (0.2, float(rng.uniform(3, 9))), float(rng.uniform(0.02, 0.3))
    if rng.random() < 0.5:
        rule, eta = {"eta": eta}, eta
    else:
        rule, eta = {"method": Chebyshev(*interval)}, None
    callback = (lambda m, v: False) if rng.random() < 0.3 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            est = hgp.hypergradient(problem, x, lam, [a.avg for a in averages] if many else averages[0].avg,
                                    iterations=M, history=True, tol=tol, w0=w0, callback=callback, **options,
                                    **rule)  # fmt: skip
        except hgp.DivergenceError:
            return None
    worst = 0.0
    for r, (average, batch_seed) in enumerate(zip(averages, seeds, strict=True)):
        batches = draw(problem, size, batch_seed, M, **given) if mini else None
        loop = Loop(problem, x, lam, average, M, eta=eta, interval=interval, w0=w0, batches=batches, tol=tol)
        run = (r,) if many else ()
        if est.iterations != loop.iterations:  # only where a norm sits on the tolerance
            assert abs(loop.growth / tol - 1) < 1e-9 or pytest.fail(f"{est.iterations} {loop.iterations}")
            continue
        assert est.stopped == ("tolerance" if tol is not None and loop.growth <= tol else "iterations")
        pairs = [(est.value[run], loop.v), (est.w[run], loop.w), (est.history[run], np.stack(loop.history)),
                 (np.asarray(est.residual_ratio)[run], np.asarray(loop.growth))]  # fmt: skip
        scale = max(1.0, np.max(np.abs(loop.history)), np.abs(loop.w).max())
        worst = max(worst, *(np.max(np.abs(a - b)) / max(scale, np.max(np.abs(b))) for a, b in pairs))
        assert counted(est.traffic, r if many else None) == average.traffic()
    return worst


@pytest.mark.parametrize("chunk", settings(2, 20))
def test_estimates(chunk):
    found = [estimate_once((chunk, k)) for k in range(60)]
    assert sum(worst is None for worst in found) < 20  # diverged: "keep", large eta
    assert max(worst for worst in found if worst is not None) < 1e-11


def train_once(seed):
    rng = np.random.default_rng((3, *seed))
    mini = rng.random() < 0.6
    problem, _, lam = random_problem(rng, instances=mini)
    n, steps, lr = problem.n_clients, int(rng.integers(1, 25)), float(rng.uniform(0.01, 0.1))
    net, variant = random_network(rng, n), ("assran", "nedic")[rng.integers(2)]
    seeds = [int(s) for s in rng.integers(0, 99, rng.integers(1, 4))]
    milestones = (0.6, 0.8) if rng.random() < 0.5 else sorted(rng.integers(0, 25, 2).tolist())
    at = milestones if milestones != (0.6, 0.8) else [np.ceil(0.6 * steps - 1e-9), np.ceil(0.8 * steps - 1e-9)]
    size, first = (int(rng.integers(1, 9)), int(rng.integers(3))) if mini else (None, 0)
    x0 = rng.standard_normal((n, problem.dim_x)) if rng.random() < 0.5 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            batches = hgp.MiniBatches(size, seed=seeds, offset=first) if mini else None
            method = hgp.training.SGP(steps, lr, milestones, variant=variant, batches=batches)
            runs = lam if mini else np.broadcast_to(lam, (len(seeds), *lam.shape)) + 0.0
            fit = hgp.train(problem, runs, net, method, x0=x0)
        except hgp.DivergenceError:
            fit = None
    worst, largest = 0.0, 0.0
    for r, batch_seed in enumerate(seeds):
        x, omega, sent = np.zeros((n, problem.dim_x)) if x0 is None else x0, np.ones((n, 1)), 0
        for s in range(steps):
            batch = sample_batches(problem.counts, size, batch_seed, first + s, 1)[0] if mini else None
            rate, W = lr * 0.1 ** sum(s >= m for m in at), net.mixing_matrix(s + 1)
            senders, receivers = net.edges(s + 1)
            sent += int(np.sum(np.asarray(senders) != np.asarray(receivers)))
            if variant == "assran":
                x = W @ (x - rate * problem.inner_grad(x / omega, lam, batch=batch))
                omega = W @ omega
            else:
                x, omega = W @ x, W @ omega
                x = x - rate * problem.inner_grad(x / omega, lam, batch=batch)
        largest = max(largest, np.abs(x / omega).max())
        if fit is None:
            continue
        worst = max(worst, np.abs(fit.x[r] - x / omega).max() / max(1.0, np.abs(x / omega).max()))
        numbers = sent * (problem.dim_x + 1)
        assert counted(fit.traffic, r) == (sent, numbers, 8 * numbers, steps)
    if fit is None:
        assert largest > 100 * (1.0 if x0 is None else np.abs(x0).max()), "refused, but the recursion stays small"
        return None
    return worst


@pytest.mark.parametrize("chunk", settings(1, 15))
def test_training(chunk):
    found = [train_once((chunk, k)) for k in range(50)]
    assert sum(worst is None for worst in found) < 5  # diverged: a rate too large for the steepest client
    assert max(worst for worst in found if worst is not None) < 1e-12
