"""Texts of objects: the same in every process, and short."""

from __future__ import annotations

import re
from typing import Any

import array_api_compat as compat
import numpy as np

WIDEST = 60  # characters of one value
FEW = 4  # items of a sequence or a dictionary that are written out


def without_addresses(text: str) -> str:
    """`text` without the places in memory (" at 0x7f…") that Python writes for objects with no words of their own."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def cut(text: str, widest: int = WIDEST) -> str:
    """`text` on one line of at most `widest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= widest else line[: widest - 1] + "…"


def short(value: Any) -> str:
    """`value` in a few words: an array by dtype and shape, a long sequence by its length, anything else by its repr."""
    if compat.is_array_api_obj(value) and not isinstance(value, np.generic):
        dtype = str(value.dtype).rpartition(".")[2]  # torch.float64
        return f"<{dtype} {tuple(value.shape)}>"
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, dict | list | tuple) and (len(value) > FEW or any(map(_is_large, _items(value)))):
        return f"<{type(value).__name__} of {len(value)}>"
    return cut(without_addresses(repr(value)))


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _is_large(item: Any) -> bool:
    """Whether an item of a sequence is an array, or holds other items."""
    return isinstance(item, dict | list | tuple) or hasattr(item, "shape") or hasattr(item, "__dataclass_fields__")


def table(head: str, **rows: str) -> list[str]:
    """Lines of a summary: `head`, and below it every row that is not empty, with its name in front."""
    told = {name.replace("_", " "): text for name, text in rows.items() if text}
    width = max(map(len, told), default=0) + 2
    return [head, *(f"  {name:{width}}{text}" for name, text in told.items())]


def largest(values: Any) -> str:
    """A number as 1.2e-03; of several runs the largest."""
    host = np.asarray(values, dtype=np.float64)
    return f"{host.max():.1e}" + (f" (largest of {host.size} runs)" if host.ndim else "")


def ending(stopped: str, tol: float | None = None, met: bool | None = None) -> str:
    """Why a run stopped, and whether its tolerance was met where that is known."""
    if tol is None:
        return stopped
    verdict = {True: " was met", False: " was not met", None: " was asked for"}[met]
    return f"{stopped} (tol={tol:g}{verdict})"
