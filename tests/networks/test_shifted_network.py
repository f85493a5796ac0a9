"""net.after(t): step s of the view is step t + s of the network, for every kind of network and every method."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgp_ref as hgp
from hgp_ref import networks, philox

from .test_every_kind import KINDS
from .user_networks import Bare, Drifting, OwnRing

ALL = {**KINDS, "OwnRing of one's own": OwnRing, "Drifting of one's own": Drifting, "Bare of one's own": Bare}
kinds = pytest.mark.parametrize("kind", ALL)


def same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, tuple):
        assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True) if isinstance(got, tuple) else ((got, expected),):
        np.testing.assert_array_equal(a, b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


@kinds
@settings(max_examples=8)
@given(n=st.integers(1, 9), t=st.integers(1, 2**40), s=st.integers(1, 2**40), data=st.data())
def test_every_question(kind, n, t, s, data):
    net = ALL[kind](n)
    view = net.after(t)
    for ask in ("mixing_matrix", "csr", "out_adjacency", "edges"):
        same(getattr(view, ask)(s), getattr(net, ask)(t + s))
    j = data.draw(st.integers(0, n - 1))
    same(view.out_neighbours(s, j), net.out_neighbours(t + s, j))
    for count in (0, 1, 5):
        same(view.mixing_matrices(s, count), net.mixing_matrices(t + s, count))
    same(view.union(s, 3), net.union(t + s, 3))
    for calls in (1, 32):
        same(view.products(s, calls, 2), net.products(t + s, calls, 2))


@kinds
def test_attributes_and_views_of_views(kind):
    net = ALL[kind](4)
    view = net.after(7)
    for name in ("n", "seed", "period", "equal_shares", "self_loops", "expected_edges"):
        assert getattr(view, name) == getattr(net, name), name
    assert net.after(0) is net and view.after(0)._offset == 7
    nested = view.after(5).after(np.int64(3))
    assert nested._offset == 15
    assert nested.net == (net.net if isinstance(net, networks.Unreliable) else net)  # which is its own view
    assert isinstance(view, networks.Network)
    copy = pickle.loads(pickle.dumps(view))
    same(copy.mixing_matrices(2, 3), view.mixing_matrices(2, 3))
    scope = {**vars(networks), "OwnRing": OwnRing, "Drifting": Drifting, "Bare": Bare}
    pasted = eval(repr(view), scope)
    assert repr(pasted) == repr(view) == f"{net!r}.after(7)"
    same(pasted.mixing_matrices(2, 3), net.mixing_matrices(9, 3))


@kinds
def test_a_view_is_pure(kind):
    net = ALL[kind](3)
    before = net.mixing_matrices(1, 4)
    view = net.after(2)
    view.mixing_matrices(5, 3)
    same(net.mixing_matrices(1, 4), before)
    same(view.mixing_matrices(1, 2), before[2:])


@kinds
@pytest.mark.parametrize("t", [1, 10, philox.MAX_STEP - 1])
def test_the_last_step(kind, t):
    net, last = ALL[kind](3), philox.MAX_STEP - t
    same(net.after(t).mixing_matrix(last), net.mixing_matrix(philox.MAX_STEP))
    for ask in ("mixing_matrix", "csr", "out_adjacency", "edges"):
        with pytest.raises(ValueError, match=f"s must be an integer from 1 to {last}, got {last + 1}"):
            getattr(net.after(t), ask)(last + 1)
        with pytest.raises(ValueError, match="s must be an integer from 1 to .*, got 0"):
            getattr(net.after(t), ask)(0)
    for ask in ("mixing_matrices", "union"):
        with pytest.raises(ValueError, match="count must be an integer from 0 to 1, got 2"):
            getattr(net.after(t), ask)(last, 2)
    with pytest.raises(ValueError, match="first must be an integer from 1 to .*, got 0"):
        net.after(t).mixing_matrices(0, 1)
    with pytest.raises(ValueError, match=f"t must be an integer from 0 to {last - 1}, got {last}"):
        net.after(t).after(last)


@pytest.mark.parametrize(
    ("t", "error"),
    [(-1, ValueError), (philox.MAX_STEP, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)],
)
def test_bad_t(t, error):
    with pytest.raises(error, match=f"t must be an integer from 0 to .*, got {t!r}"):
        networks.RandomDirected(3).after(t)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("kind", ["RandomDirected", "RandomOut", "Schedule", "OnePeerExponential"])
def test_averaging_goes_on(kind, mode):
    """Two calls of S steps are one of S and one over the view after S."""
    net, S = KINDS[kind](5), 3
    u = np.random.default_rng(0).normal(size=(5, 2))
    second = hgp.PushSum(net.after(S), S, mode=mode).apply(u)
    np.testing.assert_array_equal(second, hgp.PushSum(net, S, mode=mode).apply(u, 1))


@pytest.mark.parametrize(("kind", "asked"), [("RandomDirected", "products"), ("RandomOut", "out_adjacency")])
def test_fast_ways_are_taken(kind, asked, monkeypatch):
    """Products in one sweep, receivers as drawn: asked of the network itself, once."""
    net, steps = KINDS[kind](5), []
    cls = type(net)
    original = getattr(cls, asked)
    monkeypatch.setattr(cls, asked, lambda self, s, *more: steps.append(s) or original(self, s, *more))
    like = np.zeros((5, 2))
    hgp.PushSum(net.after(100), 2, mode="composed" if asked == "products" else "stepping").apply(like)
    assert min(steps) == 101 and len(steps) <= 4


def test_connectivity_of_views():
    net = networks.Schedule([([0], [1]), ([1], [0]), ([], [])])
    assert networks.smallest_window(net.after(1), 1, 12) == networks.smallest_window(net, 2, 12)
    assert networks.strongly_connected(net, 1, 2) and not networks.strongly_connected(net.after(1), 1, 2)
    assert networks.diagnose_connectivity(Bare(3).after(2), 1, 9).groups == 3
