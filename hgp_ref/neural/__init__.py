"""Neural networks of n clients at once: gradients, and Hessian-vector products by Pearlmutter's R-operator.

`Sequential(input_shape, *layers)` is a model, its `forward` returns a `Tape`, and `Layer` is the interface of layers.
"""

from hgp_ref.neural.layers import AvgPool2d, Conv2d, Flatten, Layer, Linear, MaxPool2d, ReLU, Softplus, Tanh
from hgp_ref.neural.models import Adjoint, Ensemble, Sequential, Tangent, Tape, influence_cnn, personalization_cnn

__all__ = [
    "Adjoint",
    "AvgPool2d",
    "Conv2d",
    "Ensemble",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool2d",
    "ReLU",
    "Sequential",
    "Softplus",
    "Tangent",
    "Tanh",
    "Tape",
    "influence_cnn",
    "personalization_cnn",
]
