"""Groups of clients in several threads: the same bits as in one, including errors and warnings."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import _numba, neural
from hgp_ref.problems import PersonalMask
from hgp_ref.problems import neural as neural_parts

pytest.importorskip("threadpoolctl")


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(_numba, "GRAIN", 1)
    monkeypatch.setattr(neural_parts, "CHUNK_BYTES", 1)  # a client in each part
    rng = np.random.default_rng(0)
    layers = (neural.Conv2d(1, 3, 3), neural.ReLU(), neural.MaxPool2d(2), neural.Flatten(), neural.Linear(27, 4))
    model = neural.Sequential((1, 8, 8), *layers)
    X = [rng.standard_normal((k, 1, 8, 8)) for k in (5, 7, 7, 6, 9)]
    problem = PersonalMask(model, X, [rng.integers(0, 4, len(a)) for a in X])
    return problem, model.init(5, same_for_all=False), rng.standard_normal((5, 4))


def everything(problem, x, lam):
    lin = problem.linearize(x, lam)
    return [
        problem.inner_cost(x, lam), problem.outer_cost(x, lam), problem.inner_grad(x, lam), *problem.outer_grad(x, lam),
        problem.accuracy(x, lam), lin.hvp(x), lin.cross(x), *lin.products(x), *lin.products(2 * x),
    ]  # fmt: skip


def test_the_same_bits_for_any_number_of_threads(made, monkeypatch):
    used = []
    work_of = _numba.each
    monkeypatch.setattr(_numba, "each", lambda work, items: (used.append(1), work_of(work, items)))
    with _numba.limited(1):
        alone = everything(*made)
    assert not used
    for number in (2, 3, 8):
        with _numba.limited(number):
            together = everything(*made)
        assert used and all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_linearization_keeps_its_parts_when_the_number_of_threads_changes(made):
    problem, x, lam = made
    with _numba.limited(3):
        lin = problem.linearize(x, lam)
        first = lin.products(x)
    with _numba.limited(1):
        second = lin.products(x)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_errors_come_out_and_silence_holds_in_threads(made):
    problem, x, lam = made
    with _numba.limited(2), np.errstate(all="ignore"):
        problem.inner_grad(1e200 * x, lam)  # warnings are errors here
    with _numba.limited(2), pytest.raises(RuntimeWarning, match="overflow|invalid"):
        problem.inner_grad(1e200 * x, lam)

    class Fails(type(problem.cost)):
        def slope(self, *given):
            raise hgp.DivergenceError("mine")

    problem.cost = Fails(4, 4.0)
    with _numba.limited(2), pytest.raises(hgp.DivergenceError, match="mine"):
        problem.inner_grad(x, lam)


def test_without_threadpoolctl_parts_come_one_after_the_other(made, monkeypatch):
    problem, x, lam = made
    with _numba.limited(1):
        alone = problem.inner_grad(x, lam)
    monkeypatch.setattr(_numba, "_blas", lambda: None)
    with _numba.limited(4):
        assert np.array_equal(problem.inner_grad(x, lam), alone)
