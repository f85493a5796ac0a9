"""A personal mask on the logits of a shared network (HGP-PL):  l = CE(a, y),  a = z ∘ m,  m = s softmax(λ_i).

With p = CE'(a), σ = softmax(λ) and q_k = z_k ∘ p_k, the derivative of l_k along m:

    ∂l/∂z = m ∘ p,    (∂²l/∂z²) ż = m ∘ CE''(a)(m ∘ ż)
    ∂l/∂λ = (∂m/∂λ)^T q = m ∘ (q - <σ, q>),   and along ż the same of  q̇ = ż ∘ p + z ∘ CE''(a)(m ∘ ż)
"""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace
from hgp_ref.neural import Sequential
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import softmax
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_data import classes_of


class MaskedCrossEntropy(NeuralCost):
    """Cross-entropy of masked logits; `scale` is s."""

    sizes_known = True

    def __init__(self, classes: int, scale: float) -> None:
        super().__init__(classes, classes)
        self.scale = scale

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(self.scores(z, lam, xp), view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        return m * self.loss.slope(m * z, view.targets, xp=xp)

    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        return m * self.curved(m * z, m * z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        p = self.loss.slope(self.scores(z, lam, xp), view.targets, xp=xp)
        return self._pull(z * p, lam, view, xp)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        p = self.loss.slope(m * z, view.targets, xp=xp)
        return self._pull(z_dot * p + z * self.curved(m * z, m * z_dot, xp), lam, view, xp)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        return self._mask(lam, xp) * z

    def _mask(self, lam: Array, xp: Namespace) -> Array:
        """m, beside every instance.  # (n, 1, C)"""
        return self.scale * softmax(lam, xp=xp)[:, None, :]

    def _pull(self, q: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """(∂m/∂λ)^T of the weighted sum of q.  # (n, C)"""
        total = xp.sum(view.mean[..., None] * q, axis=1)
        sigma = softmax(lam, xp=xp)
        return self.scale * sigma * (total - xp.sum(sigma * total, axis=-1, keepdims=True))


class PersonalMask(NeuralProblem):
    """HGP-PL: clients train one network together, and each multiplies its logits by s softmax(λ_i).

    f_i is the mean loss on training instances (or on X_val, y_val, if given) plus (outer_l2/2)|λ_i|². scale: s; the
    number of classes by default, as the authors ran it, so that λ = 0 changes nothing; their text has s = 1.

    Parameters
    ----------
    model : Sequential
        Whose outputs are logits.
    X, y : arrays or lists
        Training data.
    X_val, y_val : arrays or lists, optional
        Validation data; by default f_i is on training data.
    l2, outer_l2 : float
        Rates of the L2 terms on x and on λ.
    scale : float, optional
        s.

    Raises
    ------
    TypeError, ValueError
        As for the other neural problems; `scale` must be positive.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.PersonalMask(model, X, y).dim_lam
    3
    """

    weighs_instances = False

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, l2: float = 1e-3,
                 outer_l2: float = 1e-3, scale: float | None = None) -> None:  # fmt: skip
        classes = classes_of(model)
        self.scale = float(classes) if scale is None else arguments.positive("scale", scale)
        cost = MaskedCrossEntropy(classes, self.scale)
        super().__init__(model, cost, X, y, X_val, y_val, l2=l2, outer_l2=outer_l2)
