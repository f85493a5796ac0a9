"""What a user's network returns is checked: nothing crashes, leaves memory unwritten or passes silently."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.networks import FullyConnected, Network, RandomOut

from .user_networks import Bare, Drifting, OwnRing

INDPTR, RECEIVERS = [0, 2, 4, 6], [0, 1, 1, 2, 0, 2]
ROWS = ([0, 2, 4, 6], [0, 2, 0, 1, 1, 2], [0.5] * 6)
NAN, INF = float("nan"), float("inf")


def own(out_adjacency=None, base=Network, **methods):
    """A class with the methods given by what they return."""
    members = {name: (lambda self, *asked, answer=answer: answer) for name, answer in methods.items()}
    lists = (np.array(INDPTR), np.array(RECEIVERS, dtype=np.int32)) if out_adjacency is None else out_adjacency
    return type("Mine", (base,), {"expected_edges": 6.0, "out_adjacency": lambda self, s: lists, **members})


def ints(*values):
    return np.array(values, dtype=np.int32)


BAD_LISTS = [
    (([0, 2, 4, 60], RECEIVERS), ValueError, "indptr must end with the length of clients, 6, got 60"),
    (([0, 200, 4, 6], RECEIVERS), ValueError, "indptr must not decrease, got 200, 4 at 1"),
    (([0, -2, 4, 6], RECEIVERS), ValueError, "indptr must not decrease, got 0, -2 at 0"),
    (([1, 2, 4, 6], RECEIVERS), ValueError, r"indptr\[0\] must be 0, got 1"),
    (([0, 2, 4], RECEIVERS), ValueError, r"indptr must have length n \+ 1 = 4, got 3"),
    (([0, 2, 4, 5], RECEIVERS), ValueError, "indptr must end with the length of clients, 6, got 5"),
    (([0, 2, 4, 6], [0, 1, 1, 3, 0, 2]), ValueError, "clients must be integers from 0 to 2, got 3 at 3"),
    (([0, 2, 4, 6], [-1, 0, 1, 2, 0, 2]), ValueError, "clients must be integers from 0 to 2, got -1 at 0"),
    (
        ([0, 2, 4, 6], np.array([0, 1, 1, 2**32 + 2, 0, 2])),
        ValueError,
        f"clients must be integers from 0 to 2, got {2**32 + 2} at 3",
    ),
    (
        ([0, 2, 4, 6], [0, 1, 2, 1, 0, 2]),
        ValueError,
        "the list of client 1 must be sorted without repetition, got 1 after 2",
    ),
    (([0, 3, 5, 7], [0, 1, 1, 1, 2, 0, 2]), ValueError, "must be sorted without repetition, got 1 after 1"),
    (([0, 1, 3, 5], [1, 1, 2, 0, 2]), ValueError, "client 0 must be in its own list, a self-loop"),
    (([0, 0, 2, 4], [1, 2, 0, 2]), ValueError, "client 0 must send to at least one client"),
    (([0.0, 2, 4, 6], RECEIVERS), TypeError, "indptr must be a vector of integers, got an array .* of float64"),
    (
        ([0, 2, 4, 6], [0.0, 1, 1, 2, 0, 2]),
        TypeError,
        "clients must be a vector of integers, got an array .* of float64",
    ),
    (([0, 2, 4, 6], [[0, 1, 1], [2, 0, 2]]), TypeError, r"clients must be a vector of integers, got an array \(2, 3\)"),
    ((INDPTR, RECEIVERS, RECEIVERS), TypeError, r"must be a tuple \(indptr, clients\), got tuple of 3"),
    (7, TypeError, "must be a tuple .*, got int"),
]


@pytest.mark.parametrize(("answer", "error", "message"), BAD_LISTS)
@pytest.mark.parametrize("ask", ["out_adjacency", "csr", "mixing_matrix", "edges"])
def test_bad_lists(answer, error, message, ask):
    with pytest.raises(error, match=r"Mine\.out_adjacency\(4\).*" + message):
        getattr(own(answer)(3), ask)(4)


BAD_ROWS = [
    (([0, 2, 4, 600], *ROWS[1:]), ValueError, "indptr must end with the length of clients, 6, got 600"),
    ((ROWS[0], [0, 2, 0, 1, 1, 20], ROWS[2]), ValueError, "clients must be integers from 0 to 2, got 20 at 5"),
    ((*ROWS[:2], [0.5] * 5), ValueError, "weights must have one entry for each of the 6 senders, got 5"),
    ((*ROWS[:2], [-0.5, 0.5, 1.5, 0.5, 0.5, 0.5]), ValueError, "must be finite and non-negative, got -0.5"),
    ((*ROWS[:2], [NAN, 0.5, 0.5, 0.5, 0.5, 0.5]), ValueError, "must be finite and non-negative, got nan"),
    ((*ROWS[:2], [INF, 0.5, 0.5, 0.5, 0.5, 0.5]), ValueError, "must be finite and non-negative, got inf"),
    ((*ROWS[:2], [0.5, 0.5, 0.5, 0.5, 0.4, 0.5]), ValueError, "column 1 sums to 0.9"),
    ((*ROWS[:2], [0.0, 0.5, 1.0, 0.5, 0.5, 0.5]), ValueError, "positive diagonal, got 0 at entry 0"),
    ((*ROWS[:2], np.array([0.5] * 6) + 0j), TypeError, "weights must be an array of real numbers .* of complex128"),
    (
        (*ROWS[:2], [[0.5] * 6]),
        TypeError,
        r"weights must be an array of real numbers with 1 axes, got an array \(1, 6\)",
    ),
    (ROWS[:2], TypeError, r"must be a tuple \(indptr, senders, weights\), got tuple of 2"),
    (([0, 2, 3, 5], [0, 2, 1, 1, 2], [0.5, 0.5, 0.5, 0.5, 0.5]), ValueError, "column 0 sums to 0.5"),
]


@pytest.mark.parametrize(("answer", "error", "message"), BAD_ROWS)
@pytest.mark.parametrize("ask", ["csr", "mixing_matrix", "out_adjacency"])
def test_bad_rows(answer, error, message, ask):
    with pytest.raises(error, match=rf"Mine\.csr\({4}\).*" + message):
        getattr(own(csr=answer)(3), ask)(4)


EYE = np.eye(3)
RING = np.array([[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]])
BAD_MATRICES = [
    (RING, TypeError, "must be an array of real numbers with 3 axes"),
    (np.ones((1, 2, 3)), ValueError, r"must have shape \(1, 3, 3\) = \(count, n, n\), got \(1, 2, 3\)"),
    ([RING - EYE], ValueError, "matrix 0 must be finite and non-negative, got -0.5"),
    ([RING * NAN], ValueError, "got nan"),
    ([RING * 0.9], ValueError, "matrix 0 must be column-stochastic: column 0 sums to 0.9"),
    ([RING[[2, 0, 1]]], ValueError, "positive diagonal, got 0 at entry 0"),
]


@pytest.mark.parametrize(("answer", "error", "message"), BAD_MATRICES)
def test_bad_matrices(answer, error, message):
    with pytest.raises(error, match=r"Mine\.mixing_matrices\(1, 1\).*" + message):
        own(mixing_matrices=answer)(3).mixing_matrices(1, 1)


@pytest.mark.parametrize("method", ["mixing_matrix", "products", "edges", "union", "out_neighbours"])
def test_methods_that_follow_from_others_may_not_be_defined(method):
    with pytest.raises(TypeError, match=f"Mine must not define {method}: it follows from out_adjacency"):
        own(**{method: None})


@pytest.mark.parametrize("kind", [np.int16, np.uint8, np.int64, np.uint64, list])
def test_integers_of_any_width(kind):
    lists = tuple(list(v) if kind is list else np.array(v, dtype=kind) for v in (INDPTR, RECEIVERS))
    indptr, receivers = own(lists)(3).out_adjacency(1)
    assert (indptr.dtype, receivers.dtype) == (np.int64, np.int32)
    np.testing.assert_array_equal(own(lists)(3).mixing_matrix(1), RING)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_weights_of_low_precision_keep_the_mean(dtype):
    share = np.array([1 / 3, 2 / 3, 2 / 3, 1 / 3, 2 / 3, 1 / 3]).astype(dtype)
    assert share[0].astype(float) + share[1].astype(float) != 1
    u = np.arange(3.0)[:, None]
    for net in (own(csr=(*ROWS[:2], share))(3), own(csr=(*ROWS[:2], share), base=OwnRing)(3)):
        for mode in ("composed", "stepping"):
            mean = hgp.PushSum(net, 2000, mode=mode).apply(u)
            np.testing.assert_allclose(mean, 1.0, rtol=2000 * 3 * np.finfo(float).eps)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_matrices_of_low_precision_sum_to_one(dtype):
    share = np.array([1 / 3, 2 / 3, 2 / 3, 1 / 3, 2 / 3, 1 / 3]).astype(dtype)
    W = np.array([[share[0], 0, share[1]], [share[2], share[3], 0], [0, share[4], share[5]]], dtype=dtype)
    net = own(csr=(*ROWS[:2], share), mixing_matrices=[W])(3)
    held = net.mixing_matrices(1, 1)
    assert held.dtype == np.float64 and np.abs(held.sum(axis=1) - 1).max() <= 4 * np.finfo(float).eps
    with pytest.raises(ValueError, match="column 0 sums to"):
        own(csr=(*ROWS[:2], share), mixing_matrices=[W * dtype(1.01)])(3).mixing_matrices(1, 1)


def test_ways_of_asking_are_compared():
    with pytest.raises(ValueError, match=r"csr\(2\) and out_adjacency\(2\) must have the same edges"):
        own(csr=([0, 1, 2, 3], [0, 1, 2], [1.0] * 3))(3).out_adjacency(2)
    with pytest.raises(
        ValueError, match=r"equal_shares is True, so csr\(2\) must give .* 1 / out-degree = 0.5, got 0.25"
    ):
        unequal = own(csr=(*ROWS[:2], [0.25, 0.5, 0.75, 0.5, 0.5, 0.5]))
        unequal.equal_shares = True
        unequal(3).out_adjacency(2)
    with pytest.raises(ValueError, match="expected_edges"):
        negative = own()
        negative.expected_edges = -1.0
        negative(3).out_adjacency(1)

    class Narrowed(RandomOut):
        """The weights 1 / (k + 1) of RandomOut.csr no longer fit."""

        def out_adjacency(self, s):
            return np.arange(self.n + 1), np.arange(self.n, dtype=np.int32)

    with pytest.raises(ValueError, match=r"Narrowed\.csr\(1\) must be column-stochastic: column 0 sums to 0.5"):
        Narrowed(4, 1).out_adjacency(1)


def test_keywords_in_any_order():
    np.testing.assert_array_equal(Drifting(4).mixing_matrices(count=2, first=5), Drifting(4).mixing_matrices(5, 2))
    np.testing.assert_array_equal(Drifting(4).out_adjacency(s=5)[1], Drifting(4).out_adjacency(5)[1])


def test_n_must_be_set():
    class Headless(OwnRing):
        def __init__(self):
            pass

        def out_adjacency(self, s):
            return np.array([0, 1]), ints(0)

    with pytest.raises(TypeError, match=r"Headless has no n; call super\(\).__init__\(n\)"):
        Headless().out_adjacency(1)


def test_built_in_networks_are_not_checked():
    assert not any(
        hasattr(getattr(RandomOut, name), "checks_result") for name in ("out_adjacency", "csr", "mixing_matrices")
    )

    class Named(FullyConnected):
        """Overrides nothing that is asked."""

    assert Named.mixing_matrices is FullyConnected.mixing_matrices
    assert hasattr(OwnRing.out_adjacency, "checks_result")
    assert own(base=OwnRing).csr is OwnRing.csr is Network.csr

    class Weighted(OwnRing):
        def csr(self, s):
            return super().csr(s)

    assert (
        hasattr(Weighted.csr, "checks_result") and Weighted.out_adjacency is OwnRing.out_adjacency
    )  # checked once, not twice


@pytest.mark.parametrize("net", [OwnRing(5), Drifting(5), OwnRing(1), Drifting(1)], ids=repr)
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_right_ones_average(net, mode):
    u = np.random.default_rng(0).normal(size=(net.n, 3))
    np.testing.assert_allclose(
        hgp.PushSum(net, 400, mode=mode).apply(u), np.tile(u.mean(axis=0), (net.n, 1)), atol=1e-12
    )


CRASHES = """
import numpy as np, hgp_ref as hgp
class Mine(hgp.networks.Network):
    equal_shares, expected_edges = True, 6.0
    def out_adjacency(self, s):
        return np.array(self.indptr), np.array(self.receivers, dtype=np.int32)
for indptr, receivers in (
    ([0, 2, 4, 10**9], [0, 1, 1, 2, 0, 2]),  # pointers beyond the receivers
    ([0, 10**12, 4, 6], [0, 1, 1, 2, 0, 2]),  # pointers that fall
    ([0, 2, 4, 6], [0, 1, 1, 2, 0, 2_000_000_000]),  # receivers beyond the clients
):
    for ask in (
        lambda net: net.mixing_matrix(1),
        lambda net: net.edges(1),
        lambda net: hgp.PushSum(net, 2, mode="stepping").apply(np.ones((3, 2))),
    ):
        net = Mine(3)
        net.indptr, net.receivers = indptr, receivers
        try:
            ask(net)
        except ValueError as error:
            print("refused:", error)
"""


def test_the_interpreter_survives():
    """In a process of its own: these ended it by a signal."""
    run = subprocess.run([sys.executable, "-c", CRASHES], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.count("refused: Mine.out_adjacency(1)") == 9, run


def test_the_docstring_names_every_member():
    text = Network.__doc__
    assert Network.__abstractmethods__ == {"expected_edges", "out_adjacency"}
    members = {name for name in vars(Network) if not name.startswith("_")} | {"n"}
    for name in members - {"mixing_matrix", "after"}:
        assert re.search(rf"\b{name}\b", text), name


def test_the_example_of_the_docstring_runs():
    source = Network.__doc__.split("Example:")[1].split("Examples\n")[0]
    scope = {"Network": Network, "np": np, "__name__": __name__}
    exec("\n".join(line.removeprefix("        ") for line in source.splitlines()), scope)
    np.testing.assert_array_equal(scope["Ring"](3).mixing_matrix(1), RING)


def test_periodic_network_warns():
    A, b = np.stack([np.eye(2)] * 3), np.arange(6.0).reshape(3, 2)
    problem = hgp.problems.Quadratic(A, b, A, b)
    x, lam = np.ones((3, 2)), np.ones((3, 2))
    with pytest.warns(RuntimeWarning, match="are periodic: .* 3 groups whose values never meet"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(Bare(3), steps=4), eta=0.1, iterations=5)


class Lists:
    """Not a network: one half of a class whose other half is."""

    expected_edges = 6.0

    def out_adjacency(self, s):
        return np.array([0, 1, 3, 5]), ints(1, 1, 2, 0, 2)  # client 0 is missing in its own list


class Mixed(Lists, Network):
    pass


def test_methods_that_come_from_a_mixin_class_are_checked_too():
    with pytest.raises(ValueError, match=r"Mixed\.out_adjacency\(1\): client 0 must be in its own list"):
        hgp.PushSum(Mixed(3), 5).apply(np.ones((3, 2)))


def test_a_network_that_was_never_set_up_is_named():
    class Hasty(OwnRing):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match="Hasty has no n; call super"):
        hgp.PushSum(Hasty(), 5)
