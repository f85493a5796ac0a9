"""Which public function runs on which array library: one declaration for the tests and for the documentation.

    python -m tests.support.functions > docs/measured/functions.md

writes the table of the page on GPUs. The functions and their arguments are those of `fuzz.table`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

import array_api_compat as compat
from fuzz import table
from fuzz.table import Target

import hgp_ref as hgp

# Functions that compute on NumPy arrays only, although they take arrays.
HOST_ONLY = {
    *("attribution.f1_negative", "attribution.lds", "attribution.r2_score", "attribution.scores"),
    *("data.dirichlet_partition", "data.shard_partition", "data.Clients.restrict", "data.Images"),
    *("data.Images.take", "data.Images.only"),
    *("attribution.spearman", "data.Clients", "data.Clients (an entry of each list)", "data.Clients.clustered"),
    *("bounds.chebyshev", "bounds.inexact", "bounds.lemma2_realised", "bounds.mean_square_error"),
    *("bounds.realised_constants", "bounds.residual_bounds", "bounds.sample_constants", "exact.tracking_rate"),
}
# Arguments that stay on the host, of functions that otherwise take arrays of every library.
ON_HOST = {
    "training.LocalRounds": {"weights"},
    "training.local_rounds": {"weights"},
    "exact.estimate": {"matrices"},
    "exact.estimate (logistic)": {"matrices"},
}
# Their subject is the place of an array, so their results differ.
ABOUT_LIBRARIES = {
    f"backend.{name}" for name in ("device", "to_host", "from_host", "array_namespace", "Backend.asarray")
}
# Runs of all tests of CuPy on a GPU: (version of CuPy, card, date). None is known.
TESTED_ON_A_GPU: list[tuple[str, str, str]] = []


def is_movable(value: Any) -> bool:
    """Whether a value can be moved to another array library: an array, a list of them, a problem, an estimate."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fi" and value.dtype.itemsize <= 8
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(part, np.ndarray) and part.dtype.kind == "f" for part in value)
    return isinstance(value, hgp.Estimate) or (hasattr(value, "to") and hasattr(value, "n_clients"))


def mover(library: Any) -> Callable[[Any], Any]:
    """Moves what can be moved to a `support.libraries.Library`; leaves other values as they are."""

    def move(value: Any) -> Any:
        if not is_movable(value):
            return value
        if isinstance(value, np.ndarray):
            return library.asarray(value)
        if isinstance(value, list | tuple):
            return type(value)(library.asarray(part) for part in value)
        if isinstance(value, hgp.Estimate):
            return dataclasses.replace(value, value=library.asarray(value.value), w=library.asarray(value.w))
        return value.to(library.backend, device=library.device)

    return move


def functions() -> dict[str, Target]:
    """The functions of `fuzz.table` that take arrays, problems or estimates, and can be called on any library."""
    found = {}
    for name, target in table.full().items():
        if name in ABOUT_LIBRARIES or name.startswith(("networks.", "neural.", "data.from_", "mpi.")):
            continue
        owner = target.owner() if target.owner else None
        if hasattr(owner, "hvp"):  # a linearization, which has no `to`: tests/test_every_backend.py
            continue
        if any(map(is_movable, (*target.good().values(), owner))):
            found[name] = target
    return found


# Hashes, times, what is noted where a tolerance is tested (every eighth iteration), and errors of rounding themselves.
NOT_COMPARED = {"fingerprint", "seconds", "checkpoints", "residual_norms", "error", "allowed"}


def numbers(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The arrays and numbers in a result, with their places."""
    if (compat.is_array_api_obj(value) and not isinstance(value, np.generic)) or isinstance(value, int | float | str):
        yield path, value
    elif isinstance(value, np.generic):
        yield path, value.item()
    elif depth > 5:
        return
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{path}[{key}]", depth + 1)
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            yield from numbers(part, f"{path}[{k}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in NOT_COMPARED:
                yield from numbers(getattr(value, field.name, None), f"{path}.{field.name}", depth + 1)


def markdown() -> str:
    """The table of the documentation, one line for each module and kind of function."""
    groups: dict[tuple[str, bool], set[str]] = {}
    for name in functions():
        module, _, rest = name.split(" (")[0].partition(".")
        groups.setdefault((module, name in HOST_ONLY), set()).add(f"`{rest}`")
    gpus = "; ".join(" ".join(run) for run in TESTED_ON_A_GPU) or "no"
    lines = ["| module | functions | tested on the CPU rig | tested on a GPU: CuPy, card, date |", "|---|---|---|---|"]
    for (module, host), names in sorted(groups.items()):
        listed = ", ".join(sorted(names))
        tested = ("refused: NumPy only", "–") if host else ("yes", gpus)
        lines.append(f"| `{module}` | {listed} | {tested[0]} | {tested[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
