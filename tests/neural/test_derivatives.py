"""Derivatives against differences, exact Hessians and symmetry, without another library."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from support.libraries import assert_close, identity_rtol

from hgp_ref import neural
from hgp_ref.backend import array_namespace
from hgp_ref.neural.layers import Windows

from .stacks import data, derivatives, plain, stacks

STEP = np.finfo(float).eps ** (1 / 3)
RTOL = 1e-6  # truncation of central differences, through up to four layers


def slope(function, point, direction):
    return (function(point + STEP * direction) - function(point - STEP * direction)) / (2 * STEP)


@settings(max_examples=25)
@given(model=stacks(kinks=False))
def test_smooth_stacks_against_differences(model):
    x, u, X, y, w = data(model)
    _, z_dot, _, hvp = derivatives(model, x, u, X, y, w)
    assert_close(z_dot, slope(lambda p: model.logits(p, X), x, u), RTOL)
    assert_close(hvp, slope(lambda p: derivatives(model, p, u, X, y, w)[2], x, u), RTOL)


@pytest.mark.parametrize("fused", [True, False])
def test_influence_cnn_against_differences(fused):
    model = neural.influence_cnn()
    model = model if fused else plain(model)
    point = data(model, n=2, N=2, seed=5)
    x, u, X, y, w = point
    u = u / np.linalg.norm(u, axis=1, keepdims=True)  # a step that crosses no kink
    _, z_dot, _, hvp = derivatives(model, x, u, X, y, w)
    assert_close(z_dot, slope(lambda p: model.logits(p, X), x, u), RTOL)
    assert_close(hvp, slope(lambda p: derivatives(model, p, u, X, y, w)[2], x, u), RTOL)


@settings(max_examples=25)
@given(model=stacks())
def test_compiled_steps_give_the_numbers_of_the_text(model):
    point = data(model)
    for actual, expected in zip(derivatives(model, *point), derivatives(plain(model), *point), strict=True):
        assert_close(actual, expected, 1e-12)


class Leaky(neural.ReLU):
    """A slope of 0.1 below zero."""

    def jvp(self, saved, a_dot, xp):
        return xp.where(saved, 0.1 * a_dot, a_dot)


class Doubled(neural.Linear):
    """Twice what `Linear` gives."""

    def forward(self, p, a, xp):
        z, saved = super().forward(p, a, xp)
        return 2 * z, saved


class Least(neural.MaxPool2d):
    """The first entry of each window."""

    def forward(self, p, a, xp):
        windows = self.windows(*a.shape[2:4])
        first = windows.gather(a, xp)[0]
        return first, (windows, xp.zeros_like(first, dtype=xp.int32))


@pytest.mark.parametrize(
    "layers",
    [
        (neural.Conv2d(1, 2, 2), Leaky(), neural.MaxPool2d(2), neural.Flatten(), neural.Linear(8, 3)),
        (neural.Conv2d(1, 2, 2), neural.ReLU(), Least(2), neural.Flatten(), neural.Linear(8, 3)),
        (neural.Flatten(), neural.Linear(25, 4), Leaky(), Doubled(4, 3)),
    ],
    ids=["activation", "pooling", "linear"],
)
def test_compiled_steps_do_not_replace_user_layers(layers):
    """A subclass of a layer is another layer: on NumPy, too, its own text says what it computes."""
    model, text = neural.Sequential((1, 5, 5), *layers), neural.Sequential((1, 5, 5), *layers, fused=False)
    x, X = 3 * model.init(1), np.random.default_rng(0).standard_normal((1, 4, 1, 5, 5))
    assert_close(model.logits(x, X), text.logits(x, X), 1e-12)


@settings(max_examples=25)
@given(model=stacks())
def test_hessians_are_symmetric(model):
    x, u, X, y, w = data(model)
    v = np.random.default_rng(7).standard_normal(u.shape)
    Hu, Hv = (derivatives(model, x, a, X, y, w)[3] for a in (u, v))
    left, right = np.sum(Hu * v, axis=1), np.sum(u * Hv, axis=1)
    size = np.linalg.norm(Hu, axis=1) * np.linalg.norm(v, axis=1) + np.linalg.norm(Hv, axis=1) * np.linalg.norm(
        u, axis=1
    )
    assert np.all(np.abs(left - right) <= identity_rtol("float64") * size)


@settings(max_examples=25)
@given(model=stacks())
def test_backward_is_the_adjoint_of_tangent(model):
    x, u, X, _, _ = data(model)
    tape = model.forward(x, X)
    c = np.random.default_rng(3).standard_normal(tape.output.shape)
    left = np.sum(tape.backward(c) * u, axis=1)
    right = np.sum(c * tape.tangent(u).output, axis=(1, 2))
    scale = np.linalg.norm(tape.backward(c), axis=1) * np.linalg.norm(u, axis=1)
    assert np.all(np.abs(left - right) <= identity_rtol("float64") * scale)


def test_exact_hessian_of_a_tiny_network():
    """One hidden tanh unit, one input, two classes: z = v tanh(w a + b) + c; the Hessian by hand."""
    model = neural.Sequential((1,), neural.Linear(1, 1), neural.Tanh(), neural.Linear(1, 2))
    w, b, v0, v1, c0, c1, a = 0.7, -0.2, 0.5, -1.1, 0.3, 0.1, 1.3
    x = np.array([[w, b, v0, v1, c0, c1]])
    t = np.tanh(w * a + b)
    s, s2 = 1 - t * t, -2 * t * (1 - t * t)
    v, e = np.array([v0, v1]), np.eye(2)
    J = np.zeros((2, 6))  # ∂z/∂x
    J[:, 0], J[:, 1], J[:, 2:4], J[:, 4:] = v * s * a, v * s, t * e, e
    p = np.exp(v * t + [c0, c1])
    p /= p.sum()
    slope, curvature = p - e[1], np.diag(p) - np.outer(p, p)
    H = J.T @ curvature @ J
    inner = slope @ v
    H[:2, :2] += inner * s2 * np.outer([a, 1], [a, 1])
    for k in range(2):
        H[:2, 2 + k] += slope[k] * s * np.array([a, 1])
        H[2 + k, :2] += slope[k] * s * np.array([a, 1])
    given = [derivatives(model, x, unit[None], np.array([[[a]]]), np.array([[1]]), np.ones((1, 1)))[3][0]
             for unit in np.eye(6)]  # fmt: skip
    assert_close(np.stack(given), H, identity_rtol("float64"))


@pytest.mark.parametrize("fused", [True, False])
def test_linear_and_convolution_by_hand(fused):
    linear = neural.Sequential((2,), neural.Linear(2, 1), fused=fused)
    assert linear.logits(np.array([[2.0, 3.0, 0.5]]), np.array([[[1.0, 10.0]]])).tolist() == [[[32.5]]]
    conv = neural.Sequential((1, 2, 3), neural.Conv2d(1, 1, 2, padding="same"), fused=fused)
    x = np.array([[1.0, 10.0, 100.0, 1000.0, 0.0]])
    image = np.array([[[[[1.0, 2, 3], [4, 5, 6]]]]])
    assert conv.logits(x, image).tolist() == [[[[[5421, 6532, 603], [54, 65, 6]]]]]  # zeros below and to the right
    strided = neural.Sequential((1, 3, 3), neural.Conv2d(1, 1, 1, stride=2), fused=fused)
    assert strided.logits(np.array([[2.0, 1.0]]), np.arange(9.0).reshape(1, 1, 1, 3, 3)).tolist() == [
        [[[[1, 5], [13, 17]]]]
    ]


@pytest.mark.parametrize("fused", [True, False])
def test_the_first_of_equal_entries_takes_the_gradient_and_relu_has_slope_zero_at_zero(fused):
    """Windows (1, 2) and (2, 1) of the image (1, 2, 1) both give 3; the first one is chosen."""
    layers = (neural.Conv2d(1, 1, (1, 2)), neural.ReLU(), neural.MaxPool2d((1, 2)), neural.Flatten())
    model = neural.Sequential((1, 1, 3), *layers, neural.Linear(1, 1), fused=fused)
    x = np.array([[1.0, 1.0, 0.0, 1.0, 0.0]])
    tied, dead = np.array([[[[[1.0, 2, 1]]]]]), np.zeros((1, 1, 1, 1, 3))
    c = np.ones((1, 1, 1))
    assert model.forward(x, tied).backward(c).tolist() == [[1, 2, 1, 3, 1]]
    assert model.forward(x, tied).tangent(np.array([[1.0, 0, 0, 0, 0]])).output.tolist() == [[[1]]]
    assert model.forward(x, dead).backward(c).tolist() == [[0, 0, 0, 0, 1]]
    assert model.forward(x, dead).tangent(np.array([[0.0, 0, 1, 0, 0]])).output.tolist() == [[[0]]]


@pytest.mark.parametrize("fused", [True, False])
def test_nan_is_not_hidden(fused):
    layers = (neural.Conv2d(1, 1, 1), neural.ReLU(), neural.MaxPool2d(2), neural.Flatten(), neural.Linear(1, 1))
    model = neural.Sequential((1, 2, 2), *layers, fused=fused)
    X = np.array([[[[[1.0, np.nan], [2, 3]]]]])
    assert np.isnan(model.logits(np.array([[1.0, 0, 1, 0]]), X)).all()


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("frame", [((0, 0), (0, 0)), ((1, 0), (1, 2))])
def test_scatter_is_the_adjoint_of_gather(size, stride, frame):
    rng = np.random.default_rng(0)
    windows = Windows(size, stride, (5, 6), *frame)
    a = rng.standard_normal((2, 3, 5, 6, 2))
    xp = array_namespace(a)
    pieces = windows.gather(a, xp)
    others = [rng.standard_normal(piece.shape) for piece in pieces]
    left = sum(np.sum(piece * other) for piece, other in zip(pieces, others, strict=True))
    assert left == pytest.approx(np.sum(a * windows.scatter(others, xp)), rel=1e-12)
