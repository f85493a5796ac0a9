"""The explicit-matrix reference: everything as dense float64 NumPy arrays, slow and obvious.

It judges the matrix-free core and therefore shares no code with it: no averaging, estimators or training.
"""

from hgp_ref.exact.augmented import augmented_matrix, augmented_product
from hgp_ref.exact.classes import client_hypergradient, local_hypergradient, shared_hypergradient
from hgp_ref.exact.derivatives import hessians, jacobians, outer_gradients
from hgp_ref.exact.inner import inner_solution
from hgp_ref.exact.operators import mixing_product, push_sum_matrices, push_sum_matrix, push_sum_weights, theta
from hgp_ref.exact.series import estimate
from hgp_ref.exact.tracking import tracking_rate
from hgp_ref.exact.truth import hypergradient

__all__ = [
    "augmented_matrix",
    "augmented_product",
    "client_hypergradient",
    "estimate",
    "hessians",
    "hypergradient",
    "inner_solution",
    "jacobians",
    "local_hypergradient",
    "mixing_product",
    "outer_gradients",
    "push_sum_matrices",
    "push_sum_matrix",
    "push_sum_weights",
    "shared_hypergradient",
    "theta",
    "tracking_rate",
]
