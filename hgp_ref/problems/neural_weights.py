"""A weight for every training instance of a network:  l_k = λ_ik CE(z_k, y_k).

    ∂l/∂z = λ CE',    (∂²l/∂z²) ż = λ CE'' ż,    ∂l_k/∂λ_k = CE_k,    its derivative along ż: <CE'_k, ż_k>

At λ = 1 this is the usual mean. f is the plain mean loss on validation instances.
"""

from __future__ import annotations

from typing import Any

from hgp_ref.backend import Array, Namespace, device
from hgp_ref.neural import Sequential
from hgp_ref.problems.instances import View
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.neural_cost import CrossEntropy, NeuralCost
from hgp_ref.problems.neural_data import classes_of, longest_of


class WeightedCrossEntropy(NeuralCost):
    """λ holds a weight for each of the instances of a client, up to those of the longest one."""

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._weights(lam, view, xp) * self.loss.value(z, view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._weights(lam, view, xp)[..., None] * self.loss.slope(z, view.targets, xp=xp)

    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self._weights(lam, view, xp)[..., None] * self.curved(z, z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._spread(view.mean * self.loss.value(z, view.targets, xp=xp), view, xp)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        each = xp.sum(self.loss.slope(z, view.targets, xp=xp) * z_dot, axis=-1)
        return self._spread(view.mean * each, view, xp)

    def _weights(self, lam: Array, view: View, xp: Namespace) -> Array:
        """λ of the instances of `view`.  # (n, N)"""
        if view.index is None:
            return lam[:, : view.mean.shape[1]]
        return xp.take_along_axis(lam, view.index, axis=-1)

    def _spread(self, each: Array, view: View, xp: Namespace) -> Array:
        """Numbers of instances put where their λ stand; an instance that is there twice adds up.  # (n, d_λ)"""
        if view.index is None:
            rest = xp.zeros((each.shape[0], self.dim_lam - each.shape[1]), dtype=each.dtype, device=device(each))
            return xp.concat([each, rest], axis=1)
        numbers = xp.arange(self.dim_lam, dtype=xp.int64, device=device(each))
        places = xp.astype(view.index[..., None] == numbers, each.dtype)  # (n, b, d_λ)
        return xp.matmul(each[:, None, :], places)[:, 0, :]


class NeuralInstanceWeights(NeuralProblem):
    """Influence of training instances on a network: g_i = (1/N_i) Σ_k λ_ik CE_ik + (l2/2)|x|², f_i the validation loss.

    X: (n, N, *model.input_shape) or a list of n arrays (N_i, ...); y: classes, (n, N) or a list; X_val, y_val likewise.
    λ is (n, N_max); its columns beyond N_i are padding with zero derivative. A mini-batch cost is the mean over the
    batch of λ_ik CE_ik, plus the L2 term.

    Parameters
    ----------
    model : Sequential
        Whose outputs are logits.
    X, y : arrays or lists
        Training data, as above.
    X_val, y_val : arrays or lists
        Validation data.
    l2 : float
        Rate of the L2 term.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.NeuralInstanceWeights(model, X, y, X, y).dim_lam
    5
    """

    weighs_instances = True

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any, y_val: Any, l2: float = 1e-3) -> None:
        classes, longest = classes_of(model), longest_of("X", X)
        cost, outer = WeightedCrossEntropy(classes, longest), CrossEntropy(classes, longest)
        super().__init__(model, cost, X, y, X_val, y_val, outer=outer, l2=l2)
