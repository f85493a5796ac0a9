"""Rounds of local epochs, momentum, weight decay, proximal terms and rates against explicit loops over clients."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref.problems import sample_batches, sample_epochs
from hgp_ref.training import local_rounds
from hgp_ref.training.rounds import open_weighted

RTOL = 1e-11


def ragged(counts=(12, 5, 9), d=3, seed=0):
    """Logistic clients with unequally many instances."""
    rng = np.random.default_rng(seed)
    X = [rng.uniform(-1, 1, (N, d)) for N in counts]
    y = [rng.integers(0, 2, N) for N in counts]
    return hgp.problems.LogisticRegression(X, y, X, y), rng.uniform(0.1, 0.3, (len(counts), d))


def alone(problem, i):
    """∂g_i of one client as a function of its own x and batch."""
    own = problem.restrict([i])
    return lambda x, lam, batch: own.inner_grad(x[None], lam[None], batch=batch[None])[0]


def by_hand(problem, lam, matrices, rates, batch_size, momentum, decay, prox, seed, epochs=1, first=0):
    """FedAvg and relatives, client by client and instance list by instance list."""
    n, d = problem.n_clients, problem.dim_x
    z, b = np.zeros((n, d)), np.zeros((n, d))
    for r, (W, rate) in enumerate(zip(matrices, rates, strict=True)):
        w = z.copy()
        for i in range(n):
            gradient = alone(problem, i)
            for epoch in range(first + r * epochs, first + (r + 1) * epochs):
                order = sample_epochs(problem.counts, seed, epoch, 1)[0, i]
                order = order[order >= 0]
                for k in range(0, len(order), batch_size):
                    step = gradient(w[i], lam[i], order[k : k + batch_size])
                    b[i] = momentum * b[i] + step + decay * w[i] + prox * (w[i] - z[i])
                    w[i] = w[i] - rate * b[i]
        z = W @ w
    return z


AVERAGINGS = {
    "exact": lambda n: hgp.ExactAverage(n),
    "gossip": lambda n: hgp.Gossip(hgp.networks.StaticUndirected(n, 0.9, seed=3), 1),
    "push-sum": lambda n: hgp.PushSum(hgp.networks.RandomDirected(n, seed=2), 2),
}


def matrices_of(avg, n, rounds, weights):
    """Rows of each round's averaging as a matrix, by weighing unit vectors."""
    K = [avg.apply(np.eye(n), r) for r in range(rounds)]
    c = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    return [(k * c) / (k @ c)[:, None] for k in K]


@pytest.mark.parametrize("kind", AVERAGINGS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("momentum", "decay", "prox", "epochs"), [(0.0, 0.0, 0.0, 1), (0.9, 0.01, 0.0, 1), (0.5, 0.1, 0.7, 2)]
)
def test_local_rounds_equal_a_loop_over_clients(kind, weighted, momentum, decay, prox, epochs):
    problem, lam = ragged()
    weights = problem.counts if weighted else None
    rule = dict(momentum=momentum, weight_decay=decay, prox=prox, epochs=epochs)
    fit = hgp.train(
        problem,
        lam,
        AVERAGINGS[kind](3),
        hgp.training.LocalRounds(
            rounds=6, lr=0.3, milestones=(2, 4), decay=0.5, weights=weights, batches=hgp.MiniBatches(4, seed=7), **rule
        ),
    )
    matrices = matrices_of(AVERAGINGS[kind](3), 3, 6, weights)
    rates = [0.3, 0.3, 0.15, 0.15, 0.075, 0.075]
    assert_close(fit.x, by_hand(problem, lam, matrices, rates, 4, momentum, decay, prox, 7, epochs), RTOL)
    np.testing.assert_allclose(fit.rates, rates)


def test_epochs_are_numbered_from_the_offset():
    problem, lam = ragged()
    rule = dict(batches=hgp.MiniBatches(4, seed=7, offset=5), epochs=2)
    fit = hgp.train(problem, lam, hgp.ExactAverage(3), hgp.training.LocalRounds(rounds=3, lr=0.3, **rule))
    mean = np.full((3, 3), 1 / 3)
    assert_close(fit.x, by_hand(problem, lam, [mean] * 3, [0.3] * 3, 4, 0.0, 0.0, 0.0, 7, epochs=2, first=5), RTOL)


def test_fedavg_weights_clients_by_training_size():
    problem, lam = ragged()
    one = local_rounds(problem, lam, hgp.ExactAverage(3), rounds=1, lr=0.3, weights=problem.counts)
    moved = -0.3 * problem.inner_grad(np.zeros((3, 3)), lam)
    assert_close(one.x, np.tile(np.average(moved, axis=0, weights=problem.counts), (3, 1)), RTOL)
    assert one.traffic == hgp.Traffic(messages=6, floats=6 * 4, bytes=6 * 32, rounds=1)


SIZES = np.array([10.0, 20, 40, 80, 400])
STAR = hgp.networks.Schedule([([0, 0, 0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 0, 0, 0, 0])], n=5)


def where_rounds_end(avg, weights, lr=2e-3):
    """x_i of g_i = (x − i)²/2: Σ_i π_i i for whichever Σ_i π_i g_i is minimised, up to O(lr)."""
    ones = np.ones((5, 1, 1))
    problem = hgp.problems.Quadratic(ones, np.arange(5.0)[:, None], ones, np.ones((5, 1)))
    x = local_rounds(problem, np.zeros((5, 1)), avg, rounds=int(8 / lr), lr=lr, weights=weights).x
    return x[:, 0]


@pytest.mark.parametrize("weights", [None, SIZES])
def test_conserved_sums_minimise_the_cost_weighted_by_size(weights):
    right = np.average(np.arange(5.0), weights=weights)
    running = hgp.PushSum(STAR, 1, debias="conserve")
    far, near = (np.abs(where_rounds_end(running, weights, lr) - right).max() for lr in (2e-2, 2e-3))
    assert near < 0.15 * far < 0.1  # what is left falls with lr
    assert np.abs(where_rounds_end(hgp.ExactAverage(5), weights) - right).max() < 2e-3


def assert_balanced(x, pi):
    """At rest π z = π A (z + δ(z)) = π z + π δ(z), so that Σ_i π_i ∂g_i(z_i) = 0, whatever lr is."""
    assert np.average(x, weights=pi) == pytest.approx(np.average(np.arange(5), weights=pi), abs=4 * np.exp(-8))


def test_inexact_means_minimise_another_weighted_cost():
    """π A = π for A_ij = Θ̂_ij N_j / Σ_k Θ̂_ik N_k, N_i [Θ̂ N]_i where Θ̂ is symmetric."""
    fixed = hgp.networks.StaticUndirected(5, 0.5, seed=1)
    theta = hgp.Gossip(fixed, 1).apply(np.eye(5))
    np.testing.assert_allclose(theta, theta.T)
    pi = SIZES * (theta @ SIZES)
    assert_balanced(where_rounds_end(hgp.Gossip(fixed, 1), SIZES), pi)
    assert abs(np.average(np.arange(5), weights=pi) - np.average(np.arange(5), weights=SIZES)) > 0.05
    theta = hgp.PushSum(STAR, 1).apply(np.eye(5))
    for weights in (np.ones(5), SIZES):
        A = theta * weights / (theta @ weights)[:, None]
        values, vectors = np.linalg.eig(A.T)
        pi = np.real(vectors[:, np.argmax(np.real(values))])
        assert_balanced(where_rounds_end(hgp.PushSum(STAR, 1), weights), pi)


def test_conserved_sums_are_refused_where_means_are_needed():
    with pytest.raises(ValueError, match="avg must compute means and not conserve sums if weights are given"):
        open_weighted(hgp.PushSum(STAR, 1, debias="conserve"), np.zeros((5, 2)), 1, SIZES)


def test_one_full_batch_step_a_round_is_gradient_push():
    problem, _, lam = logistic(n=4)
    net = hgp.networks.RandomDirected(4, seed=5)
    avg = hgp.PushSum(net, 1, debias="conserve")
    pushed = hgp.train(
        problem, lam, net, hgp.training.SGP(steps=40, lr=0.5, milestones=(20,), momentum=0.6, weight_decay=0.05)
    )
    rounds = hgp.train(
        problem,
        lam,
        avg,
        hgp.training.LocalRounds(rounds=40, lr=0.5, milestones=(20,), momentum=0.6, weight_decay=0.05),
    )
    assert_close(rounds.x, pushed.x, RTOL)
    assert rounds.traffic == pushed.traffic and rounds.grad_norm == pytest.approx(pushed.grad_norm)


@pytest.mark.parametrize("variant", ["assran", "nedic"])
def test_momentum_decay_and_rates_of_gradient_push(variant):
    problem, _, lam = logistic(n=4)
    net, n = hgp.networks.RandomDirected(4, seed=5), 4
    batches = sample_batches(problem.counts, 5, 9, 0, 50)
    x, omega, b = np.zeros((n, problem.dim_x)), np.ones((n, 1)), 0.0
    for s in range(50):
        W, rate = net.mixing_matrix(s + 1), 0.4 / (1 + s)
        if variant == "nedic":
            x, omega = W @ x, W @ omega
        b = 0.7 * b + problem.inner_grad(x / omega, lam, batch=batches[s]) + 0.03 * x / omega
        x = x - rate * b
        if variant == "assran":
            x, omega = W @ x, W @ omega
    rule = dict(momentum=0.7, weight_decay=0.03, variant=variant, batches=hgp.MiniBatches(5, seed=9))
    fit = hgp.train(problem, lam, net, hgp.training.SGP(steps=50, lr=lambda s: 0.4 / (1 + s), **rule))
    assert_close(fit.x, x / omega, RTOL)
    assert fit.milestones == () and fit.rates[3] == 0.1


def test_grad_norm_includes_weight_decay():
    problem, _, lam = quadratic()
    fit = hgp.train(problem, lam, hgp.networks.FullyConnected(3), hgp.training.SGP(steps=600, lr=1.0, weight_decay=0.5))
    assert fit.grad_norm < 1e-12
    assert np.linalg.norm(problem.inner_grad(fit.x, lam).mean(axis=0)) > 1e-2


def test_clients_do_not_depend_on_each_other():
    """Whoever shares the array, a client that hears nobody ends at the same bits."""
    problem, lam = ragged((12, 5, 9, 31))
    rule = dict(rounds=5, lr=0.3, momentum=0.9, prox=0.1, batches=hgp.MiniBatches(4, seed=3))
    silent = hgp.Gossip(hgp.networks.SelfLoops(4), 1)
    with pytest.warns(RuntimeWarning, match="not jointly strongly connected"):
        whole = hgp.train(problem, lam, silent, hgp.training.LocalRounds(**rule))
    for i in range(4):
        own = problem.restrict([i])
        one = hgp.train(own, lam[i : i + 1], hgp.ExactAverage(1), hgp.training.LocalRounds(**rule))
        np.testing.assert_array_equal(one.x[0], whole.x[i])


def test_epochs_are_independent_permutations():
    epochs = sample_epochs([5, 1, 8], 3, 2, 4)
    assert epochs.shape == (4, 3, 8)
    for epoch in epochs:
        for row, count in zip(epoch, (5, 1, 8), strict=True):
            assert sorted(row[:count]) == list(range(count)) and np.all(row[count:] == -1)
    np.testing.assert_array_equal(sample_epochs([5, 1, 8], 3, 4, 1)[0], epochs[2])
    np.testing.assert_array_equal(sample_epochs([8], 3, 2, 4, clients=[2])[:, 0], epochs[:, 2])
    first = sample_epochs([6], 0, 0, 6000)[:, 0, 0]
    assert np.all(np.abs(np.bincount(first, minlength=6) - 1000) < 150)
    assert not np.array_equal(sample_epochs([9], 0, 0, 1)[0, 0], np.arange(9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"momentum": 1.0}, r"momentum must be a number in \[0, 1\), got 1.0"),
        ({"weights": np.array([1.0, 0.0, 2.0])}, "weights must be numbers > 0, got"),
        ({"lr": lambda r: 0.0}, r"lr\(0\) must be .*, got 0.0"),
        ({"lr": lambda r: 0.1, "milestones": (1,)}, "milestones=.* and a function lr cannot both be given"),
        ({"prox": -1.0}, "prox must be .*, got -1.0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    problem, lam = ragged()
    given = {"rounds": 2, "weights": [1.0, 2, 3], **change}
    with pytest.raises(ValueError, match=message):
        hgp.train(problem, lam, hgp.ExactAverage(3), hgp.training.LocalRounds(**given))


def test_divergence_is_reported():
    problem, _, lam = quadratic()
    with pytest.raises(hgp.DivergenceError, match="take a smaller lr"):
        local_rounds(problem, lam, hgp.ExactAverage(3), rounds=200, lr=5.0)


def test_a_network_in_place_of_an_averaging_is_refused():
    problem, lam = hgp.problems.Quadratic.random(3, 4, 2, seed=0), np.zeros((3, 2))
    net = hgp.networks.Ring(3)
    with pytest.raises(
        TypeError, match="^net must be an averaging for LocalRounds, such as hgp.PushSum.net, steps., got R"
    ):
        hgp.train(problem, lam, net, hgp.training.LocalRounds(2))
    with pytest.raises(TypeError, match="^avg must be an Averaging, got Ring"):
        hgp.training.local_rounds(problem, lam, net, 2)
