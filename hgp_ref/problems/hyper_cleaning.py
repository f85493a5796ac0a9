"""Hyper-cleaning:  g_i = (1/N_i) Σ_k σ(λ_ik) l_ik(x) + (l2/2) |x|²,   f_i = mean loss on validation instances.

Labels of some training instances are wrong, nobody knows which. λ is learnt so that the model does well on validation
instances, whose labels are right: the weights σ(λ_ik) of wrong ones fall. ∂_λ f = 0, so that all of the hyper-gradient
comes through x: without the terms of the series (M = 0) there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, array_namespace
from hgp_ref.problems import constants
from hgp_ref.problems.arrays import check_argument
from hgp_ref.problems.elementwise import Elementwise
from hgp_ref.problems.instance_weights import InstanceWeights
from hgp_ref.problems.losses import sigmoid
from hgp_ref.problems.reading import Data


class HyperCleaning(Elementwise):
    """Softmax regression with a weight σ(λ_ik) on training instance k of client i.

    X, y, X_val, y_val: as in SoftmaxRegression; l2: the L2 rate of x. lam is (n, N_max), its columns beyond N_i are
    padding with zero derivative; λ = 0 weighs all instances by 1/2.

    Parameters
    ----------
    X, y : arrays or lists
        Training data, some of whose labels may be wrong.
    X_val, y_val : arrays or lists
        Validation data.
    l2 : float
        Rate of the L2 term.
    n_classes : int, optional
        By default one more than the largest label.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(2, 3, 20, 2))  # 3 clients, 20 training and 20 validation instances each
    >>> X[0, 0] = 2, 0
    >>> y, y_val = ((A[..., 0] > 0).astype(int) for A in (X, X_val))
    >>> y[0, 0] = 0  # a wrong label
    >>> problem = hgp.problems.HyperCleaning(X, y, X_val, y_val, l2=0.1)
    >>> lam = np.zeros((3, 20))
    >>> v = hgp.exact.hypergradient(problem, hgp.exact.inner_solution(problem, lam), lam)
    >>> tuple(map(int, np.unravel_index(v.argmax(), v.shape)))  # whose weight does most harm
    (0, 0)
    """

    conforms = True  # what as_problem need not check

    def __init__(
        self, X: Data, y: Data, X_val: Data, y_val: Data, l2: float = 1e-3, *, n_classes: int | None = None
    ) -> None:
        weighted = InstanceWeights(X, y, X_val, y_val, loss="softmax", n_classes=n_classes, l2=l2)
        super().__init__(weighted)
        self.l2, self.n_classes = weighted.l2, weighted._loss.logits

    def weights(self, lam: Array) -> Array:
        """σ(λ).  # (n, N_max)

        Parameters
        ----------
        lam : (n, N_max).

        Returns
        -------
        (n, N_max) in (0, 1).
        """
        check_argument("lam", lam, self._like(), (self.n_clients, self.dim_lam), "n_clients, dim_lam")
        return self._value(lam)

    def jacobian_norms(self, x: Array, lam: Array) -> np.ndarray:
        """‖diag(σ') J_i‖_F from the lengths of its rows.  # (n,) on the host

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, N_max).

        Returns
        -------
        (n,) on the host.
        """
        weighted: Any = self._inner.given
        lengths = weighted._row_lengths(x, self._at(x, lam))
        return rigorous.norms(constants.host(self._slope(lam)) * lengths)

    def _value(self, theta: Array) -> Array:
        return sigmoid(theta, xp=array_namespace(theta))

    def _slope(self, theta: Array) -> Array:
        xp = array_namespace(theta)
        return sigmoid(theta, xp=xp) * sigmoid(-theta, xp=xp)
