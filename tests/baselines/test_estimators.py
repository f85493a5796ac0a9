"""Estimators of other methods at a fixed point: against plain loops and the limit of their class, and counted."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp
from baselines import loops
from baselines.loops import lazy_ring
from hgp_ref import exact
from hgp_ref.methods import Descent, HessianGossip, LocalNeumann, Neumann, RandomTerm
from hgp_ref.mixing import ServerAverage

N = 6
RING = hgp.networks.Schedule([lazy_ring(N)])


def setting(n=N, q=5, p=3, seed=0, heterogeneity=1.0):
    problem = hgp.problems.Quadratic.random(n, q, p, seed=seed, condition=10, heterogeneity=heterogeneity)
    rng = np.random.default_rng(seed)
    return problem, rng.normal(size=(n, q)), rng.normal(size=(n, p))


def explicit(problem, x, lam):
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    return H, J, *exact.outer_gradients(problem, x, lam)


def history(problem, x, lam, method, M, avg=None):
    avg = hgp.Gossip(RING, 1) if avg is None else avg
    return hgp.hypergradient(problem, x, lam, avg, method=method, iterations=M, history=True)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("rule", loops.LOOPS)
def test_rules_are_the_eliminated_forms(rule):
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    est = history(problem, x, lam, Descent(rule, 0.2), 12)
    w = np.stack(loops.LOOPS[rule](H, f_x, lazy_ring(N), 0.2, 12))
    assert_close(est.history, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    assert_close(est.w, w[-1], 1e-12)
    vectors, rounds = {"tracking": (2, 1), "GT": (1, 2)}.get(rule, (1, 1))
    edges = 2 * N
    assert est.traffic == hgp.Traffic(12 * rounds * edges, 12 * rounds * edges * vectors * 5,
                                      12 * rounds * edges * vectors * 40, 12 * rounds)  # fmt: skip


@pytest.mark.filterwarnings("ignore:not converged")
def test_matrix_and_local_estimators_are_their_loops():
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    est = history(problem, x, lam, HessianGossip(0.3, ell=1.0, terms=7), 9)
    w = np.stack(loops.hessian_gossip(H, f_x, lazy_ring(N), 0.3, 1.0, 7, 9))
    assert_close(est.history, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    assert est.traffic.floats == 9 * 2 * N * (5 + 25)

    est = history(problem, x, lam, LocalNeumann(0.8), 9)
    assert_close(est.history, f_lam - np.einsum("nij,mnj->mni", J, np.stack(loops.local(H, f_x, 0.8, 9))), 1e-12)
    assert est.traffic == hgp.Traffic()


@pytest.mark.filterwarnings("ignore:not converged")
def test_random_term_is_its_loop_and_unbiased():
    """Over all N' the mean is N terms of the Neumann series, exactly."""
    problem, x, lam = setting()
    H, _, f_x, _ = explicit(problem, x, lam)
    terms, found = 7, {}
    for draw in range(200):
        method = RandomTerm(terms, ell=1.1, seed=3, draw=draw)
        if method.last not in found:
            est = hgp.hypergradient(problem, x, lam, ServerAverage(N), method=method, iterations=terms)
            assert_close(est.w, loops.random_term(H, f_x, terms, 1.1, method.last), 1e-12)
            assert est.traffic == hgp.Traffic(2 * N * (method.last + 1), 10 * N * (method.last + 1),
                                              80 * N * (method.last + 1), method.last + 1)  # fmt: skip
            found[method.last] = est.w
    assert sorted(found) == list(range(terms))
    neumann = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(N), method=Neumann(1 / 1.1), iterations=terms)
    assert_close(np.mean(list(found.values()), axis=0), neumann.w, 1e-12)


def test_draws_are_uniform():
    last = [RandomTerm(5, 1.0, seed=1, draw=k).last for k in range(4000)]
    counts = np.bincount(last, minlength=5)
    assert np.sum((counts - 800) ** 2 / 800) < 23.5  # chi-square with 4 degrees of freedom, 1e-4
    assert RandomTerm(5, 1.0, seed=1, draw=7).last == RandomTerm(5, 1.0, seed=1, draw=7).last


TRUTHS = {
    "Global": exact.hypergradient,
    "Client": exact.client_hypergradient,
    "Local": exact.local_hypergradient,
}
CLASSES = {
    "MA-DSBO (HIGP)": (Descent("tracking", 0.2), 1500, "Global", 1e-12),
    "SPARKLE ED": (Descent("ED", 0.5), 1500, "Global", 1e-12),
    "SPARKLE EXTRA": (Descent("EXTRA", 0.5), 1500, "Global", 1e-12),
    "SPARKLE GT": (Descent("GT", 0.2), 1500, "Global", 1e-12),
    "D-SOBA": (Descent("diffusion", 0.005), 8000, "Global", 0.01),
    "GBDSBO": (HessianGossip(0.002, 1.0, 100), 300, "Global", 0.02),
    "MDBO, VRDBO": (LocalNeumann(1.0), 500, "Local", 1e-12),
}


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("name", CLASSES)
def test_each_method_approaches_the_derivative_of_its_class_and_no_other(name):
    method, M, kind, tolerance = CLASSES[name]
    problem, x, lam = setting()
    f_lam = exact.outer_gradients(problem, x, lam)[1]
    est = hgp.hypergradient(problem, x, lam, hgp.Gossip(RING, 1), method=method, iterations=M)
    size = np.linalg.norm(exact.hypergradient(problem, x, lam) - f_lam)
    errors = {k: np.linalg.norm(est.value - truth(problem, x, lam)) / size for k, truth in TRUTHS.items()}
    assert errors.pop(kind) < tolerance, errors
    assert min(errors.values()) > 0.3, errors  # the classes differ here, and so do their limits


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize(
    ("make", "slow"), [(lambda s: Descent("diffusion", s), 3000), (lambda s: HessianGossip(s / 2, 1.0, 100), 400)]
)
def test_biases_shrink_with_the_step(make, slow):
    problem, x, lam = setting()
    truth = exact.hypergradient(problem, x, lam)
    size = np.linalg.norm(truth - exact.outer_gradients(problem, x, lam)[1])
    bias = []
    for step, M in ((0.2, 400), (0.02, slow)):
        est = hgp.hypergradient(problem, x, lam, hgp.Gossip(RING, 1), method=make(step), iterations=M)
        bias.append(np.linalg.norm(est.value - truth) / size)
    assert bias[0] > 0.1 and 5 < bias[0] / bias[1] < 15, bias


def test_local_bias_is_that_of_heterogeneous_clients():
    off = []
    for heterogeneity in (1.0, 0.0):
        problem, x, lam = setting(heterogeneity=heterogeneity)
        A, C, t = (np.asarray(a) for a in (problem._A, problem._C, problem._t))
        b, t = problem._b, t if heterogeneity else np.broadcast_to(t[:1], t.shape)
        problem = hgp.problems.Quadratic(A, b, C, np.ascontiguousarray(t))
        x = x if heterogeneity else np.broadcast_to(x[:1], x.shape).copy()
        truth = exact.hypergradient(problem, x, lam)
        est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(N), method=LocalNeumann(1.0), iterations=500)
        off.append(
            np.linalg.norm(est.value - truth) / np.linalg.norm(truth - exact.outer_gradients(problem, x, lam)[1])
        )
    assert off[0] > 1 and off[1] < 1e-12, off


@pytest.mark.filterwarnings("ignore:not converged")
def test_tracking_over_directed_graphs_is_push_pull():
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    net = hgp.networks.RandomDirected(N, seed=2)
    est = history(problem, x, lam, Descent("tracking", 0.1), 12, hgp.PushSum(net, 1))
    w = np.stack(loops.push_pull(H, f_x, net.mixing_matrices(1, 12), 0.1, 12))
    assert_close(est.history, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    messages = sum(len(net.edges(s)[0]) - N for s in range(1, 13))
    assert est.traffic.messages == messages and est.traffic.floats == messages * (2 * 5 + 1)
    far = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), method=Descent("tracking", 0.1), iterations=3000)
    assert_close(far.value, exact.hypergradient(problem, x, lam), 1e-11)


@pytest.mark.parametrize("method", [Descent("ED", 0.1), Descent("diffusion", 0.1), HessianGossip(0.1, 1.0, 3)])
def test_methods_that_rest_on_doubly_stochastic_matrices_refuse_others(method):
    problem, x, lam = setting()
    with pytest.raises(ValueError, match="doubly stochastic"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(RING, 1), method=method, iterations=3)
    carried = hgp.PushSum(RING, 1, debias="conserve")
    with pytest.raises(ValueError, match="avg must reset its weights"):
        hgp.hypergradient(problem, x, lam, carried, method=Descent("tracking", 0.1), iterations=3)


EVERY = [*(Descent(rule, 0.2) for rule in loops.LOOPS), HessianGossip(0.3, 1.0, 7), LocalNeumann(0.5)]


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_names_of_clients_do_not_matter(method):
    problem, x, lam = setting()
    order = np.random.default_rng(1).permutation(N)
    turned = hgp.problems.Quadratic(*(np.asarray(a)[order] for a in (problem._A, problem._b, problem._C, problem._t)))
    W = lazy_ring(N)[np.ix_(order, order)]
    avg = hgp.Gossip(hgp.networks.Schedule([W]), 1)
    one = history(problem, x, lam, method, 8).value
    assert_close(history(turned, x[order], lam[order], method, 8, avg).value, one[order], 1e-12)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("method", [*(Descent(rule, 0.5) for rule in loops.LOOPS), LocalNeumann(0.5)], ids=repr)
def test_a_single_client_finds_its_derivative_and_sends_nothing(method):
    problem, x, lam = setting(n=1)
    avg = hgp.Gossip(hgp.networks.FullyConnected(1), 1)
    est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=900)
    assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-11)
    assert est.traffic.messages == 0


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_runs_and_mini_batches(method):
    """A run axis gives what single runs give, and mini-batches are those of the run's seed."""
    from support.examples import logistic

    problem, x, lam = logistic(n=3)
    nets = [hgp.networks.StaticUndirected(3, seed=s) for s in (1, 2)]
    both = hgp.hypergradient(problem, x, lam, [hgp.Gossip(net, 1) for net in nets], method=method, iterations=5)
    for r, net in enumerate(nets):
        one = hgp.hypergradient(problem, x, lam, hgp.Gossip(net, 1), method=method, iterations=5)
        assert_close(both.value[r], one.value, 1e-12)
        assert both.traffic.of_run(r) == one.traffic
    avg = hgp.Gossip(nets[0], 1)
    drawn = [
        hgp.hypergradient(problem, x, lam, avg, method=method, iterations=5, batches=hgp.MiniBatches(4, seed=s))
        for s in (0, 0, 1)
    ]
    assert np.array_equal(drawn[0].value, drawn[1].value) and not np.allclose(drawn[0].value, drawn[2].value)


def test_shared_and_client_truths_by_differences():
    """d f_i / dλ of re-solved inner problems, λ moved for one client or for all."""
    problem, x, lam = setting(n=3, q=3, p=2)
    x = exact.inner_solution(problem, lam)
    cost = lambda lam: np.asarray(problem.outer_cost(exact.inner_solution(problem, lam), lam))  # noqa: E731
    h = 1e-5
    own, shared = np.empty((3, 2)), np.empty((3, 2))
    for k in range(2):
        step = np.zeros(2)
        step[k] = h
        shared[:, k] = (cost(lam + step) - cost(lam - step)) / (2 * h)
        for i in range(3):
            one = np.zeros((3, 2))
            one[i] = step
            own[i, k] = (cost(lam + one)[i] - cost(lam - one)[i]) / (2 * h)
    assert_close(exact.client_hypergradient(problem, x, lam), own, 1e-7)
    assert_close(exact.client_hypergradient(problem, x, lam, shared=True), shared, 1e-7)
    assert_close(exact.shared_hypergradient(problem, x, lam), shared.mean(axis=0), 1e-7)
