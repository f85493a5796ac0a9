"""Neural networks of n clients at once: gradients, and Hessian-vector products by Pearlmutter's R-operator.

`Sequential(input_shape, *layers)` is the model; `tape` says what a forward pass gives; `layer` how layers are written.
"""

from hgp_ref.neural.activations import ReLU, Softplus, Tanh
from hgp_ref.neural.architectures import influence_cnn, personalization_cnn
from hgp_ref.neural.conv import Conv2d
from hgp_ref.neural.ensemble import Ensemble
from hgp_ref.neural.flatten import Flatten
from hgp_ref.neural.layer import Layer
from hgp_ref.neural.linear import Linear
from hgp_ref.neural.pooling import AvgPool2d, MaxPool2d
from hgp_ref.neural.sequential import Sequential
from hgp_ref.neural.tape import Adjoint, Tangent, Tape

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
