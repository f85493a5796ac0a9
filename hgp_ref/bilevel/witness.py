"""What tells one run from another beyond the text of its settings, so that no file goes on with another's numbers.

the problem   costs and lengths of gradients of every client at the x and λ of the file
the graphs    a digest of the first ones: two schedules of many graphs may have one text
x0            a digest of its numbers, for loops that start each training from it
measure       whether there is one: its numbers belong to every λ of a path
data          a digest of the problem's data, where the problem tells (`problems.digests`)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, host_float64, to_host
from hgp_ref.networks import Network
from hgp_ref.problems.digests import digest_of
from hgp_ref.problems.normalised import Normalised

GRAPHS = 64  # of a network that are compared
SAME = 1e-4  # relative: what one problem says at one point, on another machine or library
DATA = "data"  # the entry of `run` that files of earlier versions lack
TOLD = ("inner cost", "length of the inner gradient", "outer cost", "length of the outer gradient")


@dataclass(frozen=True)
class Witness:
    """One run's problem, network, x0 and measure."""

    problem: Normalised
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
        lengths = [rigorous.norms(host_float64(g)) for g in (problem.inner_grad(x, lam), problem.outer_grad(x, lam)[0])]
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
