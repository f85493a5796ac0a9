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
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref.backend import Array, from_host, host_dtype, host_float64, to_host
from hgp_ref.bilevel.trajectory import LoopState
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.instances import digest_of
from hgp_ref.results import Result, content_digest, load

GRAPHS = 64  # compared at most
SAME = 1e-4  # relative difference of a problem's values on another machine or array library
DATA = "data"
COMPARED = ("inner cost", "norm of the inner gradient", "outer cost", "norm of the outer gradient")


@dataclass(frozen=True)
class Checkpoint(Result):
    """The state of a loop, and what identifies its run."""

    settings: dict[str, str]  # the text of each setting
    inputs: dict[str, str]  # `RunFingerprint.inputs`
    problem_values: Array  # `RunFingerprint.problem_values` at x and the last λ
    state: LoopState
    seal: str = ""  # digest of all other fields, which detects edits


@dataclass(frozen=True)
class RunFingerprint:
    """What identifies a run, besides its settings."""

    problem: FullProblem
    net: Network
    x0: Array | None
    monitor: object

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Texts that must be the same."""
        graphs = _digest(*(part for s in range(1, GRAPHS + 1) for part in self.net.csr(s)))
        x0 = None if self.x0 is None else _digest(to_host(self.x0))
        measure = "none" if self.monitor is None else "given"
        return {"graphs": graphs, "x0": str(x0), "measure": measure, DATA: str(digest_of(self.problem))}

    def problem_values(self, x: Array, lam: Array) -> np.ndarray:
        """A row for each of COMPARED.  # (4, n)"""
        problem: Any = self.problem
        norms = [rounding.norms(host_float64(g)) for g in (problem.inner_grad(x, lam), problem.outer_grad(x, lam)[0])]
        costs = [host_float64(cost(x, lam)) for cost in (problem.inner_cost, problem.outer_cost)]
        return np.stack([costs[0], norms[0], costs[1], norms[1]])


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


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
    return validation.without_addresses(repr(value))


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
        values = self.fingerprint.problem_values(state.x, state.lam[-1])
        checkpoint = Checkpoint(self._texts(), self.fingerprint.inputs, values, state)
        replace(checkpoint, seal=content_digest(checkpoint)).save(self.path)

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
        self._check_settings(saved)
        self._check_lam(saved.state.lam[0], lam)
        state = _like(saved.state, lam)
        self._check_inputs(saved, state)
        return state

    def _texts(self) -> dict[str, str]:
        """The settings that must be the same; K may grow."""
        return {name: repr(value) for name, value in self.settings.items() if name != "outer_steps"}

    def _check_settings(self, saved: Checkpoint) -> None:
        now = self._texts()
        for name in sorted({*now, *saved.settings}):
            if now.get(name) != saved.settings.get(name):
                raise ValueError(
                    f"file: {self.path} belongs to a run with {name}={saved.settings.get(name)}, but {name} is "
                    f"{now.get(name)}; use the same settings or another file"
                )

    def _check_lam(self, saved: np.ndarray, lam: Array) -> None:
        if saved.dtype != host_dtype(lam) or saved.shape != tuple(lam.shape):
            raise ValueError(
                f"file: {self.path} belongs to λ of shape {saved.shape}, {saved.dtype}, but lam is "
                f"{tuple(lam.shape)}, {lam.dtype}"
            )
        if not np.array_equal(saved, to_host(lam)):
            raise ValueError(f"file: {self.path} belongs to another lam; use the λ_0 of that run or another file")

    def _check_inputs(self, saved: Checkpoint, state: LoopState) -> None:
        """Compare graphs, x0, data and the problem's values at x and λ."""
        now = self.fingerprint.inputs
        names = [name for name in now if now[name] != saved.inputs.get(name)]
        owner = next((f"run with another {name}" for name in names if name != DATA), "")
        if not owner:
            difference = _difference(saved.problem_values, self.fingerprint.problem_values(state.x, state.lam[-1]))
            owner = difference and f"problem whose {difference}"
        if not owner and DATA in names:
            owner = "problem with other data"
        if owner:
            raise ValueError(
                f"file: {self.path} belongs to a {owner}; use the same problem and arguments, or another file"
            )


def _like(value: Any, lam: Array) -> Any:
    """`value` with its arrays moved to the library and device of λ."""
    if isinstance(value, np.ndarray):
        return from_host(value, like=lam)
    if isinstance(value, list | tuple):
        return type(value)(_like(item, lam) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _like(getattr(value, field.name), lam) for field in fields(value)})
    return value


def _difference(saved: np.ndarray, now: np.ndarray) -> str:
    """The first of COMPARED in which two problems differ, as a phrase; "" if there is none."""
    for name, before, after in zip(COMPARED, saved, now, strict=True):
        size = max(np.abs(before).max(), np.abs(after).max())
        if not np.abs(before - after).max() <= SAME * size:
            k = int(np.abs(before - after).argmax())
            return f"{name} at its x and λ is {before[k]} for client {k}, but that of this problem is {after[k]}"
    return ""
