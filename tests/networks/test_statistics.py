"""Distributions of the random graphs, with fixed seeds: every statistic within 5 standard deviations of its mean.

A correct sampler passes z = 5 with probability 1 - 6e-7 for each number; the seeds are fixed, so nothing flickers.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from hgp_ref.networks import RandomDirected, RandomOut, RandomUndirected, SparseErdosRenyi
from hgp_ref.networks.random import binomial_table

Z = 5.0


def assert_binomial(hits, trials, p):
    """hits ~ Binomial(trials, p), entry by entry."""
    assert np.all(np.abs(hits - trials * p) <= Z * np.sqrt(trials * p * (1 - p)))  # rates 0 and 1: exactly


@pytest.mark.parametrize("kind", [RandomDirected, RandomUndirected])
def test_edge_rates(kind):
    net, steps = kind(9, 0.0, 1.0, seed=4), 40_000
    edges = net.mixing_matrices(1, steps) > 0
    assert_binomial(edges.sum(axis=0), steps, net.rates)
    if kind is RandomUndirected:
        np.testing.assert_array_equal(edges, edges.transpose(0, 2, 1))
        np.testing.assert_array_equal(net.rates, net.rates.T)


def test_edges_are_independent():
    """Pairs of edges, and an edge and itself one step later, are uncorrelated: |r| sqrt(steps) is about normal."""
    steps = 20_000
    edges = RandomDirected(4, 0.5, 0.5, seed=4).adjacencies(1, steps)
    columns = edges[:, ~np.eye(4, dtype=bool)].astype(float)  # (steps, 12)
    r = np.corrcoef(columns.T)
    assert np.abs(r[np.triu_indices(12, 1)]).max() * np.sqrt(steps) <= Z
    lagged = [np.corrcoef(c[1:], c[:-1])[0, 1] for c in columns.T]
    assert np.abs(lagged).max() * np.sqrt(steps) <= Z


@pytest.mark.parametrize("kind", [RandomDirected, RandomUndirected])
def test_rates_are_uniform(kind):
    low, high, n = 0.4, 0.8, 200
    rates = kind(n, low, high, seed=5).rates
    sample = rates[np.tril_indices(n, -1)] if kind is RandomUndirected else rates[~np.eye(n, dtype=bool)]
    assert sample.min() >= low - 2**-33 and sample.max() <= high + 2**-33
    assert stats.kstest(sample, "uniform", (low, high - low)).pvalue > 1e-4
    assert np.all(np.diag(rates) == 1)


def test_extreme_rates_are_exact():
    assert RandomDirected(30, 1.0, 1.0).adjacencies(1, 50).all()
    assert RandomUndirected(30, 1.0, 1.0).adjacencies(1, 50).all()
    np.testing.assert_array_equal(RandomDirected(30, 0.0, 0.0).mixing_matrices(1, 50), np.tile(np.eye(30), (50, 1, 1)))
    assert RandomDirected(30, 0.0, 0.0).expected_edges == 30


def test_random_out_is_uniform_over_sets():
    n, k, steps = 6, 3, 20_000
    W = RandomOut(n, k, seed=8).mixing_matrices(1, steps) > 0
    sets = list(combinations(range(1, n), k))  # of sender 0
    hits = np.array([np.all(W[:, list(c), 0], axis=1).sum() for c in sets])
    assert hits.sum() == steps
    assert_binomial(hits, steps, 1 / len(sets))
    assert_binomial(W.sum(axis=0)[~np.eye(n, dtype=bool)], steps, k / (n - 1))


@pytest.mark.parametrize(("n", "mean"), [(20_000, 10.0), (20_000, 0.3), (300, 200.0)])
def test_degrees_are_binomial(n, mean):
    """Pearson's statistic over degrees with 5 or more expected senders: chi-square with one degree less than cells."""
    net, steps = SparseErdosRenyi(n, mean, seed=6), 5
    degrees = np.concatenate([np.diff(net.out_adjacency(s)[0]) - 1 for s in range(1, steps + 1)])
    cells = np.arange(n)
    expected = degrees.size * stats.binom.pmf(cells, n - 1, mean / (n - 1))
    kept = expected >= 5
    observed = np.bincount(degrees, minlength=n)
    observed = np.append(observed[kept], observed[~kept].sum())
    expected = np.append(expected[kept], expected[~kept].sum())
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, kept.sum()) > 1e-4


def test_receivers_of_sparse_graphs_are_uniform():
    n, steps = 50, 4000
    hits = (SparseErdosRenyi(n, 5.0, seed=7).mixing_matrices(1, steps) > 0).sum(axis=0)
    assert_binomial(hits[~np.eye(n, dtype=bool)], steps, 5.0 / (n - 1))


@pytest.mark.parametrize(("trials", "mean"), [(1, 0.5), (9, 2.5), (9, 8.999), (60, 1e-12), (60, 30.0), (200, 199.0)])
def test_degree_table_is_the_distribution_rounded_down(trials, mean):
    """Against exact rational sums: each entry may lose one unit of 2^-64 to the truncated weights."""
    from .oracle import binomial_distribution

    smallest, table = binomial_table(trials, Fraction(mean))
    exact = [int(c * 2**64) for c in binomial_distribution(trials, mean)]
    assert all(c == 0 for c in exact[:smallest])
    for e, c in enumerate(table.tolist()):
        assert abs(c - exact[smallest + e]) <= 1
    assert all(c >= 2**64 - 1 for c in exact[smallest + len(table) :])


@pytest.mark.parametrize("n", [1, 2, 10])
def test_extreme_degrees(n):
    assert np.all(np.diff(SparseErdosRenyi(n, 0).out_adjacency(1)[0]) == 1)
    assert np.all(np.diff(SparseErdosRenyi(n, n - 1).out_adjacency(1)[0]) == n)
