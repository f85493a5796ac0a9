"""What tells one run from another beyond the text of its settings, so that no file goes on with another's numbers.

the problem   costs and lengths of gradients of every client at the x and λ of the file
the graphs    a digest of the first ones: two schedules of many graphs may have one text
x0            a digest of its numbers, for loops that start each training from it
measure       whether there is one: its numbers belong to every λ of a path
data          a digest of the problem's data, where the problem tells (`problems.digests`)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, to_host
from hgp_ref.bilevel.loop import Clock, LoopState
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.mixing import Traffic
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.instances import digest_of
from hgp_ref.results import Result, content_digest, load
from hgp_ref.validation import without_addresses

GRAPHS = 64  # of a network that are compared
SAME = 1e-4  # relative: what one problem says at one point, on another machine or library
DATA = "data"  # the entry of `run` that files of earlier versions lack
TOLD = ("inner cost", "length of the inner gradient", "outer cost", "length of the outer gradient")


@dataclass(frozen=True)
class Witness:
    """One run's problem, network, x0 and measure."""

    problem: FullProblem
    net: Network
    x0: Array | None
    measure: object

    @cached_property
    def run(self) -> dict[str, str]:
        """A text for each of the things that must be the same."""
        graphs = hashlib.sha256()
        for s in range(1, GRAPHS + 1):
            for part in self.net.csr(s):
                graphs.update(np.ascontiguousarray(part).tobytes())
        x0 = None if self.x0 is None else hashlib.sha256(np.ascontiguousarray(to_host(self.x0)).tobytes()).hexdigest()
        told = {"graphs": graphs.hexdigest(), "x0": str(x0), "measure": "none" if self.measure is None else "given"}
        return told | {DATA: str(digest_of(self.problem))}

    def numbers(self, x: Array, lam: Array) -> np.ndarray:
        """A row for each of TOLD.  # (4, n)"""
        problem: Any = self.problem
        lengths = [rounding.norms(host_float64(g)) for g in (problem.inner_grad(x, lam), problem.outer_grad(x, lam)[0])]
        costs = [host_float64(cost(x, lam)) for cost in (problem.inner_cost, problem.outer_cost)]
        return np.stack([costs[0], lengths[0], costs[1], lengths[1]])


def differs(kept: np.ndarray, now: np.ndarray) -> str:
    """In words, the first of TOLD in which two problems are not the same; "" if they are."""
    for name, before, after in zip(TOLD, kept, now, strict=True):
        size = max(np.abs(before).max(), np.abs(after).max())
        if not np.abs(before - after).max() <= SAME * size:
            k = int(np.abs(before - after).argmax())
            return (
                f"{name} at its x and λ is {before[k]!r} for client {k}, but that of the problem given is {after[k]!r}"
            )
    return ""


# ----------------------------------------------------------------------------------------------------
# A loop in a file: written whole or not at all after every outer step, so that a killed run goes on where it was.
#
# The file holds all that the next step depends on, in the exact bits, and the settings that it belongs to. A run that
# is
# taken up again gives the same path, byte for byte; `outer_steps` may have grown in between. One that could not go on
# (it diverged, or no step could be certified) is not taken up: it has the same path again.


@dataclass(frozen=True)
class Checkpoint(Result):
    """`LoopState` as a file keeps it."""

    settings: dict[str, str]  # the text of each setting
    lam: Array  # (k+1, n, d_λ), the outer variable
    x: Array
    state: tuple[Any, ...]
    numbers: dict[str, Any]  # fields of LoopState that are numbers, lists of them, or text
    steps: tuple[OuterStep, ...]
    training: Traffic
    traffic: Traffic
    batches: int
    best_x: Array | None
    kept: dict[str, Any]
    run: dict[str, str] = field(default_factory=dict)  # see `witness`
    told: Array = None  # (4, n), what the problem says at x and the last λ
    seal: str = ""  # digest of all other fields: nothing else can tell an edited number from the one that was written


NUMBERS = ("outer_cost", "floats", "rounds", "measure", "shrink", "refused", "best", "stopped", "note")


def describe(value: Any) -> Any:
    """Settings as they are kept: numbers and text as they are, others by their repr without the place in memory."""
    if isinstance(value, Mapping):
        return {name: describe(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return type(value)(describe(item) for item in value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return without_addresses(repr(value))


@dataclass(frozen=True)
class RunFile:
    """Where a run is kept (None: nowhere), the settings that it belongs to, and what else tells it from other runs."""

    place: FilePath | None
    settings: Mapping[str, Any]
    witness: Witness

    def exists(self) -> bool:
        """Whether there is a run to go on from."""
        return self.place is not None and self.place.exists()

    def write(self, at: LoopState) -> None:
        """Keep the state of the loop."""
        if self.place is None:
            return
        for entry in at.state:
            if not isinstance(entry, str | bool | int | float | None):
                validation.array("state of update, to be kept in file", entry)
        xp = array_namespace(at.x)
        kept = Checkpoint(
            settings=self._texts(),
            lam=xp.stack(at.lam),
            x=at.x,
            state=at.state,
            numbers={name: getattr(at, name) for name in NUMBERS},
            steps=tuple(at.steps),
            training=at.training,
            traffic=at.clock.traffic,
            batches=at.clock.batches,
            best_x=at.best_x,
            kept=at.kept,
            run=self.witness.run,
            told=self.witness.numbers(at.x, at.lam[-1]),
        )
        replace(kept, seal=content_digest(kept)).save(self.place)

    def read(self, lam: Array) -> LoopState:
        """The state that is kept, with arrays like λ; ValueError unless it is of these settings, problem and λ_0."""
        assert self.place is not None
        kept = load(self.place)
        if not isinstance(kept, Checkpoint):
            raise ValueError(
                f"file: {self.place} holds a {type(kept).__name__}, needed what optimise(..., file=) has written"
            )
        if kept.seal != content_digest(replace(kept, seal="")):
            raise ValueError(
                f"file: {self.place} is not as optimise(..., file=) has written it: edited, or written by an earlier "
                "version; needed another file"
            )
        self._same_settings(kept)
        self._same_start(kept, lam)
        at = _restored(kept, self.settings["seed"], lam)
        self._same_run(kept, at)
        return at

    def _texts(self) -> dict[str, str]:
        """What `Checkpoint.settings` holds; K may grow from run to run."""
        return {name: repr(value) for name, value in self.settings.items() if name != "outer_steps"}

    def _same_settings(self, kept: Checkpoint) -> None:
        now = self._texts()
        for name in sorted({*now, *kept.settings}):
            if now.get(name) != kept.settings.get(name):
                raise ValueError(
                    f"file: {self.place} belongs to a run with {name}={kept.settings.get(name)}, but {now.get(name)} "
                    "is given; needed the same settings, or another file"
                )

    def _same_start(self, kept: Checkpoint, lam: Array) -> None:
        shape = tuple(kept.lam.shape[1:])
        if kept.lam.dtype != host_dtype(lam) or shape != tuple(lam.shape):
            raise ValueError(
                f"file: {self.place} belongs to λ of shape {shape}, {kept.lam.dtype}, but lam is "
                f"{tuple(lam.shape)}, {lam.dtype}"
            )
        if not np.array_equal(kept.lam[0], to_host(lam)):
            raise ValueError(f"file: {self.place} belongs to another lam, needed the λ_0 that it began with")

    def _same_run(self, kept: Checkpoint, at: LoopState) -> None:
        """What settings do not tell: graphs, x0, whether there is a measure, and what the problem says at x and λ."""
        now = self.witness.run
        names = [name for name in now if now[name] != kept.run.get(name)]
        other = next((f"run with {name} of its own" for name in names if name != DATA), "")
        if not other and kept.told is not None and kept.told.shape == (len(TOLD), at.lam[-1].shape[0]):
            words = differs(kept.told, self.witness.numbers(at.x, at.lam[-1]))
            other = words and f"problem whose {words}"
        if not other and DATA in names:
            other = "problem with other data"
        if other:
            raise ValueError(f"file: {self.place} belongs to a {other}; needed the same, or another file")


def _restored(kept: Checkpoint, seed: int, lam: Array) -> LoopState:
    """What `RunFile.write` was given, with arrays like λ."""

    def like(value: Any) -> Any:
        return from_host(value, like=lam) if isinstance(value, np.ndarray) else value

    xp, lams = array_namespace(lam), like(kept.lam)
    at = LoopState(Clock(seed, kept.traffic, kept.batches), tuple(map(like, kept.state)))
    at.lam = [xp.asarray(lams[k, ...], copy=True) for k in range(lams.shape[0])]
    at.x, at.best_x = like(kept.x), like(kept.best_x)
    at.steps, at.training = list(kept.steps), kept.training
    at.kept = {name: like(value) for name, value in kept.kept.items()}
    for name in NUMBERS:
        setattr(at, name, kept.numbers.get(name, getattr(at, name)))
    return at


assert {field.name for field in fields(LoopState)} == {
    *NUMBERS, "clock", "state", "lam", "x", "steps", "training", "best_x", "kept"
}  # fmt: skip
