"""Clients with images of digits for the influence experiment with a CNN, in three sizes.

    reduced  scikit-learn's 1797 digits (8 × 8 pixels) and a small network of the same kind; a minute and a half in all
    emnist   as many EMNIST digits, averaged to 14 × 14, the same kind of network, more removals: ten minutes
    paper    EMNIST digits at 28 × 28 and the paper's network: 1 % of byclass drawn first, then labels 0 – 9 kept

Instances go to clients by label, Dirichlet(0.4), and each client splits its own 60/20/20 into training, validation and
test. Pixels are in [0, 1] less their mean; the paper does not say whether the three clusters' normalisation was used
here, and it is not. EMNIST is read from the folder named by HGP_REF_EMNIST: its byclass test split, of which the sample
for `paper` is as large as 1 % of the whole of byclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import neural
from hgp_ref.backend import get_backend
from hgp_ref.data import Clients, digit_images, dirichlet_partition, emnist_byclass

BYCLASS_IMAGES = 814_255  # of all 62 classes, training and test split together


@lru_cache(maxsize=2)
def clients(
    data: str,
    side: int,
    smooth: bool,
    share: float,
    n: int,
    alpha: float,
    l2: float,
    seed: int,
    backend: str,
    dtype: str,
) -> tuple[Any, Any, Any, tuple[list[np.ndarray], list[np.ndarray]], list[np.ndarray]]:
    """The problem, λ = 1, the initial x, each client's test images and labels, and its training labels."""
    images, labels = _digits(share, seed) if data == "digits" else _emnist(share, side, seed)
    split = _split(images - images.mean(), labels, n, alpha, seed)
    library, model = get_backend(backend), network(side, smooth)
    lam = library.asarray(np.ones((n, int(split.counts.max()))), dtype=dtype)
    problem = hgp.problems.NeuralInstanceWeights(model, *split.train, *split.validation, l2=l2).to(lam, dtype)
    X_test = [library.asarray(X, dtype=dtype) for X in split.X_test]
    return problem, lam, model.init(n, seed, like=lam), (X_test, split.y_test), split.y


def _split(images: np.ndarray, labels: np.ndarray, n: int, alpha: float, seed: int) -> Clients:
    """Clients by label, each with 60/20/20 of its instances for training, validation and test."""
    rng = np.random.default_rng([seed, 2])
    parts = [rng.permutation(p) for p in dirichlet_partition(labels, n, alpha, seed, min_per_client=5)]
    cuts = [np.split(p, [round(0.6 * p.size), round(0.8 * p.size)]) for p in parts]
    X, X_val, X_test = ([images[cut[k]] for cut in cuts] for k in range(3))
    y, y_val, y_test = ([labels[cut[k]] for cut in cuts] for k in range(3))
    return Clients(X, y, X_val, y_val, n_classes=10, name="digits", X_test=X_test, y_test=y_test)


def from_settings(settings: Mapping[str, Any]) -> Any:
    """`clients` of an experiment's settings."""
    names = ("data", "side", "smooth", "share", "n", "alpha", "l2", "seed", "backend", "dtype")
    return clients(*(settings[name] for name in names))


def network(side: int, smooth: bool = False) -> neural.Sequential:
    """The paper's CNN for 28 × 28, smaller ones of the same kind for less: convolutions, ReLU, largest of 2 × 2.

    smooth, for 8 × 8: tanh and means of 2 × 2, which have second derivatives everywhere.
    """
    if side == 28:
        return neural.influence_cnn()
    bend, pool = (neural.Tanh, neural.AvgPool2d) if smooth else (neural.ReLU, neural.MaxPool2d)
    begin = ((1, side, side), neural.Conv2d(1, 6, 3), bend(), pool(2))
    end = (bend(), neural.Flatten(), neural.Linear(24, 10))
    if side == 14:  # 12 × 12, 6 × 6, 4 × 4, 2 × 2
        return neural.Sequential(*begin, neural.Conv2d(6, 6, 3), pool(2), *end)
    if side == 8:  # 6 × 6, 3 × 3, 2 × 2: no room for another pooling
        return neural.Sequential(*begin, neural.Conv2d(6, 6, 2), *end)
    raise ValueError(f"side={side} given, needed 8, 14 or 28")


def _digits(count: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` of scikit-learn's digits, (count, 1, 8, 8) in [0, 1]."""
    source = digit_images()
    drawn = source.take(np.random.default_rng([seed, 1]).permutation(len(source))[: int(count)])
    return drawn.images[:, None] / drawn.white, drawn.labels


def _emnist(share: float, side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """EMNIST digits: those in a random `share` of byclass if below 1, else that many; (N, 1, side, side) in [0, 1]."""
    source = emnist_byclass()
    order = np.random.default_rng([seed, 1]).permutation(len(source))
    if share < 1:
        drawn = order[: round(share * BYCLASS_IMAGES)]
        drawn = drawn[source.labels[drawn] < 10]
    else:
        drawn = order[source.labels[order] < 10][: int(share)]
    images = source.take(drawn).shrunk(side)
    return images.images[:, None] / images.white, images.labels.astype(np.int64)
