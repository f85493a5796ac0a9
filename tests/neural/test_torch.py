"""Outputs, Jacobian-vector products, gradients and Hessian-vector products equal PyTorch's, to 1e-10 in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from support.libraries import assert_close

from hgp_ref import neural

from .stacks import data, derivatives, plain, stacks, to_torch, torch_derivatives

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hgp_ref[torch]'")

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")

RTOL = 1e-10


def compare(model, point):
    expected = torch_derivatives(model, *point)
    for own in (model, plain(model)):
        for actual, value in zip(derivatives(own, *point), expected, strict=True):
            assert_close(actual, value, RTOL)


@settings(max_examples=30)
@given(model=stacks())
def test_random_stacks(model):
    compare(model, data(model))


def test_the_networks_of_the_paper():
    for model, n in ((neural.influence_cnn(), 2), (neural.personalization_cnn(), 1)):
        compare(model, data(model, n=n, N=2))


@settings(max_examples=20)
@given(model=stacks(smooth=False))
def test_ties_and_kinks(model):
    """Parameters and pixels from {-1, 0, 1}: many entries of a pooling window are equal, many inputs of ReLU zero.

    Sums of such numbers and means of four are exact, so both programs see the same ties.
    """
    x, u, X, y, w = data(model, seed=1)
    compare(model, (np.round(np.clip(3 * x, -1, 1)), u, np.round(np.clip(X, -1, 1)), y, w))


def test_parameters_have_the_layout_of_torch():
    model = neural.Sequential((2, 6, 7), neural.Conv2d(2, 3, (2, 3)), neural.Flatten(), neural.Linear(75, 4))
    net = to_torch(model)
    flat = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    assert flat.numel() == model.dim
    X = np.random.default_rng(0).normal(size=(1, 5, 2, 6, 7))
    expected = net(torch.from_numpy(X[0])).detach().numpy()
    assert_close(model.logits(flat.numpy()[None], X)[0], expected, RTOL)


def test_initial_parameters_have_the_bounds_of_torch():
    """Both are uniform on the same interval: thousands of weights fill it, and no number lies outside."""
    model = neural.influence_cnn()
    x, start = model.init(1)[0], 0
    for theirs in to_torch(model).parameters():
        ours = x[start : start + theirs.numel()]
        start += theirs.numel()
        if theirs.numel() >= 500:
            bound = np.abs(ours).max()
            assert bound == pytest.approx(float(theirs.detach().abs().max()), rel=0.02)
        assert float(theirs.detach().abs().max()) <= bound * 1.02 and np.abs(ours).max() <= bound
