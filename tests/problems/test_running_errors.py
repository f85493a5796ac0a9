"""Numbers that carry error bounds: every operation against 60 digits, at its worst allowed inputs."""

from __future__ import annotations

import itertools

import mpmath as mp
import numpy as np
import pytest

from hgp_ref.backend import array_namespace
from hgp_ref.problems.running_errors import Magnitude, Sized, SizedBooleans, SizedIntegers, SizedNamespace, Unit

DTYPES = [np.float32, np.float64]


def setting(dtype):
    like = np.ones(1, dtype=dtype)
    unit, xp = Unit(like, chain=4), array_namespace(like)
    return unit, SizedNamespace(unit, xp), xp


def drawn(dtype, seed, low=-3.0, high=3.0, size=40, share=1e3):
    """Values of many magnitudes, and errors up to `share` units of γ of them."""
    rng = np.random.default_rng(seed)
    v = (rng.uniform(low, high, size) * 10 ** rng.uniform(-3, 1, size)).astype(dtype)
    return v, (np.abs(v) * rng.uniform(0, share, size)).astype(dtype)


def ends(v, e, unit):
    """v − γe, v and v + γe in many digits."""
    return [mp.mpf(float(v)) + s * unit.gamma * mp.mpf(float(e)) for s in (-1, 0, 1)]


OPERATIONS = {
    "mul": (lambda a, b, xp: a * b, lambda a, b: a * b, (-3, 3)),
    "add": (lambda a, b, xp: a + b, lambda a, b: a + b, (-3, 3)),
    "sub": (lambda a, b, xp: a - b, lambda a, b: a - b, (-3, 3)),
    "div": (lambda a, b, xp: a / b, lambda a, b: a / b, (0.1, 3)),
    "exp": (lambda a, b, xp: xp.exp(a), lambda a, b: mp.exp(a), (-3, 3)),
    "log": (lambda a, b, xp: xp.log(a), lambda a, b: mp.log(a), (0.1, 3)),
    "log1p": (lambda a, b, xp: xp.log1p(a), lambda a, b: mp.log1p(a), (0.0, 3)),
    "tanh": (lambda a, b, xp: xp.tanh(a), lambda a, b: mp.tanh(a), (-3, 3)),
    "abs": (lambda a, b, xp: xp.abs(a), lambda a, b: abs(a), (-3, 3)),
    "neg": (lambda a, b, xp: -a, lambda a, b: -a, (-3, 3)),
    "one over": (lambda a, b, xp: 1 / a, lambda a, b: 1 / a, (0.1, 3)),
    "less": (lambda a, b, xp: 1 - a, lambda a, b: 1 - a, (-3, 3)),
    "times": (lambda a, b, xp: 0.5 * a, lambda a, b: a / 2, (-3, 3)),
    "relu": (
        lambda a, b, xp: xp.where(a <= 0, xp.zeros_like(a), a), lambda a, b: max(a, mp.mpf(0)), (-3, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name, share, dtype):
    own, exact, (low, high) = OPERATIONS[name]
    unit, sized, xp = setting(dtype)
    (v, e), (w, f) = drawn(dtype, 1, low, high, share=share), drawn(dtype, 2, low, high, share=share)
    found = own(Sized(v, e, unit, xp), Sized(w, f, unit, xp), sized)
    assert found.v.dtype == dtype and found.error.shape == found.v.shape
    with mp.workdps(60):
        for k in range(len(v)):
            pairs = itertools.product(ends(v[k], e[k], unit), ends(w[k], f[k], unit))
            worst = max(abs(exact(a, b) - mp.mpf(float(found.v[k]))) for a, b in pairs)
            bound = unit.gamma * mp.mpf(float(found.error[k]))
            assert worst <= bound * (1 + mp.mpf(10) ** -5), (name, k)
            largest = sum(abs(mp.mpf(float(one[k]))) for one in (v, w, found.v)) + 1
            ample = 3 * worst + 64 * unit.u * largest
            assert bound <= ample, "and not much more than that"


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_any_order(dtype):
    """Terms that cancel, one of whose orders is made: the bound holds for all."""
    unit, sized, xp = setting(dtype)
    rng = np.random.default_rng(3)
    for terms in (1, 2, 7, 40):
        a = (rng.normal(size=(3, terms)) * 10 ** rng.uniform(0, 4, (3, terms))).astype(dtype)
        b = rng.normal(size=(terms, 2)).astype(dtype)
        e, f = (np.abs(a) * rng.uniform(0, 9, a.shape)).astype(dtype), np.abs(b)
        A, B = Sized(a, e, unit, xp), Sized(b, f, unit, xp)
        found, total = sized.matmul(A, B), sized.sum(A, axis=-1)
        others = [np.array([[sum(a[i, k] * b[k, j] for k in order) for j in range(2)] for i in range(3)])
                  for order in (range(terms), range(terms - 1, -1, -1), rng.permutation(terms))]  # fmt: skip
        with mp.workdps(60):
            for i in range(3):
                for j in range(2):
                    signs = [1 if b[k, j] > 0 else -1 for k in range(terms)]
                    exact = sum((mp.mpf(float(a[i, k])) + unit.gamma * signs[k] * mp.mpf(float(e[i, k])))
                                * (mp.mpf(float(b[k, j])) * (1 + unit.gamma * np.sign(a[i, k]) * signs[k]))
                                for k in range(terms))  # fmt: skip
                    for other in [found.v, *others]:
                        assert abs(exact - mp.mpf(float(other[i, j]))) <= unit.gamma * float(found.error[i, j])
                whole = sum(mp.mpf(float(a[i, k])) + unit.gamma * mp.mpf(float(e[i, k])) for k in range(terms))
                assert abs(whole - mp.mpf(float(total.v[i]))) <= unit.gamma * float(total.error[i])


def test_sums_of_blocks_count_all_their_terms():
    unit, _, _ = setting(np.float64)
    one = unit.of_sum(10)
    unit.blocks, unit.lengths = 5, frozenset({10})
    assert np.isclose(unit.of_sum(10), (2 * 50 + 2) / (2 * 10 + 2) * one) and unit.of_sum(11) < 2 * one
    assert Unit(np.ones(1, np.float32), 1).share(2**24) == 2.0**64, "beyond any use"


def test_zeros_and_equal_numbers_are_exact():
    _, sized, _ = setting(np.float64)
    zero, b = sized.exact(np.zeros(2)), sized.exact(np.array([0.1, -3.0]))
    blank = sized.matmul(sized.exact(np.zeros((2, 4))), sized.rounded(np.ones((4, 2)), 5))
    assert not np.any(blank.error) and not np.any((zero * b).error)
    assert not np.any((blank + b[None, :]).error), "a bias on nothing is not rounded"
    assert not np.any((b > b).unsure)
    assert np.all((sized.rounded(np.ones(2), 1) > np.ones(2)).unsure)
    assert np.all((b + sized.exact(np.ones(2))).error > 0)


def test_a_choice_that_rounding_may_have_made_allows_for_both():
    unit, sized, xp = setting(np.float64)
    a = Sized(np.array([1e-12, 1e-12, -5.0]), np.array([1e3, 1e-3, 1.0]), unit, xp)
    delta = sized.exact(np.full(3, 7.0))
    dead = a <= 0
    assert dead.unsure.tolist() == [True, False, False] and dead.v.tolist() == [False, False, True]
    passed = sized.where(dead, sized.zeros_like(delta), delta)
    assert passed.error[0] * unit.gamma >= 7.0 and passed.error[1:].tolist() == [0.0, 0.0]
    assert passed.v.tolist() == [7.0, 7.0, 0.0]
    kept = sized.where(dead, sized.zeros_like(a), a)
    assert kept.error[0] <= 3e3, "the value itself does not jump"
    which = sized.where(
        dead, sized.full_like(sized.zeros_like(a, dtype=xp.int32), 2), sized.zeros_like(a, dtype=xp.int32)
    )
    assert (
        isinstance(which, SizedIntegers)
        and which.v.tolist() == [0, 0, 2]
        and which.unsure.tolist() == [True, False, False]
    )
    sure = SizedBooleans(np.ones(3, bool), np.zeros(3, bool)) | np.zeros(3, bool)
    again = sized.where(sure, sized.full_like(which, 1), which)
    assert not np.any(again.unsure), "a later winner that is certain"
    assert np.all((which == 2).v == [False, False, True]) and np.all((which == 2).unsure == which.unsure)


def test_magnitudes_forget_signs():
    unit, sized, xp = setting(np.float64)
    u, W = np.array([[1.0, -2.0, 0.5]]), Sized(np.array([[3.0], [-4.0], [0.1]]), np.ones((3, 1)), unit, xp)
    a = sized.direction(u)
    moved = sized.matmul(a, W)
    assert np.isclose(moved.v[0, 0], 3 + 8 + 0.05) and np.isclose((moved - moved).v[0, 0], 2 * moved.v[0, 0])
    for found in (-a, a - a, a * -2.0, 1.0 - a, a / -4.0, -2.0 * a, sized.concat([a, -a], axis=1)):
        assert isinstance(found, Magnitude) and np.all(found.v > 0) and np.all(found.error >= 0)
    doubled = sized.matmul(sized.direction(2 * u), W)
    np.testing.assert_allclose(doubled.error, 2 * moved.error, rtol=1e-12)
    chosen = sized.where(W[:, 0] <= 3.0, sized.zeros_like(a[0, :]), a[0, :])
    assert isinstance(chosen, Magnitude) and chosen.v.tolist() == [0.0, 0.0, 0.0]
    assert chosen.error[0] * unit.gamma >= 1.0 and chosen.error[1:].tolist() == [0.0, 0.0]


def test_underflow_is_an_error():
    unit, sized, _ = setting(np.float32)
    small = sized.exact(np.full(1, 1e-30, np.float32))
    product = sized.matmul(small[None, :], small[:, None])
    for found in (small * small, product[0, :], sized.exp(sized.exact(np.full(1, -200.0, np.float32)))):
        assert found.v[0] == 0 and found.error[0] * unit.gamma >= 1e-38
    zero = sized.matmul(sized.zeros_like(small)[None, :], small[:, None])
    assert zero.error[0, 0] == 0, "nothing is rounded"
