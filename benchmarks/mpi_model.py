"""How long a step and an iteration take on R ranks: a model whose constants are fitted to what was measured.

n clients on R ranks, k receivers each besides itself, drawn at random; rows of d numbers of b bytes; S steps a call, N
instances a client. Seconds of a step, and of an iteration of HGP:

    step       c_step + c_draw n(k + 1) + c_edge n(k + 1) d/R + c_scan n(k + 1) [by rows, R > 1] + exchange
               (a piece of a row counts as a cache line at least)
    exchange   latency · messages + seconds per byte · bytes, of the rank that sends
    iteration  c_iteration + S steps + c_product n N d/R

Every rank draws the whole graph: c_draw and c_scan do not fall with R. By rows a client's row goes once to each other
rank where it is heard, which of R − 1 is expected to be a share 1 − (1 − 1/R)^k, in messages to a share
1 − (1 − 1/R)^(kn/R) of them; by columns a call has 2 (R − 1) messages of 2 (n/R) d (R − 1)/R numbers together. Which
way is the rule of `hgp_ref.mpi.channel`. Least squares of relative errors, no constant below 0.

What it says of many ranks is a prediction: it knows no network but this machine's memory, takes ranks to be in step,
and messages not to get in each other's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from benchmarks.mpi_cases import Case, Timed
from hgp_ref._kernels.mixing import LINE

CONSTANTS = ("step", "draw", "edge", "scan", "latency", "byte", "iteration", "product")


@dataclass(frozen=True)
class Exchange:
    """What a rank sends in a step, in the mean: messages, rows of whole width, and whether by columns."""

    messages: float
    rows: float
    columns: bool = False


def exchange(case: Case, ranks: int) -> Exchange:
    """The expected exchange of a case; of one with a graph of its own, the exact one."""
    if ranks == 1:
        return Exchange(0.0, 0.0)
    if case.crossing >= 0:
        return Exchange(float(case.crossing > 0), case.crossing)
    m, peers = case.n / ranks, ranks - 1
    rows = m * peers * (1 - (1 - 1 / ranks) ** case.degree)
    back_and_forth = 2 * m * peers / ranks
    if case.mode == "auto" and case.d >= ranks and case.S * rows >= back_and_forth:
        return Exchange(2 * peers / case.S, back_and_forth / case.S, columns=True)
    return Exchange(peers * (1 - (1 - 1 / ranks) ** (case.degree * m)), rows)


def features(case: Case, ranks: int) -> np.ndarray:
    """By what each constant is multiplied, in the order of CONSTANTS."""
    sent, edges = exchange(case, ranks), case.n * (case.degree + 1)
    scan = edges if ranks > 1 and not sent.columns else 0.0
    line = LINE // case.itemsize
    added = edges * max(case.d / ranks, line) if sent.columns else edges / ranks * max(case.d, line)
    step = np.array([1.0, edges, added, scan, sent.messages, sent.rows * case.d * case.itemsize])
    if case.work == "mixing":
        return np.concatenate([step, np.zeros(2)])
    return np.concatenate([case.S * step, [1.0, case.n * case.N * case.d / ranks]])


@dataclass(frozen=True)
class Model:
    """The constants, seconds each."""

    constants: np.ndarray

    def __call__(self, case: Case, ranks: int) -> float:
        """Seconds of a step, or of an iteration."""
        return float(features(case, ranks) @ self.constants)

    def shares(self, case: Case, ranks: int) -> dict[str, float]:
        """Which part of that goes where."""
        parts = features(case, ranks) * self.constants
        return dict(zip(CONSTANTS, (parts / parts.sum()).tolist(), strict=True))

    def elsewhere(self, latency: float, bandwidth: float) -> Model:
        """The same machines with another network."""
        other = self.constants.copy()
        other[CONSTANTS.index("latency")], other[CONSTANTS.index("byte")] = latency, 1 / bandwidth
        return Model(other)


def observations(timings: Sequence[Timed]) -> list[tuple[Case, int, float]]:
    """(case, ranks, seconds) of what the model describes: neither composed calls nor convolutions."""
    observed = []
    for one in timings:
        if one.case.work != "cnn" and one.case.mode != "composed":
            observed.append((replace(one.case, n=one.case.alone or one.case.n), 1, one.one))
            observed.append((one.case, one.ranks, one.all))
    return observed


def fitted(timings: Sequence[Timed]) -> Model:
    """The constants that meet the cases for the model and for crossing edges."""
    observed = observations([one for one in timings if one.case.use in ("model", "crossing")])
    rows = np.array([features(case, ranks) / seconds for case, ranks, seconds in observed])
    scale = rows.max(axis=0)
    constants, _ = nnls(rows / scale, np.ones(len(observed)))
    return Model(constants / scale)


def errors(model: Model, timings: Sequence[Timed]) -> list[tuple[Case, int, float, float]]:
    """(case, ranks, measured, predicted), seconds."""
    return [(case, ranks, seconds, model(case, ranks)) for case, ranks, seconds in observations(timings)]
