"""Bad arguments: every call returns finite numbers or raises TypeError or ValueError that names an argument, soon.

Calls are made in a process of their own (`worker`), which may crash or hang without ending the tests. Two seconds of
processor time are allowed for each.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.functions import HOST_ONLY, ON_HOST

from fuzz import coverage
from fuzz.pool import Worker
from fuzz.values import BAD

EXAMPLES = 1500
LENGTHS = {  # 10**9 is long, not absurd
    "data",  # of a partition: a number of instances
    *("steps", "iterations", "calls", "call", "count", "max_iterations", "max_rounds", "outer_steps", "terms"),
    *(
        "inner_steps",
        "local_steps",
        "jhip_steps",
        "higp_steps",
        "rounds",
        "epochs",
        "components",
        "averaging_steps",
        "tuning_epochs",
        "first_split",
    ),
}


@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    made.close()


def fits(argument: str, value: str) -> bool:
    """Whether the pair can be tried: a run of 10**9 steps is allowed and long, and any callable is a callback."""
    return not (argument in LENGTHS and value == "10**9") and not (
        argument in ("callback", "change", "project") and value == "type"
    )


def test_good_arguments_are_accepted(worker):
    """An entry whose good arguments are refused would test nothing: every bad value in their place is refused, too."""
    missing = {f"problems.from_{library}" for library in ("torch", "jax") if find_spec(library) is None}
    faults = {name: worker.attempt(name, {}) for name in worker.arguments if name not in missing}
    assert {name: fault for name, fault in faults.items() if fault != ("", "")} == {}


def test_every_public_function_is_in_the_table(worker):
    assert coverage.missing(worker.arguments) == set()


def try_bad_arguments(worker, names):
    """Calls of these functions with one or two bad arguments."""
    places = sorted((name, argument) for name in names for argument in worker.arguments[name])

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(st.sampled_from(places), st.sampled_from(sorted(BAD)), st.data())
    def bad(place, value, data):
        name, argument = place
        chosen = {argument: value}
        if data.draw(st.booleans()):
            chosen[data.draw(st.sampled_from(worker.arguments[name]))] = data.draw(st.sampled_from(sorted(BAD)))
        if all(fits(*pair) for pair in chosen.items()):
            fault, seen = worker.attempt(name, chosen)
            assert not fault, f"{name} with {chosen}: {fault}: {seen}"

    bad()


def test_one_or_two_bad_arguments(worker):
    try_bad_arguments(worker, worker.arguments)


@pytest.mark.cupy
def test_one_or_two_bad_arguments_on_a_device():
    """Arguments of CuPy, where they can be moved; the others stay on the host."""
    device = Worker("cupy")
    try:
        names = sorted(set(device.arguments) - HOST_ONLY - ON_HOST.keys())
        assert {name: fault for name in names if (fault := device.attempt(name, {})) != ("", "")} == {}
        try_bad_arguments(device, names)
    finally:
        device.close()


def try_every_bad_value(worker, names):
    """Calls of these functions with each bad value in the place of each argument; what went wrong."""
    faults = []
    for name in names:
        for argument in worker.arguments[name]:
            for value in filter(lambda value, argument=argument: fits(argument, value), BAD):
                fault, seen = worker.attempt(name, {argument: value})
                if fault:
                    faults.append(f"{name}({argument}={value}): {fault}: {seen}")
    return faults


@pytest.mark.slow
def test_every_argument_with_every_bad_value(worker):
    assert try_every_bad_value(worker, worker.arguments) == []


@pytest.mark.slow
@pytest.mark.cupy
def test_every_argument_with_every_bad_value_on_a_device():
    device = Worker("cupy")
    try:
        assert try_every_bad_value(device, sorted(set(device.arguments) - HOST_ONLY - ON_HOST.keys())) == []
    finally:
        device.close()
