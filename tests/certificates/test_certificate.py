"""Certificates: sound for any solver, network and point; the same on every library; refused where they must be."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgp_ref as hgp
from hgp_ref import bounds, certificates, exact
from hgp_ref.mixing.channel import max_consensus

from .certificate_checks import CHECKS, estimate_of, linear_problem, logistic, quadratic, value_of


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
def test_certificates(check):
    check(certificates)


@pytest.mark.filterwarnings(
    "ignore:.*not jointly strongly connected"
)  # short runs may not be connected; the bound holds
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 6),
    steps=st.integers(1, 12),
    M=st.integers(1, 40),
    batch=st.sampled_from([None, 1, 4]),
)
def test_runs_are_covered(seed, n, steps, M, batch):
    problem, lam = logistic(n, 3, seed)
    x = exact.inner_solution(problem, lam)
    net = hgp.networks.RandomDirected(n, 0.4, 0.8, seed=seed)
    avg = hgp.PushSum(net, steps)
    batches = None if batch is None else hgp.MiniBatches(batch, seed=seed)
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.3, iterations=M, batches=batches)
    found = hgp.certify(problem, x, lam, est, avg)
    errors = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    assert np.all(errors <= found.bound) and np.all(errors <= found.decentralised_bound)


def test_clients_average_over_graphs_that_the_run_has_not_used():
    problem, lam = logistic(3, 3, 0)
    x, avg = exact.inner_solution(problem, lam), hgp.PushSum(hgp.networks.RandomDirected(3, seed=1), 2)
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.3, iterations=7)
    found, after, from_start = (hgp.certify(problem, x, lam, est, avg, first_call=call) for call in (None, 7, 0))
    np.testing.assert_array_equal(found.decentralised, after.decentralised)
    assert not np.array_equal(found.decentralised, from_start.decentralised)


def test_tight_where_it_should_be():
    problem, lam = logistic(3, 5, 1, N=60)
    x = exact.inner_solution(problem, lam)
    truth = exact.hypergradient(problem, x, lam)
    ratios, own = [], []
    for seed in range(5):
        avg = hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=seed), 5)
        est = hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=200)
        found = hgp.certify(problem, x, lam, est, hgp.PushSum(avg.net, 20))
        errors = np.linalg.norm(est.value - truth, axis=1)
        ratios.extend(found.bound / errors)
        own.extend(found.decentralised_bound / errors)
    assert np.median(ratios) < 3 and np.median(own) < 5


def test_run_axis():
    problem, lam = logistic(3, 2, 5)
    x = exact.inner_solution(problem, lam)
    averagings = [hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=s), 3) for s in (1, 2)]
    est = hgp.hypergradient(problem, x, lam, averagings, eta=0.3, iterations=10)
    both = hgp.certify(problem, x, lam, est, averagings)
    assert both.bound.shape == (2, 3) and both.c3.shape == (2, 3) and both.inexact.shape == (3,)
    alone = []
    for avg in averagings:
        single = hgp.hypergradient(problem, x, lam, avg, eta=0.3, iterations=10)
        alone.append(hgp.certify(problem, x, lam, single, avg))
    assert np.allclose(both.bound, [c.bound for c in alone], rtol=1e-10)
    assert np.allclose(both.decentralised, [c.decentralised for c in alone], rtol=1e-10)
    assert both.traffic == alone[0].traffic + alone[1].traffic
    with pytest.raises(ValueError, match="avg must be one averaging or 2, one for each run, got 1"):
        hgp.certify(problem, x, lam, est, averagings[:1])


def test_traffic_is_what_the_phases_send():
    """n clients, all hear all: two averaging calls and one flooding round each of known width."""
    n, d = 4, 2
    problem, lam = quadratic(n, d, 3)
    x = exact.inner_solution(problem, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(hgp.networks.FullyConnected(n), 1), eta=0.05, iterations=5)
    avg = hgp.PushSum(hgp.networks.FullyConnected(n), 2)
    found = hgp.certify(problem, x, lam, est, avg)
    first, second = 2 * d + 1, d + 1 + d  # w, r, λ_min; r at c, zδ, ∂g at the centre of x
    wide, narrow = 4 * d + 6, 6  # boxes of w and x, and scalars
    edges = n * (n - 1)
    assert found.traffic.rounds == 2 + 1 + 2 + 1
    assert found.traffic.messages == 6 * edges
    assert found.traffic.floats == edges * (2 * (first + 1) + wide + 2 * (second + 1) + narrow)
    assert found.traffic.bytes == 8 * found.traffic.floats
    assert avg.traffic == found.traffic, "everything that went over the averaging's network"


def test_the_same_on_every_library(xp):
    problem, lam = logistic(4, 3, 8)
    x = exact.inner_solution(problem, lam)
    net = hgp.networks.RandomDirected(4, 0.4, 0.8, seed=3)
    here = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 4), eta=0.3, iterations=12)
    wanted = hgp.certify(problem, x, lam, here, hgp.PushSum(net, 6))
    there = problem.to(xp.backend, device=xp.device)
    x_there, lam_there = xp.asarray(x), xp.asarray(lam)
    est = hgp.hypergradient(there, x_there, lam_there, hgp.PushSum(net, 4), eta=0.3, iterations=12)
    found = hgp.certify(there, x_there, lam_there, est, hgp.PushSum(net, 6))
    for name in ("centralised", "decentralised", "inexact", "c3", "c4"):
        assert isinstance(getattr(found, name), np.ndarray)
        assert np.allclose(getattr(found, name), getattr(wanted, name), rtol=1e-9, atol=1e-13), name
    assert found.traffic == wanted.traffic


def test_float32_is_covered_by_its_rounding():
    problem, lam = logistic(3, 3, 2)
    x = exact.inner_solution(problem, lam)
    truth = exact.hypergradient(problem, x, lam)
    small = problem.to("numpy", "float32")
    x32, lam32 = x.astype(np.float32), lam.astype(np.float32)
    est = hgp.hypergradient(small, x32, lam32, hgp.ExactAverage(3), eta=0.5, iterations=400)
    found = hgp.certify(small, x32, lam32, est, hgp.ExactAverage(3))
    errors = np.linalg.norm(est.value - truth, axis=1)
    assert np.all(errors <= found.bound) and np.all(errors <= found.decentralised_bound)
    assert np.all(found.bound < 1e-2)


def test_a_users_problem_without_constants_is_certified_at_its_own_point():
    class Mine:
        """A built-in problem that keeps its constants to itself."""

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            if name == "lipschitz":
                raise AttributeError(name)
            return getattr(self.inner, name)

    problem, lam = logistic(3, 2, 4)
    x = exact.inner_solution(problem, lam) + 0.05
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.3, iterations=20)
    found = hgp.certify(Mine(problem), x, lam, est)
    assert found.against == "the hyper-gradient formula at the given x" and found.inexact is None
    gradient = np.linalg.norm(problem.inner_grad(x, lam).mean(axis=0))
    assert np.isclose(found.inner_gradient, gradient, rtol=1e-9) and gradient > 1e-3
    assert np.all(np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1) <= found.bound)
    assert "no Lipschitz constants known" in str(found)
    with_constants = hgp.certify(Mine(problem), x, lam, est, lipschitz=bounds.known_lipschitz(problem, lam))
    assert np.all(with_constants.bound > found.bound) and with_constants.against.endswith("exact inner solution")

    class Says(Mine):
        def lipschitz(self, lam):
            return {"nu_flam": 0.0, "nu_fx": 1.0, "nu_J": 1.0, "nu_H": 1.0}

    near = exact.inner_solution(problem, lam) + 1e-5
    assert hgp.certify(Says(problem), near, lam, est).against.endswith("exact inner solution"), "by Kantorovich"
    far = hgp.certify(Says(problem), x + 3, lam, est)
    assert far.inexact is None and "too far from the inner solution" in str(far)
    with pytest.raises(ValueError, match="too far from the inner solution"):
        hgp.certify(Mine(problem), x + 3, lam, est, lipschitz=bounds.Lipschitz(0, 1, 1, 1))


def test_refusals():
    problem, lam = quadratic(3, 2, 1)
    x = exact.inner_solution(problem, lam)
    w = np.zeros((3, 2))
    est = estimate_of(value_of(problem, x, lam, w), w, hgp.ExactAverage(3), 1)
    with pytest.raises(ValueError, match="est must be an estimate with `value` and `w`"):
        hgp.certify(problem, x, lam, estimate_of(est.value, None))
    with pytest.raises(ValueError, match="got SimpleNamespace; pass its `estimate`$"):  # such as an influence
        hgp.certify(problem, x, lam, SimpleNamespace(estimate=est))
    with pytest.raises(ValueError, match="est.w must not contain NaN"):
        hgp.certify(problem, x, lam, estimate_of(est.value, w + np.nan))
    with pytest.raises(ValueError, match=r"est.w must have shape \(..., 3, 2\) = .*, got \(3, 3\)"):
        hgp.certify(problem, x, lam, estimate_of(est.value, np.zeros((3, 3))))
    A = np.tile(np.diag([1.0, -1.0]), (3, 1, 1))
    saddle = hgp.problems.Quadratic(A, np.zeros((3, 2)), np.ones((3, 1, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="mean Hessian at x must be positive definite"):
        hgp.certify(saddle, np.zeros((3, 2)), np.zeros((3, 1)), estimate_of(np.zeros((3, 1)), w))
    for cut_off in (
        hgp.networks.SelfLoops(3),
        hgp.networks.Schedule([np.array([[1, 0.5, 0], [0, 0.5, 0], [0, 0, 1]])]),
    ):
        with pytest.raises(ValueError, match="max-consensus does not reach"):
            hgp.certify(problem, x, lam, est, hgp.PushSum(cut_off, 2))


def test_non_convex_clients_need_a_known_modulus():
    problem, lam = quadratic(4, 2, 1, convex=False)
    x = exact.inner_solution(problem, lam)
    low = np.linalg.eigvalsh(exact.hessians(problem, x, lam))[:, 0]
    assert low.mean() < 0, "the clients' eigenvalues say nothing here"
    w = np.random.default_rng(0).normal(size=(4, 2))
    est = estimate_of(value_of(problem, x, lam, w), w, hgp.ExactAverage(4), 1)
    errors = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    assert np.all(errors <= hgp.certify(problem, x, lam, est).bound), "the centre sees the mean Hessian"
    avg = hgp.PushSum(hgp.networks.RandomDirected(4, 0.4, 0.8, seed=1), 3)
    with pytest.raises(ValueError, match="give strong_convexity"):
        hgp.certify(problem, x, lam, est, avg)
    modulus = np.linalg.eigvalsh(exact.hessians(problem, x, lam).mean(axis=0))[0]
    found = hgp.certify(problem, x, lam, est, avg, strong_convexity=modulus)
    assert np.all(errors <= found.decentralised_bound) and np.all(errors <= found.c3) and np.all(errors <= found.c4)


@pytest.mark.parametrize("debias", ["reset", "keep", "conserve"])
@pytest.mark.filterwarnings("ignore:debias='keep'")
def test_any_debias_and_gossip(debias):
    """The mean is a convex combination of the outputs with kept weights too; doubly stochastic gossip likewise."""
    problem, lam = quadratic(5, 2, 9)
    x = exact.inner_solution(problem, lam)
    w = np.random.default_rng(0).normal(size=(5, 2))
    est = estimate_of(value_of(problem, x, lam, w), w)
    errors = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    net = hgp.networks.RandomOut(5, 1, seed=2)
    found = hgp.certify(problem, x, lam, est, hgp.PushSum(net, 1, debias=debias), first_call=7)
    assert np.all(errors <= np.minimum(found.c3, found.c4))
    ring = hgp.networks.StaticUndirected(5, 0.7, seed=1, weights="metropolis")
    found = hgp.certify(problem, x, lam, est, hgp.Gossip(ring, 2), first_call=0)
    assert np.all(errors <= np.minimum(found.c3, found.c4))


def test_max_consensus_follows_the_graphs_in_order():
    """A directed ring needs n − 1 rounds; one-peer exponential graphs log₂ n; the result is exact."""
    n = 8
    ring = np.eye(n) / 2 + np.roll(np.eye(n), 1, axis=0) / 2
    values = np.random.default_rng(0).normal(size=(n, 3))
    top, rounds, messages = max_consensus(hgp.networks.Schedule([ring]), values, 1)
    assert np.array_equal(top, values.max(axis=0)) and rounds == n - 1 and messages == n * (n - 1)
    assert max_consensus(hgp.networks.OnePeerExponential(n), values, 1)[1] == 3
    with pytest.raises(ValueError, match="max-consensus does not reach"):
        max_consensus(hgp.networks.Schedule([ring]), values, 1, max_rounds=n - 2)
    assert max_consensus(None, values, 1)[1:] == (1, n * (n - 1))
    assert max_consensus(hgp.networks.SelfLoops(1), values[:1], 1)[1:] == (0, 0)


def test_many_clients_without_large_arrays():
    """4,000 clients over a sparse network: no (n, n) array (128 MB) and no (nd, nd) array may appear."""
    import tracemalloc

    n, d = 4000, 4
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 5, d)), (rng.random((n, 5)) < 0.5).astype(float)
    problem = hgp.problems.LogisticRegression(X, y, X, y)
    x, lam = np.zeros((n, d)), np.full((n, d), 0.3)
    net = hgp.networks.RandomOut(n, 3, seed=1)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 5), eta=0.5, iterations=3)
    tracemalloc.start()
    found = hgp.certify(problem, x, lam, est, hgp.PushSum(net, 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6
    assert np.all(found.bound <= found.decentralised_bound * (1 + 1e-9)) and np.all(found.bound > 0)


def test_constants_of_unknown_problems_are_not_guessed():
    assert bounds.known_lipschitz(object(), None) is None
    problem, lam = linear_problem("binary", "weights")
    assert bounds.known_lipschitz(problem, -lam).strong_convexity is None, "negative weights: no modulus"
