"""Extreme eigenvalues of single clients."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref.methods.spectrum import extremes, start_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_single_client_has_the_bits_that_it_has_among_others(dtype):
    H = np.random.default_rng(0).standard_normal((5, 40, 40)).astype(dtype)
    H = H + H.swapaxes(-1, -2)
    start = start_rows(np.zeros((5, 40), dtype=dtype))
    low, high = extremes(lambda u: np.stack([A @ v for A, v in zip(H, u, strict=True)]), start)
    for i, A in enumerate(H):
        own = extremes(lambda u, A=A: (A @ u[0])[None], start_rows(np.zeros((1, 40), dtype=dtype)))
        assert (low[i], high[i]) == (own[0][0], own[1][0])
