"""The two convolutional networks of the paper (its appendix has them as tables)."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.neural.activations import ReLU
from hgp_ref.neural.conv import Conv2d
from hgp_ref.neural.flatten import Flatten
from hgp_ref.neural.linear import Linear
from hgp_ref.neural.pooling import MaxPool2d
from hgp_ref.neural.sequential import Sequential


def influence_cnn(classes: int = 10) -> Sequential:
    """The network of the influence experiment on images of 28 x 28: 13,750 parameters for 10 classes.

    Parameters
    ----------
    classes : int
        Outputs.

    Returns
    -------
    Sequential
        13,750 parameters for 10 classes.

    Raises
    ------
    TypeError, ValueError
        `classes` must be an integer ≥ 1.

    Examples
    --------
    >>> hgp.neural.influence_cnn().dim
    13750
    """
    classes = arguments.integer("classes", classes)
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 20, 5), ReLU(), MaxPool2d(2),
        Conv2d(20, 20, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(320, classes),
    )  # fmt: skip


def personalization_cnn(classes: int = 62) -> Sequential:
    """The network of the personalization experiment on images of 28 x 28: 2,278,334 parameters for 62 classes.

    The paper's table lists the layers without their ReLUs; one follows each hidden layer.

    Parameters
    ----------
    classes : int
        Outputs.

    Returns
    -------
    Sequential
        2,278,334 parameters for 62 classes.

    Raises
    ------
    TypeError, ValueError
        `classes` must be an integer ≥ 1.

    Examples
    --------
    >>> hgp.neural.personalization_cnn().dim
    2278334
    """
    classes = arguments.integer("classes", classes)
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 32, 5), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(1024, 2048), ReLU(), Linear(2048, classes),
    )  # fmt: skip
