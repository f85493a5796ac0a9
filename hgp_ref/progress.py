"""Progress bars for work that takes more than a few seconds."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

PAUSE = 10.0  # seconds between lines about many short steps


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
    """A line on standard error for every update that comes `pause` seconds after the line before, and for the last."""

    def __init__(self, total: int, label: str, pause: float) -> None:
        self.total, self.label, self.pause, self.done = total, label, pause, 0
        self.start = self.shown = time.perf_counter()

    def update(self, count: int = 1, what: str = "") -> None:
        self.done += count
        now = time.perf_counter()
        if now - self.shown < self.pause and self.done < self.total:
            return
        self.shown, step = now, f"{what}, " if what else ""
        print(f"{self.label}: {step}{self.done} of {self.total}, {now - self.start:.1f} s", file=sys.stderr, flush=True)

    def close(self) -> None:
        return None


def bar(total: int, label: str, show: bool, *, lines: bool = False) -> Bar:
    """A bar of tqdm if `show`. In a file, printed lines: a bar returns the carriage for every step.

    Without tqdm, printed lines if `lines` (for few steps), otherwise ImportError.
    """
    if not show:
        return _NoBar()
    try:
        from tqdm import tqdm
    except ImportError as error:
        if lines:
            return _PrintedLines(total, label, 0)
        raise ImportError("progress=True needs tqdm: pip install 'hgp_ref[progress]'") from error
    if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # a notebook draws bars, though it is no terminal
        return _PrintedLines(total, label, 0 if lines else PAUSE)
    return _TqdmBar(tqdm(total=total, desc=label, leave=not lines))
