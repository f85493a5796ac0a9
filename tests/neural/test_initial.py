"""Initial parameters: uniform in PyTorch's bounds, a pure function of (seed, client)."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref import neural

MODEL = neural.influence_cnn()


def test_bounds_and_moments_of_every_parameter():
    x, start = MODEL.init(1, seed=2)[0], 0
    for layer in MODEL.layers:
        for shape in layer.shapes:
            size = int(np.prod(shape))
            unit = x[start : start + size] * np.sqrt(layer.fan_in)  # uniform on (-1, 1): variance 1/3
            start += size
            assert np.abs(unit).max() < 1
            assert abs(unit.mean()) < 5 / np.sqrt(3 * size)
            assert abs(np.mean(unit**2) - 1 / 3) < 5 * np.sqrt(4 / 45 / size)
    assert start == MODEL.dim == 13750
    assert MODEL.layers[0].fan_in == 25 and MODEL.layers[3].fan_in == 500 and MODEL.layers[7].fan_in == 320


def test_numbers_depend_on_seed_and_client_alone():
    each = MODEL.init(4, seed=9, same_for_all=False)
    np.testing.assert_array_equal(MODEL.init(2, seed=9, same_for_all=False), each[:2])
    np.testing.assert_array_equal(MODEL.init(3, seed=9), np.tile(each[:1], (3, 1)))
    assert len({row.tobytes() for row in each}) == 4
    assert not np.array_equal(MODEL.init(1, seed=10)[0], each[0])
    np.testing.assert_array_equal(MODEL.init(1, seed=9, dtype="float32")[0], each[0].astype(np.float32))


def test_known_numbers():
    """The first words of Philox under seed 0 (client 0, stream 64): nobody may change them unnoticed."""
    from hgp_ref.philox import INITIAL_PARAMETERS, key, philox4x32, step_counter

    words = philox4x32.py_func(0, 0, *step_counter.py_func(0, INITIAL_PARAMETERS), *key(0))
    expected = [((int(w) + 0.5) / 2**31 - 1) / 2 for w in words]
    model = neural.Sequential((4,), neural.Linear(4, 1))
    np.testing.assert_allclose(model.init(1)[0, :4], expected, rtol=1e-15)
    assert INITIAL_PARAMETERS == 64


def test_the_networks_of_the_paper_have_its_sizes():
    assert neural.influence_cnn().dim == 13_750 and neural.influence_cnn(62).dim == 13_750 + 52 * 321
    assert neural.personalization_cnn().dim == 2_278_334
    assert neural.personalization_cnn(10).output_shape == (10,)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: neural.Linear(0, 1), ValueError, "inputs must be an integer >= 1, got 0"),
        (
            lambda: neural.Conv2d(1, 1, (3,)),
            ValueError,
            "kernel must be an integer >= 1 or two of them (height, width), got (3,)",
        ),
        (lambda: neural.Conv2d(1, 1, 3, 2, "same"), ValueError, "stride must be 1"),
        (lambda: neural.Conv2d(1, 1, 3, padding=1), ValueError, "padding must be one of 'valid', 'same', got 1"),
        (lambda: neural.MaxPool2d(2.0), TypeError, "kernel must be an integer >= 1, got 2.0"),
        (
            lambda: neural.Sequential((1, 28), neural.Flatten()),
            ValueError,
            "input_shape must be (features,) or (C, H, W), got (1, 28)",
        ),
        (lambda: neural.Sequential((3,)), ValueError, "layers must contain at least one layer, got none"),
        (lambda: neural.Sequential((3,), neural.ReLU()), ValueError, "at least one layer with parameters, got none"),
        (lambda: neural.Sequential((3,), "ReLU"), TypeError, "layers[0] must be a layer of hgp_ref.neural, got str"),
        (lambda: neural.Sequential((3,), neural.Linear(4, 1)), ValueError, "must have shape (4,), got (3,)"),
        (lambda: neural.Sequential((1, 4, 4), neural.Linear(16, 1)), ValueError, "Flatten() makes vectors"),
        (lambda: neural.Sequential((2, 4, 4), neural.Conv2d(1, 1, 3)), ValueError, "must have 1 channels, got 2"),
        (lambda: neural.Sequential((1, 4, 4), neural.Conv2d(1, 1, 5)), ValueError, "at least as large as the kernel"),
        (lambda: neural.Sequential((1, 4, 4), neural.MaxPool2d(5)), ValueError, "at least as large as the kernel"),
        (lambda: neural.Sequential((4,), neural.MaxPool2d(5)), ValueError, "must have shape (C, H, W)"),
        (lambda: MODEL.init(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: MODEL.init(1, -1), ValueError, "seed must be an integer from 0 to"),
        (lambda: MODEL.init(1, dtype="int32"), TypeError, "dtype must be float32 or float64, got int32"),
        (lambda: MODEL.logits(np.ones((2, 5)), np.ones((2, 1, 1, 28, 28))), ValueError, "must have shape (n, 13750)"),
        (
            lambda: MODEL.logits(MODEL.init(2), np.ones((3, 1, 1, 28, 28))),
            ValueError,
            "must have shape (2, N, 1, 28, 28)",
        ),
        (
            lambda: MODEL.logits(MODEL.init(2), np.ones((2, 0, 1, 28, 28))),
            ValueError,
            "at least one instance, got none",
        ),
        (lambda: MODEL.logits(MODEL.init(2), np.ones((2, 1, 1, 28, 28), dtype="f4")), TypeError, "mixed dtypes"),
    ],
)
def test_errors_name_the_argument(call, error, says):
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)
