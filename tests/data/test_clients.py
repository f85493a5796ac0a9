"""The container for data of clients: parts, restriction, clusters, and the synthetic mixture in it."""

from __future__ import annotations

import dataclasses
import doctest

import numpy as np
import pytest

import hgp_ref as hgp
import hgp_ref.data.clients as module
from hgp_ref.data import Clients, draw_clusters


def make(counts=(3, 5, 4), test=True) -> Clients:
    rng = np.random.default_rng(0)
    lists = [
        ([rng.random((k + extra, 2)).astype("float32") for k in counts],
         [rng.integers(0, 2, k + extra) for k in counts])
        for extra in ((0, 1, 2) if test else (0, 1))
    ]  # fmt: skip
    (X, y), (X_val, y_val), *rest = lists
    return Clients(X, y, X_val, y_val, 2, "three clients", *(rest[0] if rest else ()))


def test_parts_and_counts():
    data = make()
    assert data.n_clients == 3 and data.counts.tolist() == [3, 5, 4]
    assert data.counts_of("validation").tolist() == [4, 6, 5] and data.counts_of("test").tolist() == [5, 7, 6]
    assert data.train == (data.X, data.y) and data.test == (data.X_test, data.y_test)
    with pytest.raises(ValueError, match="part must be a part of three clients with data, got 'test'"):
        make(test=False).test  # noqa: B018
    with pytest.raises(ValueError, match="part must be one of 'train', 'validation', 'test', got 'valid'"):
        data.part("valid")


def test_problems_take_parts():
    data = make()
    problem = hgp.problems.InstanceWeights(*data.train, *data.validation, loss="binary")
    assert problem.counts.tolist() == data.counts.tolist()


@pytest.mark.parametrize("which", [[2, 0], slice(1, None), np.array([1])], ids=str)
def test_restricted_data_are_those_of_the_clients(which):
    data = make().clustered([0.1, 0.5], [1.0, 2.0])
    numbers = np.arange(3)[which]
    some = data.restrict(which)
    assert some.clusters.tolist() == data.clusters[numbers].tolist()
    for part in ("train", "validation", "test"):
        for ours, whole in zip(some.part(part), data.part(part), strict=True):
            assert len(ours) == len(numbers)
            assert all(np.array_equal(a, whole[i]) for a, i in zip(ours, numbers, strict=True))
    assert make(test=False).restrict([1]).X_test == []
    with pytest.raises(ValueError, match=r"clients\[0\] must be .*, got 3"):
        data.restrict([3])


@pytest.mark.parametrize("seed", [None, 4])
def test_every_cluster_has_its_own_normalisation(seed):
    data = make()
    clustered = data.clustered([0.1, 0.5], [0.25, 2.0], seed=seed)
    assert sorted(np.bincount(clustered.clusters).tolist()) == [1, 2]
    for i, c in enumerate(clustered.clusters):
        for name in ("X", "X_val", "X_test"):
            here, before = getattr(clustered, name)[i], getattr(data, name)[i]
            assert here.dtype == np.float32
            expected = (before.astype(float) - clustered.means[c]) / clustered.stds[c]
            np.testing.assert_allclose(here, expected, rtol=1e-6, atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(clustered.y, data.y, strict=True))
    with pytest.raises(ValueError, match="data must have no clusters yet, got three clients, which has some"):
        clustered.clustered([0.0], [1.0])


@pytest.mark.parametrize(
    ("means", "stds", "message"),
    [
        ([0.1, 0.2], [1.0], r"stds must have shape \(2,\).*, got \(1,\)"),
        ([0.1], [0.0], r"stds must be numbers > 0, got \[0.0\]"),
        ([0.1], [-1.0], "stds must not contain numbers below 0, got -1"),
        ([np.nan], [1.0], "means must not contain NaN"),
        ([], [], "means must have shape .* and not be empty"),
    ],
)
def test_bad_clusters(means, stds, message):
    with pytest.raises(ValueError, match=message):
        make().clustered(means, stds)


def test_distributions_of_drawn_clusters():
    """Means and the text's variances are U(0, 1), as are the program's standard deviations: mean 1/2, variance 1/12."""
    (means, stds), (same, published) = (draw_clusters(20_000, 3, variant) for variant in ("paper", "published"))
    assert np.array_equal(means, same) and np.allclose(stds**2, published)
    for uniform in (means, published):
        assert uniform.min() > 0 and uniform.max() <= 1
        assert abs(uniform.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / 20_000)
    assert not np.array_equal(draw_clusters(3, 0)[0], draw_clusters(3, 1)[0])
    with pytest.raises(ValueError, match="variant must be .*, got 'text'"):
        draw_clusters(variant="text")
    assert doctest.testmod(module, extraglobs={"hgp": hgp, "np": np}).failed == 0


def test_clients_with_equally_many_instances_may_be_one_array():
    data = hgp.data.synthetic_mixture(n_test=7, seed=3)
    assert data.n_classes == 2 and data.counts.tolist() == [100] * 3
    lists = {name: list(getattr(data, name)) for names in module.PARTS.values() for name in names}
    as_lists = dataclasses.replace(data, **lists)
    assert all(np.array_equal(np.stack(getattr(as_lists, name)), getattr(data, name)) for name in ("X", "y_val"))
    assert data.counts_of("test").tolist() == [7] * 3
    some, same = data.restrict([2, 0]), as_lists.restrict([2, 0])
    assert some == same and np.array_equal(some.mixture, data.mixture[[2, 0]]) and some.n_clients == 2
    one, other = (each.clustered([0.1, 0.5], [1.0, 2.0]) for each in (data, as_lists))
    assert dataclasses.replace(one, y=list(one.y), y_val=list(one.y_val), y_test=list(one.y_test)) == other


def test_survives_a_file(tmp_path):
    data = make().clustered([0.1, 0.5], [1.0, 2.0])
    assert hgp.load(data.save(tmp_path / "c.npz")) == data != make()
    without_test = make(test=False)
    assert hgp.load(without_test.save(tmp_path / "w.npz")) == without_test


def test_what_does_not_fit_is_refused():
    data = make()
    with pytest.raises(ValueError, match="X_val must have 3 clients like X, got 2"):
        Clients(data.X, data.y, data.X_val[:2], data.y_val, 2, "wrong")
    with pytest.raises(ValueError, match=r"y_val\[1\] must have 6 labels like X_val\[1\], got 2"):
        Clients(data.X, data.y, data.X_val, [data.y_val[0], data.y_val[1][:2], data.y_val[2]], 2, "wrong")


@pytest.mark.parametrize("wrong", [-1, 2, 0.5, np.nan])
@pytest.mark.parametrize("field", ["y", "y_val", "y_test"])
def test_labels_are_classes(field, wrong):
    data = make()
    labels = [part.astype(float) for part in getattr(data, field)]
    dataclasses.replace(data, **{field: labels})  # whole numbers may be floats
    labels[1][-1] = wrong
    with pytest.raises(ValueError, match=rf"{field}\[1\] must contain integers from 0 to 1, got {wrong}"):
        dataclasses.replace(data, **{field: labels})
    with pytest.raises(ValueError, match=rf"{field}\[0\] must have shape \(N_i,\), got \(\d+, 1\)"):
        dataclasses.replace(data, **{field: [part[:, None] for part in getattr(data, field)]})


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("X", None, TypeError, r"X must be a list with one array per client, got None \(NoneType\)"),
        ("X", [], ValueError, "X must have at least one client, got none"),
        ("y", [[0, 1]] * 3, TypeError, r"y\[0\] must be a plain NumPy array of real numbers, got builtins.list"),
        ("X_val", [], ValueError, "X_val must have 3 clients like X, got 0"),
        ("y_test", [np.array(["a"])] * 3, TypeError, r"y_test\[0\] must be .*, got <U1 of shape \(1,\)"),
        ("n_classes", 2.0, TypeError, "n_classes must be .*, got 2.0"),
        ("n_classes", 1, ValueError, r"y\[\d\] must contain integers from 0 to 0, got 1"),
        ("name", None, TypeError, "name must be .*, got None"),
        ("clusters", np.array([0, 1, 2]), ValueError, r"clusters must contain integers from 0 to 1, got \[0 1 2\]"),
        ("clusters", np.array([0, 1]), ValueError, r"clusters must have shape \(3,\).*, got \(2,\)"),
        ("means", np.array([0.1, np.nan]), ValueError, "means must not contain NaN"),
        ("stds", np.array([0.1, -1.0]), ValueError, "stds must not contain numbers below 0, got -1"),
    ],
)
def test_bad_fields_are_named(field, value, error, message):
    data = make().clustered([0.1, 0.5], [1.0, 2.0])
    with pytest.raises(error, match=message):
        dataclasses.replace(data, **{field: value})


def test_a_change_of_inputs_is_a_function_that_returns_arrays():
    with pytest.raises(TypeError, match="change must be .*, got 3"):
        make().map_inputs(3)
    with pytest.raises(
        TypeError,
        match="change: what it returned for client 0 must be a plain NumPy array of real numbers, got .*NoneType",
    ):
        make().map_inputs(lambda i, X: None)


def test_too_many_clusters_are_refused_before_they_are_drawn():
    with pytest.raises(ValueError, match=f"n_clusters must be .*, got {10**12}"):
        draw_clusters(10**12)


def test_inputs_of_one_shape_that_are_numbers():
    X, y = [np.ones((2, 3)), np.ones((4, 3))], [np.zeros(2), np.zeros(4)]
    with pytest.raises(ValueError, match=r"X\[1\] must have shape \(N_i, 3\) like X\[0\], got \(4, 2\)"):
        Clients([X[0], X[1][:, :2]], y, [], [], 2, "data")
    with pytest.raises(ValueError, match=r"X_val\[0\] must have shape \(N_i, 3\) like X\[0\], got \(2, 3, 1\)"):
        Clients(X, y, [X[0][..., None], X[1]], y, 2, "data")
    with pytest.raises(ValueError, match=r"X_test\[1\].*NaN"):
        Clients(X, y, [], [], 2, "data", [X[0], np.nan * X[1]], y)


def test_a_change_in_place_does_not_reach_the_original():
    clients = Clients([np.ones((2, 3))], [np.zeros(2)], [], [], 2, "data")

    def change(i, X):
        X *= 0
        return X

    assert not clients.map_inputs(change).X[0].any() and clients.X[0].all()
