"""Every public function that takes arrays, on other array libraries: the results of NumPy up to rounding."""

from __future__ import annotations

import warnings
from pathlib import Path

import array_api_compat as compat
import numpy as np
import pytest
from support.functions import HOST_ONLY, ON_HOST, functions, markdown, mover, numbers
from support.libraries import open_library

LIBRARIES = ["cupy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("array_api_strict", "torch"))]
RELATIVE, ABSOLUTE = 1e-9, 1e-11  # in float64 after a few iterations; of numbers that are zero but for rounding


def call(name, target, library):
    """The function with its arguments in the library, and the settings of its runs on the host."""
    given, move = target.good(), mover(library)
    kept = [given[argument] for argument in ON_HOST.get(name, ())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unmet tolerances: the runs are short
        return target.in_library(lambda value: value if any(value is k for k in kept) else move(value), given)


def differences(expected, found, library):
    """What is unlike between two results, of NumPy and of the library."""
    expected, found = dict(numbers(expected)), dict(numbers(found))
    if expected.keys() != found.keys():
        yield f"different parts: {sorted(expected.keys() ^ found.keys())}"
        return
    for place, value in expected.items():
        if place.endswith(".note") and library.name != "cupy":
            continue  # of a refusal; it spells the dtype as the library does
        other, value = found[place], np.asarray(value)
        if compat.is_array_api_obj(other) and not isinstance(other, np.ndarray):
            if compat.array_namespace(other) is not library.xp or compat.device(other) != library.device:
                yield f"{place} is in {type(other)} on {compat.device(other)}"
            other = library.to_numpy(other)
        other = np.asarray(other)
        if (other.shape, other.dtype) != (value.shape, value.dtype):
            yield f"{place} is {other.dtype} {other.shape}, expected {value.dtype} {value.shape}"
        elif value.dtype.kind in "iufb":
            allowed = ABSOLUTE + RELATIVE * np.max(np.abs(value), initial=0.0, where=np.isfinite(value))
            if not np.allclose(other, value, rtol=0, atol=allowed, equal_nan=True):
                yield f"{place} is {other}, expected {value}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_those_of_numpy(library):
    library, wrong, compared = open_library(library), {}, 0
    for name, target in functions().items():
        if name in HOST_ONLY:
            continue
        compared += 1
        try:
            found = call(name, target, library)
        except Exception as error:  # whatever the library raises is the result of this function
            wrong[name] = [repr(error)]
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = target.function(target.good())
        wrong[name] = list(differences(expected, found, library))
    assert {name: what for name, what in wrong.items() if what} == {}
    assert compared > 150


@pytest.mark.parametrize("library", ["cupy"])
def test_functions_for_the_host_refuse_other_arrays_by_name(library):
    library, found = open_library(library), functions()
    for name in sorted(HOST_ONLY):
        with pytest.raises((TypeError, ValueError), match="|".join(found[name].good())):
            call(name, found[name], library)


def test_a_wrong_result_is_seen():
    library = open_library("numpy")
    right = {"a": np.ones(3), "b": [1, 2.0]}
    assert not list(differences(right, {"a": np.ones(3) + 1e-12, "b": [1, 2.0]}, library))
    for wrong in ({"a": np.ones(3) + 1e-8, "b": [1, 2.0]}, {"a": np.ones(3), "b": [2, 2.0]}, {"a": np.ones(2)}):
        assert list(differences(right, wrong, library))


def test_the_table_of_the_documentation_is_up_to_date():
    """tests/support/functions.py writes it."""
    page = Path(__file__).parents[1] / "docs" / "measured" / "functions.md"
    assert page.read_text(encoding="utf-8").strip() == markdown()
