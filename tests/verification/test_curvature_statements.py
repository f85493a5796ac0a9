"""The searches of `python -m verification curvature` find violations where there are some."""

from __future__ import annotations

import numpy as np
import pytest

from verification import curvature


def violations(search, settings=60):
    rng = np.random.default_rng(5)
    return sum(search(rng) > 0 for _ in range(settings))


@pytest.mark.parametrize(
    "search",
    [
        curvature.similar_clients,
        curvature.sharp_interval,
        curvature.condition_number,
        curvature.relative_differences,
        curvature.exact_averages,
        curvature.small_steps,
        curvature.tracked_sum,
        curvature.conjugate_gradients,
    ],
)
def test_statements_hold(search):
    assert violations(search) == 0


@pytest.mark.parametrize("seed", [5967, 26403, 43088])
def test_rounding_of_conjugate_gradients_is_not_a_violation(seed):
    """Condition numbers of 1e4: after d + 1 iterations textbook conjugate gradients are off by 5e-5 as well."""
    assert curvature.conjugate_gradients(np.random.default_rng(seed)) <= 0


def test_wrong_statements_are_refuted(monkeypatch):
    sharp = curvature.sharp
    for wrong in (
        lambda lam, zeta2, delta, p: sharp(lam, 0.9 * zeta2, delta, p),
        lambda lam, zeta2, delta, p: sharp(lam, zeta2, 0.9 * delta, p),
        lambda lam, zeta2, delta, p: (sharp(lam, zeta2, delta, p)[0], 1.0),
    ):
        monkeypatch.setattr(curvature, "sharp", wrong)
        assert violations(curvature.sharp_interval, 400) > 0
    for factor in (0.1, 10.0):  # another preconditioner than that of the method
        monkeypatch.setattr(
            curvature, "preconditioner", lambda H, f_x, c=factor: H.mean(axis=0) + c * np.eye(len(H[0]))
        )
        assert violations(curvature.conjugate_gradients, 100) > 0
    monkeypatch.setattr(curvature, "ROUNDING", -1e-3)
    assert violations(curvature.exact_averages) > 0 and violations(curvature.similar_clients) > 0
