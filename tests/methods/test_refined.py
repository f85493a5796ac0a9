"""Refinement against an explicit loop, the gain of a cycle, and other methods inside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking

RTOL = 1e-12
NET = hgp.networks.RandomDirected(n=3, seed=1)


def product(net, first, steps):
    P = np.eye(net.n)
    for W in net.mixing_matrices(first, steps):
        P = W @ P
    return P / P.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("w0", [False, True])
@pytest.mark.parametrize("restarts", [7, (7, 9)], ids=str)
def test_refined_equals_explicit_loops(restarts, w0):
    """Three cycles of three iterations of the series: graphs, restarts and increments one by one."""
    problem, x, lam = quadratic()
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    f_x, f_lam = exact.outer_gradients(problem, x, lam)
    guess = np.random.default_rng(2).normal(size=f_x.shape) if w0 else None
    clock, w, history = 1, np.zeros_like(f_x), []

    def average(a, steps):
        nonlocal clock
        clock += steps
        return product(NET, clock - steps, steps) @ a

    if w0:
        w = average(guess, 2)
    u = f_x - np.einsum("nij,nj->ni", H, w)
    for m in range(9):
        S = 2
        if m in (3, 6):
            S = restarts if isinstance(restarts, int) else restarts[m // 3 - 1]
            w = average(w, S)
            u = f_x - np.einsum("nij,nj->ni", H, w)
        ubar = average(u, S)
        w = w + 0.5 * ubar
        u = ubar - 0.5 * np.einsum("nij,nj->ni", H, ubar)
        history.append(f_lam - np.einsum("nij,nj->ni", J, w))
    method = Refined(Neumann(0.5), cycles=3, steps=restarts)
    avg = hgp.PushSum(NET, 2)
    est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=9, history=True, w0=guess)
    assert_close(est.history, np.stack(history), RTOL)
    assert est.traffic.rounds == clock - 1
    sent = sum(NET.edges(s)[0].size - 3 for s in range(1, clock))
    assert est.traffic.floats == 5 * sent
    seen = []
    hgp.hypergradient(problem, x, lam, avg, method=method, iterations=9, callback=lambda m, v: seen.append(v), w0=guess)
    assert_close(np.stack(seen), np.stack(history), RTOL)
    many = hgp.hypergradient(problem, x, lam, [avg, hgp.PushSum(NET, 3)], method=method, iterations=9, w0=guess)
    assert_close(many.value[0], history[-1], RTOL)


class Own(Method):
    """A method of one's own that finds something out before it begins."""

    def init(self, start):
        return {"u": start.residual, "eta": 0.5}

    def step(self, state, mixer, linearization):
        ubar = mixer.average(state["u"])
        p = state["eta"] * ubar
        return p, {**state, "u": mixer.carry(ubar) - linearization.hvp(p)}


INNER = {
    "Neumann": lambda: Neumann(0.5),
    "Chebyshev": lambda: Chebyshev(),
    "Tracking": lambda: Tracking(0.4),
    "own": Own,
    "Refined": lambda: Refined(Neumann(0.5), 2, 20),
}


@pytest.mark.parametrize("debias", ["reset", "conserve"])
@pytest.mark.parametrize("inner", INNER)
def test_every_method_gains_from_restarts(inner, debias):
    problem, x, lam = quadratic()
    truth = exact.hypergradient(problem, x, lam)
    avg = hgp.PushSum(NET, 6, debias=debias)
    est = hgp.hypergradient(
        problem, x, lam, avg, method=Refined(INNER[inner](), cycles=6, steps=60), iterations=300, history=True
    )
    errors = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    assert errors[-1] < 1e-11
    if inner != "Tracking":
        plain = hgp.hypergradient(problem, x, lam, avg, method=INNER[inner](), iterations=300)
        assert np.linalg.norm(plain.value - truth) > 1e-9 * np.linalg.norm(truth) or inner == "Refined"
    if inner in ("Neumann", "Chebyshev"):  # each cycle contracts, none worse than a tenth
        ends = errors[49::50]
        assert np.all(ends[1:4] < 0.1 * ends[:3] + 1e-12)


def test_chebyshev_finds_its_interval_once():
    problem, x, lam = quadratic()
    avg = hgp.PushSum(NET, 4)
    once = hgp.hypergradient(problem, x, lam, avg, method=Chebyshev(), iterations=12).traffic.rounds - 48
    refined = hgp.hypergradient(problem, x, lam, avg, method=Refined(Chebyshev(), 3, 10), iterations=12)
    assert refined.traffic.rounds == once + 10 * 4 + 2 * 20


def test_with_mini_batches_noise_shrinks_with_the_residual():
    """At the same number of instance products, 100 times less error than Algorithm 2 with mini-batches."""
    problem, x, lam = logistic(N=60)
    truth = exact.hypergradient(problem, x, lam)
    avg, b, M, cycles = hgp.PushSum(NET, 30), 12, 400, 5
    budget = M * b + cycles * 60 + 60
    seeds = [1, 2, 3, 4]
    plain = hgp.hypergradient(
        problem, x, lam, avg, Neumann(1.0), iterations=budget // b, batches=hgp.MiniBatches(b, seed=seeds)
    )
    method = Refined(Neumann(1.0), cycles, 60)
    batches = hgp.MiniBatches(b, seed=seeds, full_jacobian=True)
    est = hgp.hypergradient(problem, x, lam, avg, method, iterations=M, batches=batches)
    errors = [np.median(np.linalg.norm(e.value - truth, axis=(1, 2))) for e in (plain, est)]
    assert errors[1] < errors[0] / 100
    certificate = hgp.certify(problem, x, lam, est)
    assert np.all(np.linalg.norm(est.value - truth, axis=2) <= certificate.bound)


def test_a_full_batch_jacobian_removes_the_noise_of_the_mixed_derivatives():
    rng = np.random.default_rng(0)
    (X, X_val), (y, y_val) = rng.uniform(-1, 1, (2, 3, 30, 4)), rng.integers(0, 2, (2, 3, 30))
    problem = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.5)
    x, lam = rng.normal(size=(3, 4)), np.ones((3, 30))
    f_lam, J = exact.outer_gradients(problem, x, lam)[1], exact.jacobians(problem, x, lam)
    batches = hgp.MiniBatches(10, seed=3)
    options = {"method": Neumann(1.0), "iterations": 60}
    est = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(NET, 20), batches=replace(batches, full_jacobian=True), **options
    )
    assert_close(est.value, f_lam - np.einsum("nij,nj->ni", J, est.w), RTOL)
    plain = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 20), batches=batches, **options)
    assert_close(plain.w, est.w, RTOL)
    assert np.linalg.norm(plain.value - est.value) > 1e-3 * np.linalg.norm(est.value)
    assert est.batches.full_jacobian and not plain.batches.full_jacobian


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Neumann",), "method must be a Method, got 'Neumann'"),
        ((Neumann(1.0), 0), "cycles must be an integer >= 1, got 0"),
        ((Neumann(1.0), 2, 0), "steps must be an integer >= 1, got 0"),
        ((Neumann(1.0), 2, []), "steps must be an integer >= 1 or a sequence of them, got an empty one"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Refined(*arguments)
    with pytest.raises(TypeError, match="full_jacobian must be True or False, got 1"):
        hgp.MiniBatches(2, full_jacobian=1)


def test_more_cycles_than_iterations():
    problem, x, lam = quadratic()
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), method=Refined(Neumann(0.5), 10, 5), iterations=4)
    assert est.iterations == 4 and est.traffic.rounds == 3 + 3 * 10


@pytest.mark.parametrize("tol", [1e-3, 1e-9])
def test_a_tolerance_ends_the_last_cycle_only(tol):
    """Inside the first cycle little is soon left of its own series, whatever the averaging has left behind."""
    problem = hgp.problems.Quadratic.random(4, 5, 2, seed=3)
    rng = np.random.default_rng(0)
    x, lam = rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    avg = hgp.PushSum(hgp.networks.RandomDirected(4, low=0.3, high=0.6, seed=5), 3)
    method = hgp.methods.Refined(hgp.methods.Chebyshev(0.1, 1.1), 5, 40)
    est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=200, tol=tol)
    assert est.stopped == "tolerance" and 160 < est.iterations < 200
    truth = hgp.exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(est.value - truth) < 1e-6 * np.linalg.norm(truth)
