"""The same code on every array library: the numbers of NumPy to 1e-12, on the device, without a transfer."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_same, open_library

from hgp_ref import neural

from .stacks import data, derivatives
from .test_clients import MIXED

RTOL = 1e-12


def test_every_library_gives_the_same_numbers(xp):
    point = data(MIXED)
    expected = derivatives(MIXED, *point)
    for actual, value in zip(derivatives(MIXED, *map(xp.asarray, point)), expected, strict=True):
        assert_same(actual, value, xp, RTOL)


@pytest.mark.parametrize("name", ["array_api_strict", "torch"])  # JAX compiles every shape: half a minute
def test_the_influence_network(name):
    xp, model = open_library(name), neural.influence_cnn()
    point = data(model, n=2, N=2)
    expected = derivatives(model, *point)
    for actual, value in zip(derivatives(model, *map(xp.asarray, point)), expected, strict=True):
        assert_same(actual, value, xp, RTOL)


def test_initial_parameters_are_the_same_on_every_library(xp):
    model = neural.Sequential((4,), neural.Linear(4, 3))
    for dtype in ("float32", "float64"):
        there = model.init(3, seed=5, like=xp.asarray(np.zeros(1, dtype=dtype)), same_for_all=False)
        assert_same(there, model.init(3, seed=5, dtype=dtype, same_for_all=False), xp, 0.0)


def test_no_pass_transfers_anything(counted):
    lib = open_library("cupy")
    point = [lib.asarray(a) for a in data(MIXED)]
    counted.reset()
    derivatives(MIXED, *point)
    assert counted.to_device == counted.to_host == 0
