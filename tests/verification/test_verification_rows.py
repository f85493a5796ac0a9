"""The rule for the verdicts of rows."""

from __future__ import annotations

import math

import pytest

from verification.rows import holds, verdict_row, without_number


@pytest.mark.parametrize(
    ("measured", "bound", "rounding", "expected"),
    [
        (1.0, 1.0, 0.0, True),
        (1.0, 1 - 1e-10, 0.0, True),  # equal in exact arithmetic
        (1.0, 1 - 1e-8, 0.0, False),
        (1e-16, 0.0, 1e-15, True),
        (1e-14, 0.0, 1e-15, False),
        (math.nan, 1.0, 0.0, False),
        (1.0, math.nan, 0.0, False),
        (math.inf, 1.0, 0.0, False),
    ],
)
def test_holds(measured, bound, rounding, expected):
    assert holds(measured, bound, rounding) is expected


def test_verdicts_depend_on_the_form():
    assert verdict_row("A", "", 2.0, 1.0).verdict == "VIOLATED"
    assert verdict_row("A", "", 2.0, 1.0).failed
    printed = verdict_row("Theorem 1", "", 2.0, 1.0, form="printed")
    assert printed.verdict == "violated as printed" and not printed.failed
    assert verdict_row("A", "", 1.0, 2.0).ratio == 2.0


def test_no_ratio_where_the_error_is_rounding():
    assert verdict_row("A", "", 1e-16, 1e-12, rounding=1e-15).ratio is None


def test_a_failed_condition_has_no_number():
    row = without_number("A", "", 1.0, "rho < 1 (it is 2)")
    assert row.verdict == "not applicable: needs rho < 1 (it is 2)"
    assert row.bound is None and row.ratio is None and not row.failed
    assert row.as_json()["bound"] is None


def test_infinities_become_null():
    assert verdict_row("A", "", 1.0, math.inf).as_json()["bound"] is None
