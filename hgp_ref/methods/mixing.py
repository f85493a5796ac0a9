"""How fast averages over a network become equal, as clients can find out themselves.

Every client holds one number. After t rounds of Push-Sum the spread of their averages, max_i z_i/ω_i − min_i z_i/ω_i,
which flooding makes known to all, is about C τ^t. It is looked at after t = 4, 8, 16, ... rounds until it is FALLEN
times the first one; between the last two looks

    τ = (spread(t) / spread(t/2))^(2/t),

which leaves out the constant C and the first rounds, in which local differences vanish fast while those across the
network do not.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.channels import Channel

FALLEN = 1e-2  # the share of the first spread at which τ is read off
FIRST_LOOK = 4  # rounds
MOST_ROUNDS = 2**14  # after which clients that still differ are taken to differ for ever: τ is then as it was seen


def contraction(average: Mean, like: Array) -> float | np.ndarray:
    """τ per round, one for each run of `average` where it has a run axis; 0 where averages become exact."""
    channel = average.channel
    own = np.cos(1.0 + np.arange(channel.clients.start, channel.clients.stop) ** 2.0)[:, None]  # no network's pattern
    runs = np.broadcast_to(own, (*like.shape[:-1], 1))
    z = from_host(np.ascontiguousarray(runs, dtype=host_dtype(like)), like=like)
    first = before = now = _spread(channel, host_float64(z), z)
    t, rounds = 0, FIRST_LOOK
    average.forget()
    while np.any(now > FALLEN * first) and t < MOST_ROUNDS:
        z = average.taking(rounds).sums(z)
        before, now = now, _spread(channel, host_float64(z / average.weights), z)
        t, looked = t + rounds, rounds
        rounds = t
    share = np.where(now > 0, now / np.where(before > 0, before, 1.0), 0.0)
    rate = np.minimum(share, 1.0) ** (1.0 / (looked if t else 1))
    return rate if rate.ndim else float(rate)


def _spread(channel: Channel, values: np.ndarray, like: Array) -> np.ndarray:
    """max − min over all clients of values (..., n, 1), for each run."""
    top = channel.largest(np.concatenate([values, -values], axis=-1), like)
    return np.asarray(top[..., 0] + top[..., 1])
