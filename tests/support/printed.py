"""Printed text against what a page shows."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")


def same_up_to_digits(printed: str, shown: str) -> bool:
    """Whether the words are equal and the numbers agree to 2 %.

    Numbers below 1e-5 are errors: they agree to 50 %, and those below 1e-14 are rounding.
    """
    if NUMBER.split(printed) != NUMBER.split(shown):
        return False
    pairs = zip(*([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (printed, shown)), strict=True)
    return all(abs(a - b) <= max((0.5 if abs(b) < 1e-5 else 0.02) * abs(b), 1e-14) for a, b in pairs)
