"""A progress bar over the parts of an experiment: tqdm's where it is installed (extra `progress`), else plain lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


class Progress:
    """`with Progress(label, total) as progress: … progress.step(what)`, once per finished part; to standard error."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0
        self.start = time.perf_counter()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if tqdm is not None:
            self.bar = tqdm(total=self.total, desc=self.label, unit="part", file=sys.stderr, leave=False)
        return self

    def step(self, what: str) -> None:
        """One more part, called `what`, is finished."""
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix_str(what, refresh=False)
            self.bar.update()
        else:
            seconds = time.perf_counter() - self.start
            print(f"{self.label}: {what}, {self.done} of {self.total}, {seconds:.1f} s", file=sys.stderr)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
