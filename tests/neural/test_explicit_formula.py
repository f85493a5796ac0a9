"""HGP on small neural networks is the explicit product formula with dense matrices (`exact.estimate`)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.problems import sample_batches

from .problem_cases import COUNTS, KINDS, make

M, ETA, N = 6, 0.05, len(COUNTS)


def run(case, avg, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # six terms at a random point
        return hgp.hypergradient(case.problem, case.x, case.lam, avg, eta=ETA, iterations=M, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_averaging_is_the_explicit_formula(kind):
    c = make(kind)
    mean = [np.full((N, N), 1 / N)] * M
    expected = exact.estimate(c.problem, c.x, c.lam, mean, ETA)
    est = run(c, hgp.ExactAverage(N))
    assert_close(est.value, expected, 1e-12)
    f_lam = c.problem.outer_grad(c.x, c.lam)[1]
    assert np.abs(expected - f_lam).max() > 1e-6 * np.abs(expected).max()  # the series is more than its first term


@pytest.mark.parametrize("kind", ["weights", "mask", "mixture"])
def test_push_sum_on_mini_batches_is_the_explicit_formula(kind):
    c = make(kind, smooth=False)
    net = hgp.networks.RandomDirected(N, seed=4)
    matrices = []
    for m in range(M):
        P = net.mixing_matrix(2 * m + 2) @ net.mixing_matrix(2 * m + 1)
        matrices.append(P / P.sum(axis=1, keepdims=True))
    for_v, for_u = (sample_batches(c.problem.counts, 3, 5, 0, M, stream) for stream in (0, 1))
    expected = exact.estimate(c.problem, c.x, c.lam, matrices, ETA, for_v, for_u)
    assert_close(run(c, hgp.PushSum(net, 2), batches=hgp.MiniBatches(3, seed=5)).value, expected, 1e-12)
