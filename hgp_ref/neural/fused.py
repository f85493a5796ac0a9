"""Layers for NumPy that do the work of several: parameters, ReLU and pooling in one step, per-client BLAS products.

The text of `linear`, `conv`, `activations` and `pooling` says what is computed; here is the same with less memory
traffic. A convolution goes through a client's instances in blocks whose windows fit a cache, and neither windows nor
anything before the pooling is ever stored for all instances. Blocks depend on the layer alone, so that a client's sums
are made in the same order whoever shares its array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hgp_ref.neural.activations import ReLU
from hgp_ref.neural.conv import Conv2d
from hgp_ref.neural.fused_conv import ConvBlock
from hgp_ref.neural.fused_linear import LinearBlock
from hgp_ref.neural.layer import Layer
from hgp_ref.neural.linear import Linear
from hgp_ref.neural.pooling import MaxPool2d


def fuse(layers: Sequence[Layer]) -> list[Layer]:
    """The same map with Linear [ReLU] and Conv2d [ReLU] [MaxPool2d] as one layer each; other layers as they are.

    A subclass is another layer: what it computes is its own.
    """
    rest: list[Layer] = list(layers)
    fused: list[Layer] = []
    while rest:
        layer = rest.pop(0)
        if type(layer) not in (Linear, Conv2d):
            fused.append(layer)
            continue
        relu = bool(rest) and type(rest[0]) is ReLU
        if relu:
            rest.pop(0)
        if isinstance(layer, Conv2d):
            pool = rest.pop(0) if rest and type(rest[0]) is MaxPool2d else MaxPool2d(1)
            fused.append(ConvBlock(layer, relu, cast(MaxPool2d, pool)))
        else:
            fused.append(LinearBlock(cast(Linear, layer), relu))
    return fused
