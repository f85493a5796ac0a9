"""The comparison with other methods: values read off a curve, choices, and the growth of the traffic."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from figures import comparison_cleaning
from figures.experiments.comparison import growth, runs
from figures.experiments.comparison.runs import METHODS, quiet

BY_NAME = {m.name: m for m in METHODS}


def test_targets_count_from_where_the_error_stays_below():
    curve = np.array([[1, 1, 0.5], [2, 2, 5e-3], [3, 3, 0.2], [4, 4, 5e-3], [5, 5, 5e-5]], dtype=float)
    assert runs.reached(curve)[:, 0].tolist()[:2] == [4, 5]
    assert np.isnan(runs.reached(curve)[2]).all()
    assert np.isnan(runs.reached(np.empty((0, 3)))).all()
    better, lost = curve.copy(), curve.copy()
    better[:, 0] /= 2
    lost[-1, 2] = np.nan
    ranks = [runs._rank(c) for c in (better, curve, lost, np.empty((0, 3)))]
    assert ranks == sorted(ranks) and ranks[0] < ranks[1] < ranks[3]


def test_mean_hessian_has_the_stated_condition_number():
    problem = runs.quadratic(10, 20, 2, 100.0, seed=3)
    H = hgp.exact.hessians(problem, np.zeros((10, 20)), np.zeros((10, 2)))
    eigenvalues = np.linalg.eigvalsh(H.mean(axis=0))
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(100.0) and np.linalg.eigvalsh(H).min() > 0
    assert np.abs(H[0] - H[1]).max() > 0.1


def test_networks_have_equally_many_edges():
    for problem in ("logistic, n = 3", "quadratic, κ = 10"):
        static, directed = (runs.network(problem, kind, 2) for kind in runs.NETWORKS)
        assert directed.expected_edges == pytest.approx(static.expected_edges)


@pytest.mark.parametrize("name", ["HGP", "Tracking", "SPARKLE-ED", "FAB"])
def test_curves_count_floats_and_fall(name):
    case = runs.case("logistic, n = 3", 0)
    net = runs.network("logistic, n = 3", runs.NETWORKS[1 if name != "SPARKLE-ED" else 0], 0)
    m = BY_NAME[name]
    curve = quiet(m.run, case, net, m.grid[4] if name == "HGP" else 0.2, 300.0)
    assert (np.diff(curve[:, :2], axis=0) > 0).all() and curve[-1, 0] <= 350
    assert curve[-1, 2] < 0.02 * curve[0, 2]


def test_exponents_of_the_traffic():
    """Chen's floats grow as d_x d_λ, Yang's as d_x², HGP's as d_x."""
    sizes = np.array([10, 40, 160])
    for name, along_x, along_lam in (("HGP", 1, 0), ("DBO", 1, 1), ("GBDSBO", 2, 0), ("MA-DSBO", 1, 0)):
        x = growth._floats(name, [(s, 10) for s in sizes])
        lam = growth._floats(name, [(10, s) for s in sizes])
        assert growth.exponent(sizes, x) == pytest.approx(along_x, abs=0.06), name
        assert growth.exponent(sizes, lam) == pytest.approx(along_lam, abs=0.06), name
    assert np.isnan(growth._floats("GBDSBO", [(10000, 10)])).all()


def test_cleaning_falls_for_a_method_and_divergence_is_infinite():
    curve = comparison_cleaning.evaluated(comparison_cleaning.RUNS["SPARKLE-ED"], 10.0, 0, 60)
    assert curve.shape == (comparison_cleaning.ENTRIES, 2) and curve[-1, 1] < 0.8 * curve[0, 1]
    wild = comparison_cleaning._baseline("sparkle", comparison_cleaning._static, 1.0,
                                      lambda L: {"inner_lr": 100 / L, "aux_lr": 0.8 / L})  # fmt: skip
    assert np.isinf(comparison_cleaning.evaluated(wild, 1.0, 0, 60)).all()
    wrong = comparison_cleaning._baseline("sparkle", comparison_cleaning._static, 1.0, lambda L: {"inner_lr": -1.0})
    with pytest.raises((TypeError, ValueError)):
        comparison_cleaning.evaluated(wrong, 1.0, 0, 60)
