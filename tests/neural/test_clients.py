"""A client's results depend on that client alone, bit for bit; float32 stays float32."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close, identity_rtol

from hgp_ref import neural

from .stacks import data, derivatives, plain

MIXED = neural.Sequential(
    (2, 9, 8),
    neural.Conv2d(2, 3, 3, padding="same"), neural.ReLU(), neural.MaxPool2d(3, 2),
    neural.Conv2d(3, 4, 2), neural.Tanh(), neural.AvgPool2d(2, 1), neural.Flatten(),
    neural.Linear(8, 7), neural.ReLU(), neural.Linear(7, 5), neural.Softplus(),
)  # fmt: skip
MODELS = {"mixed": MIXED, "influence": neural.influence_cnn(), "plain mixed": plain(MIXED),
          "plain influence": plain(neural.influence_cnn())}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_some_clients_give_the_bits_that_all_clients_give(name, dtype):
    model = MODELS[name]
    point = data(model, n=5, N=13, dtype=dtype)
    whole = derivatives(model, *point)
    for clients in ([0], [3], [4, 1], [2, 3, 4]):
        part = derivatives(model, *(a[clients] for a in point))
        for actual, expected in zip(part, whole, strict=True):
            assert actual.dtype == dtype
            np.testing.assert_array_equal(actual, expected[clients])


def test_an_instance_alone_gives_its_output():
    """No output depends on other instances, up to the rounding of products of another size."""
    x, _, X, _, _ = data(MIXED, n=2, N=13)
    whole = MIXED.logits(x, X)
    assert_close(MIXED.logits(x, X[:, 4:5]), whole[:, 4:5], identity_rtol("float64"))


def test_blocks_of_instances_change_nothing_but_rounding(monkeypatch):
    model = neural.influence_cnn()
    point = data(model, n=1, N=13)
    whole = derivatives(model, *point)
    monkeypatch.setattr("hgp_ref.neural.kernels.BLOCK_BYTES", 2**18)  # two instances at a time, and one left over
    for actual, expected in zip(derivatives(model, *point), whole, strict=True):
        assert_close(actual, expected, identity_rtol("float64"))


def test_float32_is_float64_rounded():
    model = neural.influence_cnn()
    exact = derivatives(model, *data(model, N=4))
    for actual, expected in zip(derivatives(model, *data(model, N=4, dtype="float32")), exact, strict=True):
        assert_close(actual, expected, 1e-4)


def test_results_do_not_touch_their_arguments():
    for model in MODELS.values():
        point = data(model, n=2, N=3)
        before = [a.copy() for a in point]
        x, u, X, _, _ = point
        tape = model.forward(x, X)
        c = np.ones_like(tape.output)
        first = tape.backward(c)
        tangent = tape.tangent(u)
        adjoint = tape.adjoint(c)
        adjoint.tangent(tangent, c)
        np.testing.assert_array_equal(tape.backward(c), first)
        assert (c == 1).all()
        for a, b in zip(point, before, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_given_array_takes_the_result():
    model = MODELS["mixed"]
    x, u, X, _, _ = data(model)
    tape = model.forward(x, X)
    c, out = np.ones_like(tape.output), np.full_like(x, np.nan)
    assert tape.backward(c, out=out) is out
    np.testing.assert_array_equal(out, tape.backward(c))
    tangent = tape.tangent(u)
    again = np.full_like(x, np.nan)
    assert tape.adjoint(c).tangent(tangent, c, out=again) is again and np.isfinite(again).all()
