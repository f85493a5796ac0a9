"""A model of the time of a step and of an iteration on R ranks, with constants fitted to measurements.

n clients on R ranks send to k random receivers each, besides themselves. Rows have d numbers of b bytes, calls S steps,
clients N instances. Seconds of a step, and of an iteration of HGP:

    step       c_step + c_draw n(k + 1) + c_edge n(k + 1) d/R + exchange     (part of a row counts as a cache line)
    exchange   latency · messages + seconds per byte · bytes, of the rank that sends
    iteration  c_iteration + S steps + c_product n N d/R

Every rank draws the whole graph: c_draw does not fall with R. A call of S steps has 2 (R − 1) messages of
2 (n/R) d (R − 1)/R numbers together (`hgp_ref.mpi.channel`). Constants are fitted by least squares of relative errors,
and none is negative.

Times on many ranks are predictions. The only network that was measured is this machine's memory. The model assumes that
ranks run in step and that messages do not delay each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from benchmarks.mpi_cases import Case, Timed
from hgp_ref._kernels.mixing import LINE

CONSTANTS = ("step", "draw", "edge", "latency", "byte", "iteration", "product")


def exchange(case: Case, ranks: int) -> tuple[float, float]:
    """What a rank sends in a step on average: messages, and full rows."""
    peers = ranks - 1
    return 2 * peers / case.S, 2 * case.n / ranks * peers / ranks / case.S


def features(case: Case, ranks: int) -> np.ndarray:
    """The factor of each constant, in the order of CONSTANTS."""
    (messages, rows), edges = exchange(case, ranks), case.n * (case.degree + 1)
    added = edges * max(case.d / ranks, LINE // case.itemsize)
    step = np.array([1.0, edges, added, messages, rows * case.d * case.itemsize])
    if case.work == "mixing":
        return np.concatenate([step, np.zeros(2)])
    return np.concatenate([case.S * step, [1.0, case.n * case.N * case.d / ranks]])


@dataclass(frozen=True)
class Model:
    """The fitted constants in seconds."""

    constants: np.ndarray

    def __call__(self, case: Case, ranks: int) -> float:
        """Seconds of a step, or of an iteration."""
        return float(features(case, ranks) @ self.constants)

    def shares(self, case: Case, ranks: int) -> dict[str, float]:
        """The share of each term in that time."""
        parts = features(case, ranks) * self.constants
        return dict(zip(CONSTANTS, (parts / parts.sum()).tolist(), strict=True))

    def elsewhere(self, latency: float, bandwidth: float) -> Model:
        """The same machines over another network."""
        other = self.constants.copy()
        other[CONSTANTS.index("latency")], other[CONSTANTS.index("byte")] = latency, 1 / bandwidth
        return Model(other)


def observations(timings: Sequence[Timed]) -> list[tuple[Case, int, float]]:
    """(case, ranks, seconds) of the cases that the model covers: all but composed calls and convolutions."""
    observed = []
    for one in timings:
        if one.case.work != "cnn" and one.case.mode != "composed":
            observed.append((replace(one.case, n=one.case.alone or one.case.n), 1, one.one))
            observed.append((one.case, one.ranks, one.all))
    return observed


def fitted(timings: Sequence[Timed]) -> Model:
    """The model fitted to the cases meant for that."""
    observed = observations([one for one in timings if one.case.use == "model"])
    rows = np.array([features(case, ranks) / seconds for case, ranks, seconds in observed])
    scale = rows.max(axis=0)
    constants, _ = nnls(rows / scale, np.ones(len(observed)))
    return Model(constants / scale)


def errors(model: Model, timings: Sequence[Timed]) -> list[tuple[Case, int, float, float]]:
    """(case, ranks, measured, predicted), seconds."""
    return [(case, ranks, seconds, model(case, ranks)) for case, ranks, seconds in observations(timings)]
