"""Labelled grey images, and the steps from them to clients:

    emnist_byclass().sample(0.01).only(range(10)).clients(3)                     the paper's influence experiment
    emnist_byclass().sample(81_425).clients(100).clustered(*draw_clusters(3))    its personalization experiment
    digit_images().clients(10)                                                   without a download

Pixels go from 0 to `white`; clients get them divided by it, as (N_i, 1, H, W) arrays in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from hgp_ref import arguments
from hgp_ref.data.clients import Clients, Part
from hgp_ref.data.split import check_shares, split_over_clients
from hgp_ref.results import Result

Self = TypeVar("Self", bound="Images")


@dataclass(frozen=True)
class Images(Result):
    """N images with their labels.

    Parameters
    ----------
    images : (N, H, W), uint8 as read.
    labels : (N,) integers 0 … n_classes − 1.
    split : "train" or "test", where there are two.
    name : of the data.
    n_classes : given as 0: the largest label and one.
    white : the value of the brightest pixel.

    Raises
    ------
    TypeError, ValueError
        Images must be (N, H, W), finite, labels (N,) integers 0 … n_classes − 1.

    Examples
    --------
    >>> images = hgp.data.Images(np.zeros((4, 8, 8)), np.array([0, 1, 2, 1]), n_classes=3)
    >>> images.only([1]).labels
    array([0, 0])
    """

    images: np.ndarray
    labels: np.ndarray
    split: str = ""
    name: str = "images"
    n_classes: int = 0
    white: int = 255

    def __post_init__(self) -> None:
        arguments.plain_numbers("images", self.images, "uif")
        arguments.plain_numbers("labels", self.labels, "iu")
        arguments.kind("split", self.split, str)
        arguments.kind("name", self.name, str)
        arguments.integer("n_classes", self.n_classes, 0, arguments.LONGEST)
        arguments.integer("white", self.white)
        if self.images.ndim != 3 or self.labels.shape != self.images.shape[:1] or self.labels.size == 0:
            raise ValueError(
                f"images {self.images.shape} and labels {self.labels.shape} do not fit together, "
                "needed (N, H, W) and (N,) with N >= 1"
            )
        if self.images.dtype.kind == "f":
            arguments.finite("images", self.images)
        top = int(self.labels.max())
        if self.n_classes == 0:
            object.__setattr__(self, "n_classes", top + 1)
        if not 0 <= int(self.labels.min()) <= top < self.n_classes:
            raise ValueError(f"labels: {self.labels.min()} … {top} given, needed 0 … {self.n_classes - 1}")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self: Self, which: np.ndarray) -> Self:
        """The images with the numbers `which`, or those where `which` (N,) is True.

        Parameters
        ----------
        which : indices, or booleans (N,).

        Returns
        -------
        Images.
        """
        numbers, N = arguments.host_array("which", which), len(self)
        if numbers.dtype.kind == "b" and numbers.shape == (N,):
            numbers = np.flatnonzero(numbers)
        arguments.plain_numbers("which", numbers, "iu")
        if numbers.ndim != 1 or numbers.size == 0:
            raise ValueError(f"which: numbers of shape {numbers.shape} given, needed a list of at least one image")
        if numbers.min() < -N or numbers.max() >= N:
            raise ValueError(f"which: {numbers.min()} … {numbers.max()} given, needed numbers of the {N} images")
        return replace(self, images=self.images[numbers], labels=self.labels[numbers])

    def sample(self: Self, size: float, seed: int = 0) -> Self:
        """A random choice of images, in their order: `size` of them, or for a float that share, rounded down.

        Drawn without replacement by NumPy's generator seeded with [seed, 4]. 10 % of the 814,255 images of EMNIST
        byclass are 81,425.

        Parameters
        ----------
        size : an integer, or a share as a float.
        seed : of the choice.

        Returns
        -------
        Images.
        """
        N = len(self)
        if isinstance(size, float | np.floating):
            share = arguments.probability("size", size)
            count = math.floor(Fraction(repr(share)) * N)  # the decimal as it is written: 0.29 of 100 are 29
        else:
            count = arguments.integer("size", size, 1, N)
        if count < 1:
            raise ValueError(f"size={size} given, which is none of {N} images, needed at least one")
        rng = np.random.default_rng([arguments.integer("seed", seed, 0), 4])
        return self.take(np.sort(rng.permutation(N)[:count]))

    def only(self: Self, labels: Iterable[int]) -> Self:
        """The images that carry one of `labels`, which become 0, 1, 2 … in the order given.

        Parameters
        ----------
        labels : those to keep.

        Returns
        -------
        Images.
        """
        if not isinstance(labels, Iterable) or getattr(labels, "ndim", 1) == 0:
            raise TypeError(f"labels={labels!r} given ({type(labels).__name__}), needed a list of labels")
        wanted = [arguments.integer(f"labels[{k}]", c, 0, self.n_classes - 1) for k, c in enumerate(labels)]
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(f"labels={wanted} given, needed different labels, at least one")
        which = np.flatnonzero(np.isin(self.labels, wanted))
        if which.size == 0:
            raise ValueError(f"labels={wanted} given, which none of the {len(self)} images carries")
        number = np.zeros(self.n_classes, dtype=self.labels.dtype)
        number[wanted] = np.arange(len(wanted))
        return replace(self, images=self.images[which], labels=number[self.labels[which]], n_classes=len(wanted))

    def upright(self: Self) -> Self:
        """The images with rows and columns exchanged: EMNIST is stored transposed.

        Returns
        -------
        Images.
        """
        return replace(self, images=np.ascontiguousarray(self.images.transpose(0, 2, 1)))

    def shrunk(self: Self, size: int) -> Self:
        """Images of size × size pixels, each the mean of a block of pixels (28 to 14: blocks of 2 × 2), as float64.

        Parameters
        ----------
        size : pixels of a side; it must divide those there are.

        Returns
        -------
        Images.
        """
        size = arguments.integer("size", size)
        N, H, W = self.images.shape
        if H % size or W % size:
            raise ValueError(f"size={size} given, needed a divisor of {H} and {W}")
        blocks = self.images.reshape(N, size, H // size, size, W // size)
        return replace(self, images=blocks.mean(axis=(2, 4), dtype=np.float64))

    def clients(self, n_clients: int, alpha: float = 0.4, seed: int = 0, *, validation: float = 0.2, test: float = 0.2,
                dtype: str = "float32") -> Clients:  # fmt: skip
        """The images over clients by label, Dirichlet(alpha 1_n) for each, then 60 / 20 / 20 inside each client.

        See `data.split` for the rule and the generators.

        Parameters
        ----------
        n_clients : n.
        alpha : of the Dirichlet distribution: the smaller, the more clients differ.
        seed : of partition and split.
        validation : share.
        test : share.
        dtype : of the inputs.

        Returns
        -------
        Clients.
        """
        arguments.choice("dtype", dtype, ("float32", "float64"))
        shares = check_shares(validation, test)
        train, held_out, kept = split_over_clients(self.labels, n_clients, alpha, seed, *shares)

        def part(indices: list[np.ndarray], share: float) -> Part:
            inputs = [(self.images[k] / self.white).astype(dtype)[:, None] for k in indices if share > 0]
            return inputs, [self.labels[k].astype(np.int64) for k in indices if share > 0]

        parts = [part(train, 1.0), part(held_out, shares[0]), part(kept, shares[1])]
        (X, y), (X_val, y_val), (X_test, y_test) = parts
        return Clients(X, y, X_val, y_val, self.n_classes, self.name, X_test, y_test)
