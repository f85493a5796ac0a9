"""Softmax regression with learnt L2 rates:  g_i = mean_k CE(X_ik U, y_ik) + 1/2 x^T diag(lam_i) x,  x = U flattened."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.backend import array_namespace, to_host
from hgp_ref.memory import room
from hgp_ref.problems.losses import SoftmaxLoss
from hgp_ref.problems.reading import Data, pad, read_labels
from hgp_ref.problems.regularized import RegularizedLinear


class SoftmaxRegression(RegularizedLinear):
    """Cross-entropy of C classes; x_i is the (d, C) weight matrix flattened row by row, d_x = d C.

    X, X_val: (n, N, d) or lists of n arrays (N_i, d); y, y_val: classes 0 .. C-1, (n, N) or lists of (N_i,).
    n_classes: C, by default the largest label plus one. regularization: as in LogisticRegression.

    Parameters
    ----------
    X, y : array (n, N, d) and (n, N), or lists
        Training data and classes.
    X_val, y_val : likewise
        Validation data.
    n_classes : int, optional
        By default one more than the largest label.
    regularization : {"coordinate", "client"}
        A rate for every coordinate, or one for a client.

    Examples
    --------
    >>> data = hgp.data.digits(n_clients=3)
    >>> hgp.problems.SoftmaxRegression(data.X, data.y, data.X_val, data.y_val, 10).dim_x
    650
    """

    conforms = True  # what as_problem need not check

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, n_classes: int | None = None, *,
                 regularization: str = "coordinate") -> None:  # fmt: skip
        loss = softmax_loss(X, y, y_val, n_classes)
        super().__init__(X, y, X_val, y_val, loss, regularization)
        self.n_classes = loss.logits


def softmax_loss(X: Data, y: Data, y_val: Data, n_classes: int | None) -> SoftmaxLoss:
    """The loss for `n_classes` classes, counted from the labels if not given."""
    if n_classes is None:
        features, _ = pad("X", X, 2)
        labels = [read_labels(name, part, features)[0] for name, part in (("y", y), ("y_val", y_val))]
        n_classes = 1 + max(int(to_host(array_namespace(part).max(part))) for part in labels)
        if n_classes < 2:
            raise ValueError("y, y_val: all labels are 0, needed at least two classes, or n_classes")
    n_classes = arguments.integer("n_classes", n_classes, 2)
    room(f"n_classes={n_classes}", 16 * n_classes)  # at least: one-hot labels, and d_x of several numbers a class
    return SoftmaxLoss(n_classes)
