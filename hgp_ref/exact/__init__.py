"""The explicit-matrix reference: everything as dense float64 NumPy arrays, slow and obvious.

It checks the matrix-free core and therefore shares no code with it: no mixing, methods or training. Arguments that many
functions share:

    problem, x, lam   client costs and the point at which they are differentiated, (n, d_x) and (n, d_lam)
    batch             instances of each client, (n, b); all of them by default
    net, steps, call  graphs mS+1 … (m+1)S of a network, with S = `steps` and m = `call`
    debias            what happens to the weights between calls, as in `PushSum`
    robust            messages carry running sums, as in `RobustPushSum`
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
