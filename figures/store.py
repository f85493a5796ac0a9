"""Results on disk: an .npz named by the hash of its settings, beside a JSON stamp that says how it was made.

An experiment is made of parts. Every finished part is a file of its own, so that a run which was interrupted goes on
where it stopped; parts are pure functions of settings and earlier parts, so the joined data are the same byte for byte
however often that happened. Files are written whole or not at all (a temporary file, then os.replace) and read without
pickle. Zip entries carry a fixed time, for the bytes to depend on the numbers alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from figures.progress import Progress
from hgp_ref.backend import EXTRAS

Arrays = dict[str, np.ndarray]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip entry can carry
LIBRARIES = ("hgp_ref", "numpy", "scipy", "numba", "array-api-compat", "scikit-learn")


@dataclass(frozen=True)
class Experiment:
    """What to compute: `compute(part, finished)` makes the arrays of one part from those of the parts before it.

    `settings` hold everything the numbers depend on (JSON values only); "backend", "dtype" and "seed" are among them.
    """

    name: str
    settings: Mapping[str, Any]
    parts: tuple[str, ...]
    compute: Callable[[str, Mapping[str, Arrays]], Arrays]
    join: Callable[[Mapping[str, Arrays]], Arrays]

    @property
    def label(self) -> str:
        """Name and hash of the settings: the stem of the files."""
        text = json.dumps({"name": self.name, **self.settings}, sort_keys=True, allow_nan=False)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Result:
    """Arrays of a finished experiment, its stamp, where both are, and whether they were computed just now."""

    data: Arrays
    stamp: dict[str, Any]
    path: Path
    fresh: bool


def obtain(experiment: Experiment, folder: Path, *, recompute: bool = False) -> Result:
    """The result of `experiment`: read from `folder` if it is there, else computed part by part and kept there."""
    target = folder / f"{experiment.label}.npz"
    stamp_path = target.with_suffix(".json")
    parts_folder = folder / f"{experiment.label}.parts"
    if recompute:
        target.unlink(missing_ok=True)
        shutil.rmtree(parts_folder, ignore_errors=True)
    if target.exists() and stamp_path.exists():
        shutil.rmtree(parts_folder, ignore_errors=True)  # left over if the last run ended right after writing
        return Result(read_npz(target), json.loads(stamp_path.read_text(encoding="utf-8")), target, False)
    finished, seconds = _compute_parts(experiment, parts_folder)
    data = experiment.join(finished)
    packed = npz_bytes(data)
    stamp = _stamp(experiment, seconds, hashlib.sha256(packed).hexdigest())
    write_whole(stamp_path, (json.dumps(stamp, indent=2, sort_keys=True) + "\n").encode())
    write_whole(target, packed)
    shutil.rmtree(parts_folder, ignore_errors=True)
    return Result(data, stamp, target, True)


def _compute_parts(experiment: Experiment, folder: Path) -> tuple[dict[str, Arrays], dict[str, float]]:
    """Arrays and CPU seconds of every part; those on disk already are read, not computed."""
    finished: dict[str, Arrays] = {}
    seconds: dict[str, float] = {}
    with Progress(experiment.name, len(experiment.parts)) as progress:
        for part in experiment.parts:
            target = folder / f"{part}.npz"
            clock = target.with_suffix(".json")
            if not (target.exists() and clock.exists()):
                start = time.process_time()
                arrays = experiment.compute(part, finished)
                write_whole(clock, json.dumps(time.process_time() - start).encode())
                write_whole(target, npz_bytes(arrays))
            finished[part] = read_npz(target)
            seconds[part] = json.loads(clock.read_text(encoding="utf-8"))
            progress.step(part)
    return finished, seconds


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file, the new one or none, never a piece."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An uncompressed .npz of `arrays` in order of name; equal arrays give equal bytes. Object arrays are refused."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.array(arrays[name], order="C"), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", EPOCH), entry.getvalue())
    return buffer.getvalue()


def read_npz(path: Path) -> Arrays:
    """The arrays in `path`, without pickle; a file that cannot be read raises ValueError with its name."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it or run with --recompute") from error


def _stamp(experiment: Experiment, seconds: Mapping[str, float], digest: str) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "settings": dict(experiment.settings),
        "backend": experiment.settings["backend"],
        "dtype": experiment.settings["dtype"],
        "seed": experiment.settings["seed"],
        "cpu_seconds": round(sum(seconds.values()), 3),
        "cpu_seconds_by_part": {part: round(value, 3) for part, value in seconds.items()},
        "sha256": digest,
        "versions": _versions(),
        "commit": _commit(),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found.update({name: sys.modules[name].__version__ for name in EXTRAS if name in sys.modules})
    return found


def _commit() -> str | None:
    """Commit of the checkout that runs, with "+changes" if tracked files differ from it; None outside of one."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")
