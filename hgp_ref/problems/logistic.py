"""Logistic regression with learnt L2 rates:  g_i = mean_k BCE(X_ik x, y_ik) + 1/2 x^T diag(lam_i) x."""

from __future__ import annotations

from hgp_ref.problems.losses import BinaryLoss
from hgp_ref.problems.reading import Data
from hgp_ref.problems.regularized import RegularizedLinear


class LogisticRegression(RegularizedLinear):
    """Binary cross-entropy of a linear model; the outer cost is the mean loss on validation instances.

    X, X_val: (n, N, d) or lists of n arrays (N_i, d); y, y_val: labels 0 or 1, (n, N) or lists of (N_i,).
    regularization: "coordinate", lam (n, d), or "client", lam (n, 1) for lam_i/2 |x|^2. No bias is added: append a
    column of ones for one (it is then regularised like any other coordinate).

    Parameters
    ----------
    X, y : array (n, N, d) and (n, N), or lists
        Training data; y in {0, 1}.
    X_val, y_val : likewise
        Validation data.
    regularization : {"coordinate", "client"}
        A rate for every coordinate, or one for a client.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> problem.inner_cost(np.zeros((3, 6)), np.zeros((3, 6))).round(4)
    array([0.6931, 0.6931, 0.6931])
    """

    conforms = True  # what as_problem need not check

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, *, regularization: str = "coordinate") -> None:
        super().__init__(X, y, X_val, y_val, BinaryLoss(), regularization)
