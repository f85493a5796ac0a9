"""Mean loss plus L2 terms with learnt rates:  g_i = mean_k l_ik + 1/2 x^T diag(lam_i) x  or  + lam_i/2 |x|^2."""

from __future__ import annotations

from collections.abc import Callable

from hgp_ref import arguments
from hgp_ref.backend import Array, device
from hgp_ref.problems import constants
from hgp_ref.problems.arrays import expand
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.instances import View
from hgp_ref.problems.linear import Batch, LinearProblem
from hgp_ref.problems.linear_sizes import LinearSizes
from hgp_ref.problems.losses import Loss
from hgp_ref.problems.reading import Data


class RegularizedLinear(LinearProblem):
    """lam holds a rate per coordinate, (n, d_x), or one per client, (n, 1)."""

    weighs_instances = False

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, loss: Loss, regularization: str) -> None:
        arguments.choice("regularization", regularization, ("coordinate", "client"))
        super().__init__(X, y, X_val, y_val, loss)
        self.regularization = regularization
        self.dim_lam = self.dim_x if regularization == "coordinate" else 1

    def _weight(self, lam: Array, view: View) -> Array:
        return view.mean

    def _rate(self, lam: Array) -> Array:
        return lam

    def _cross(self, x: Array, slope: Callable[[], Array], view: View, u: Array, along: Array | None = None) -> Array:
        product = x * u  # lam_ij meets x through lam_ij x_j
        return product if self.dim_lam == self.dim_x else self._xp.sum(product, axis=-1, keepdims=True)

    def _cross_errors(self, sizes: LinearSizes, x: Array, u: Array) -> Array:
        product = x * u + sizes.tiny
        if self.dim_lam == self.dim_x:
            return product
        return (self.dim_x + 1) * self._xp.sum(product, axis=-1, keepdims=True)

    def jacobian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """diag(x_i), or the row x_i^T.  # (n, d_lam, d_x)"""
        _, lead = self._enter(x, lam, batch)
        full = x[..., None, :]
        if self.regularization == "coordinate":
            full = full * self._xp.eye(self.dim_x, dtype=x.dtype, device=device(x))
        return expand(full, lead, 3, xp=self._xp)

    def jacobian_norms(self, x: Array, lam: Array) -> Array:
        """‖J_i‖ = max_j |x_ij|, or |x_i|, without the matrices.  # (n,)"""
        xp = self._xp
        self._enter(x, lam, None)
        if self.regularization == "coordinate":
            return xp.max(xp.abs(x), axis=-1)
        peak = xp.max(xp.abs(x), axis=-1, keepdims=True)  # squares of x itself may leave the range
        scale = xp.where(peak > 0, peak, xp.ones_like(peak))
        return xp.sqrt(xp.sum((x / scale) ** 2, axis=-1)) * scale[..., 0]

    def lipschitz(self, lam: Array) -> Lipschitz | None:
        """Constants along x; the mean cost has the smallest mean rate as its modulus. None beyond floating point."""
        self._check_lam(lam)
        mean = constants.host(self._train.all.mean)
        return self._lipschitz(mean, 1.0, constants.mean_rate(constants.host(lam)))
