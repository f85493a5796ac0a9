"""Results on disk: an .npz file named by the hash of its settings, and a JSON stamp with its provenance.

An experiment consists of parts. Every finished part is stored in its own file, so that an interrupted run can be
resumed. Parts are functions of the settings and of earlier parts only, so the joined data are the same, byte for byte,
however often the run was interrupted. Files are written completely or not at all (see `hgp_ref.results`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hgp_ref.backend import EXTRAS
from hgp_ref.progress import Bar, bar
from hgp_ref.results import npz_bytes, read_npz, write_whole
from reporting.provenance import commit, versions
from reporting.workers import as_finished

Arrays = dict[str, np.ndarray]
Compute = Callable[[str, Mapping[str, Arrays]], Arrays]
LIBRARIES = ("hgp_ref", "numpy", "scipy", "numba", "array-api-compat", "scikit-learn")


@dataclass(frozen=True)
class Experiment:
    """What to compute: `compute(part, finished)` returns the arrays of one part, given those of the parts before it.

    `settings` has everything that the numbers depend on, as JSON values, including "backend", "dtype" and "seed".
    `cost(parts)` describes the cost of these parts; it is printed before they are computed. With several `workers`
    parts are computed in parallel processes: then no part may use another, and `compute` must be importable.
    """

    name: str
    settings: Mapping[str, Any]
    parts: tuple[str, ...]
    compute: Compute
    join: Callable[[Mapping[str, Arrays]], Arrays]
    cost: Callable[[Sequence[str]], str] | None = None
    workers: int = 1

    @property
    def label(self) -> str:
        """Name and hash of the settings: the stem of the files."""
        text = json.dumps({"name": self.name, **self.settings}, sort_keys=True, allow_nan=False)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Result:
    """Arrays of a finished experiment, its stamp, the path of the file, and whether it was computed just now."""

    data: Arrays
    stamp: dict[str, Any]
    path: Path
    fresh: bool


def obtain(experiment: Experiment, folder: Path, *, recompute: bool = False, progress: bool = True) -> Result:
    """The result of `experiment`: read from `folder` if it exists there, otherwise computed part by part and stored."""
    target, stamp_path = _files(experiment, folder)
    parts_folder = folder / f"{experiment.label}.parts"
    if recompute:
        target.unlink(missing_ok=True)
        shutil.rmtree(parts_folder, ignore_errors=True)
    if is_finished(experiment, folder):
        shutil.rmtree(parts_folder, ignore_errors=True)  # left over if the last run ended right after writing
        return Result(read_stored(target), json.loads(stamp_path.read_text(encoding="utf-8")), target, False)
    finished, seconds = _compute_parts(experiment, parts_folder, progress)
    data = experiment.join(finished)
    packed = npz_bytes(data)
    stamp = _stamp(experiment, seconds, hashlib.sha256(packed).hexdigest())
    write_whole(stamp_path, (json.dumps(stamp, indent=2, sort_keys=True) + "\n").encode())
    write_whole(target, packed)
    shutil.rmtree(parts_folder, ignore_errors=True)
    return Result(data, stamp, target, True)


def is_finished(experiment: Experiment, folder: Path) -> bool:
    """Whether the result is in `folder`."""
    return all(path.exists() for path in _files(experiment, folder))


def _files(experiment: Experiment, folder: Path) -> tuple[Path, Path]:
    """The arrays and their stamp."""
    return folder / f"{experiment.label}.npz", folder / f"{experiment.label}.json"


def _compute_parts(experiment: Experiment, folder: Path, show: bool) -> tuple[dict[str, Arrays], dict[str, float]]:
    """Arrays and CPU seconds of every part; stored parts are read, not computed."""
    finished: dict[str, Arrays] = {}
    seconds: dict[str, float] = {}
    missing = [part for part in experiment.parts if not _is_stored(folder, part)]
    if experiment.cost is not None and missing:
        print(f"{experiment.name}: {experiment.cost(missing)}", file=sys.stderr, flush=True)
    progress = bar(len(experiment.parts), experiment.name, show, lines=True)
    try:
        if experiment.workers > 1 and missing:
            progress.update(len(experiment.parts) - len(missing))
            _compute_in_parallel(experiment, missing, folder, progress)
        for part in experiment.parts:
            if experiment.workers == 1 and part in missing:
                _compute_one(experiment.compute, part, finished, folder)
            finished[part] = read_stored(folder / f"{part}.npz")
            seconds[part] = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
            if experiment.workers == 1 or not missing:
                progress.update(1, part)
    finally:
        progress.close()
    return finished, seconds


def _compute_one(compute: Compute, part: str, finished: Mapping[str, Arrays], folder: Path) -> None:
    """Compute a part and store it with its CPU seconds."""
    start = time.process_time()
    arrays = compute(part, finished)
    write_whole(folder / f"{part}.json", json.dumps(time.process_time() - start).encode())
    write_whole(folder / f"{part}.npz", npz_bytes(arrays))


def _compute_in_parallel(experiment: Experiment, missing: Sequence[str], folder: Path, progress: Bar) -> None:
    """Compute the missing parts in several processes, in order; the first error ends all."""
    tasks: list[tuple[Any, ...]] = [(experiment.compute, part, {}, folder) for part in missing]
    with closing(as_finished(_compute_one, tasks, experiment.workers)) as finished:
        for (_, part, *_), _ in finished:
            progress.update(1, part)


def _is_stored(folder: Path, part: str) -> bool:
    return all((folder / f"{part}{suffix}").exists() for suffix in (".npz", ".json"))


def read_stored(path: Path) -> Arrays:
    """The arrays in `path`; a file that cannot be read raises ValueError with its name and what to do."""
    try:
        return read_npz(path)[0]
    except ValueError as error:
        raise ValueError(f"{error}: delete it or run with --recompute") from error


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
        "commit": commit(),
    }


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules[name].__version__ for name in EXTRAS if name in sys.modules}
    return versions(LIBRARIES) | loaded
