"""The mixture of linear classifiers of Marfoq et al. (2021), appendix I.1.5.

Client i draws its mixture π_i ~ Dirichlet(α 1_C); component c has θ_c ~ U[−1, 1]^d. In every part of client i
component c labels count_c of the N instances, (count_1 … count_C) ~ Multinomial(N, π_i), and an instance
x ~ U[−1, 1]^d of component c gets

    y = round(σ(x·θ_c + ε)),    ε ~ N(0, 0.1²),

so that labels are noisy only near the component's boundary. The data have no intercept, but the paper's models do:
hence the column of ones (`bias=True`).

Two variants share every random number and differ in one line:

- `"paper"`: components label consecutive, disjoint blocks of rows, as the text says;
- `"published"`: in the authors' program the block of every component begins at row 0. Later components overwrite
  earlier ones, and rows beyond the largest count have the label 0 whatever their x.

The numbers are drawn from NumPy's frozen legacy generator in the order of that program, so that `seed=1234` gives the
data behind the paper's figures.

References: O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. Federated Multi-Task Learning under a Mixture of
Distributions. NeurIPS 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref.data.clients import VARIANTS, Clients, dirichlet
from hgp_ref.validation import Boolean, Choice, Integer, Positive, check_memory, checked

NOISE = 0.1  # standard deviation of ε


@checked(
    **{name: Integer(1) for name in ("n_clients", "n_train", "n_val", "n_test", "dim", "n_components")},
    alpha=Positive(),
    seed=Integer(0, 2**32 - 1),
    variant=Choice(*VARIANTS),
    bias=Boolean(),
)
def synthetic_mixture(
    n_clients: int = 3,
    n_train: int = 100,
    n_val: int = 100,
    n_test: int = 5000,
    dim: int = 5,
    n_components: int = 3,
    alpha: float = 0.4,
    seed: int = 0,
    variant: str = "paper",
    bias: bool = True,
) -> Clients:
    """Draw the mixture described at the top of this module. All clients have the same number of instances.

    Parameters
    ----------
    n_train, n_val, n_test : instances of each client in the three parts.
    dim : d, without the column of ones.
    alpha : α of the Dirichlet distribution of π_i.
    variant : "paper" or "published", see above.
    bias : append a column of ones to the inputs.

    Returns
    -------
    Clients with arrays X (n, n_train, d), y (n, n_train) and so on, the mixture π (n, C) and the components θ (C, d).

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(seed=1234, variant="published")
    >>> data.X.shape, data.y.shape
    ((3, 100, 6), (3, 100))
    """
    numbers = n_clients * (n_train + n_val + n_test) * (dim + 1) + n_components * (n_clients + dim)
    check_memory(
        f"n_clients={n_clients}, n_train={n_train}, n_val={n_val}, n_test={n_test}, dim={dim}, "
        f"n_components={n_components}",
        2 * numbers,
    )
    rng = np.random.RandomState(seed)
    rng.lognormal(4, 2, n_clients)  # the published program draws sizes here and then does not use them
    pi = np.stack([dirichlet(rng, alpha, n_components) for _ in range(n_clients)])
    theta = rng.uniform(-1, 1, (n_components, dim))
    parts: dict[str, list[np.ndarray]] = {}
    for i in range(n_clients):
        for suffix, size in (("", n_train), ("_val", n_val), ("_test", n_test)):
            inputs, labels = _draw(rng, size, pi[i], theta, variant)
            if bias:
                inputs = np.concatenate([inputs, np.ones((size, 1))], axis=-1)
            parts.setdefault(f"X{suffix}", []).append(inputs)
            parts.setdefault(f"y{suffix}", []).append(labels)
    arrays: dict[str, Any] = {name: np.stack(part) for name, part in parts.items()}
    name = f"synthetic mixture ({variant}, seed {seed})"
    return Clients(**arrays, n_classes=2, name=name, mixture=pi, components=theta)


def _draw(
    rng: np.random.RandomState, size: int, pi: np.ndarray, theta: np.ndarray, variant: str
) -> tuple[np.ndarray, np.ndarray]:
    """One shuffled part of one client: inputs (size, dim) and labels (size,)."""
    counts = rng.multinomial(size, pi)
    x = rng.uniform(-1, 1, (size, theta.shape[1]))
    y = np.zeros(size, dtype=np.int64)
    start = 0
    for theta_c, count in zip(theta, counts, strict=True):
        rows = slice(start, start + count)
        score = x[rows] @ theta_c + rng.normal(scale=NOISE, size=count)
        y[rows] = score > 0  # round(σ(s)) = 1 exactly when s > 0 (round half to even)
        start += count if variant == "paper" else 0
    order = np.arange(size)
    rng.shuffle(order)
    return x[order], y[order]
