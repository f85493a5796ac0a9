"""What a problem returns, as a certificate keeps it: copied, on the host, in float64, finite."""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, to_host


def host_copy(name: str, given: Array, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of what the problem's `name` returned: a problem may write its next answer into the same array."""
    host = np.array(to_host(arguments.answer(name, given, shape)), dtype=np.float64)
    if not np.all(np.isfinite(host)):
        raise ValueError(f"problem: {name} returned NaN or infinite values, needed finite numbers")
    return host
