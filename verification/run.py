"""Arguments and results of the files of the statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from reporting.table import Table
from verification.rows import Row

__all__ = ["Picture", "Result", "Run", "Table"]

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """Settings of one verification run."""

    seed: int = 0
    quick: bool = False
    backend: str = "numpy"
    by_name: bool = True  # whether its statements were named on the command line

    def pick(self, full: T, quick: T) -> T:
        """`full` in a full run, `quick` in a quick one."""
        return quick if self.quick else full

    def sized(self, by_name: T, part: T, quick: T) -> T:
        """`by_name` if the statement was named on the command line, `part` in a run of all statements."""
        return quick if self.quick else by_name if self.by_name else part

    def prepare(self) -> None:
        """Configure the array library before its first array: 64 bits for JAX."""
        if self.backend == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)

    def rng(self, *stream: int) -> np.random.Generator:
        """Random numbers that depend on the seed and on the given stream alone."""
        return np.random.default_rng([self.seed, *stream])

    def seeds(self, count: int, stream: int = 0) -> list[int]:
        """`count` different seeds for networks or batches."""
        first = 1_000_000 * self.seed + 10_000 * stream
        return list(range(first, first + count))


@dataclass(frozen=True)
class Picture:
    """A figure of the report: SVG text, a title that says what to see, and a caption."""

    name: str
    title: str
    caption: str
    svg: str
    width: float  # inches


@dataclass(frozen=True)
class Result:
    """The result of one statement's file."""

    rows: Sequence[Row]
    pictures: Sequence[Picture] = ()
    facts: dict[str, float] = field(default_factory=dict)  # numbers for the terminal and the JSON file, by name
    tables: Sequence[Table] = ()  # the same for the report
