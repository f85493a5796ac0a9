"""A personal mixture of K shared networks (HGP-MTL):  l = -log Σ_c w_c P_c(y),  w = softmax(λ_i),  P_c = softmax(z_c).

With e_c = -CE(z_c, y) = log P_c(y) this is  l = lse(λ) - lse(λ + e),  lse = log Σ exp, and nothing under- or overflows.
With the responsibilities r = softmax(λ + e) and  ė_c = -<CE'_c, ż_c>:

    ∂l/∂z_c = r_c CE'_c,       ṙ_c = r_c (ė_c - <r, ė>)
    (∂²l/∂z²) ż = ṙ_c CE'_c + r_c CE''_c ż_c
    ∂l/∂λ = w - r,   and along ż:  -ṙ
"""

from __future__ import annotations

from typing import Any

from hgp_ref.backend import Array, Namespace, device
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import softmax
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_data import classes_of
from hgp_ref.problems.neural_parts import Rows


class MixedCrossEntropy(NeuralCost):
    """Minus the log of the weighted mean of probabilities; z is (n, N, K, C), λ (n, K)."""

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        joint = lam[:, None, :] + self._log_likelihood(z, view, xp)
        return _log_sum_exp(lam, xp)[:, None] - _log_sum_exp(joint, xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.responsibility(z, lam, view, xp)[..., None] * self._slopes(z, view, xp)

    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        r, r_dot, slopes = self._moving(z, lam, view, z_dot, xp)
        return r_dot[..., None] * slopes + r[..., None] * self.curved(z, z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        gap = softmax(lam, xp=xp)[:, None, :] - self.responsibility(z, lam, view, xp)
        return xp.sum(view.mean[..., None] * gap, axis=1)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return -xp.sum(view.mean[..., None] * self._moving(z, lam, view, z_dot, xp)[1], axis=1)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        """Σ_c w_c P_c."""
        return xp.sum(softmax(lam, xp=xp)[:, None, :, None] * softmax(z, xp=xp), axis=2)

    def _log_likelihood(self, z: Array, view: View, xp: Namespace) -> Array:
        """e.  # (n, N, K)"""
        return -self.loss.value(z, self._targets(z, view, xp), xp=xp)

    def _slopes(self, z: Array, view: View, xp: Namespace) -> Array:
        """CE' of every component.  # (n, N, K, C)"""
        return self.loss.slope(z, self._targets(z, view, xp), xp=xp)

    def _targets(self, z: Array, view: View, xp: Namespace) -> Array:
        return xp.broadcast_to(view.targets[:, :, None, :], z.shape)

    def responsibility(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """r.  # (n, N, K)"""
        return softmax(lam[:, None, :] + self._log_likelihood(z, view, xp), xp=xp)

    def _moving(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> tuple[Array, Array, Array]:
        """r, ṙ and CE'."""
        r, slopes = self.responsibility(z, lam, view, xp), self._slopes(z, view, xp)
        e_dot = -xp.sum(slopes * z_dot, axis=-1)
        return r, r * (e_dot - xp.sum(r * e_dot, axis=-1, keepdims=True)), slopes


class PersonalMixture(NeuralProblem):
    """HGP-MTL: clients train `components` networks together, and each mixes their probabilities by softmax(λ_i).

    x holds the components' parameters one after the other; `problem.model.init(n, seed)` starts component k from
    seed + k. f_i is the mean loss on training instances (or on X_val, y_val, if given) plus (outer_l2/2)|λ_i|².

    Parameters
    ----------
    model : Sequential
        The architecture of every component.
    X, y : arrays or lists
        Training data.
    X_val, y_val : arrays or lists, optional
        Validation data; by default f_i is on training data.
    components : int
        How many networks are mixed.
    l2, outer_l2 : float
        Rates of the L2 terms on x and on λ.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.PersonalMixture(model, X, y, components=2).dim_x
    30
    """

    weighs_instances = False

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, components: int = 3,
                 l2: float = 1e-3, outer_l2: float = 1e-2) -> None:  # fmt: skip
        ensemble = Ensemble(model, components)
        cost = MixedCrossEntropy(classes_of(model), ensemble.components)
        super().__init__(ensemble, cost, X, y, X_val, y_val, l2=l2, outer_l2=outer_l2)

    def responsibilities(self, x: Array, lam: Array) -> Array:
        """r of every training instance, 0 behind a client's own: the E step of a mixture.  # (n, N, K)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).

        Returns
        -------
        (n, N, K).
        """
        parts, xp = self._enter(x, lam), self._xp
        longest, rows = int(self.counts.max()), Rows((self.n_clients, int(self.counts.max()), lam.shape[1]), x)
        for part in parts:
            z = self.model.logits(x[part.clients, :], part.images)
            r = self.cost.responsibility(z, lam[part.clients, :], part.view, xp)  # type: ignore[attr-defined]
            rest = xp.zeros((r.shape[0], longest - r.shape[1], r.shape[2]), dtype=r.dtype, device=device(r))
            rows.put(part.clients, xp.concat([r, rest], axis=1))
        return rows.array(xp)


def _log_sum_exp(a: Array, xp: Namespace) -> Array:
    top = xp.max(a, axis=-1, keepdims=True)
    return top[..., 0] + xp.log(xp.sum(xp.exp(a - top), axis=-1))
