"""Partitions over clients, and real data split with them."""

from __future__ import annotations

import builtins
import doctest

import numpy as np
import pytest

import hgp_ref as hgp
import hgp_ref.data.clients as module
from hgp_ref.data import breast_cancer, digits, dirichlet_partition, quantity_partition, shard_partition


@pytest.mark.parametrize("n_clients", [1, 2, 7, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.4, 100.0])
def test_every_instance_goes_to_exactly_one_client(n_clients, alpha):
    labels = np.random.default_rng(0).integers(0, 5, 211)
    parts = dirichlet_partition(labels, n_clients, alpha, seed=2)
    assert len(parts) == n_clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(211))
    assert all(np.all(np.diff(part) > 0) for part in parts)


def test_reproducible():
    labels = np.arange(100) % 3
    first, again, other = (dirichlet_partition(labels, 5, 0.4, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_shares_have_the_mean_and_variance_of_the_dirichlet():
    """Share of client 0 among N instances of one label: mean 1/n, variance v + (1/n − 1/n² − v)/N with
    v = (n−1)/(n²(nα+1)) that of the Dirichlet. Over R draws the mean is within 5 sd, the variance within 30 %."""
    n, alpha, N, R = 4, 0.4, 400, 2000
    shares = np.array([dirichlet_partition(np.zeros(N), n, alpha, seed=s)[0].size / N for s in range(R)])
    v = (n - 1) / (n**2 * (n * alpha + 1))
    variance = v + (1 / n - 1 / n**2 - v) / N
    assert abs(shares.mean() - 1 / n) < 5 * np.sqrt(variance / R)
    assert abs(shares.var() / variance - 1) < 0.3


def test_labels_are_split_one_by_one():
    """With a tiny α almost every label belongs to one client; with a huge α every client has all labels."""
    labels = np.arange(1000) % 10
    few = dirichlet_partition(labels, 5, 1e-3, seed=0)
    assert sum(len(np.unique(labels[p])) for p in few if p.size) <= 12
    assert all(len(np.unique(labels[p])) == 10 for p in dirichlet_partition(labels, 5, 1e3, seed=0))


@pytest.mark.parametrize(
    ("labels", "wrong", "message"),
    [
        (np.zeros((2, 2)), {}, r"labels must have shape \(N,\) with N >= 1, got \(2, 2\)"),
        (np.zeros(0), {}, r"labels must have shape \(N,\) with N >= 1, got \(0,\)"),
        (np.zeros(4), {"n_clients": 0}, "n_clients must be .*, got 0"),
        (np.zeros(4), {"alpha": -1.0}, "alpha must be .*, got -1.0"),
        (np.zeros(4), {"alpha": np.inf}, "alpha must be .*, got inf"),
        (np.zeros(4), {"alpha": 1.7e308}, "alpha must be below 1e300, got 1.7e.308"),
        (np.zeros(4), {"seed": -1}, "seed must be .*, got -1"),
        (np.zeros(4), {"min_per_client": -1}, "min_per_client must be .*, got -1"),
        (np.array([0.0, 1.0, np.nan, 1.0]), {}, "labels must not contain NaN or NaT, got nan at index 2"),
        (
            np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
            {},
            "labels must not contain NaN or NaT, got NaT at index",
        ),
        (
            np.zeros(4),
            {"min_per_client": 3},
            r"min_per_client \* n_clients must be at most the number of instances, 4, got 3 \* 2",
        ),
        (
            np.zeros(40),
            {"alpha": 1e-3, "min_per_client": 3},
            "client . must get min_per_client=3 instances, got 0; try another seed",
        ),
    ],
)
def test_bad_arguments(labels, wrong, message):
    with pytest.raises(ValueError, match=message):
        dirichlet_partition(labels, **{"n_clients": 2, **wrong})


@pytest.mark.parametrize(
    ("labels", "wrong", "message"),
    [
        (np.array([0, None, "a"], dtype=object), {}, "labels must be of a type that can be sorted: "),
        (np.zeros(4), {"n_clients": 2.0}, "n_clients must be .*, got 2.0"),
        (np.zeros(4), {"n_clients": True}, "n_clients must be .*, got True"),
        (np.zeros(4), {"alpha": "1"}, "alpha must be .*, got '1'"),
        (np.zeros(4), {"min_per_client": 0.5}, "min_per_client must be .*, got 0.5"),
    ],
)
def test_arguments_of_the_wrong_kind(labels, wrong, message):
    with pytest.raises(TypeError, match=message):
        dirichlet_partition(labels, **{"n_clients": 2, **wrong})


@pytest.mark.parametrize("labels", [["b", "a", "b"], [1.5, 0.5, 1.5], [True, False, True]], ids=str)
def test_labels_of_any_kind_that_sorts(labels):
    parts = dirichlet_partition(labels, 2, seed=1)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2]


def test_docstring_example():
    assert doctest.testmod(module, extraglobs={"hgp": hgp, "np": np}).failed == 0


@pytest.mark.parametrize(
    ("load", "instances", "features", "classes"), [(breast_cancer, 569, 31, 2), (digits, 1797, 65, 10)]
)
def test_real_data_is_all_there_and_standardised(load, instances, features, classes):
    pytest.importorskip("sklearn")
    data = load(n_clients=10, seed=0)
    assert data.n_classes == classes
    assert sum(map(len, data.y)) + sum(map(len, data.y_val)) == instances
    assert all(len(y) >= 1 for y in data.y) and all(len(y) >= 1 for y in data.y_val)
    training = np.concatenate(data.X)
    assert training.shape == (data.counts.sum(), features)
    assert np.all(training[:, -1] == 1)
    tolerance = 1e-12  # of sums of about 1000 numbers of order 1
    assert np.all(np.abs(training[:, :-1].mean(axis=0)) < tolerance)
    std = training[:, :-1].std(axis=0)
    assert np.all((np.abs(std - 1) < tolerance) | (std == 0))
    held_out = np.concatenate(data.X_val)
    assert np.all(np.isfinite(held_out))
    assert abs(len(held_out) / instances - 0.4) < 0.02


def test_real_data_bad_fraction():
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match="validation must be a fraction strictly between 0 and 1, got 1.0"):
        breast_cancer(validation=1.0)
    with pytest.raises(ValueError, match="validation must be a fraction strictly between 0 and 1, got nan"):
        breast_cancer(validation=np.nan)
    with pytest.raises(TypeError, match="bias must be True or False, got 1"):
        breast_cancer(bias=1)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"hgp_ref\[data\]"):
        digits()


# Shards and quantities


@pytest.mark.parametrize("n_clients", [1, 2, 7, 30])
@pytest.mark.parametrize("partition", [shard_partition, quantity_partition])
def test_other_partitions_give_every_instance_to_exactly_one_client(partition, n_clients):
    labels = np.random.default_rng(0).integers(0, 5, 211)
    given = {} if partition is shard_partition else {"alpha": 5.0}
    first, again, other = (partition(labels, n_clients, seed=seed, **given) for seed in (2, 2, 3))
    assert len(first) == n_clients and np.array_equal(np.sort(np.concatenate(first)), np.arange(211))
    assert all(np.all(np.diff(part) > 0) for part in first)
    assert all(map(np.array_equal, first, again)) and (n_clients == 1 or not all(map(np.array_equal, first, other)))


def test_shards_have_equal_size_and_few_labels():
    labels = np.random.default_rng(1).permutation(np.arange(1000) % 10)
    parts = shard_partition(labels, 25, shards=2, seed=0)
    assert {part.size for part in parts} == {40}
    assert max(len(np.unique(labels[part])) for part in parts) == 2  # 20 divides the 100 instances of a label
    sizes = [part.size for part in shard_partition(labels, 7, shards=3, seed=0)]
    assert max(sizes) - min(sizes) <= 3


def test_shards_are_dealt_at_random():
    """The label of client 0 with one shard is uniform over ten labels: each count within 5 sd of 2000 draws."""
    labels = np.arange(50) % 10
    drawn = [labels[shard_partition(labels, 10, shards=1, seed=seed)[0][0]] for seed in range(2000)]
    assert np.abs(np.bincount(drawn, minlength=10) - 200).max() < 5 * np.sqrt(2000 * 0.1 * 0.9)
    within = [shard_partition(labels, 20, shards=1, seed=seed) for seed in range(20)]
    assert len({tuple(part.tolist()) for parts in within for part in parts}) > 20  # labels are cut in many ways


def test_quantities_are_those_of_the_dirichlet():
    """As for one label of `dirichlet_partition`."""
    n, alpha, N, R = 4, 0.8, 400, 2000
    shares = np.array([quantity_partition(N, n, alpha, s, min_per_client=0)[0].size / N for s in range(R)])
    v = (n - 1) / (n**2 * (n * alpha + 1))
    variance = v + (1 / n - 1 / n**2 - v) / N
    assert abs(shares.mean() - 1 / n) < 5 * np.sqrt(variance / R)
    assert abs(shares.var() / variance - 1) < 0.3


def test_datasets_are_split_by_their_targets_or_length():
    class Labelled:
        targets = (0, 0, 1, 1, 1, 0)

        def __len__(self):
            return 6

    for partition in (dirichlet_partition, shard_partition):
        of_targets, of_labels = (partition(data, 2, seed=3) for data in (Labelled(), Labelled.targets))
        assert all(map(np.array_equal, of_targets, of_labels))
    assert all(map(np.array_equal, quantity_partition(Labelled(), 2, seed=1), quantity_partition(6, 2, seed=1)))


def test_parts_of_a_torch_dataset():
    torch = pytest.importorskip("torch", reason="PyTorch is optional")
    data = torch.utils.data.TensorDataset(torch.arange(12.0), torch.arange(12) % 3)
    parts = shard_partition(data, 3, shards=1, seed=0)
    assert all(map(np.array_equal, parts, shard_partition(data.tensors[1], 3, shards=1, seed=0)))
    assert (
        sorted(int(y) for part in parts for _, y in torch.utils.data.Subset(data, part)) == [0] * 4 + [1] * 4 + [2] * 4
    )
    assert all(len({int(y) for _, y in torch.utils.data.Subset(data, part)}) == 1 for part in parts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shard_partition(np.zeros(5), 3), r"shards \* n_clients must be at most .* instances, 5, got 2 \* 3"),
        (lambda: shard_partition(np.zeros(5), 3, shards=0), "shards must be an integer >= 1, got 0"),
        (lambda: quantity_partition(0, 3), "data must be an integer >= 1, got 0"),
        (lambda: quantity_partition(4, 3, alpha=0.0), "alpha must be .*, got 0.0"),
        (
            lambda: quantity_partition(50, 5, alpha=0.1),
            "client . must get min_per_client=1 instances, got 0; try another",
        ),
    ],
)
def test_other_partitions_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_array_without_axes_is_refused_by_name():
    with pytest.raises(TypeError, match="data must be an integer"):
        quantity_partition(np.array(5.0), 2)
