"""A user's network that states a period but does not repeat."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp


class Turning(hgp.networks.Network):
    """Client j sends to j + hop(s); repeats after `repeats` graphs, whatever its period says."""

    expected_edges = 8.0

    def __init__(self, period, repeats, odd=None):
        super().__init__(4, period=period)
        self.repeats, self.odd = repeats, odd

    def out_adjacency(self, s):
        hop = 1 + (s - 1) % self.repeats % 3
        if s == self.odd:
            hop = 1 + hop % 3
        both = [sorted((j, (j + hop) % 4)) for j in range(4)]
        return np.arange(0, 9, 2), np.array(both, dtype=np.int32).ravel()


@pytest.mark.parametrize(
    ("period", "repeats", "odd", "steps"),
    [(1, 2, None, "1 and 2"), (2, 3, None, "1 and 3"), (3, 3, 5, "2 and 5"), (3, 3, 6, "3 and 6"),
     (2, 2, 5, "1 and 5"), (5, 5, 9, "4 and 9")],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_a_wrong_period_is_refused(period, repeats, odd, steps, mode):
    u = np.arange(8.0).reshape(4, 2)
    with pytest.raises(ValueError, match=f"Turning: period is {period}, but the graphs of steps {steps} differ"):
        hgp.PushSum(Turning(period, repeats, odd), steps=7, mode=mode).apply(u)


@pytest.mark.parametrize("period", [1, 2, 3, 6, None])
def test_a_right_period_is_believed(period):
    net, u = Turning(period, period or 3), np.arange(8.0).reshape(4, 2)
    ends = [hgp.PushSum(net, steps=7, mode=mode).apply(u) for mode in ("composed", "stepping")]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12)


def test_other_weights_on_the_same_edges_are_another_graph():
    class Weighted(Turning):
        def csr(self, s):
            indptr, senders, weights = super().csr(1)
            own = np.repeat(np.arange(4), np.diff(indptr)) == senders
            return indptr, senders, np.where(own, 0.3, 0.7) if s > 1 else weights

    with pytest.raises(ValueError, match="period is 1, but the graphs of steps 1 and 2 differ"):
        hgp.PushSum(Weighted(1, 1), steps=3).apply(np.ones((4, 1)))


@pytest.mark.parametrize("period", [0, -1, 1.5, "2", True])
def test_a_period_that_is_no_number_is_refused(period):
    net = Turning(None, 1)
    net.period = period
    with pytest.raises((TypeError, ValueError), match="Turning: period must be an integer >= 1, got"):
        net.csr(1)


def test_a_period_longer_than_the_run_is_not_computed():
    averaged = hgp.PushSum(Turning(2**60, 3), steps=3, mode="stepping").apply(np.arange(4.0)[:, None])
    expected = hgp.PushSum(Turning(None, 3), steps=3, mode="stepping").apply(np.arange(4.0)[:, None])
    np.testing.assert_array_equal(averaged, expected)
