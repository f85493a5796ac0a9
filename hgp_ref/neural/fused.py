"""Layers for NumPy that do the work of several: parameters, ReLU and pooling in one step, per-client BLAS products.

The text of `linear`, `conv`, `activations` and `pooling` says what is computed; here is the same with less memory
traffic. A convolution goes through a client's instances in blocks whose windows fit a cache, and neither windows nor
anything before the pooling is ever stored for all instances. Blocks depend on the layer alone, so that a client's sums
are made in the same order whoever shares its array.
"""

from __future__ import annotations

from collections.abc import Sequence

from hgp_ref.neural.activations import ReLU
from hgp_ref.neural.conv import Conv2d
from hgp_ref.neural.fused_conv import ConvBlock
from hgp_ref.neural.fused_linear import LinearBlock
from hgp_ref.neural.layer import Layer
from hgp_ref.neural.linear import Linear
from hgp_ref.neural.pooling import MaxPool2d


def fuse(layers: Sequence[Layer]) -> list[Layer]:
    """The same map with Linear [ReLU] and Conv2d [ReLU] [MaxPool2d] as one layer each; other layers as they are."""
    rest: list[Layer] = list(layers)
    fused: list[Layer] = []
    while rest:
        layer = rest.pop(0)
        if not isinstance(layer, Linear | Conv2d):
            fused.append(layer)
            continue
        relu = bool(rest) and isinstance(rest[0], ReLU)
        if relu:
            rest.pop(0)
        if isinstance(layer, Linear):
            fused.append(LinearBlock(layer, relu))
        else:
            pool = rest[0] if rest and isinstance(rest[0], MaxPool2d) else None
            rest = rest[1:] if pool else rest
            fused.append(ConvBlock(layer, relu, pool or MaxPool2d(1)))
    return fused
