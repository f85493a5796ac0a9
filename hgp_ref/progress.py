"""A progress bar for work that takes more than a few seconds."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol


class Bar(Protocol):
    """What every bar offers: steps that are finished, the last of them called `what`, and an end."""

    def update(self, count: int = 1, what: str = "") -> None: ...

    def close(self) -> None: ...


class _Silent:
    def update(self, count: int = 1, what: str = "") -> None:
        return None

    def close(self) -> None:
        return None


class _Drawn:
    """tqdm's bar."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def update(self, count: int = 1, what: str = "") -> None:
        if what:
            self.drawn.set_postfix_str(what, refresh=False)
        self.drawn.update(count)

    def close(self) -> None:
        self.drawn.close()


class _Lines:
    """A line on standard error for every update."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done = total, label, 0
        self.start = time.perf_counter()

    def update(self, count: int = 1, what: str = "") -> None:
        self.done += count
        step = f"{what}, " if what else ""
        seconds = time.perf_counter() - self.start
        print(f"{self.label}: {step}{self.done} of {self.total}, {seconds:.1f} s", file=sys.stderr)

    def close(self) -> None:
        return None


def bar(total: int, label: str, show: bool, *, lines: bool = False) -> Bar:
    """tqdm's bar where `show`, nothing otherwise; without tqdm lines if `lines` (for few steps), else ImportError."""
    if not show:
        return _Silent()
    try:
        from tqdm import tqdm
    except ImportError as error:
        if lines:
            return _Lines(total, label)
        raise ImportError("progress=True needs tqdm: pip install 'hgp_ref[progress]'") from error
    return _Drawn(tqdm(total=total, desc=label, leave=not lines))
