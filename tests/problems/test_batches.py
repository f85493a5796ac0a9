"""Mini-batches: a pure function of (seed, step, client, stream), uniform, without replacement or with."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hgp_ref.problems import sample_batches

counts_lists = st.lists(st.integers(1, 12), min_size=1, max_size=5)
UNLIKELY = 1e-6  # a correct sampler fails a chi-square test this often; the seeds are fixed, so it never does


@given(counts_lists, st.integers(1, 15), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.booleans())
def test_shape_range_and_padding(counts, size, seed, first, replace):
    batches = sample_batches(counts, size, seed, first, 3, replace=replace)
    width = size if replace else min(size, max(counts))
    assert batches.shape == (3, len(counts), width) and batches.dtype == np.int64
    for i, count in enumerate(counts):
        used = batches[:, i, : width if replace else min(size, count)]
        assert used.min() >= 0 and used.max() < count
        assert np.all(batches[:, i, used.shape[1] :] == -1)
        if not replace:
            assert all(len(set(row)) == len(row) for row in used.tolist())
            if count <= size:
                assert np.all(used == np.arange(count))


@given(counts_lists, st.integers(1, 15), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.booleans())
def test_a_step_does_not_depend_on_the_other_steps_requested(counts, size, seed, first, replace):
    together = sample_batches(counts, size, seed, first, 5, stream=1, replace=replace)
    for m in range(5):
        alone = sample_batches(counts, size, seed, first + m, 1, stream=1, replace=replace)
        np.testing.assert_array_equal(alone[0], together[m])
    fewer = sample_batches(counts[:-1] + [max(counts)], size, seed, first, 5, stream=1, replace=replace)
    np.testing.assert_array_equal(fewer[:, :-1], together[:, :-1])  # nor on the other clients


def test_every_subset_is_equally_likely():
    draws = np.sort(sample_batches([5, 9], 3, 7, 0, 20000)[:, 0], axis=1)
    seen = [np.sum(np.all(draws == subset, axis=1)) for subset in combinations(range(5), 3)]
    assert sum(seen) == 20000
    assert stats.chisquare(seen).pvalue > UNLIKELY


def test_every_place_is_uniform():
    draws = sample_batches([7], 4, 3, 0, 20000)[:, 0]  # without replacement, each of the four places
    for place in range(4):
        assert stats.chisquare(np.bincount(draws[:, place], minlength=7)).pvalue > UNLIKELY


def test_with_replacement_entries_are_independent_and_uniform():
    draws = sample_batches([6], 2, 11, 0, 20000, replace=True)[:, 0]
    table = np.zeros((6, 6))
    np.add.at(table, (draws[:, 0], draws[:, 1]), 1)
    assert stats.chisquare(table.ravel()).pvalue > UNLIKELY


@pytest.mark.parametrize("change", [{"seed": 6}, {"first": 1000}, {"stream": 1}], ids=str)
def test_seeds_steps_streams_and_clients_are_independent(change):
    given = {"counts": [6, 6], "size": 1, "seed": 5, "first": 0, "count": 1000, "stream": 0}
    a, b = sample_batches(**given)[..., 0], sample_batches(**{**given, **change})[..., 0]
    for left, right in ((a[:, 0], b[:, 0]), (a[:, 0], a[:, 1]), (a[:-1, 0], a[1:, 0])):
        table = np.zeros((6, 6))
        np.add.at(table, (left, right), 1)
        assert stats.chi2_contingency(table).pvalue > UNLIKELY


KNOWN = [[[1, 0, 2], [0, 2, 3]], [[0, 2, 1], [3, 0, 2]]]
KNOWN_REPLACED = [[[4, 1, 3], [1, 2, 0]]]


def test_known_batches_do_not_change_between_versions():
    assert sample_batches([5, 4], 3, 2024, 0, 2).tolist() == KNOWN
    assert sample_batches([5, 4], 3, 2024, 0, 1, stream=1, replace=True).tolist() == KNOWN_REPLACED


BAD = {
    "size 0": ({"size": 0}, "size must be an integer from 1 to 2147483647, got 0"),
    "no counts": ({"counts": []}, r"counts must be \(n,\) integers, got shape \(0,\) of float64"),
    "counts of two axes": ({"counts": [[3]]}, r"counts must be \(n,\) integers, got shape \(1, 1\) of int64"),
    "counts of floats": ({"counts": [3.0]}, r"counts must be \(n,\) integers, got shape \(1,\) of float64"),
    "an empty client": ({"counts": [3, 0]}, r"counts must be >= 1 and < 2\*\*32, got 0 for client 1"),
    "first negative": ({"first": -1}, "first must be an integer from 0 to [0-9]+, got -1"),
    "count negative": ({"count": -1}, "count must be an integer from 0 to [0-9]+, got -1"),
    "stream 128": ({"stream": 128}, "stream must be an integer from 0 to 127, got 128"),
    "clients of another number": ({"clients": [0, 1]}, r"clients must be \(1,\) integers, got shape \(2,\) of int64"),
    "a negative client": ({"clients": [-1]}, "clients must be numbers from 0 to 2147483647, got -1"),
    "seed negative": ({"seed": -1}, "seed must be an integer from 0 to [0-9]+, got -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    change, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        sample_batches(**{"counts": [3], "size": 2, "seed": 0, "first": 0, "count": 1, **change})


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("chosen", [[0], [4], [1, 3], [4, 0, 2], [2, 3, 4]], ids=str)
def test_a_client_draws_the_same_whoever_else_is_there(chosen, replace):
    counts = np.array([9, 2, 30, 5, 7])
    whole = sample_batches(counts, 6, 11, 3, 20, stream=1, replace=replace)
    part = sample_batches(counts[chosen], 6, 11, 3, 20, stream=1, replace=replace, clients=chosen)
    np.testing.assert_array_equal(part, whole[:, chosen, : part.shape[-1]])
    assert np.all(whole[:, chosen, part.shape[-1] :] == -1)  # padding to the longest client's batch only


def test_zero_batches_are_an_empty_array():
    assert sample_batches([3, 4], 2, 0, 5, 0).shape == (0, 2, 2)
