"""hessian and jacobian against hvp and cross, which share no formula with them; dot tests; costs written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import assert_close, identity_rtol

from .cases import KINDS, MAPPED, make, settings


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("setting", settings(), ids=str)
def test_closed_forms_equal_products_with_unit_vectors(setting, dtype):
    kind, d, mini = setting
    c = make(kind, d, dtype=dtype)
    batch = c.batch if mini else None
    lin = c.problem.linearize(c.x, c.lam, batch)
    hessian, jacobian = c.problem.hessian(c.x, c.lam, batch), c.problem.jacobian(c.x, c.lam, batch)
    n, d_x, d_lam = c.problem.n_clients, c.problem.dim_x, c.problem.dim_lam
    assert hessian.shape == (n, d_x, d_x) and jacobian.shape == (n, d_lam, d_x)
    assert hessian.dtype == jacobian.dtype == dtype
    units = [np.tile(unit, (n, 1)) for unit in np.eye(d_x, dtype=dtype)]
    assert_close(np.stack([lin.hvp(e) for e in units], axis=-1), hessian, identity_rtol(dtype))
    assert_close(np.stack([lin.cross(e) for e in units], axis=-1), jacobian, identity_rtol(dtype))


@pytest.mark.parametrize("kind", ["logistic", "softmax-client", "weights", "weights-softmax", "cleaning-softmax"])
def test_norms_of_jacobians_lie_between_the_largest_singular_value_and_all_of_them(kind):
    c = make(kind)
    jacobian, bound = c.problem.jacobian(c.x, c.lam), c.problem.jacobian_norms(c.x, c.lam)
    assert np.all(np.linalg.norm(jacobian, 2, axis=(1, 2)) <= bound * (1 + 1e-14))
    assert np.all(bound <= np.linalg.norm(jacobian, axis=(1, 2)) * (1 + 1e-12))


@pytest.mark.parametrize("kind", MAPPED)
def test_lipschitz_constants_of_mapped_rates_hold_along_segments(kind):
    c, rng = make(kind), np.random.default_rng(1)
    theta = c.lam + 1.0  # rates λ = exp(θ) above 1, so that constants along θ are larger than those along λ
    nu = c.problem.lipschitz(theta)
    for _ in range(50):
        x, step = rng.standard_normal((2, *c.x.shape))
        ends = [(c.problem.outer_grad(p, theta)[0], c.problem.jacobian(p, theta), c.problem.hessian(p, theta))
                for p in (x, x + step)]  # fmt: skip
        f_x, J, H = (after - before for before, after in zip(*ends, strict=True))
        length = np.linalg.norm(step, axis=1) * (1 + 1e-12)
        assert np.all(np.linalg.norm(f_x, axis=1) <= nu.nu_fx * length)
        assert np.all(np.linalg.norm(J, 2, axis=(1, 2)) <= nu.nu_J * length)
        assert np.all(np.linalg.norm(H, 2, axis=(1, 2)) <= nu.nu_H * length)


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(st.sampled_from(KINDS), sizes, st.integers(1, 7), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_products_are_symmetric_and_adjoint_to_the_closed_forms(kind, counts, d, classes, seed):
    c = make(kind, d, counts=counts, val_counts=[1] * len(counts), classes=classes, seed=seed)
    lin, tol = c.problem.linearize(c.x, c.lam), identity_rtol(c.x.dtype)
    w = np.random.default_rng(seed + 1).standard_normal(c.u.shape)
    left, right = np.sum(lin.hvp(c.u) * w, axis=1), np.sum(c.u * lin.hvp(w), axis=1)
    hessian, jacobian = c.problem.hessian(c.x, c.lam), c.problem.jacobian(c.x, c.lam)
    size = np.linalg.norm(hessian, axis=(1, 2)) * np.linalg.norm(c.u, axis=1) * np.linalg.norm(w, axis=1)
    assert np.all(np.abs(left - right) <= tol * size)
    pulled = np.einsum("nkd,nk->nd", jacobian, c.lam)  # J^T lam
    left, right = np.sum(lin.cross(c.u) * c.lam, axis=1), np.sum(c.u * pulled, axis=1)
    size = np.linalg.norm(jacobian, axis=(1, 2)) * np.linalg.norm(c.u, axis=1) * np.linalg.norm(c.lam, axis=1)
    assert np.all(np.abs(left - right) <= tol * size)


def test_logistic_cost_is_the_printed_one():
    c = make("logistic")
    view = c.problem._train.all
    for i, count in enumerate(c.problem.counts):
        signs = view.targets[i, :count, 0]
        logits = [math.fsum(row * c.x[i]) for row in view.features[i, :count]]
        bce = [-math.log(1 / (1 + math.exp(-s * a))) for s, a in zip(signs, logits, strict=True)]
        expected = math.fsum(bce) / count + 0.5 * math.fsum(c.lam[i] * c.x[i] ** 2)
        assert_close(c.problem.inner_cost(c.x, c.lam)[i], np.asarray(expected), identity_rtol("float64"))


def test_two_classes_of_softmax_are_the_binary_loss():
    binary, softmax = make("weights", 2), make("weights-softmax", 2, classes=2)
    x = np.stack([np.zeros_like(binary.x), binary.x], axis=-1).reshape(3, -1)  # logits (0, a)
    expected = binary.problem.inner_cost(binary.x, binary.lam) - 0.15 * np.sum(binary.x**2, axis=1)  # without l2
    assert_close(softmax.problem.inner_cost(x, binary.lam), expected, identity_rtol("float64"))


@pytest.mark.parametrize(("kind", "cost"), [("logistic", "inner"), ("softmax", "outer"), ("weights-softmax", "outer")])
def test_costs_at_zero_are_the_logarithm_of_the_number_of_classes(kind, cost):
    c = make(kind, classes=3)
    value = getattr(c.problem, f"{cost}_cost")(np.zeros_like(c.x), c.lam)
    assert_close(value, np.full(3, math.log(3 if "softmax" in kind else 2)), identity_rtol("float64"))
