"""Labelled data over n clients: by label (`dirichlet_partition`), then each client's instances in three parts.

Of N_i instances round(share N_i) go to validation and to test, at least one where the share is not 0, the rest to
training. Which ones is drawn by NumPy's generator seeded with [seed, 1], client after client; `dirichlet_partition`
uses the one seeded with `seed`.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.data.partition import dirichlet_partition

Indices = list[np.ndarray]


def split_over_clients(
    labels: np.ndarray, n_clients: int, alpha: float, seed: int, validation: float, test: float = 0.0
) -> tuple[Indices, Indices, Indices]:
    """Indices of each client's training, validation and test instances; no part that was asked for is empty."""
    parts = dirichlet_partition(labels, n_clients, alpha, seed, min_per_client=1 + (validation > 0) + (test > 0))
    rng = np.random.default_rng([seed, 1])
    train, held_out, kept = [], [], []
    for part in parts:
        part = rng.permutation(part)
        a = _number(validation, part.size, part.size - 1 - (test > 0))
        b = a + _number(test, part.size, part.size - 1 - a)
        held_out.append(part[:a])
        kept.append(part[a:b])
        train.append(part[b:])
    return train, held_out, kept


def check_shares(validation: float, test: float) -> tuple[float, float]:
    """Two shares >= 0 that leave something for training."""
    shares = arguments.nonnegative("validation", validation), arguments.nonnegative("test", test)
    if not sum(shares) < 1:
        raise ValueError(f"validation={validation} and test={test} given, needed shares whose sum is below 1")
    return shares


def _number(share: float, size: int, most: int) -> int:
    return min(max(1, round(share * size)), most) if share > 0 else 0
