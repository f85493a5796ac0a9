"""Clustered-FL splits different clients and only those; methods agree on all array libraries; errors name arguments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.libraries import open_library

import hgp_ref as hgp
from hgp_ref import personalization as personal
from hgp_ref.backend import to_host
from hgp_ref.data import Clients
from hgp_ref.neural import Linear, Sequential
from hgp_ref.personalization import GradientPush, LocalSGD, OuterLoop, Task
from hgp_ref.personalization.methods import bipartition, cluster_means

from .test_methods_by_hand import L2, ROUNDS, C, D, clients, close, gradient

MODEL = Sequential((D,), Linear(D, C))


def two_kinds(counts=(40,) * 6, seed=0):
    """Even clients label by one rule, odd ones by its opposite: no common model serves both."""
    rng, n = np.random.default_rng(seed), len(counts)
    truth = rng.normal(size=(D, C))
    parts = []
    for _ in range(3):
        X = [rng.normal(size=(N, D)) for N in counts]
        parts += [X, [np.argmax((X[i] @ truth) * (1 if i % 2 == 0 else -1), axis=1) for i in range(n)]]
    X, y, X_val, y_val, X_test, y_test = parts
    return Clients(X, y, X_val, y_val, C, "two kinds", X_test, y_test)


def test_two_obvious_clusters_are_split_and_gain():
    task = Task(MODEL, two_kinds(), l2=1e-3, eval_every=60)
    trainer = LocalSGD(rounds=60, lr=0.5, momentum=0.0, batch_size=None, milestones=())
    net = hgp.networks.FullyConnected(6)
    limits = dict(tol_mean=0.05, tol_client=0.1, first_split=20)
    split = personal.ClusteredFL(**limits).fit(task, net, trainer)
    assert {frozenset(c) for c in split.settings["clusters"]} == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}
    assert len(split.notes) == 1 and split.notes[0].startswith("round ")
    together = personal.FedAvg().fit(task, net, trainer)
    assert split.accuracy() > 0.85 > 0.6 > together.accuracy()
    np.testing.assert_array_equal(split.x[0], split.x[2])
    assert split.traffic.messages < together.traffic.messages  # clusters speak among themselves
    published = personal.ClusteredFL(as_published=True, **{**limits, "tol_client": 1.6}).fit(task, net, trainer)
    assert published.notes == ()
    np.testing.assert_allclose(published.x, together.x, rtol=1e-10)


@pytest.mark.parametrize(("tol_mean", "tol_client", "first"), [(0.2, 0.35, 12), (0.5, 0.01, 3)])
def test_clusters_against_a_loop_by_hand(tol_mean, tol_client, first):
    """Client by client, with every bipartition tried; momentum is a client's own and goes on, means are by size."""
    counts, E, lr, m = np.array([12, 30, 9, 20, 15, 7]), 2, 0.3, 0.3
    task, n = Task(MODEL, two_kinds(counts), l2=L2, eval_every=5, seed=3), len(counts)
    trainer = LocalSGD(rounds=25, lr=lr, momentum=m, batch_size=None, milestones=(), epochs=E)
    limits = dict(tol_mean=tol_mean, tol_client=tol_client, first_split=first)
    result = personal.ClusteredFL(**limits).fit(task, hgp.networks.FullyConnected(n), trainer)
    z, b, clusters, notes, messages = np.array(task.start()), np.zeros_like(task.start()), [np.arange(n)], [], 0
    for r in range(1, 26):
        w = z.copy()
        for i in range(n):
            for _ in range(E):
                b[i] = m * b[i] + gradient(task.data.X[i], task.data.y[i], w[i])
                w[i] -= lr * b[i]
        updates, after = w - z, []
        for c in clusters:
            mean = np.average(updates[c], axis=0, weights=counts[c])
            z[c], lengths = z[c] + mean, np.linalg.norm(updates[c], axis=1)
            messages += len(c) * (len(c) - 1)
            if r >= first and np.linalg.norm(mean) < tol_mean and lengths.max() > tol_client and len(c) > 2:
                cosines = updates[c] @ updates[c].T / np.outer(lengths, lengths)
                side = min(sides(len(c)), key=lambda side: cosines[np.ix_(side, ~side)].max())
                after += [c[side], c[~side]]
                notes.append(f"round {r}: {c[side].tolist()} | {c[~side].tolist()}")
            else:
                after.append(c)
        clusters = after
    assert len(notes) > 0 and notes[0].endswith("[0, 2, 4] | [1, 3, 5]")
    assert result.notes == tuple(notes) and result.settings["clusters"] == [c.tolist() for c in clusters]
    close(result.x, z)
    assert result.traffic.messages == messages and result.traffic.floats == messages * (z.shape[1] + 1)


def test_one_kind_of_clients_is_not_split():
    task = Task(MODEL, clients((30, 30, 30)), eval_every=40)
    trainer = LocalSGD(rounds=40, lr=0.5, momentum=0.0, batch_size=None, milestones=())
    one = personal.ClusteredFL(tol_client=0.5).fit(task, hgp.networks.FullyConnected(3), trainer)
    assert one.settings["clusters"] == [[0, 1, 2]]
    np.testing.assert_allclose(
        one.x, personal.FedAvg().fit(task, hgp.networks.FullyConnected(3), trainer).x, rtol=1e-10
    )


@pytest.mark.parametrize("n", range(2, 9))
def test_bipartition_is_optimal(n):
    """The largest cosine across, against that of all 2^(n−1) − 1 bipartitions."""
    for seed in range(10):
        rows = np.random.default_rng([n, seed]).normal(size=(n, 3))
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = unit @ unit.T
        across = [cosines[np.ix_(side, ~side)].max() for side in sides(n)]
        first, second = bipartition(rows)
        assert sorted([*first, *second]) == list(range(n))
        assert cosines[np.ix_(first, second)].max() == pytest.approx(min(across), rel=1e-12)


def sides(n):
    """Client 0 with every set of others but all of them."""
    return [np.array([True, *(bool(k >> i & 1) for i in range(n - 1))]) for k in range(2 ** (n - 1) - 1)]


def test_the_published_program_splits_by_complete_linkage():
    rows = np.array([[1.6, 1.2, 0.8], [0, -1.7, -0.3], [-0.4, -0.7, 0.9], [-0.2, -0.8, -1.6]])
    alone, pairs = [[0], [1, 2, 3]], [[0, 2], [1, 3]]
    assert [side.tolist() for side in bipartition(rows)] == alone
    for published, groups in ((False, alone), (True, pairs)):
        method = personal.ClusteredFL(tol_mean=0.4, tol_client=0.5, as_published=published)
        after, _ = method.split([np.arange(4)], rows, np.zeros((4, 3)))
        assert [members.tolist() for members in after] == groups


def test_bipartition_has_the_smallest_largest_angle():
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(2, 50))
    rows = np.stack([u, v, 2 * u, -0.1 * u + v, 0.3 * u]) + 0.01 * rng.normal(size=(5, 50))
    first, second = bipartition(rows)
    assert first.tolist() == [0, 2, 4] and second.tolist() == [1, 3]


def test_the_largest_norm_decides_and_as_published_the_largest_coordinate():
    """Updates of norm 2 in 100 coordinates of 0.2 each, of two opposite kinds, whose mean is zero."""
    updates = np.full((4, 100), 0.2) * np.array([1, -1, 1, -1])[:, None]
    everyone, method = [np.arange(4)], personal.ClusteredFL(tol_mean=0.4, tol_client=1.6)
    clusters, texts = method.split(everyone, updates, np.zeros((4, 100)))
    assert [c.tolist() for c in clusters] == [[0, 2], [1, 3]] and texts == ["[0, 2] | [1, 3]"]
    assert len(replace(method, as_published=True).split(everyone, updates, np.zeros((4, 100)))[0]) == 1
    assert len(method.split(everyone, updates, updates)[0]) == 1  # the mean update is not small


def test_cluster_means():
    u, weights = np.arange(8.0).reshape(4, 2), np.array([1, 3, 2, 2])
    mean, traffic = cluster_means(u, [np.array([0, 1]), np.array([2]), np.array([3])], weights)
    np.testing.assert_allclose(mean, [[1.5, 2.5], [1.5, 2.5], [4, 5], [6, 7]])
    assert traffic.messages == 2 and traffic.floats == 6


PUSH = GradientPush(10, 0.3, batch_size=4)
METHODS = {
    "local": (personal.Local(), ROUNDS),
    "fedprox": (personal.FedProx(), ROUNDS),
    "fedavg_plus": (personal.FedAvgPlus(), ROUNDS),
    "clustered_fl": (personal.ClusteredFL(first_split=2, tol_client=0.0, tol_mean=9.0), ROUNDS),
    "pfedme": (personal.PFedMe(mu=2.0), ROUNDS),
    "fedem": (personal.FedEM(components=2), ROUNDS),
    "class_prior": (personal.ClassPrior(), ROUNDS),
    "hgp_pl": (personal.HGPPersonalLayer(OuterLoop(1, iterations=2, averaging_steps=2)), PUSH),
    "hgp_mtl": (personal.HGPMultiTask(OuterLoop(1, iterations=2, averaging="exact"), components=2), ROUNDS),
}


@pytest.mark.parametrize("backend", ["array_api_strict", "torch"])  # JAX compiles every shape
@pytest.mark.parametrize("method", METHODS)
def test_every_library_gives_the_same(method, backend):
    like, net = open_library(backend).asarray(np.zeros(1)), hgp.networks.FullyConnected(3)
    method, trainer = METHODS[method]
    numpy = method.fit(Task(MODEL, clients(), eval_every=4, seed=1), net, trainer)
    other = method.fit(Task(MODEL, clients(), eval_every=4, seed=1, like=like), net, trainer)
    assert type(other.x) is type(like)
    np.testing.assert_allclose(to_host(other.x), numpy.x, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(other.test, numpy.test)
    assert other.traffic == numpy.traffic


def test_training_that_diverges_is_reported():
    net = hgp.networks.FullyConnected(3)
    wild = LocalSGD(rounds=200, lr=1e4, momentum=0.9, batch_size=4, milestones=())
    for method in (personal.PFedMe(), personal.FedEM(), personal.ClusteredFL(), personal.FedAvg()):
        with pytest.raises(hgp.DivergenceError, match="use a smaller lr|learning rate"):
            method.fit(Task(MODEL, clients(), l2=10.0, eval_every=1), net, wild)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "cnn"}, TypeError, "model must be a hgp_ref.neural.Sequential, got str"),
        ({"data": [1]}, TypeError, "data must be a Clients, got "),
        ({"l2": -1.0}, ValueError, "l2 must be a finite number >= 0, got -1.0"),
        ({"eval_every": 0}, ValueError, "eval_every must be an integer >= 1, got 0"),
    ],
)
def test_a_bad_task_is_named(change, error, message):
    with pytest.raises(error, match=message):
        Task(**{"model": MODEL, "data": clients(), **change})


def test_results_are_saved_and_loaded(tmp_path):
    result = personal.FedAvg().fit(Task(MODEL, clients(), eval_every=4), hgp.networks.FullyConnected(3), ROUNDS)
    again = hgp.load(result.save(tmp_path / "fedavg.npz"))
    np.testing.assert_array_equal(again.test, result.test)
    assert again.best == result.best and again.sizes["test"].tolist() == [7, 7, 7]


def test_validation_data_choose_the_evaluation_and_sizes_weight_clients():
    """By correct predictions evaluation 0, by plain accuracies 1, by test data and by time 2."""
    validation = np.array([[0.5, 0.9], [1.0, 0.5], [0.5, 0.5]])
    test = np.array([[0.5, 0.25], [0.4, 0.3], [0.9, 0.9]])
    sizes = {"validation": np.array([10, 30]), "test": np.array([40, 20])}
    result = personal.Personalized("m", np.arange(3), validation, test, sizes, np.zeros((2, 1)), None, hgp.Traffic())
    assert result.best == 0
    assert result.accuracy() == pytest.approx(25 / 60) and result.accuracy(weighted=False) == pytest.approx(0.375)
    assert result.accuracy("validation") == pytest.approx(0.8)
    assert result.bottom(part="validation") == pytest.approx(0.54)
    assert result.bottom() == pytest.approx(0.275) and result.bottom(0.5) == pytest.approx(0.375)
    np.testing.assert_allclose(result.curve("validation"), [0.8, 0.625, 0.5])


def test_of_evaluations_with_equally_many_correct_predictions_the_first_is_chosen():
    """Accuracies weighted by sizes differ by rounding there."""
    rng, sizes = np.random.default_rng(0), np.array([35, 7, 39, 33])
    rounded = 0
    for _ in range(300):
        one = rng.integers(1, sizes)
        other = one + rng.permutation([1, -1, 0, 0])
        accuracy = np.stack([one, np.clip(other, 0, sizes)]) / sizes
        both = {"validation": sizes, "test": sizes}
        result = personal.Personalized(
            "m", np.arange(2), accuracy, accuracy, both, np.zeros((4, 1)), None, hgp.Traffic()
        )
        assert result.best == 0
        rounded += int(np.argmax(result.curve("validation")))
    assert rounded > 0  # what the choice by averages would have done


def test_updates_that_are_all_alike_still_make_two_groups():
    """Ties in complete linkage once left one of the two groups empty."""
    for method in ("single", "complete"):
        first, second = bipartition(np.ones((4, 3)), method)
        assert first.size and second.size and sorted([*first, *second]) == [0, 1, 2, 3]


def test_an_exact_mean_needs_a_fully_connected_network():
    """Over another network it would give the numbers of FullyConnected and count their traffic."""
    task, outer = Task(MODEL, clients(), eval_every=4), OuterLoop(1, iterations=2, averaging="exact")
    net = hgp.networks.Unreliable(hgp.networks.FullyConnected(3), loss=0.9)
    with pytest.raises(ValueError, match="net must be FullyConnected with averaging='exact', got Unreliable"):
        personal.FedAvg().fit(task, net, ROUNDS)
    net = hgp.networks.RandomDirected(3, 0.4, 0.8, seed=0)
    for run in (
        lambda: personal.FedAvg().fit(task, net, ROUNDS),
        lambda: personal.FedEM(components=2).fit(task, net, ROUNDS),
        lambda: personal.PFedMe().fit(task, net, ROUNDS),
        lambda: personal.ClusteredFL().fit(task, net, ROUNDS),
        lambda: personal.HGPPersonalLayer(outer).fit(task, net, GradientPush(4, 0.1, batch_size=4)),
    ):
        with pytest.raises(ValueError, match="net must be FullyConnected with averaging='exact', got RandomDirected"):
            run()
    with pytest.raises(ValueError, match="trainer must have averaging='exact' for Clustered-FL, got 'gossip'"):
        personal.ClusteredFL().fit(task, hgp.networks.FullyConnected(3), LocalSGD(rounds=3, averaging="gossip"))


def test_rounds_of_several_epochs_continue_with_new_orders():
    """After three rounds of two epochs the seventh epoch comes next."""
    task, net, offsets = Task(MODEL, clients(), eval_every=4), hgp.networks.FullyConnected(3), []
    for start in (0, 3):
        trainer = LocalSGD(rounds=3, lr=0.1, batch_size=4, epochs=2, milestones=())
        offsets.append(trainer.fit(task.problem, task.zeros(), net, first_batch=start).method.batches.offset)
    assert offsets == [0, 6]
