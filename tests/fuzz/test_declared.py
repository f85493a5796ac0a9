"""Good and bad values derived from the declared arguments (`hgp_ref.validation.checked`) of every public function.

Declared arguments are checked before the function's body runs. The other arguments may therefore be None in these
calls, and no table of good arguments is needed.
"""

from __future__ import annotations

import inspect
import re
from unittest.mock import Mock

import pytest

from fuzz import coverage
from hgp_ref.validation import Instance, Optional, declared

DECLARED = {name: value for name, value in coverage.public() if declared(value)}
CASES = [(name, argument) for name, value in DECLARED.items() for argument in declared(value)]


def example(rule):
    """A value that the rule accepts."""
    return Mock(spec=rule.cls) if isinstance(rule, Instance) else rule.accepted[0]


def call(function, **changed):
    """A call with accepted values of all declared arguments but those in `changed`, and None for the others."""
    parameters = inspect.signature(function).parameters
    rules = declared(function)
    assert set(rules) <= set(parameters)
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    required = {n: None for n, p in parameters.items() if p.default is p.empty and p.kind not in variadic}
    return function(**(required | {name: example(rule) for name, rule in rules.items()} | changed))


def test_some_functions_declare_their_arguments():
    assert {"data.synthetic_mixture", "data.draw_clusters", "data.dirichlet_partition"} <= set(DECLARED)


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_refused_values_are_refused_by_name(name, argument):
    for value in declared(DECLARED[name])[argument].refused:
        with pytest.raises((TypeError, ValueError)) as caught:
            call(DECLARED[name], **{argument: value})
        assert re.match(rf"{argument} must be .+, got .+", str(caught.value)), (value, str(caught.value))


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_defaults_and_accepted_values_pass(name, argument):
    rule = declared(DECLARED[name])[argument]
    default = inspect.signature(DECLARED[name]).parameters[argument].default
    for value in (*rule.accepted, *([] if default is inspect.Parameter.empty else [default])):
        assert rule.check(argument, value) == value
    if isinstance(rule, Instance) or (isinstance(rule, Optional) and isinstance(rule.rule, Instance)):
        value = example(rule if isinstance(rule, Instance) else rule.rule)
        assert rule.check(argument, value) is value
