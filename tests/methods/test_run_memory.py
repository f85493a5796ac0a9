"""The number of arrays like x that a run of HGP holds at once, which determines its memory."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np

import hgp_ref as hgp


def test_a_run_holds_no_array_that_it_has_left_behind():
    """Nine: two points that are linearized (v and w on batches of their own), w and the next, u, the next and the mean,
    p, the product with ∂²g. f's gradient, the first w and the p before are let go."""
    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((20_000,), hgp.neural.Linear(20_000, 3))
    X, y = rng.standard_normal((4, 2, 20_000)), rng.integers(0, 3, (4, 2))
    problem = hgp.problems.PersonalMask(model, X, y)
    x, lam = model.init(4), np.zeros((4, 3))
    average = hgp.PushSum(hgp.networks.RandomDirected(4, seed=1), steps=5)

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a few iterations are no estimate
            hgp.hypergradient(problem, x, lam, average, eta=1e-5, iterations=4, callback=lambda m, v: None, batches=2)

    run()
    tracemalloc.start()
    try:
        run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    batches = 2 * X.nbytes  # features of the instances drawn for v and for w
    assert peak - batches < 9.5 * x.nbytes
