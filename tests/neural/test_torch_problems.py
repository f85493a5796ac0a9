"""The neural problems equal the same costs written in PyTorch, with derivatives by its double backward, to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

from hgp_ref import neural
from hgp_ref.problems import NeuralInstanceWeights, PersonalMask, PersonalMixture, from_torch

from .problem_cases import CLASSES, COUNTS, instances, make, network
from .stacks import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hgp_ref[torch]'")

RTOL = 1e-10


def outputs(model, x, X):
    """The network of PyTorch's modules with the parameters x."""
    from torch.func import functional_call

    net = to_torch(model)
    named = list(net.named_parameters())
    parts = torch.split(x, [p.numel() for _, p in named])
    return functional_call(
        net, {name: part.reshape(p.shape) for (name, p), part in zip(named, parts, strict=True)}, (X,)
    )


def losses(kind, model, x, lam, X, y):
    """Losses of the instances X, y under λ, without their weights; written as the paper has them."""
    ce = torch.nn.functional.cross_entropy
    if kind == "mixture":
        chances = [torch.softmax(outputs(model, part, X), -1) for part in torch.split(x, model.dim)]
        mixed = sum(w * p for w, p in zip(torch.softmax(lam, 0), chances, strict=True))
        return -torch.log(mixed[torch.arange(len(y)), y])
    z = outputs(model, x, X)
    return (
        ce(CLASSES * torch.softmax(lam, 0) * z, y, reduction="none") if kind == "mask" else ce(z, y, reduction="none")
    )


@pytest.mark.parametrize("mini", [False, True], ids=["full", "mini"])
@pytest.mark.parametrize("kind", ["weights", "mask", "mixture"])
def test_derivatives_equal_those_of_double_backward(kind, mini):
    c, model, rng = make(kind, smooth=False), network(False), np.random.default_rng(0)
    (X, y), (X_val, y_val) = (
        tuple([torch.from_numpy(a) for a in part] for part in instances(rng, counts)) for counts in (COUNTS, (4, 1, 3))
    )

    def inner(i, x, lam, batch):
        rows = torch.arange(len(y[i])) if batch is None else batch
        each = losses(kind, model, x, lam, X[i][rows], y[i][rows])
        each = lam[rows] * each if kind == "weights" else each
        return each.mean() + 0.05 * (x @ x)

    def outer(i, x, lam):
        if kind == "weights":
            return losses(kind, model, x, lam, X_val[i], y_val[i]).mean()
        return losses(kind, model, x, lam, X[i], y[i]).mean() + 0.1 * (lam @ lam)

    theirs = from_torch(inner, outer, 3, c.problem.dim_x, c.problem.dim_lam, counts=COUNTS)
    batch = c.batch if mini else None
    x, lam, u = (torch.from_numpy(a) for a in (c.x, c.lam, c.u))
    placed = None if batch is None else torch.from_numpy(batch)
    lin, reference = c.problem.linearize(c.x, c.lam, batch), theirs.linearize(x, lam, placed)
    pairs = [
        (c.problem.inner_cost(c.x, c.lam, batch), theirs.inner_cost(x, lam, placed)),
        (c.problem.inner_grad(c.x, c.lam, batch), theirs.inner_grad(x, lam, placed)),
        (c.problem.outer_cost(c.x, c.lam), theirs.outer_cost(x, lam)),
        *zip(c.problem.outer_grad(c.x, c.lam), theirs.outer_grad(x, lam), strict=True),
        *zip(lin.products(c.u), (reference.hvp(u), reference.cross(u)), strict=True),
    ]
    for ours, value in pairs:
        expected = value.detach().numpy()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=RTOL * max(np.abs(expected).max(), 1e-300))
        if np.abs(expected).max() > 0:
            assert_close(ours, expected, RTOL)


@pytest.mark.parametrize("kind", ["weights", "mask", "mixture"])
def test_the_networks_of_the_paper(kind):
    """Gradient, hvp and cross of the influence network under weights, of the personalization network under λ."""
    rng = np.random.default_rng(0)
    model = neural.influence_cnn() if kind == "weights" else neural.personalization_cnn(CLASSES)
    X, y = rng.random((1, 3, 1, 28, 28)), rng.integers(0, CLASSES, (1, 3))
    problem = {
        "weights": lambda: NeuralInstanceWeights(model, X, y, X, y, l2=0.1),
        "mask": lambda: PersonalMask(model, X, y, l2=0.1),
        "mixture": lambda: PersonalMixture(model, X, y, components=2, l2=0.1),
    }[kind]()
    x, lam = problem.model.init(1), rng.random((1, problem.dim_lam))
    u = rng.standard_normal(x.shape)
    images, labels = torch.from_numpy(X), torch.from_numpy(y)

    def inner(i, x, lam, batch):
        each = losses(kind, model, x, lam, images[i], labels[i])
        return (lam * each if kind == "weights" else each).mean() + 0.05 * (x @ x)

    theirs = from_torch(inner, lambda i, x, lam: x @ x, 1, problem.dim_x, problem.dim_lam)
    reference = theirs.linearize(*(torch.from_numpy(a) for a in (x, lam)))
    assert_close(problem.inner_grad(x, lam), theirs.inner_grad(*map(torch.from_numpy, (x, lam))).numpy(), RTOL)
    for ours, value in zip(problem.linearize(x, lam).products(u), reference.products(torch.from_numpy(u)), strict=True):
        assert_close(ours, value.numpy(), RTOL)
