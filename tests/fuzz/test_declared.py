"""Bad values derived from the declarations of arguments (`hgp_ref.validation.checked`) of every public function.

Declared arguments are checked before the function's body runs, so that nothing else need be good in these calls: no
table of good arguments is kept for them.
"""

from __future__ import annotations

import inspect
import re

import pytest

from fuzz import coverage

DECLARED = {name: value for name, value in coverage.public() if hasattr(value, "rules")}
CASES = [(name, argument) for name, value in DECLARED.items() for argument in value.rules]


def call(function, **changed):
    """A call with good values for all declared arguments but those in `changed`; None for the others."""
    parameters = inspect.signature(function).parameters
    assert set(function.rules) <= set(parameters)
    required = {n: None for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    good = {name: rule.accepted[0] for name, rule in function.rules.items()}
    return function(**(required | good | changed))


def test_some_functions_declare_their_arguments():
    assert {"data.synthetic_mixture", "data.draw_clusters", "data.dirichlet_partition"} <= set(DECLARED)


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_refused_values_are_refused_by_name(name, argument):
    for value in DECLARED[name].rules[argument].refused:
        with pytest.raises((TypeError, ValueError)) as caught:
            call(DECLARED[name], **{argument: value})
        assert re.match(rf"{argument} must be .+, got .+", str(caught.value)), (value, str(caught.value))


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_defaults_and_accepted_values_pass(name, argument):
    rule = DECLARED[name].rules[argument]
    default = inspect.signature(DECLARED[name]).parameters[argument].default
    for value in (*rule.accepted, *([] if default is inspect.Parameter.empty else [default])):
        assert rule.check(argument, value) == value
