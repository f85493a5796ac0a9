"""Checkpoints of the outer loop, and what identifies the run that they belong to.

After every step the file is replaced atomically. It holds everything that the next step depends on, in the exact bits,
so that a continued run gives the same path, byte for byte; `outer_steps` may grow. A run that has ended for another
reason (it diverged, or no step could be certified) is not continued: it returns the same path again.

A checkpoint is accepted only if the settings are the same (as text), and so are

    the problem   costs and gradient norms of every client at the x and λ of the file
    the graphs    a digest of the first ones, because two schedules may have the same repr
    x0            a digest of its numbers
    measure       whether there is one
    data          a digest of the problem's data, if the problem has one (`problems.instances`)
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
from hgp_ref.bilevel.loop import Budget, LoopState
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.mixing import Traffic
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.instances import digest_of
from hgp_ref.results import Result, content_digest, load
from hgp_ref.validation import without_addresses

GRAPHS = 64  # compared at most
SAME = 1e-4  # relative difference of a problem's values on another machine or array library
DATA = "data"
COMPARED = ("inner cost", "norm of the inner gradient", "outer cost", "norm of the outer gradient")


@dataclass(frozen=True)
class RunFingerprint:
    """What identifies a run, besides its settings."""

    problem: FullProblem
    net: Network
    x0: Array | None
    monitor: object

    @cached_property
    def run(self) -> dict[str, str]:
        """Texts that must be the same."""
        graphs = hashlib.sha256()
        for s in range(1, GRAPHS + 1):
            for part in self.net.csr(s):
                graphs.update(np.ascontiguousarray(part).tobytes())
        x0 = None if self.x0 is None else hashlib.sha256(np.ascontiguousarray(to_host(self.x0)).tobytes()).hexdigest()
        measure = "none" if self.monitor is None else "given"
        return {"graphs": graphs.hexdigest(), "x0": str(x0), "measure": measure, DATA: str(digest_of(self.problem))}

    def numbers(self, x: Array, lam: Array) -> np.ndarray:
        """A row for each of COMPARED.  # (4, n)"""
        problem: Any = self.problem
        norms = [rounding.norms(host_float64(g)) for g in (problem.inner_grad(x, lam), problem.outer_grad(x, lam)[0])]
        costs = [host_float64(cost(x, lam)) for cost in (problem.inner_cost, problem.outer_cost)]
        return np.stack([costs[0], norms[0], costs[1], norms[1]])


def differs(saved: np.ndarray, now: np.ndarray) -> str:
    """The first of COMPARED in which two problems differ, as a phrase; "" if there is none."""
    for name, before, after in zip(COMPARED, saved, now, strict=True):
        size = max(np.abs(before).max(), np.abs(after).max())
        if not np.abs(before - after).max() <= SAME * size:
            k = int(np.abs(before - after).argmax())
            return f"{name} at its x and λ is {before[k]!r} for client {k}, but that of this problem is {after[k]!r}"
    return ""


@dataclass(frozen=True)
class Checkpoint(Result):
    """`LoopState` in a file."""

    settings: dict[str, str]  # the text of each setting
    lam: Array  # (k+1, n, d_λ), the outer variable
    x: Array
    update_state: tuple[Any, ...]
    numbers: dict[str, Any]  # fields of LoopState that are numbers, lists of them, or text
    steps: tuple[OuterStep, ...]
    training: Traffic
    traffic: Traffic
    batches: int
    best_x: Array | None
    extra: dict[str, Any]
    run: dict[str, str] = field(default_factory=dict)  # `RunFingerprint.run`
    problem_values: Array = None  # (4, n), costs and gradient norms at x and the last λ
    seal: str = ""  # digest of all other fields, which detects edits


NUMBERS = ("outer_cost", "floats", "rounds", "measure", "shrink", "refused", "best", "stopped", "note")


def describe(value: Any) -> Any:
    """A setting as a path and a checkpoint hold it: numbers and text, others as their repr without addresses."""
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
class CheckpointFile:
    """The checkpoint of a run (path None: no file), with its settings and fingerprint."""

    path: FilePath | None
    settings: Mapping[str, Any]
    fingerprint: RunFingerprint

    def exists(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self.path is not None and self.path.exists()

    def write(self, state: LoopState) -> None:
        if self.path is None:
            return
        for entry in state.update_state:
            if not isinstance(entry, str | bool | int | float | None):
                validation.array("state of update, for the checkpoint", entry)
        xp = array_namespace(state.x)
        saved = Checkpoint(
            settings=self._texts(),
            lam=xp.stack(state.lam),
            x=state.x,
            update_state=state.update_state,
            numbers={name: getattr(state, name) for name in NUMBERS},
            steps=tuple(state.steps),
            training=state.training,
            traffic=state.budget.traffic,
            batches=state.budget.batches,
            best_x=state.best_x,
            extra=state.extra,
            run=self.fingerprint.run,
            problem_values=self.fingerprint.numbers(state.x, state.lam[-1]),
        )
        replace(saved, seal=content_digest(saved)).save(self.path)

    def read(self, lam: Array) -> LoopState:
        """The saved state, with arrays like λ; ValueError unless it belongs to this run."""
        assert self.path is not None
        saved = load(self.path)
        if not isinstance(saved, Checkpoint):
            raise ValueError(f"file must be a checkpoint of optimise, but {self.path} holds a {type(saved).__name__}")
        if saved.seal != content_digest(replace(saved, seal="")):
            raise ValueError(
                f"file: {self.path} was edited, or written by an earlier version; delete it or choose another file"
            )
        self._same_settings(saved)
        self._same_start(saved, lam)
        state = _restored(saved, lam)
        self._same_run(saved, state)
        return state

    def _texts(self) -> dict[str, str]:
        """The settings that must be the same; K may grow."""
        return {name: repr(value) for name, value in self.settings.items() if name != "outer_steps"}

    def _same_settings(self, saved: Checkpoint) -> None:
        now = self._texts()
        for name in sorted({*now, *saved.settings}):
            if now.get(name) != saved.settings.get(name):
                raise ValueError(
                    f"file: {self.path} belongs to a run with {name}={saved.settings.get(name)}, but {name} is "
                    f"{now.get(name)}; use the same settings or another file"
                )

    def _same_start(self, saved: Checkpoint, lam: Array) -> None:
        shape = tuple(saved.lam.shape[1:])
        if saved.lam.dtype != host_dtype(lam) or shape != tuple(lam.shape):
            raise ValueError(
                f"file: {self.path} belongs to λ of shape {shape}, {saved.lam.dtype}, but lam is "
                f"{tuple(lam.shape)}, {lam.dtype}"
            )
        if not np.array_equal(saved.lam[0], to_host(lam)):
            raise ValueError(f"file: {self.path} belongs to another lam; use the λ_0 of that run or another file")

    def _same_run(self, saved: Checkpoint, state: LoopState) -> None:
        """Compare graphs, x0, data and the problem's values at x and λ."""
        now = self.fingerprint.run
        names = [name for name in now if now[name] != saved.run.get(name)]
        other = next((f"run with another {name}" for name in names if name != DATA), "")
        values = saved.problem_values
        if not other and values is not None and values.shape == (len(COMPARED), state.lam[-1].shape[0]):
            difference = differs(values, self.fingerprint.numbers(state.x, state.lam[-1]))
            other = difference and f"problem whose {difference}"
        if not other and DATA in names:
            other = "problem with other data"
        if other:
            raise ValueError(f"file: {self.path} belongs to a {other}; use the same or another file")


def _restored(saved: Checkpoint, lam: Array) -> LoopState:
    """The `LoopState` of a checkpoint, with arrays like λ."""

    def like(value: Any) -> Any:
        return from_host(value, like=lam) if isinstance(value, np.ndarray) else value

    xp, lams = array_namespace(lam), like(saved.lam)
    state = LoopState(Budget(saved.traffic, saved.batches), tuple(map(like, saved.update_state)))
    state.lam = [xp.asarray(lams[k, ...], copy=True) for k in range(lams.shape[0])]
    state.x, state.best_x = like(saved.x), like(saved.best_x)
    state.steps, state.training = list(saved.steps), saved.training
    state.extra = {name: like(value) for name, value in saved.extra.items()}
    for name in NUMBERS:
        setattr(state, name, saved.numbers.get(name, getattr(state, name)))
    return state


assert {field.name for field in fields(LoopState)} == {
    *NUMBERS, "budget", "update_state", "lam", "x", "steps", "training", "best_x", "extra"
}  # fmt: skip
