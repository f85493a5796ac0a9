"""Texts of objects that are the same in every process."""

from __future__ import annotations

import re


def without_addresses(text: str) -> str:
    """`text` without the places in memory (" at 0x7f…") that Python writes for objects with no words of their own."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
