"""Numbers of small runs of every public function are those that were stored."""

from __future__ import annotations

import json

import numpy as np
import pytest

from frozen import settings

STORED = json.loads(settings.STORE.read_text())
ROUNDING = 2**14 * np.finfo(np.float64).eps  # sums differ in their order between BLAS libraries, and runs amplify it
COARSE = {
    "float32": 2**10 * np.finfo(np.float32).eps,
    "plan": 2**20 * np.finfo(np.float64).eps,  # its bound is 1e-4 of the terms whose differences it is computed from
}


def test_every_setting_is_stored():
    assert set(STORED) == set(settings.SETTINGS)


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_numbers_are_those_stored(name):
    now, stored = settings.numbers(name), STORED[name]
    assert now.keys() == stored.keys()
    for key in now:
        a, b = ([float.fromhex(v) for v in numbers[key]] for numbers in (now, stored))
        scale = abs(b[-1])  # the norm
        assert np.allclose(a, b, rtol=0, atol=COARSE.get(name, ROUNDING) * scale), key
