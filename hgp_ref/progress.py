"""Progress bars for work that takes more than a few seconds."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol


class Bar(Protocol):
    """A progress bar: `update` reports finished steps, the last of them called `what`; `close` ends the bar."""

    def update(self, count: int = 1, what: str = "") -> None: ...

    def close(self) -> None: ...


class _NoBar:
    def update(self, count: int = 1, what: str = "") -> None:
        return None

    def close(self) -> None:
        return None


class _TqdmBar:
    """tqdm's bar."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm

    def update(self, count: int = 1, what: str = "") -> None:
        if what:
            self.tqdm.set_postfix_str(what, refresh=False)
        self.tqdm.update(count)

    def close(self) -> None:
        self.tqdm.close()


class _PrintedLines:
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
    """A bar of tqdm if `show`. Without tqdm: printed lines if `lines` (for few steps), otherwise ImportError."""
    if not show:
        return _NoBar()
    try:
        from tqdm import tqdm
    except ImportError as error:
        if lines:
            return _PrintedLines(total, label)
        raise ImportError("progress=True needs tqdm: pip install 'hgp_ref[progress]'") from error
    return _TqdmBar(tqdm(total=total, desc=label, leave=not lines))
