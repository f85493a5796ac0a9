"""Estimators of other methods at a fixed point: against explicit loops, the limit of their class, and their traffic."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp
from baselines import loops
from baselines.loops import lazy_ring
from hgp_ref import exact
from hgp_ref.baselines import at_point
from hgp_ref.baselines.estimators import Auxiliary, BilevelPoint, HessianGossip, LocalSeries, RandomTerm
from hgp_ref.baselines.rules import CORRECTED, Consensus, Diffusion, Tracking
from hgp_ref.mixing import ServerAverage, run_round, start_averaging
from hgp_ref.problems import as_problem

N = 6
RING = hgp.networks.Schedule([lazy_ring(N)])
RULES = {"consensus": Consensus, "diffusion": Diffusion, "tracking": Tracking, **CORRECTED}


def setting(n=N, q=5, p=3, seed=0, heterogeneity=1.0):
    problem = hgp.problems.Quadratic.random(n, q, p, seed=seed, condition=10, heterogeneity=heterogeneity)
    rng = np.random.default_rng(seed)
    return problem, rng.normal(size=(n, q)), rng.normal(size=(n, p))


def explicit(problem, x, lam):
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    return H, J, *exact.outer_gradients(problem, x, lam)


def history(problem, x, lam, estimator, M, avg=None):
    """v after each of M iterations, the last state, and the traffic."""
    avg = hgp.Gossip(RING, 1) if avg is None else avg
    mixer = start_averaging([avg], problem.n_clients, x, M)
    point = BilevelPoint(as_problem(problem), x, lam)
    state, values = estimator.init(point), []
    for _ in range(M):
        (state,) = run_round(mixer, estimator.iterate(state, point))
        values.append(estimator.value(state, point))
    return np.stack(values), state, mixer.record_traffic()


@pytest.mark.parametrize("rule", loops.LOOPS)
def test_rules_are_the_eliminated_forms(rule):
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    values, state, traffic = history(problem, x, lam, Auxiliary(RULES[rule](0.2)), 12)
    w = np.stack(loops.LOOPS[rule](H, f_x, lazy_ring(N), 0.2, 12))
    assert_close(values, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    assert_close(state.s, w[-1], 1e-12)
    vectors, rounds = {"tracking": (2, 1), "GT": (1, 2)}.get(rule, (1, 1))
    edges = 2 * N
    assert traffic == hgp.Traffic(12 * rounds * edges, 12 * rounds * edges * vectors * 5,
                                  12 * rounds * edges * vectors * 40, 12 * rounds)  # fmt: skip


def test_matrix_and_local_estimators_are_their_loops():
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    values, _, traffic = history(problem, x, lam, HessianGossip(0.3, ell=1.0, terms=7), 9)
    w = np.stack(loops.hessian_gossip(H, f_x, lazy_ring(N), 0.3, 1.0, 7, 9))
    assert_close(values, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    assert traffic.floats == 9 * 2 * N * (5 + 25)

    for terms, w in enumerate(loops.local(H, f_x, 0.8, 9), 1):
        values, _, traffic = history(problem, x, lam, LocalSeries(terms, 1 / 0.8), 2)
        assert_close(values, np.stack(2 * [f_lam - np.einsum("nij,nj->ni", J, w)]), 1e-12)
        assert traffic == hgp.Traffic()


def test_random_term_is_its_loop_and_unbiased():
    """Over all N' the mean is N terms of the Neumann series, exactly."""
    problem, x, lam = setting()
    H, _, f_x, _ = explicit(problem, x, lam)
    terms, found = 7, {}
    for draw in range(200):
        estimator = RandomTerm(terms, ell=1.1, seed=3, draw=draw)
        length = estimator.length(draw)
        if length not in found:
            _, state, traffic = history(problem, x, lam, estimator, terms, ServerAverage(N))
            assert_close(state.w, loops.random_term(H, f_x, terms, 1.1, length), 1e-12)
            assert traffic == hgp.Traffic(
                2 * N * (length + 1), 10 * N * (length + 1), 80 * N * (length + 1), length + 1
            )
            found[length] = state.w
    assert sorted(found) == list(range(terms))
    neumann = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(N), eta=1 / 1.1, iterations=terms)
    assert_close(np.mean(list(found.values()), axis=0), neumann.w, 1e-12)


def test_draws_are_uniform():
    estimator = RandomTerm(5, 1.0, seed=1)
    counts = np.bincount([estimator.length(draw) for draw in range(4000)], minlength=5)
    assert np.sum((counts - 800) ** 2 / 800) < 23.5  # chi-square with 4 degrees of freedom, 1e-4
    assert estimator.length(7) == RandomTerm(5, 1.0, seed=1, draw=7).length(7)


TRUTHS = {
    "Global": exact.hypergradient,
    "Client": exact.client_hypergradient,
    "Local": exact.local_hypergradient,
}
CLASSES = {
    "MA-DSBO (HIGP)": ("ma_dsbo", dict(step=0.2), 1500, "Global", 1e-12),
    "SPARKLE ED": ("sparkle", dict(rule="ED", step=0.5), 1500, "Global", 1e-12),
    "SPARKLE EXTRA": ("sparkle", dict(rule="EXTRA", step=0.5), 1500, "Global", 1e-12),
    "SPARKLE GT": ("sparkle", dict(rule="GT", step=0.2), 1500, "Global", 1e-12),
    "D-SOBA": ("dsoba", dict(step=0.005), 8000, "Global", 0.01),
    "GBDSBO": ("gbdsbo", dict(step=0.002, ell=1.0, terms=100), 300, "Global", 0.02),
    "MDBO, VRDBO": ("mdbo", dict(terms=500, ell=1.0), 1, "Local", 1e-12),
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_method_approaches_the_derivative_of_its_class_and_no_other(name):
    method, settings, M, kind, tolerance = CLASSES[name]
    problem, x, lam = setting()
    f_lam = exact.outer_gradients(problem, x, lam)[1]
    est = at_point(problem, x, lam, RING, method, iterations=M, every=M, **settings)
    size = np.linalg.norm(exact.hypergradient(problem, x, lam) - f_lam)
    errors = {k: np.linalg.norm(est.value - truth(problem, x, lam)) / size for k, truth in TRUTHS.items()}
    assert errors.pop(kind) < tolerance, errors
    assert min(errors.values()) > 0.3, errors  # the classes differ here, and so do their limits


@pytest.mark.parametrize(
    ("method", "settings", "slow"),
    [("dsoba", lambda s: dict(step=s), 3000), ("gbdsbo", lambda s: dict(step=s / 2, ell=1.0, terms=100), 400)],
)
def test_biases_shrink_with_the_step(method, settings, slow):
    problem, x, lam = setting()
    truth = exact.hypergradient(problem, x, lam)
    size = np.linalg.norm(truth - exact.outer_gradients(problem, x, lam)[1])
    bias = []
    for step, M in ((0.2, 400), (0.02, slow)):
        est = at_point(problem, x, lam, RING, method, iterations=M, every=M, **settings(step))
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
        est = at_point(problem, x, lam, RING, "mdbo", iterations=1, terms=500, ell=1.0)
        off.append(
            np.linalg.norm(est.value - truth) / np.linalg.norm(truth - exact.outer_gradients(problem, x, lam)[1])
        )
    assert off[0] > 1 and off[1] < 1e-12, off


def test_tracking_over_directed_graphs_is_push_pull():
    problem, x, lam = setting()
    H, J, f_x, f_lam = explicit(problem, x, lam)
    net, estimator = hgp.networks.RandomDirected(N, seed=2), Auxiliary(Tracking(0.1))
    values, _, traffic = history(problem, x, lam, estimator, 12, hgp.PushSum(net, 1))
    w = np.stack(loops.push_pull(H, f_x, net.mixing_matrices(1, 12), 0.1, 12))
    assert_close(values, f_lam - np.einsum("nij,mnj->mni", J, w), 1e-12)
    messages = sum(len(net.edges(s)[0]) - N for s in range(1, 13))
    assert traffic.messages == messages and traffic.floats == messages * (2 * 5 + 1)
    values, _, _ = history(problem, x, lam, estimator, 3000, hgp.PushSum(net, 1))
    assert_close(values[-1], exact.hypergradient(problem, x, lam), 1e-11)


def test_weights_that_are_carried_over_are_refused():
    problem, x, lam = setting()
    with pytest.raises(ValueError, match="avg must reset its weights"):
        history(problem, x, lam, Auxiliary(Tracking(0.1)), 3, hgp.PushSum(RING, 1, debias="conserve"))


EVERY = [*(Auxiliary(rule(0.2)) for rule in RULES.values()), HessianGossip(0.3, 1.0, 7), LocalSeries(8, 2.0)]


@pytest.mark.parametrize("estimator", EVERY, ids=repr)
def test_names_of_clients_do_not_matter(estimator):
    problem, x, lam = setting()
    order = np.random.default_rng(1).permutation(N)
    permuted = hgp.problems.Quadratic(*(np.asarray(a)[order] for a in (problem._A, problem._b, problem._C, problem._t)))
    W = lazy_ring(N)[np.ix_(order, order)]
    avg = hgp.Gossip(hgp.networks.Schedule([W]), 1)
    expected = history(problem, x, lam, estimator, 8)[0][-1]
    assert_close(history(permuted, x[order], lam[order], estimator, 8, avg)[0][-1], expected[order], 1e-12)


SINGLE = [*(Auxiliary(rule(0.5)) for rule in RULES.values()), LocalSeries(900, 2.0)]


@pytest.mark.parametrize("estimator", SINGLE, ids=repr)
def test_a_single_client_finds_its_derivative_and_sends_nothing(estimator):
    problem, x, lam = setting(n=1)
    avg = hgp.Gossip(hgp.networks.FullyConnected(1), 1)
    iterations = 2 if isinstance(estimator, LocalSeries) else 900
    values, _, traffic = history(problem, x, lam, estimator, iterations, avg)
    assert_close(values[-1], exact.hypergradient(problem, x, lam), 1e-11)
    assert traffic.messages == 0


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
