"""The explicit-matrix reference: everything as dense float64 NumPy arrays, slow and obvious.

It judges the matrix-free core and therefore shares no code with it: no averaging, estimators or training.
"""

from hgp_ref.exact.derivatives import hessians, inner_solution, jacobians, outer_gradients
from hgp_ref.exact.operators import (
    augmented_matrix,
    augmented_product,
    mixing_product,
    push_sum_matrices,
    push_sum_matrix,
    push_sum_weights,
    theta,
)
from hgp_ref.exact.truth import (
    client_hypergradient,
    estimate,
    hypergradient,
    local_hypergradient,
    shared_hypergradient,
    tracking_rate,
)

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
