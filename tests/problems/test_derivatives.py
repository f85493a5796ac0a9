"""Gradients against differences of costs; hvp and cross against differences of gradients."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

from hgp_ref.problems import LogRates

from .cases import full_quadratic, make, settings

STEP = np.finfo(float).eps ** (1 / 3)  # balances truncation h² and rounding eps/h: both about 4e-11
RTOL = 1e-7


def slope(function, point, direction):
    """d function(point + t direction) / dt at 0 by central differences."""
    return (function(point + STEP * direction) - function(point - STEP * direction)) / (2 * STEP)


@pytest.fixture(params=settings(), ids=str)
def case(request):
    kind, d, mini = request.param
    made = make(kind, d)
    return made, made.batch if mini else None


def test_inner_grad_is_the_slope_of_inner_cost(case):
    c, batch = case
    expected = slope(lambda x: c.problem.inner_cost(x, c.lam, batch), c.x, c.u)
    assert_close(np.sum(c.problem.inner_grad(c.x, c.lam, batch) * c.u, axis=1), expected, RTOL)


def test_hvp_is_the_slope_of_inner_grad(case):
    c, batch = case
    expected = slope(lambda x: c.problem.inner_grad(x, c.lam, batch), c.x, c.u)
    assert_close(c.problem.linearize(c.x, c.lam, batch).hvp(c.u), expected, RTOL)


def test_cross_is_the_slope_of_inner_grad_along_lam(case):
    c, batch = case
    expected = np.empty_like(c.lam)
    for k, unit in enumerate(np.eye(c.problem.dim_lam)):
        along = slope(lambda lam: c.problem.inner_grad(c.x, lam, batch), c.lam, unit)
        expected[:, k] = np.sum(along * c.u, axis=1)
    assert_close(c.problem.linearize(c.x, c.lam, batch).cross(c.u), expected, RTOL)


def test_outer_grad_is_the_slope_of_outer_cost(case):
    c, _ = case
    along_x, along_lam = c.problem.outer_grad(c.x, c.lam)
    assert_close(np.sum(along_x * c.u, axis=1), slope(lambda x: c.problem.outer_cost(x, c.lam), c.x, c.u), RTOL)
    expected = slope(lambda lam: c.problem.outer_cost(c.x, lam), c.lam, c.lam[::-1])
    assert_close(np.sum(along_lam * c.lam[::-1], axis=1), expected, RTOL)


def test_outer_grad_along_the_logarithm_of_rates_that_the_outer_cost_has():
    """Rates of linear models are in the inner cost alone."""
    rng = np.random.default_rng(4)
    problem = LogRates(full_quadratic(rng, 3, 4, 2, "float64"))
    x, theta = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    along = [slope(lambda at: problem.outer_cost(x, at), theta, unit) for unit in np.eye(2)]
    assert_close(problem.outer_grad(x, theta)[1], np.stack(along, axis=1), RTOL)
