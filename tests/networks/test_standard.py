"""Ring, Star, Torus, Hypercube, Exponential: doubly stochastic, the gaps of their docstrings, and neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import networks

EPS = np.finfo(np.float64).eps
pi, cos = np.pi, np.cos

GAPS = [
    *((networks.Ring(n), 2 / 3 * (1 - cos(2 * pi / n))) for n in (3, 4, 5, 12, 31)),
    *((networks.Ring(n, directed=True), 1 - cos(pi / n)) for n in (2, 3, 4, 9, 20)),
    *((networks.Star(n), 1 / n) for n in (3, 4, 17)),
    *(
        (networks.Torus(r, c), 2 / 5 * (1 - cos(2 * pi / max(r, c))))
        for r, c in [(3, 3), (3, 4), (4, 4), (5, 3), (4, 8)]
    ),
    *((networks.Hypercube(d), 2 / (d + 1)) for d in (1, 2, 3, 5)),
    *((networks.Exponential(n), 2 / (1 + np.ceil(np.log2(n)))) for n in (2, 4, 6, 8, 10, 32, 34)),
    (networks.Ring(2), 1.0),
    (networks.Star(2), 1.0),
]


@pytest.mark.parametrize(("net", "gap"), GAPS, ids=lambda value: repr(value) if hasattr(value, "n") else "")
def test_gap_is_that_of_the_docstring(net, gap):
    W = net.mixing_matrix(1)
    np.testing.assert_allclose(W @ W.T, W.T @ W, atol=net.n * EPS)  # normal
    moduli = np.sort(np.abs(np.linalg.eigvals(W)))
    assert moduli[-1] == pytest.approx(1.0, abs=1000 * EPS)
    assert 1 - moduli[-2] == pytest.approx(gap, abs=1000 * EPS)


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 33, 35])
def test_gap_of_exponential_for_odd_n_is_at_least_that_for_even_n(n):
    moduli = np.sort(np.abs(np.linalg.eigvals(networks.Exponential(n).mixing_matrix(1))))
    assert 1 - moduli[-2] >= 2 / (1 + np.ceil(np.log2(n))) - 1000 * EPS


@pytest.mark.parametrize("net", [net for net, _ in GAPS], ids=repr)
def test_gossip_averages(net):
    u = np.random.default_rng(0).normal(size=(net.n, 2))
    steps = 2000 if net.n > 1 else 1
    averaged = hgp.Gossip(net, steps=steps).apply(u)
    assert np.abs(averaged - u.mean(axis=0)).max() <= 1e-3
    W = net.mixing_matrix(1)
    np.testing.assert_allclose(W.sum(axis=1), 1, atol=net.n * EPS)
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=net.n * EPS)


def test_torus_neighbours():
    net = networks.Torus(3, 4)
    for r in range(3):
        for c in range(4):
            around = {((r + a) % 3, (c + b) % 4) for a, b in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]}
            assert net.out_neighbours(1, 4 * r + c).tolist() == sorted(4 * a + b for a, b in around)


@pytest.mark.parametrize(
    ("rows", "columns", "same"),
    [(1, 5, networks.Ring(5)), (5, 1, networks.Ring(5)), (2, 2, networks.Ring(4)), (1, 1, networks.Ring(1))],
)
def test_small_tori_are_rings(rows, columns, same):
    found = np.sort(np.linalg.eigvalsh(networks.Torus(rows, columns).mixing_matrix(1)))
    np.testing.assert_allclose(found, np.sort(np.linalg.eigvalsh(same.mixing_matrix(1))), atol=100 * EPS)


def test_hypercube_neighbours_differ_in_one_bit():
    senders, receivers = networks.Hypercube(4).edges(1)
    assert len(senders) == 16 * 5
    assert set(np.bitwise_xor(senders, receivers).tolist()) == {0, 1, 2, 4, 8}


@pytest.mark.parametrize("n", [4, 8, 16])
def test_exponential_is_the_union_of_one_peer_exponential(n):
    one = networks.OnePeerExponential(n)
    pairs = set(zip(*(part.tolist() for part in one.union(1, one.period)), strict=True))
    assert pairs == set(zip(*(part.tolist() for part in networks.Exponential(n).edges(1)), strict=True))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: networks.Ring(0), ValueError, "n must be an integer .*, got 0"),
        (lambda: networks.Ring(3, directed=1), TypeError, "directed must be True or False, got 1"),
        (lambda: networks.Torus(3, 0), ValueError, "columns must be an integer .*, got 0"),
        (lambda: networks.Torus(2**20, 2**20), ValueError, f"n must be an integer .*, got {2**40}"),
        (lambda: networks.Hypercube(32), ValueError, "dimension must be an integer from 0 to 31, got 32"),
        (lambda: networks.Star(2.0), TypeError, "n must be an integer .*, got 2.0"),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_more_clients_than_memory():
    with pytest.raises(MemoryError, match=r"Hypercube\(dimension=31\) would need"):
        networks.Hypercube(31).edges(1)
