"""Algorithm 2 against the explicit product formula on the same graphs and batches, and against the truth."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import NETWORK_KINDS, logistic, quadratic, quadratic_data
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.problems.batches import sample_batches

RTOL = 1e-12  # of the product formula, float64
M = 12


def explicit(problem, x, lam, avg, eta, iterations, batches=(None, None)):
    """v^(M) by dense matrices built from the network alone."""
    if avg.net is None:
        matrices, weights = [np.full((avg.n, avg.n), 1 / avg.n)] * iterations, None
    else:
        matrices, weights = exact.push_sum_matrices(avg.net, avg.steps, iterations, debias=avg.debias)
        weights = weights if avg.debias == "conserve" else None
    return exact.estimate(problem, x, lam, matrices, eta, *batches, weights=weights)


def draw(problem, size, seed, iterations, shared=False, replace=False):
    streams = (0, 0) if shared else (0, 1)
    return [sample_batches(problem.counts, size, seed, 0, iterations, stream=s, replace=replace) for s in streams]


@pytest.mark.parametrize("debias", ["reset", "conserve"])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
@pytest.mark.parametrize("n", range(1, 9))
def test_equals_the_product_formula(kind, n, debias):
    if n == 1 and kind == "StaticUndirected":
        pytest.skip("an Erdős–Rényi graph of one client is SelfLoops")
    problem, x, lam = logistic(n=n)
    avg = hgp.PushSum(NETWORK_KINDS[kind](n), 3, debias=debias)
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=M)
    assert_close(est.value, explicit(problem, x, lam, avg, 0.5, M), RTOL)
    mini = hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=M, batches=hgp.MiniBatches(5, seed=7))
    assert_close(mini.value, explicit(problem, x, lam, avg, 0.5, M, draw(problem, 5, 7, M)), RTOL)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_mini_batches_shared_or_not_replaced_or_not(shared, replace):
    problem, x, lam = logistic()
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 2)
    batches = hgp.MiniBatches(4, seed=3, share=shared, replace=replace)
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=M, batches=batches)
    assert_close(est.value, explicit(problem, x, lam, avg, 0.5, M, draw(problem, 4, 3, M, shared, replace)), RTOL)


@settings(max_examples=25)
@given(
    n=st.integers(1, 6), d=st.integers(1, 5), d_lam=st.integers(1, 4), seed=st.integers(0, 10**6), S=st.integers(1, 4)
)
def test_random_shapes_equal_the_product_formula(n, d, d_lam, seed, S):
    problem, x, lam = quadratic(n, d, d_lam, seed)
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=n, seed=seed), S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # few graphs of few clients may not connect them
        est = hgp.hypergradient(problem, x, lam, avg, eta=0.7, iterations=5)
    assert_close(est.value, explicit(problem, x, lam, avg, 0.7, 5), RTOL)


@settings(max_examples=20)
@given(n=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_renaming_clients_renames_the_estimate(n, seed):
    problem, x, lam = quadratic(n, 3, 2, seed)
    order = np.random.default_rng(seed).permutation(n)
    W = [m / m.sum(axis=0) for m in np.random.default_rng(seed).random((4, n, n)) + 0.1]
    renamed_W = [m[np.ix_(order, order)] for m in W]
    renamed = hgp.problems.Quadratic(*(part[order] for part in quadratic_data(n, 3, 2, seed)))
    one = hgp.hypergradient(problem, x, lam, hgp.PushSum(hgp.networks.Schedule(W), 2), eta=1.0, iterations=6)
    two = hgp.hypergradient(
        renamed, x[order], lam[order], hgp.PushSum(hgp.networks.Schedule(renamed_W), 2), eta=1.0, iterations=6
    )
    assert_close(two.value, one.value[order], RTOL)


def test_exact_averaging_converges_at_the_rate_of_the_spectrum():
    problem, x, lam = quadratic()
    truth = exact.hypergradient(problem, x, lam)
    H_bar = exact.hessians(problem, x, lam).mean(axis=0)
    rate = np.abs(1 - np.linalg.eigvalsh(H_bar)).max()
    w_star = np.linalg.solve(H_bar, exact.outer_gradients(problem, x, lam)[0].mean(axis=0))
    beta = max(np.linalg.norm(J, 2) for J in exact.jacobians(problem, x, lam))
    for iterations in (1, 10, 30):
        est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=iterations)
        error = np.linalg.norm(est.value - truth, axis=1).max()
        assert error <= beta * rate**iterations * np.linalg.norm(w_star) * (1 + 1e-9)
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=2000)
    assert_close(est.value, truth, RTOL)


def test_history_w_and_callback_agree():
    problem, x, lam = logistic()
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 2)
    seen = []
    stopped = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M, callback=lambda m, v: seen.append((m, v)))
    for batch_size in (None, 5):
        est = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M, history=True, batches=batch_size)
        assert est.history.shape == (M, 3, problem.dim_lam) and est.stopped == "iterations"
        assert_close(est.history[-1], est.value, RTOL)
        for m in (1, 4, M):
            shorter = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=m, batches=batch_size)
            assert_close(est.history[m - 1], shorter.value, RTOL)
    assert [m for m, _ in seen] == list(range(1, M + 1))
    full = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M, history=True)
    assert_close(np.stack([v for _, v in seen]), full.history, RTOL)
    f_lam = exact.outer_gradients(problem, x, lam)[1]
    J = exact.jacobians(problem, x, lam)
    assert_close(full.value, f_lam - np.einsum("nlx,nx->nl", J, full.w), RTOL)
    assert_close(stopped.value, full.value, RTOL)


def test_callback_stops_the_run():
    problem, x, lam = logistic()
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 2)
    est = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=50, history=True, callback=lambda m, v: m == 7)
    assert est.stopped == "callback" and est.iterations == 7 and est.history.shape[0] == 7
    assert_close(est.value, hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=7).value, RTOL)
    assert est.traffic.rounds == 14


def test_a_callback_with_other_arguments_is_refused_before_the_run():
    problem, x, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    for run, call in (
        (lambda wrong: hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 2), callback=wrong), r"callback\(m, v\)"),
        (lambda wrong: hgp.sgp(problem, lam, net, steps=5, callback=wrong), r"callback\(step, z\)"),
    ):
        for wrong in (lambda: None, lambda k, lam, x, cost: None):
            with pytest.raises(TypeError, match=f"^callback must be a function that can be called as {call}, got"):
                run(wrong)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_many_runs_at_once_equal_one_by_one(batch_size):
    problem, x, lam = logistic()
    nets = [hgp.networks.RandomDirected(n=3, seed=s) for s in range(3)]
    averagings = [hgp.PushSum(nets[0], 1), hgp.PushSum(nets[1], 4, debias="conserve"), hgp.ExactAverage(3)]
    seeds = [5, 6, 7]
    options = {"eta": 1.0, "iterations": M, "history": True}
    batches = [None if batch_size is None else hgp.MiniBatches(batch_size, seed=seed) for seed in (seeds, *seeds)]
    together = hgp.hypergradient(problem, x, lam, averagings, batches=batches[0], **options)
    assert (
        together.value.shape == (3, 3, 4) and together.history.shape == (3, M, 3, 4) and together.w.shape == (3, 3, 4)
    )
    for r in range(3):
        alone = hgp.hypergradient(problem, x, lam, averagings[r], batches=batches[1 + r], **options)
        for field in ("value", "w", "history"):
            assert_close(getattr(together, field)[r], getattr(alone, field), RTOL)
        assert (
            together.traffic.messages[r] == alone.traffic.messages and together.traffic.bytes[r] == alone.traffic.bytes
        )


def test_seeds_alone_make_a_run_axis():
    problem, x, lam = logistic()
    est = hgp.hypergradient(
        problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3, batches=hgp.MiniBatches(4, seed=[1, 2])
    )
    assert est.value.shape == (2, 3, 4) and not np.allclose(est.value[0], est.value[1])


class OwnProblem:
    """A user's problem with the required methods only: no run axis, no closed forms."""

    def __init__(self, problem):
        self._problem = problem
        self.n_clients, self.dim_x, self.dim_lam, self.counts = (
            problem.n_clients,
            problem.dim_x,
            problem.dim_lam,
            problem.counts,
        )
        for name in ("inner_cost", "inner_grad", "outer_cost", "outer_grad"):
            setattr(self, name, getattr(problem, name))

    def linearize(self, x, lam, batch=None):
        assert x.ndim == 2 and (batch is None or batch.ndim == 2)
        own = self._problem.linearize(x, lam, batch=batch)

        class Linearization:
            def hvp(self, u):
                assert u.ndim == 2
                return own.hvp(u)

            def cross(self, u):
                assert u.ndim == 2
                return own.cross(u)

        return Linearization()


@pytest.mark.parametrize("batch_size", [None, 5])
def test_a_users_problem_needs_only_the_protocol(batch_size):
    problem, x, lam = logistic()
    averagings = [hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=s), 2) for s in (1, 2)]
    batches = None if batch_size is None else hgp.MiniBatches(batch_size, seed=[3, 4])
    options = {"eta": 1.0, "iterations": M, "batches": batches, "history": True}
    own = hgp.hypergradient(OwnProblem(problem), x, lam, averagings, **options)
    assert_close(own.history, hgp.hypergradient(problem, x, lam, averagings, **options).history, RTOL)
    assert_close(exact.hypergradient(OwnProblem(problem), x, lam), exact.hypergradient(problem, x, lam), 1e-11)


def test_traffic_is_what_the_graphs_carry():
    problem, x, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    avg = hgp.PushSum(net, 4)
    est = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M)
    sent = sum(net.edges(s)[0].size - 3 for s in range(1, 4 * M + 1))
    assert est.traffic == hgp.Traffic(messages=sent, floats=sent * 5, bytes=sent * 40, rounds=4 * M) == avg.traffic
