"""Each baseline against a loop of a few lines, written out client by client for softmax regression (convex)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import personalization as personal
from hgp_ref.data import Clients
from hgp_ref.neural import Linear, Sequential
from hgp_ref.personalization import GradientPush, LocalSGD, OuterLoop, Task
from hgp_ref.personalization.task import Evaluator
from hgp_ref.problems import sample_batches, sample_epochs

D, C, L2, SEED = 3, 4, 0.01, 5
COUNTS = (9, 5, 12)


def clients(counts=COUNTS, shift=None, seed=0):
    """Labelled points; client i's inputs are shifted by shift[i]."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(D, C))

    def draw(i, N):
        X = rng.normal(size=(N, D)) + (0 if shift is None else shift[i])
        return X, np.argmax(X @ truth + rng.normal(size=(N, C)), axis=1)

    parts = [[draw(i, N) for i, N in enumerate(counts)] for counts in (counts, [6] * len(counts), [7] * len(counts))]
    (X, y), (Xv, yv), (Xt, yt) = ([list(part) for part in zip(*each, strict=True)] for each in parts)
    return Clients(X, y, Xv, yv, C, "points", Xt, yt)


@pytest.fixture
def task():
    return Task(Sequential((D,), Linear(D, C)), clients(), l2=L2, seed=SEED, eval_every=3)


NET = hgp.networks.FullyConnected(3)
ROUNDS = LocalSGD(rounds=7, lr=0.3, milestones=(4,), decay=0.5, momentum=0.0, batch_size=4)
RATES = [0.3] * 4 + [0.15] * 3


def losses(X, y, x):
    """Cross-entropy of each instance, x = (weight (C, D), bias (C,))."""
    z = X @ x[: C * D].reshape(C, D).T + x[C * D :]
    z = z - z.max(axis=1, keepdims=True)
    return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]


def gradient(X, y, x, weights=None):
    """Of the mean loss, instances weighted, and of (l2/2)|x|²."""
    z = X @ x[: C * D].reshape(C, D).T + x[C * D :]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    p = p * (np.ones(len(y)) if weights is None else weights)[:, None] / len(y)
    return np.concatenate([(p.T @ X).ravel(), p.sum(axis=0)]) + L2 * x


def batches(i, epoch, size=4):
    order = sample_epochs(COUNTS, SEED, epoch, 1)[0, i, : COUNTS[i]]
    return [order[k : k + size] for k in range(0, COUNTS[i], size)]


def epoch_of(task, i, epoch, w, rate, prox=0.0, anchor=None, momentum=0.0, b=None, weights=None):
    """w and momentum after one epoch of client i."""
    X, y = task.data.X[i], task.data.y[i]
    b = np.zeros_like(w) if b is None else b
    for k in batches(i, epoch):
        step = gradient(X[k], y[k], w, None if weights is None else weights[k])
        b = momentum * b + step + prox * (w - (w if anchor is None else anchor))
        w = w - rate * b
    return w, b


def by_size(w):
    return np.average(w, axis=0, weights=COUNTS)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("prox", [0.0, 0.7])
def test_fedavg_and_fedprox(task, prox):
    z = task.start()[0]
    for r, rate in enumerate(RATES):
        z = by_size([epoch_of(task, i, r, z, rate, prox, z)[0] for i in range(3)])
    heavy = replace(ROUNDS, momentum=0.9)  # which FedProx does without
    result = personal.FedProx(mu=prox).fit(task, NET, heavy) if prox else personal.FedAvg().fit(task, NET, ROUNDS)
    close(result.x, np.tile(z, (3, 1)))
    assert result.evaluated_at.tolist() == [3, 6, 7] and result.validation.shape == (3, 3)
    assert result.traffic.rounds == 7 and result.traffic.messages == 7 * 6


def test_local(task):
    expected, momentum = np.array(task.start()), [None] * 3
    for r, rate in enumerate(RATES):
        for i in range(3):
            expected[i], momentum[i] = epoch_of(task, i, r, expected[i], rate, momentum=0.9, b=momentum[i])
    rounds = LocalSGD(rounds=7, lr=0.3, milestones=(4,), decay=0.5, momentum=0.9, batch_size=4)
    result = personal.Local().fit(task, NET, rounds)
    close(result.x, expected)
    assert result.traffic.messages == 0 and result.method == "Local"
    push = personal.Local().fit(task, NET, GradientPush(steps=9, lr=0.2, batch_size=4, milestones=()))
    drawn = sample_batches(COUNTS, 4, SEED, 0, 9)
    w = task.start()[1]
    for s in range(9):
        k = drawn[s, 1][drawn[s, 1] >= 0]
        w = w - 0.2 * gradient(task.data.X[1][k], task.data.y[1][k], w)
    close(push.x[1], w)


def test_accuracies_are_those_of_the_models(task):
    result = personal.Local().fit(task, NET, ROUNDS)
    for i in range(3):
        x = result.x[i]
        guess = np.argmax(task.data.X_test[i] @ x[: C * D].reshape(C, D).T + x[C * D :], axis=1)
        assert result.test[-1, i] == pytest.approx(np.mean(guess == task.data.y_test[i]))
    chosen = np.argmax(result.validation @ np.array([6, 6, 6]))
    assert result.best == chosen and result.accuracy() == pytest.approx(result.test[chosen].mean())
    assert result.bottom() == pytest.approx(np.quantile(result.test[chosen], 0.1))


@pytest.mark.parametrize(
    ("as_published", "epochs", "tuning_lr"), [(False, 1, None), (True, 1, None), (False, 2, 0.7), (True, 2, 0.05)]
)
def test_fedavg_plus(task, as_published, epochs, tuning_lr, monkeypatch):
    """More epochs from the common model are evaluated; the common model itself is not changed by them."""
    evaluated, evaluate = [], Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", lambda self, k, x, lam: (evaluated.append(x), evaluate(self, k, x, lam)))
    trainer = LocalSGD(rounds=7, lr=0.3, milestones=(4,), decay=0.5, momentum=0.5, batch_size=4)
    result = personal.FedAvgPlus(tuning_epochs=epochs, tuning_lr=tuning_lr, as_published=as_published).fit(
        task, NET, trainer
    )
    evaluated = evaluated[:3]
    close(result.x, personal.FedAvg().fit(task, NET, trainer).x)
    accuracies, b, tuned = [], [None] * 3, np.zeros((3, C * D + C))
    z, momenta = task.start()[0], [None] * 3
    for r, rate in enumerate(RATES):
        w = []
        for i in range(3):
            trained, momenta[i] = epoch_of(task, i, r, z, rate, momentum=0.5, b=momenta[i])
            w.append(trained)
        z = by_size(w)
        if r + 1 in (3, 6, 7):
            at = tuning_lr or (0.3 if as_published else rate)
            for i in range(3):
                tuned[i], b[i] = z, b[i] if as_published else None
                for e in range(2**40 + r * epochs, 2**40 + (r + 1) * epochs):
                    tuned[i], b[i] = epoch_of(task, i, e, tuned[i], at, momentum=0.5, b=b[i])
            close(evaluated[len(accuracies)], tuned)
            accuracies.append(task.problem.accuracy(tuned, np.zeros((3, 1)), *task.data.test))
    close(result.test, np.stack(accuracies))


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize(("as_published", "local_rate"), [(False, 0.2), (False, None), (True, None)])
def test_pfedme(task, as_published, local_rate, epochs):
    mu, inner, beta = 2.0, 3, 0.8
    nu = 1 / mu if local_rate is None else local_rate
    theta = np.array(task.start())
    w = theta[0].copy()
    for r, rate in enumerate(RATES):
        w_local = np.tile(w, (3, 1))
        for i, e in np.ndindex(3, epochs):
            X, y = task.data.X[i], task.data.y[i]
            if as_published:
                theta[i], _ = epoch_of(task, i, r * epochs + e, theta[i], rate, mu, w)
                continue
            for k in batches(i, r * epochs + e):
                for _ in range(inner):
                    theta[i] = theta[i] - rate * (gradient(X[k], y[k], theta[i]) + mu * (theta[i] - w_local[i]))
                w_local[i] = w_local[i] - nu * mu * (w_local[i] - theta[i])
        w = by_size(theta) if as_published else (1 - beta) * w + beta * by_size(w_local)
    method = personal.PFedMe(mu, inner, local_rate, beta, as_published)
    result = method.fit(task, NET, replace(ROUNDS, epochs=epochs))
    close(result.x, theta)
    for part, accuracy in (("validation", result.validation), ("test", result.test)):  # of the θ_i
        close(accuracy[-1], task.problem.accuracy(theta, np.zeros((3, 1)), *task.data.part(part)))


def test_pfedme_tends_to_the_minimum_of_the_envelopes():
    """With exact proximal points and plain averages the fixed point has Σ (w − θ_i(w)) = 0."""
    task = Task(Sequential((D,), Linear(D, C)), clients((10, 10, 10)), l2=0.1, seed=SEED, eval_every=500)
    trainer = LocalSGD(rounds=400, lr=0.3, milestones=(), momentum=0.0, batch_size=None)
    theta = personal.PFedMe(mu=1.0, inner_steps=40).fit(task, NET, trainer).x
    w = theta + task.problem.inner_grad(theta, np.zeros((3, 1)))  # from ∂g(θ) + μ (θ − w) = 0
    np.testing.assert_allclose(w, np.tile(w.mean(axis=0), (3, 1)), atol=1e-3)
    np.testing.assert_allclose(theta.mean(axis=0), w.mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("kind", ["exact", "gossip"])
def test_fedem(task, kind):
    """E and M steps from the equations, and the mean by size or by the network's weights."""
    K, trainer = 2, LocalSGD(rounds=5, lr=0.3, milestones=(3,), decay=0.5, momentum=0.3, batch_size=4)
    net = NET if kind == "exact" else hgp.networks.StaticUndirected(3, 0.9, seed=1)
    trainer = trainer if kind == "exact" else LocalSGD(**{**vars(trainer), "averaging": "gossip", "by_size": False})
    W = np.tile(np.array(COUNTS) / sum(COUNTS), (3, 1)) if kind == "exact" else net.mixing_matrix(1)
    theta = [np.array(task.model.init(3, SEED + m)) for m in range(K)]
    log_pi, b = np.log(np.full((3, K), 1 / K)), [[None] * 3 for _ in range(K)]
    for r, rate in enumerate([0.3] * 3 + [0.15] * 2):
        trained = [np.empty_like(t) for t in theta]
        for i in range(3):
            X, y = task.data.X[i], task.data.y[i]
            joint = np.stack([log_pi[i, m] - losses(X, y, theta[m][i]) for m in range(K)], axis=1)
            q = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
            log_pi[i] = np.log(q.mean(axis=0))
            for m in range(K):
                start = theta[m][i], rate
                trained[m][i], b[m][i] = epoch_of(task, i, r, *start, momentum=0.3, b=b[m][i], weights=q[:, m])
        theta = [W @ t for t in trained]
    result = personal.FedEM(components=K).fit(task, net, trainer)
    close(result.x, np.concatenate(theta, axis=1))
    close(result.lam, log_pi)


def test_a_mixture_predicts_by_its_probabilities(task):
    """Not by a mean of logits, in which a component with large ones has the only say."""
    rng, dim = np.random.default_rng(0), C * D + C
    mixture = hgp.problems.PersonalMixture(task.model, *task.data.train, components=2)
    x, lam = rng.normal(size=(3, 2 * dim)) * np.repeat([2, 30], dim), np.tile([1.0, 0.0], (3, 1))
    right = {"probabilities": np.zeros(3), "logits": np.zeros(3)}
    for i, (X, y) in enumerate(zip(*task.data.test, strict=True)):
        z = [X @ w[: C * D].reshape(C, D).T + w[C * D :] for w in np.split(x[i], 2)]
        P = [np.exp(a - a.max(axis=1, keepdims=True)) for a in z]
        mixed = {"probabilities": [p / p.sum(axis=1, keepdims=True) for p in P], "logits": z}
        for kind, (one, other) in mixed.items():
            right[kind][i] = np.mean(np.argmax(np.e * one + other, axis=1) == y)
    close(mixture.accuracy(x, lam, *task.data.test), right["probabilities"])
    assert np.any(right["probabilities"] != right["logits"])


@pytest.mark.parametrize("method", ["HGPPersonalLayer", "HGPMultiTask"])
def test_is_the_outer_loop_of_a_mask_or_a_mixture(task, method):
    trainer, net = GradientPush(steps=30, lr=0.3, batch_size=4), hgp.networks.RandomDirected(3, seed=2)
    outer = OuterLoop(outer_steps=2, iterations=3, averaging_steps=4, eta=0.2, batch_size=4, outer_l2=0.02)
    result = getattr(personal, method)(outer).fit(task, net, trainer)
    made = {"HGPPersonalLayer": hgp.problems.PersonalMask, "HGPMultiTask": hgp.problems.PersonalMixture}[method]
    problem = made(task.model, *task.data.train, l2=L2, outer_l2=0.02)
    lam, m, s, graphs, drawn = np.zeros((3, problem.dim_lam)), 0.0, 0.0, 0, 0
    start = np.concatenate(
        [task.model.init(3, SEED + j) for j in range(1 if method == "HGPPersonalLayer" else 3)], axis=1
    )
    for k in range(3):
        batches = hgp.MiniBatches(4, seed=SEED, offset=drawn)
        method_k = hgp.training.SGP(30, 0.3, (0.6, 0.8), variant="nedic", batches=batches)
        fit = hgp.train(problem, lam, net.after(graphs), method_k, x0=start)
        close(result.test[k], problem.accuracy(fit.x, lam, *task.data.test))
        graphs, drawn = graphs + 30, drawn + 30
        if k == 2:
            break
        avg = hgp.PushSum(net.after(graphs), 4)
        batches = hgp.MiniBatches(4, seed=SEED, share=True, offset=drawn)
        v = hgp.hypergradient(problem, fit.x, lam, avg, eta=0.2, iterations=3, batches=batches).value
        graphs, drawn = graphs + 12, drawn + 3
        m, s = 0.9 * m + 0.1 * v, 0.999 * s + 0.001 * v * v
        lam = lam - 0.1 * (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(s / (1 - 0.999 ** (k + 1))) + 1e-8)
    close(result.lam, lam)
    close(result.x, fit.x)


@pytest.mark.parametrize(
    ("method", "lr", "outer_l2"),
    [("HGPPersonalLayer", 0.1, 1e-3), ("HGPMultiTask", 0.1, 1e-2), ("HGPInstanceWeights", 0.3, 0.0)],
)
def test_outer_loops_by_default(task, method, lr, outer_l2):
    result = getattr(personal, method)().fit(task, NET, GradientPush(steps=2, lr=0.1, batch_size=None))
    expected = {"lr": lr, "outer_l2": outer_l2, "iterations": 10, "averaging_steps": 10}
    assert {name: result.settings["outer"][name] for name in expected} == expected and len(result.evaluated_at) == 6


def resolved(task, lam, scale, outer_l2, part, c=(1, 1, 1)):
    """F(λ) at x(λ) = argmin Σ_i c_i g_i by Newton's method; logits of an instance are A x, A = m ∘ (its design)."""
    m = scale * np.exp(lam) / np.exp(lam).sum(axis=1, keepdims=True)

    def probabilities(X, i, x):
        eye = np.tile(np.eye(C), (len(X), 1, 1))
        A = m[i][:, None] * np.concatenate([np.einsum("cd,kj->kcdj", np.eye(C), X).reshape(len(X), C, -1), eye], axis=2)
        p = np.exp(A @ x)
        return A, p / p.sum(axis=1, keepdims=True)

    x = np.zeros(C * D + C)
    for _ in range(9):
        gradient, hessian = sum(c) * task.l2 * x, sum(c) * task.l2 * np.eye(len(x))
        for i, (X, y) in enumerate(zip(*task.data.train, strict=True)):
            A, p = probabilities(X, i, x)
            gradient = gradient + c[i] * np.einsum("kcj,kc->j", A, p - np.eye(C)[y]) / len(y)
            curved = np.einsum("kc,cd->kcd", p, np.eye(C)) - p[:, :, None] * p[:, None, :]
            hessian = hessian + c[i] * np.einsum("kcj,kcd,kdl->jl", A, curved, A) / len(y)
        x = x - np.linalg.solve(hessian, gradient)
    data = enumerate(zip(*task.data.part(part), strict=True))
    losses = [-np.log(probabilities(X, i, x)[1][np.arange(len(y)), y]).mean() for i, (X, y) in data]
    return sum(losses) + outer_l2 / 2 * np.sum(lam**2)


LIMITS = (("train", False, False), ("validation", True, False), ("validation", False, True))


@pytest.mark.parametrize(("part", "as_printed", "by_size"), LIMITS)
def test_in_the_limit_a_mask_goes_down_the_resolved_cost(part, as_printed, by_size, monkeypatch):
    """λ_1 − λ_2 = d_λ F(λ_1) by differences, for gradient descent in place of Adam and S, M large."""
    monkeypatch.setattr(hgp.bilevel, "Adam", hgp.bilevel.GradientDescent)
    task = Task(Sequential((D,), Linear(D, C)), clients(), l2=0.2, seed=SEED, eval_every=9)
    average = {"averaging": "exact"} if by_size else {"averaging": "push_sum", "averaging_steps": 40}
    trainer = LocalSGD(150, 0.8, (), momentum=0.0, batch_size=None, by_size=by_size, **average)
    net, h = NET if by_size else hgp.networks.RandomDirected(3, seed=2), 1e-5
    outer = OuterLoop(1, lr=1.0, outer_l2=0.3, iterations=150, eta=0.5, batch_size=None, outer_data=part, **average)
    first, second = (
        personal.HGPPersonalLayer(replace(outer, outer_steps=k), as_printed).fit(task, net, trainer).lam for k in (1, 2)
    )
    grad = np.zeros_like(first)
    for place in np.ndindex(*first.shape):
        step = np.zeros_like(first)
        step[place] = h
        settings = (1 if as_printed else C, 0.3, part, COUNTS if by_size else (1, 1, 1))
        up, down = (resolved(task, first + a, *settings) for a in (step, -step))
        grad[place] = (up - down) / (2 * h)
    np.testing.assert_allclose(first - second, grad, rtol=1e-5, atol=1e-6)
    if by_size:  # the published program's is another one
        published = (
            personal.HGPPersonalLayer(replace(outer, outer_steps=1, as_published=True)).fit(task, net, trainer).lam
        )
        assert np.linalg.norm(published - first) > 0.01 * np.linalg.norm(first)


def test_hgp_weights_is_the_outer_loop_of_instance_weights(task):
    trainer, net = GradientPush(steps=30, lr=0.3, batch_size=4), hgp.networks.RandomDirected(3, seed=2)
    outer = OuterLoop(
        outer_steps=2, lr=0.3, iterations=3, averaging_steps=4, eta=0.2, batch_size=None, outer_data="validation"
    )
    result = personal.HGPInstanceWeights(outer).fit(task, net, trainer)
    problem = hgp.problems.NeuralInstanceWeights(task.model, *task.data.train, *task.data.validation, L2)
    lam, m, s, graphs, drawn = np.ones((3, max(COUNTS))), 0.0, 0.0, 0, 0
    for k in range(3):
        batches = hgp.MiniBatches(4, seed=SEED, offset=drawn)
        method_k = hgp.training.SGP(30, 0.3, (0.6, 0.8), variant="nedic", batches=batches)
        fit = hgp.train(problem, lam, net.after(graphs), method_k, x0=task.start())
        close(result.test[k], task.problem.accuracy(fit.x, np.zeros((3, 1)), *task.data.test))
        graphs, drawn = graphs + 30, drawn + 30
        if k == 2:
            break
        avg = hgp.PushSum(net.after(graphs), 4)
        v = hgp.hypergradient(problem, fit.x, lam, avg, eta=0.2, iterations=3).value
        graphs, drawn = graphs + 12, drawn + 3
        m, s = 0.9 * m + 0.1 * v, 0.999 * s + 0.001 * v * v
        step = 0.3 * (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(s / (1 - 0.999 ** (k + 1))) + 1e-8)
        lam = np.clip(lam - step, 0.0, 1.0)
    close(result.lam, lam)
    assert 0 <= result.lam.min() < 1 == result.lam.max() and result.settings["outer"]["outer_l2"] == 0
    with pytest.raises(ValueError, match="outer must have outer_data='validation' for HGP-weights, got 'train'"):
        personal.HGPInstanceWeights(OuterLoop())


def test_without_terms_weights_stay(task):
    net, trainer = hgp.networks.RandomDirected(3, seed=2), GradientPush(steps=5, lr=0.3, batch_size=None)
    outer = OuterLoop(outer_steps=2, iterations=0, outer_data="validation")
    assert np.all(personal.HGPInstanceWeights(outer).fit(task, net, trainer).lam == 1)


def test_without_terms_a_mask_follows_its_own_gradient_and_sends_nothing_for_it(task):
    net, trainer = hgp.networks.RandomDirected(3, seed=2), GradientPush(steps=10, lr=0.3, batch_size=None)
    result = personal.HGPPersonalLayer(OuterLoop(outer_steps=1, iterations=0)).fit(task, net, trainer)
    trained = personal.FedAvg().fit(task, net, trainer)
    problem = hgp.problems.PersonalMask(task.model, *task.data.train, l2=L2, outer_l2=1e-3)
    direct = problem.outer_grad(trained.x, np.zeros((3, C)))[1]
    np.testing.assert_allclose(result.lam, -0.1 * np.sign(direct), rtol=1e-4)  # Adam's first step
    assert result.traffic.messages == sum(net.edges(s)[0].size - 3 for s in range(1, 21))


def test_f_may_be_on_validation_data(task):
    net, trainer = hgp.networks.RandomDirected(3, seed=2), GradientPush(steps=10, lr=0.3, batch_size=None)
    costs = {}
    for on in ("train", "validation"):
        outer = OuterLoop(outer_steps=0, outer_data=on, outer_l2=0.0)
        result = personal.HGPMultiTask(outer, components=2).fit(task, net, trainer)
        costs[on] = result.settings["outer_cost"][0]
        X, y = task.data.part(on)
        mixture = hgp.problems.PersonalMixture(task.model, X, y, components=2, outer_l2=0.0)
        assert costs[on] == pytest.approx(mixture.outer_cost(result.x, result.lam).sum())
    assert costs["train"] != costs["validation"]


@pytest.mark.parametrize("by_size", [True, False])
def test_class_prior_is_bayes_rule(task, by_size):
    """For a model of the classes in the proportions in which training weights the clients."""
    trainer = replace(ROUNDS, by_size=by_size)
    result = personal.ClassPrior().fit(task, NET, trainer)
    counts = np.array([[np.sum(y == c) + 1 for c in range(C)] for y in task.data.y])
    p = counts / counts.sum(axis=1, keepdims=True)
    sizes = [len(y) for y in task.data.y]
    assert len({*sizes}) > 1
    close(result.lam, np.log(p) - np.log(np.average(p, axis=0, weights=sizes if by_size else None)))
    trained = personal.FedAvg().fit(task, NET, trainer)
    close(result.x, trained.x)
    assert result.traffic.floats - trained.traffic.floats == 6 * (C + by_size)
    z = task.data.X_test[0] @ result.x[0][: C * D].reshape(C, D).T + result.x[0][C * D :] + result.lam[0]
    assert result.test[-1, 0] == pytest.approx(np.mean(np.argmax(z, axis=1) == task.data.y_test[0]))


def test_methods_of_rounds_refuse_steps(task):
    for method in (personal.FedProx(), personal.ClusteredFL(), personal.PFedMe(), personal.FedEM()):
        with pytest.raises(TypeError, match=rf"trainer must be LocalSGD\(...\) for {method.name}, got GradientPush"):
            method.fit(task, NET, GradientPush())
    with pytest.raises(
        TypeError, match=r"trainer must be GradientPush\(...\) or LocalSGD\(...\) for SGP/FedAvg, got 3"
    ):
        personal.FedAvg().fit(task, NET, 3)
