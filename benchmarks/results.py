"""The result of a benchmark: interleaved timings, goals (`Bar`), and figures that explain them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one entry for each repetition."""

    cpu: list[float]
    wall: list[float]
    first: float  # CPU seconds of the first call: compilation, caches

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)

    @property
    def wall_median(self) -> float:
        return statistics.median(self.wall)

    @property
    def spread(self) -> tuple[float, float]:
        """Quartiles of the CPU seconds."""
        if len(self.cpu) < 2:
            return self.cpu[0], self.cpu[0]
        low, _, high = statistics.quantiles(self.cpu, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True)
class Bar:
    """A goal: a number that should be at least, or at most, `limit`."""

    what: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def needed(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass
class Report:
    """One comparison, measured in one run."""

    name: str
    title: str
    settings: dict[str, Any]
    threads: int = 1
    timings: dict[str, Timing] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)  # other numbers with their units, limits among them

    def at_most(self, what: str, value: float, limit: float) -> None:
        self.bars.append(Bar(what, float(value), limit))

    def at_least(self, what: str, value: float, limit: float) -> None:
        self.bars.append(Bar(what, float(value), limit, at_least=True))

    def document(self) -> dict[str, Any]:
        """The report as plain values for JSON, with medians and quartiles."""
        plain = asdict(self)
        for label, timing in self.timings.items():
            low, high = timing.spread
            plain["timings"][label] |= {"median": timing.median, "quartiles": [low, high]}
            plain["timings"][label]["wall_median"] = timing.wall_median
        for bar, measured in zip(plain["bars"], self.bars, strict=True):
            bar |= {"needed": measured.needed, "reached": measured.reached}
        return plain

    @staticmethod
    def of(document: dict[str, Any]) -> Report:
        """The report from its `document`."""
        fields = {key: document[key] for key in ("name", "title", "settings", "threads", "figures")}
        timings = {k: Timing(t["cpu"], t["wall"], t["first"]) for k, t in document["timings"].items()}
        bars = [Bar(b["what"], b["value"], b["limit"], b["at_least"]) for b in document["bars"]]
        return Report(timings=timings, bars=bars, **fields)
