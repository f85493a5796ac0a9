"""Random stacks of layers, a classification cost on top, and the same in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from hgp_ref import neural
from hgp_ref.backend import array_namespace
from hgp_ref.problems.losses import SoftmaxLoss

SMOOTH = (neural.Tanh, neural.Softplus)
CLASSES = 3


@st.composite
def stacks(draw: Any, kinks: bool = True, smooth: bool = True) -> neural.Sequential:
    """Convolutions and linear layers with activations and poolings between; `kinks`: ReLU and MaxPool2d among them;
    `smooth`: Tanh and Softplus among them."""
    acts = st.sampled_from([None, *(SMOOTH if smooth else []), *([neural.ReLU] * 2 if kinks else [])])
    pools = st.sampled_from([None, neural.AvgPool2d, *([neural.MaxPool2d] * 2 if kinks else [])])
    shape = (draw(st.integers(1, 2)), draw(st.integers(5, 8)), draw(st.integers(5, 8)))
    layers: list[neural.Layer] = []
    start, size = shape, shape
    for _ in range(draw(st.integers(0, 2))):
        kernel, stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3))), draw(st.integers(1, 2))
        padding = draw(st.sampled_from(["valid", "same"])) if stride == 1 else "valid"
        if padding == "valid" and (kernel[0] > size[1] or kernel[1] > size[2]):
            break
        new = [neural.Conv2d(size[0], draw(st.integers(1, 3)), kernel, stride, padding)]
        act, pool = draw(acts), draw(pools)
        new += [act()] if act else []
        for layer in new:
            size = layer.output_shape(size)
        if pool and min(size[1:]) >= 2:
            new.append(pool(2, draw(st.sampled_from([None, 1, (1, 2)]))))
            size = new[-1].output_shape(size)
        layers += new
    layers.append(neural.Flatten())
    width = size[0] * size[1] * size[2]
    if draw(st.booleans()):
        hidden, act = draw(st.integers(1, 4)), draw(acts)
        layers += [neural.Linear(width, hidden), *([act()] if act else [])]
        width = hidden
    return neural.Sequential(start, *layers, neural.Linear(width, CLASSES))


def plain(model: neural.Sequential) -> neural.Sequential:
    """The same model without compiled steps."""
    return neural.Sequential(model.input_shape, *model.layers, fused=False)


def data(model: neural.Sequential, n: int = 2, N: int = 3, seed: int = 0, scale: float = 1.0, dtype: str = "float64"):
    """x, u (n, d), X (n, N, ...), labels (n, N) and weights (n, N)."""
    rng = np.random.default_rng(seed)
    x = model.init(n, seed, same_for_all=False) + 0.1 * scale * rng.standard_normal((n, model.dim))
    u = rng.standard_normal((n, model.dim))
    X = rng.standard_normal((n, N, *model.input_shape))
    y, w = rng.integers(0, model.output_shape[0], (n, N)), rng.uniform(0.5, 1.5, (n, N))
    return tuple(a if a.dtype.kind == "i" else a.astype(dtype) for a in (x, u, X, y, w))


def derivatives(model: neural.Sequential, x: Any, u: Any, X: Any, y: Any, w: Any) -> tuple[Any, Any, Any, Any]:
    """Outputs, their movement along u, gradient and Hessian-vector product of Σ_k w_k CE(z_k, y_k)."""
    xp = array_namespace(x)
    loss = SoftmaxLoss(model.output_shape[0])
    targets = loss.encode(xp.astype(y, x.dtype), xp=xp)
    tape = model.forward(x, X)
    c = w[..., None] * loss.slope(tape.output, targets, xp=xp)
    adjoint, tangent = tape.adjoint(c), tape.tangent(u)
    c_dot = loss.curvature_product(loss.curvature(tape.output, w, xp=xp), tangent.output, xp=xp)
    return tape.output, tangent.output, tape.backward(c), adjoint.tangent(tangent, c_dot)


def to_torch(model: neural.Sequential) -> Any:
    """The same network of PyTorch's modules."""
    from torch import nn

    def module(layer: Any) -> Any:
        if isinstance(layer, neural.Linear):
            return nn.Linear(layer.inputs, layer.outputs)
        if isinstance(layer, neural.Conv2d):
            return nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, padding=layer.padding)
        if isinstance(layer, neural.MaxPool2d | neural.AvgPool2d):
            return getattr(nn, type(layer).__name__)(layer.kernel, layer.stride)
        return getattr(nn, type(layer).__name__)()

    return nn.Sequential(*map(module, model.layers)).double()


def torch_derivatives(model, x, u, X, y, w):
    """`derivatives` by PyTorch's double backward, client by client."""
    import torch
    from torch.func import functional_call

    net = to_torch(model)
    names, shapes = zip(*((name, p.shape) for name, p in net.named_parameters()), strict=True)
    results: list[list[np.ndarray]] = [[], [], [], []]
    for i in range(len(x)):
        Xi, yi, wi, ui = (torch.from_numpy(np.ascontiguousarray(a[i])) for a in (X, y, w, u))

        def outputs(flat, Xi=Xi):
            parts = torch.split(flat, [s.numel() for s in shapes])
            parameters = {name: part.reshape(s) for name, part, s in zip(names, parts, shapes, strict=True)}
            return functional_call(net, parameters, (Xi,))

        flat = torch.from_numpy(x[i].copy()).requires_grad_(True)
        z = outputs(flat)
        dummy = torch.zeros_like(z, requires_grad=True)
        (pulled,) = torch.autograd.grad(z, flat, dummy, create_graph=True)
        (z_dot,) = torch.autograd.grad(pulled, dummy, ui, retain_graph=True)
        cost = (wi * torch.nn.functional.cross_entropy(z, yi, reduction="none")).sum()
        (grad,) = torch.autograd.grad(cost, flat, create_graph=True)
        (hvp,) = torch.autograd.grad(grad, flat, ui)
        for collected, value in zip(results, (z, z_dot, grad, hvp), strict=True):
            collected.append(value.detach().numpy())
    return tuple(np.stack(part) for part in results)
