"""A digest of the data that a problem holds: the same for equal data, whatever library or device they are on.

A checkpoint belongs to one problem. Costs and gradients at one point tell most problems apart, but one changed label of
20,000 moves them by less than another machine's rounding may. Problems that hold their data therefore offer
`data_digest()`, which a checkpoint keeps and compares exactly.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from hgp_ref.backend import to_host
from hgp_ref.problems.instances import Instances
from hgp_ref.problems.normalised import Normalised, optional


def digest(problem: object, *parts: Any) -> str:
    """SHA-256 of the class of `problem`, its public settings that are numbers or text, and `parts`.

    Parts are arrays of any library, `Instances`, text, numbers or None.
    """
    public = {name: value for name, value in vars(problem).items() if not name.startswith("_")}
    plain = sorted((name, value) for name, value in public.items() if isinstance(value, str | bool | int | float))
    total = hashlib.sha256(f"{type(problem).__name__} {plain}".encode())
    for part in parts:
        _add(total, part)
    return total.hexdigest()


def digest_of(problem: Normalised) -> str | None:
    """What the problem says of its data; None where it does not."""
    own = optional(problem.given, "data_digest")
    return own() if callable(own) else None


def _add(total: Any, part: Any) -> None:
    if isinstance(part, Instances):
        for each in (part.counts, part.all.features, part.all.targets):
            _add(total, each)
    elif hasattr(part, "shape"):
        host = np.ascontiguousarray(to_host(part))
        total.update(f"{host.dtype} {host.shape}".encode())
        total.update(host.data if host.size else b"")
    else:
        total.update(repr(part).encode())
