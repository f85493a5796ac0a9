"""The mixture of linear classifiers of Marfoq et al. (2021), appendix I.1.5.

Client i draws its mixture π_i ~ Dirichlet(α 1_C); component c has θ_c ~ U[−1, 1]^d. In every split of client i
component c labels count_c of the N instances, (count_1 … count_C) ~ Multinomial(N, π_i), and an instance
x ~ U[−1, 1]^d of component c gets

    y = round(σ(x·θ_c + ε)),    ε ~ N(0, 0.1²),

so that the label is noisy only near the component's boundary. There is no intercept in the data; the models of the
paper have one, hence the column of ones (`bias=True`).

Two variants share every random number and differ in one line:

- `"paper"`: components label consecutive, disjoint blocks of rows, as the text says;
- `"published"`: in the program the authors published the block of every component begins at row 0. Later components
  overwrite earlier ones, and the rows beyond the largest count keep the label 0 whatever their x.

The numbers are drawn from NumPy's frozen legacy generator in the order in which that program draws them, so that
`seed=1234` gives the very data behind the paper's figures.

References: O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. Federated Multi-Task Learning under a Mixture of
Distributions. NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.data.clients import Clients, dirichlet
from hgp_ref.results import Result
from hgp_ref.validation import Boolean, Choice, Integer, Positive, check_memory, checked

VARIANTS = ("paper", "published")
NOISE = 0.1  # standard deviation of ε


@dataclass(frozen=True)
class SyntheticMixture(Result):
    """Three splits of labelled data for n clients; inputs end with a column of ones if `bias` was asked for.

    Attributes
    ----------
    X : (n, n_train, d).
    y : (n, n_train) in {0, 1}.
    X_val : (n, n_val, d).
    y_val : (n, n_val).
    X_test : (n, n_test, d).
    y_test : (n, n_test).
    mixture : (n, n_components), π.
    components : (n_components, dim), θ.
    variant : "paper" or "published".
    seed : of the generator.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=10, n_val=5, n_test=5)
    >>> data.X.shape, data.clients().n_clients
    ((2, 10, 6), 2)
    """

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    mixture: np.ndarray
    components: np.ndarray
    variant: str
    seed: int

    def clients(self) -> Clients:
        """The same data with a list entry for each client.

        Returns
        -------
        Clients.
        """
        names = ("X", "y", "X_val", "y_val", "X_test", "y_test")
        lists: dict[str, Any] = {name: list(getattr(self, name)) for name in names}
        return Clients(**lists, n_classes=2, name=f"synthetic mixture ({self.variant})")


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
) -> SyntheticMixture:
    """Draw the mixture described at the top of this module; the same arguments always give the same numbers.

    Parameters
    ----------
    n_clients : int
        n.
    n_train, n_val, n_test : int
        Instances of each client in the three splits.
    dim : int
        d, without the column of ones.
    n_components : int
        C.
    alpha : float
        Of the Dirichlet distribution of the mixtures.
    seed : int
        Other data.
    variant : {"paper", "published"}
        See above.
    bias : bool
        Whether inputs end with a column of ones.

    Returns
    -------
    SyntheticMixture
        Three splits of every client.

    Raises
    ------
    TypeError, ValueError
        Numbers of clients and instances must be integers ≥ 1, `alpha` positive, `variant` one of the two.

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
    parts: list[list[np.ndarray]] = [[] for _ in range(6)]
    for i in range(n_clients):
        for k, size in enumerate((n_train, n_val, n_test)):
            inputs, labels = _split(rng, size, pi[i], theta, variant)
            parts[2 * k].append(_with_ones(inputs) if bias else inputs)
            parts[2 * k + 1].append(labels)
    X, y, X_val, y_val, X_test, y_test = (np.stack(part) for part in parts)
    return SyntheticMixture(X, y, X_val, y_val, X_test, y_test, pi, theta, variant, seed)


def _split(
    rng: np.random.RandomState, size: int, pi: np.ndarray, theta: np.ndarray, variant: str
) -> tuple[np.ndarray, np.ndarray]:
    """One shuffled split of one client: inputs (size, dim) and labels (size,)."""
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


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)
