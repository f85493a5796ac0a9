"""Bilevel methods from the literature: against explicit loops, their traffic, networks they refuse, their limits."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from support.examples import logistic
from support.libraries import assert_close

import hgp_ref as hgp
from baselines import bilevel_loops as loops
from hgp_ref import baselines, bilevel, exact
from hgp_ref.baselines.estimators import RandomTerm

N, Q, P, K = 3, 4, 4, 6
NET = hgp.networks.StaticUndirected(N, p=0.6, seed=3)
W = NET.mixing_matrix(1)
EDGES = int(np.count_nonzero(W) - N)
STEPS = {"lr": 0.01, "inner_lr": 0.2}


def setting():
    problem, x, lam = logistic(n=N, d=Q, regularization="coordinate")
    assert (problem.dim_x, problem.dim_lam) == (Q, P)
    return problem, x, lam


def compared(name, expected, net=NET, **settings):
    """λ and x are those of the loop; the path tells what it sent. Returns the floats and rounds of one iteration."""
    problem, x, lam = setting()
    path = getattr(baselines, name)(problem, lam, net, K, x0=x, **settings)
    lams, x_end = expected(problem, lam, x)
    assert_close(path.lam[1:], lams, 1e-10)
    assert_close(path.x, x_end, 1e-10)
    assert np.array_equal(path.lam[0], lam) and path.lam.shape == (K + 1, N, P)
    assert path.outer_cost[-1] == pytest.approx(problem.outer_cost(path.x, path.lam[-1]).sum(), rel=1e-12)
    assert path.floats[-1] == path.traffic.floats and path.rounds[-1] == path.traffic.rounds
    assert path.floats[0] == path.rounds[0] == 0
    return path.floats[1:] - path.floats[:-1], path.rounds[1:] - path.rounds[:-1]


@pytest.mark.parametrize("shared", [False, True])
def test_d_soba(shared):
    floats, rounds = compared(
        "dsoba",
        lambda p, lam, x: loops.dsoba(p, W, lam, x, K, 0.01, 0.2, 0.3, 0.7, shared),
        **STEPS, aux_lr=0.3, momentum=0.7, shared=shared,
    )  # fmt: skip
    assert set(floats) == {EDGES * (2 * Q + P * shared)} and set(rounds) == {1}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rules", [("ED",) * 3, ("EXTRA",) * 3, ("GT",) * 3, ("ED", "GT", "EXTRA")])
def test_sparkle(rules, shared):
    floats, rounds = compared(
        "sparkle",
        lambda p, lam, x: loops.sparkle(p, W, lam, x, K, 0.01, 0.2, 0.3, rules, shared),
        **STEPS, aux_lr=0.3, inner_rule=rules[0], aux_rule=rules[1], outer_rule=rules[2], shared=shared,
    )  # fmt: skip
    twice = [1 + (rule == "GT") for rule in rules]
    assert set(floats) == {EDGES * (Q * (twice[0] + twice[1]) + P * shared * twice[2])}
    assert set(rounds) == {max(twice if shared else twice[:2])}


@pytest.mark.parametrize("shared", [False, True])
def test_ma_dsbo(shared):
    floats, rounds = compared(
        "ma_dsbo",
        lambda p, lam, x: loops.ma_dsbo(p, W, lam, x, K, 0.01, 0.2, 0.3, 3, 4, 0.7, shared),
        **STEPS, higp_lr=0.3, inner_steps=3, higp_steps=4, momentum=0.7, shared=shared,
    )  # fmt: skip
    assert set(floats) == {EDGES * (3 * Q + 2 * 4 * Q + P * shared)} and set(rounds) == {3 + 4 + shared}


@pytest.mark.parametrize(("shared", "tracking"), [(False, False), (True, False), (True, True)])
def test_dbo(shared, tracking):
    floats, rounds = compared(
        "dbo",
        lambda p, lam, x: loops.dbo(p, W, lam, x, K, 0.01, 0.2, 0.3, 3, 4, shared, tracking),
        **STEPS, jhip_lr=0.3, inner_steps=3, jhip_steps=4, shared=shared, tracking=tracking,
    )  # fmt: skip
    k = P if shared else N * P
    sent = 3 * Q + 4 * (2 * Q * k + k * (not shared)) + P * shared * (1 + tracking)
    assert set(floats) == {EDGES * sent} and set(rounds) == {3 + 4 + shared}


@pytest.mark.parametrize("shared", [False, True])
def test_gbdsbo(shared):
    floats, rounds = compared(
        "gbdsbo",
        lambda p, lam, x: loops.gbdsbo(p, W, lam, x, K, 0.01, 0.2, 0.3, 1.5, 5, shared),
        **STEPS, mixing=0.3, ell=1.5, terms=5, shared=shared,
    )  # fmt: skip
    assert set(floats) == {EDGES * (2 * Q + Q * Q + shared * (2 * P + P * Q))} and set(rounds) == {1}


@pytest.mark.parametrize("shared", [False, True])
def test_mdbo(shared):
    floats, rounds = compared(
        "mdbo",
        lambda p, lam, x: loops.mdbo(p, W, lam, x, K, 0.01, 0.2, 1.5, 5, 0.6, 0.8, shared),
        **STEPS, ell=1.5, terms=5, eta=0.6, momentum=0.8, shared=shared,
    )  # fmt: skip
    assert set(floats) == {EDGES * 2 * (Q + P * shared)} and set(rounds) == {1}


@pytest.mark.parametrize("shared", [False, True])
def test_vrdbo_on_full_batches_is_mdbo_without_momentum(shared):
    compared(
        "vrdbo",
        lambda p, lam, x: loops.mdbo(p, W, lam, x, K, 0.01, 0.2, 1.5, 5, 0.6, 1.0, shared),
        **STEPS, ell=1.5, terms=5, eta=0.6, momentum=0.3, shared=shared,
    )  # fmt: skip


@pytest.mark.parametrize("shared", [False, True])
def test_fab_over_directed_graphs_that_change(shared):
    net = hgp.networks.RandomDirected(N, seed=4)
    matrices = net.mixing_matrices(1, K)
    floats, rounds = compared(
        "fab",
        lambda p, lam, x: loops.fab(p, matrices, lam, x, K, 0.01, 0.02, 5.0, shared),
        net, lr=0.01, inner_lr=0.02, penalty=5.0, shared=shared,
    )  # fmt: skip
    messages = np.array([np.count_nonzero(B) - N for B in matrices])
    assert np.array_equal(floats, messages * (4 * Q + 2 * P * shared + 1)) and set(rounds) == {1}


@pytest.mark.parametrize("shared", [False, True])
def test_fednest_through_a_server(shared):
    lengths = [RandomTerm(5, 1.5, seed=8).length(k) for k in range(K)]
    floats, rounds = compared(
        "fednest",
        lambda p, lam, x: loops.fednest(p, lam, x, K, 0.01, 0.2, 1.5, 5, lengths, 2, 3, shared),
        hgp.networks.FullyConnected(N),
        **STEPS, ell=1.5, terms=5, inner_steps=2, local_steps=3, seed=8, shared=shared,
    )  # fmt: skip
    assert rounds.tolist() == [2 * 2 + length + 1 + 2 * shared for length in lengths]
    assert floats.tolist() == [2 * N * (Q * (4 + length + 1) + 2 * P * shared) for length in lengths]


class TestAtAPoint:
    """The same hyper-gradients with x and λ frozen."""

    def setup_method(self):
        self.problem = hgp.problems.Quadratic.random(6, 5, 3, seed=0, condition=10, heterogeneity=1.0)
        rng = np.random.default_rng(0)
        self.x, self.lam = rng.normal(size=(6, 5)), rng.normal(size=(6, 3))
        from baselines.loops import lazy_ring

        self.net = hgp.networks.Schedule([lazy_ring(6)])

    def run(self, method, M, net=None, **settings):
        net = net or self.net
        return baselines.at_point(self.problem, self.x, self.lam, net, method, iterations=M, every=M, **settings)

    def test_jhip_is_exact_and_client_or_global(self):
        client = self.run("dbo", 1500, step=0.2, shared=True).value
        assert_close(client, exact.client_hypergradient(self.problem, self.x, self.lam, shared=True), 1e-12)
        assert_close(client.mean(axis=0), exact.shared_hypergradient(self.problem, self.x, self.lam), 1e-12)
        whole = self.run("dbo", 1500, step=0.2).value
        assert_close(whole, exact.hypergradient(self.problem, self.x, self.lam), 1e-12)
        assert np.linalg.norm(client - whole) > np.linalg.norm(whole) / 10

    def test_shared_hessian_means_have_a_bias_that_shrinks(self):
        truth = np.tile(exact.shared_hypergradient(self.problem, self.x, self.lam), (6, 1))
        off = [
            np.linalg.norm(self.run("gbdsbo", 300, step=s, ell=1.0, terms=100, shared=True).value - truth)
            for s in (0.05, 0.005)
        ]
        assert 5 < off[0] / off[1] < 20, off

    def test_fab_has_a_bias_of_one_over_the_penalty(self):
        lam = self.lam
        self.x = exact.inner_solution(self.problem, lam)
        truth = exact.hypergradient(self.problem, self.x, lam)
        net, off = hgp.networks.RandomDirected(6, seed=2), []
        for c in (10.0, 100.0, 1000.0):
            est = self.run("fab", 3000, net, step=0.1 / c, penalty=c)
            off.append(np.linalg.norm(est.value - truth) / np.linalg.norm(truth))
        assert 7 < off[0] / off[1] < 13 and 7 < off[1] / off[2] < 13, off
        others = [f(self.problem, self.x, lam) for f in (exact.client_hypergradient, exact.local_hypergradient)]
        assert all(np.linalg.norm(est.value - o) > 0.3 * np.linalg.norm(truth) for o in others)

    def test_fednest_is_global_in_expectation(self):
        """The mean over all N' < N, which are equally likely, up to the (1 − 1/κ)^N that N terms leave."""
        terms, means = 80, {}
        draw = 0
        while len(means) < terms:
            length = RandomTerm(terms, 1.0, seed=2).length(draw)
            if length not in means:
                net = hgp.networks.FullyConnected(6)
                means[length] = self.run("fednest", terms, net, terms=terms, ell=1.0, seed=2, draw=draw).value
            draw += 1
        value = np.mean(list(means.values()), axis=0)
        truth = exact.hypergradient(self.problem, self.x, self.lam)
        assert np.linalg.norm(value - truth) < 2e-3 * np.linalg.norm(truth)
        others = [f(self.problem, self.x, self.lam) for f in (exact.client_hypergradient, exact.local_hypergradient)]
        assert all(np.linalg.norm(value - o) > 0.3 * np.linalg.norm(truth) for o in others)

    def test_a_callback_gets_the_recorded_values_and_may_stop(self):
        calls = []
        call = lambda m, v: calls.append(m) or v.fill(0) or m == 6  # noqa: E731
        est = baselines.at_point(self.problem, self.x, self.lam, self.net, "ma_dsbo", iterations=20, every=2,
                                 callback=call, step=0.1)  # fmt: skip
        assert calls == [2, 4, 6] == est.iterations.tolist() and est.history.shape[0] == 3 and est.value.any()

    def test_divergence_is_an_error(self):
        with pytest.raises(hgp.DivergenceError, match="the hyper-gradient of dbo is not finite"):
            self.run("dbo", 3000, step=50.0)


def test_limits_of_whole_methods():
    """With exact corrections λ ends where the derivative of its class vanishes; Local ends somewhere else."""
    problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    net, lam = hgp.networks.StaticUndirected(n=4, seed=1), np.zeros((4, 2))

    def left(path):
        x = exact.inner_solution(problem, path.lam[-1])
        return np.linalg.norm(exact.hypergradient(problem, x, path.lam[-1]))

    start = np.linalg.norm(exact.hypergradient(problem, exact.inner_solution(problem, lam), lam))
    ed = baselines.sparkle(problem, lam, net, 3000, lr=0.001, inner_lr=0.4, aux_lr=0.4, every=3000)
    assert left(ed) < 1e-3 * start
    penalised = baselines.fab(problem, lam, hgp.networks.RandomDirected(4, seed=1), 5000, lr=0.001, inner_lr=0.003,
                            penalty=100.0, every=5000)  # fmt: skip
    assert left(penalised) < 1e-3 * start
    local = baselines.mdbo(problem, lam, net, 1000, lr=0.06, inner_lr=0.3, ell=1.0, terms=60, shared=True, every=1000)
    x = exact.inner_solution(problem, local.lam[-1])
    ours, truth = (f(problem, x, local.lam[-1]).mean(axis=0) for f in (exact.local_hypergradient, exact.hypergradient))
    assert np.linalg.norm(ours) < 1e-3 * start and np.linalg.norm(truth) > 0.01 * start


CALLS = {
    "fednest": dict(lr=0.01, inner_lr=0.2, ell=1.5),
    "dbo": dict(lr=0.01, inner_lr=0.2, jhip_lr=0.2),
    "gbdsbo": dict(lr=0.01, inner_lr=0.2, mixing=0.2, ell=1.5),
    "mdbo": dict(lr=0.01, inner_lr=0.2, ell=1.5),
    "vrdbo": dict(lr=0.01, inner_lr=0.2, ell=1.5),
    "ma_dsbo": dict(lr=0.01, inner_lr=0.2, higp_lr=0.2),
    "dsoba": dict(lr=0.01, inner_lr=0.2, aux_lr=0.2),
    "sparkle": dict(lr=0.01, inner_lr=0.2, aux_lr=0.2),
    "fab": dict(lr=0.01, inner_lr=0.01, penalty=5.0),
}


def net_of(name, n=N, order=None):
    if name == "fednest":
        return hgp.networks.FullyConnected(n)
    if name == "fab":
        matrices = hgp.networks.RandomDirected(n, seed=4).mixing_matrices(1, 9)
    else:
        matrices = hgp.networks.StaticUndirected(n, p=0.6, seed=3).mixing_matrices(1, 1)
    return hgp.networks.Schedule([M if order is None else M[np.ix_(order, order)] for M in matrices])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_names_of_clients_do_not_matter(name, shared):
    problem, x, lam = setting()
    order = np.array([2, 0, 1])
    one = getattr(baselines, name)(problem, lam, net_of(name), 5, x0=x, shared=shared, **CALLS[name])
    turned = problem.restrict(order)
    other = getattr(baselines, name)(
        turned, lam[order], net_of(name, order=order), 5, x0=x[order], shared=shared, **CALLS[name]
    )
    assert_close(other.lam, one.lam[:, order], 1e-11)
    assert other.traffic == one.traffic


@pytest.mark.parametrize("name", CALLS)
def test_a_single_client_sends_nothing_to_others(name):
    problem, x, lam = logistic(n=1, d=Q)
    net = hgp.networks.FullyConnected(1)
    path = getattr(baselines, name)(problem, lam, net, 4, x0=x, shared=True, **CALLS[name])
    assert np.isfinite(path.lam).all()
    assert (path.traffic.messages == 0) == (name != "fednest")  # whose server is somebody else


@pytest.mark.parametrize("name", CALLS)
def test_mini_batches_projection_callback_and_every(name):
    problem, x, lam = setting()
    options = CALLS[name] | {"x0": x}
    call = lambda seed, **more: getattr(baselines, name)(  # noqa: E731
        problem, lam, net_of(name), 6, batches=hgp.MiniBatches(5, seed), **options, **more
    )
    one, again, other = call(seed=1), call(seed=1), call(seed=2)
    assert np.array_equal(one.lam, again.lam) and not np.allclose(one.lam[1:], other.lam[1:])
    boxed = call(seed=1, project=lambda lam: np.clip(lam, 0.15, 0.25), every=4)
    assert boxed.lam.shape[0] == 3 and boxed.lam[1:].min() >= 0.15 and boxed.lam[1:].max() <= 0.25
    calls = []
    stopped = call(seed=1, callback=lambda k, lam, x, cost: calls.append(k) or k == 3)
    assert stopped.stopped == "callback" and calls == [1, 2, 3] and stopped.lam.shape[0] == 4
    assert np.array_equal(stopped.lam, one.lam[:4])


def test_storm_takes_the_last_point_on_this_mini_batch():
    """Two iterations of VRDBO on mini-batches, written out."""
    problem, x, lam = setting()
    path = baselines.vrdbo(problem, lam, NET, 2, x0=x, lr=0.01, inner_lr=0.2, ell=1.5, terms=4, eta=0.5, momentum=0.3,
                         batches=hgp.MiniBatches(5, seed=7))  # fmt: skip
    batches = hgp.problems.sample_batches(problem.counts, 5, 7, 0, 2)

    def delta(x, lam, batch):
        H, J = exact.hessians(problem, x, lam, batch), exact.jacobians(problem, x, lam, batch)
        f_x, f_lam = problem.outer_grad(x, lam)
        w, u = np.zeros_like(f_x), f_x
        for _ in range(4):
            w, u = w + u / 1.5, u - np.einsum("nij,nj->ni", H, u) / 1.5
        return f_lam - np.einsum("nij,nj->ni", J, w)

    grad = lambda x, lam, batch: problem.inner_grad(x, lam, batch=batch)  # noqa: E731
    u, ux = delta(x, lam, batches[0]), grad(x, lam, batches[0])
    lam1, x1 = lam - 0.5 * 0.01 * u, x + 0.5 * (W @ x - 0.2 * ux - x)
    u = delta(x1, lam1, batches[1]) + 0.7 * (u - delta(x, lam, batches[1]))
    assert_close(path.lam[1], lam1, 1e-12)
    assert_close(path.lam[2], lam1 - 0.5 * 0.01 * u, 1e-12)
    new = grad(x1, lam1, batches[1]) + 0.7 * (ux - grad(x, lam, batches[1]))
    assert_close(path.x, x1 + 0.5 * (W @ x1 - 0.2 * (W @ ux + new - ux) - x1), 1e-12)


EXAMPLES = {  # steps, the part of Σ f that is left at most, settings
    "dsoba": (600, 0.8, dict(lr=0.002, inner_lr=0.2, aux_lr=0.2, shared=True)),
    "sparkle": (600, 0.6, dict(lr=0.002, inner_lr=0.4, aux_lr=0.4, aux_rule="GT")),
    "ma_dsbo": (100, 0.6, dict(lr=0.02, inner_lr=0.2, higp_lr=0.2)),
    "fab": (600, 0.6, dict(lr=0.002, inner_lr=0.02, penalty=20.0)),
    "fednest": (100, 0.6, dict(lr=0.02, inner_lr=0.5, ell=1.0)),
    "gbdsbo": (900, 0.6, dict(lr=0.003, inner_lr=0.1, mixing=0.05, ell=1.0, shared=True)),
    "dbo": (100, 0.6, dict(lr=0.02, inner_lr=0.2, jhip_lr=0.2)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_outer_cost_falls(name):
    problem, (steps, part, settings) = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1), EXAMPLES[name]
    kinds = {"fab": hgp.networks.RandomDirected(n=4, seed=1), "fednest": hgp.networks.FullyConnected(4)}
    net = kinds.get(name, hgp.networks.StaticUndirected(n=4, seed=1))
    path = getattr(baselines, name)(problem, np.zeros((4, 2)), net, steps, **settings)
    first, last = (problem.outer_cost(exact.inner_solution(problem, lam), lam).sum() for lam in path.lam[[0, -1]])
    assert last < part * first


def test_on_full_batches_storm_is_mdbo_without_momentum():
    problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1, heterogeneity=0.0)
    net, settings = hgp.networks.StaticUndirected(n=4, seed=1), dict(lr=0.02, inner_lr=0.3, ell=1.0, shared=True)
    one, other = (
        method(problem, np.zeros((4, 2)), net, 50, **settings) for method in (baselines.vrdbo, baselines.mdbo)
    )
    assert np.allclose(one.lam, other.lam, atol=1e-12)
    assert (other.method, other.traffic.rounds) == ("MDBO", 50)


def test_the_signature_of_a_baseline_has_its_settings():
    given = inspect.signature(baselines.dbo)
    assert list(given.parameters)[:6] == ["problem", "lam", "net", "outer_steps", "lr", "inner_lr"]
    assert given.parameters["tracking"].default is False and given.return_annotation == "Path"
    assert max(len(inspect.signature(getattr(baselines, name)).parameters) for name in CALLS) <= 12
    with pytest.raises(TypeError, match="missing .*'aux_lr'"):
        baselines.dsoba(*setting()[::2], NET, lr=0.1, inner_lr=0.1)


REFUSED = {
    "graphs change": hgp.networks.RandomUndirected(N, seed=1),
    "not symmetric": hgp.networks.Schedule([np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])]),
}


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"fab", "fednest"}))
@pytest.mark.parametrize("why", REFUSED)
def test_networks_that_a_method_does_not_support_are_refused(name, why):
    problem, _, lam = setting()
    with pytest.raises(ValueError, match=f"needs one undirected graph(.|\n)*{why}(.|\n)*baselines.fab"):
        getattr(baselines, name)(problem, lam, REFUSED[why], 2, **CALLS[name])


def test_other_refusals():
    problem, x, lam = setting()
    with pytest.raises(ValueError, match="FullyConnected.*FedNest averages through a server"):
        baselines.fednest(problem, lam, NET, 2, **CALLS["fednest"])
    with pytest.raises(hgp.DivergenceError, match="take smaller step sizes"):
        baselines.dsoba(problem, lam, NET, 400, lr=5.0, inner_lr=50.0, aux_lr=50.0)
    with pytest.raises(hgp.DivergenceError, match="take smaller step sizes"):  # not blamed on the projection
        baselines.dsoba(problem, lam, NET, 400, lr=5.0, inner_lr=50.0, aux_lr=50.0, every=400, project=lambda lam: lam)
    with pytest.raises(ValueError, match="method must be one of 'fednest', 'dbo'.*, got 'nobody'"):
        baselines.at_point(problem, x, lam, NET, "nobody")
    with pytest.raises(TypeError, match="method='dbo'.*step"):
        baselines.at_point(problem, x, lam, NET, "dbo")
    with pytest.raises(ValueError, match="^inner_rule must be one of 'ED', 'EXTRA', 'GT', got 'MAGIC'$"):
        baselines.sparkle(problem, lam, NET, 2, inner_rule="MAGIC", **CALLS["sparkle"])
    with pytest.raises(ValueError, match="batches must have one seed, got MiniBatches"):
        baselines.dsoba(problem, lam, NET, 2, batches=hgp.MiniBatches(5, seed=[1, 2]), **CALLS["dsoba"])
    with pytest.raises(ValueError, match="net must have 3 clients like the problem, got 4"):
        baselines.dsoba(problem, lam, hgp.networks.StaticUndirected(4, seed=1), 2, **CALLS["dsoba"])


@pytest.mark.parametrize("outer", ["ED", "EXTRA", "GT"])
def test_a_projection_does_not_stop_at_points_that_are_not_stationary(outer):
    """Σ f falls along the box's edges until their end: the corner is the minimiser."""
    problem = hgp.problems.Quadratic.random(4, 3, 2, seed=1)
    net = hgp.networks.StaticUndirected(4, seed=1)
    settings = dict(lr=0.01, inner_lr=0.4, aux_lr=0.4, outer_rule=outer, shared=True, project=bilevel.Box(-0.2, 0.2))
    path = baselines.sparkle(problem, np.zeros((4, 2)), net, 2000, every=2000, **settings)
    lam = path.lam[-1]
    slope = exact.shared_hypergradient(problem, exact.inner_solution(problem, lam), lam)
    assert np.abs(slope).min() > 0.1
    assert_close(lam, np.broadcast_to(-0.2 * np.sign(slope), lam.shape), 1e-8)


def test_errors_name_the_argument_of_the_public_function():
    problem, x, lam = setting()
    with pytest.raises(TypeError, match="FAB has no option variant; options of all baselines are shared, x0, project"):
        baselines.fab(problem, lam, net_of("fab"), 2, variant="x", **CALLS["fab"])
    for name, wrong in (("dbo", "jhip_lr"), ("gbdsbo", "mixing"), ("ma_dsbo", "higp_lr"), ("mdbo", "inner_lr"),
                        ("dsoba", "aux_lr"), ("sparkle", "lr"), ("fab", "inner_lr"), ("fednest", "lr")):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{wrong} must be .*, got -1.0"):
            getattr(baselines, name)(problem, lam, net_of(name), 2, **(CALLS[name] | {wrong: -1.0}))
    with pytest.raises(TypeError, match="'dbo' takes the settings step and optionally shared, got jhip_lr"):
        baselines.at_point(problem, x, lam, NET, "dbo", jhip_lr=0.1)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_network_of_other_clients_is_refused(name):
    problem, _, lam = setting()
    net = hgp.networks.FullyConnected(N + 1)
    with pytest.raises(ValueError, match=f"net must have {N} clients like the problem, got {N + 1}"):
        getattr(baselines, name)(problem, lam, net, 2, **CALLS[name])
