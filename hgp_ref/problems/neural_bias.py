"""A personal shift of the logits of a shared network:  l = CE(z + λ_i, y).

∂l/∂z = ∂l/∂λ = CE'(z + λ),      (∂²l/∂z²) ż = (∂²l/∂λ∂z) ż = CE''(z + λ) ż
"""

from __future__ import annotations

from typing import Any

from hgp_ref.backend import Array, Namespace
from hgp_ref.neural import Sequential
from hgp_ref.problems.instances import View
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_data import classes_of


class ShiftedCrossEntropy(NeuralCost):
    """Cross-entropy of shifted logits."""

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(self.scores(z, lam, xp), view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.slope(self.scores(z, lam, xp), view.targets, xp=xp)

    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self.curved(self.scores(z, lam, xp), z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return xp.sum(view.mean[..., None] * self.slope(z, lam, view, xp), axis=1)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return xp.sum(view.mean[..., None] * self.bend(z, lam, view, z_dot, xp), axis=1)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        return z + lam[:, None, :]


class PersonalBias(NeuralProblem):
    """Clients train one network together, and each adds λ_i to its logits.

    f_i is the mean loss on training instances (or on X_val, y_val, if given) plus (outer_l2/2)|λ_i|². With the shares
    of the classes p_i at the client and p̄ at all, λ_i = log p_i − log p̄ is Bayes' rule for other class frequencies.

    Parameters
    ----------
    model : Sequential
        Whose outputs are logits.
    X, y : arrays or lists
        Training instances and their classes, of each client.
    X_val, y_val : arrays or lists, optional
        Instances of f, those of training by default.
    l2, outer_l2 : float
        Rates of the L2 terms on x and on λ.

    Examples
    --------
    >>> from hgp_ref.neural import Linear, Sequential
    >>> model, X, y = Sequential((2,), Linear(2, 3)), np.ones((1, 4, 2)), np.array([[0, 1, 2, 1]])
    >>> problem = hgp.problems.PersonalBias(model, X, y)
    >>> problem.accuracy(np.zeros((1, 9)), np.log([[0.2, 0.5, 0.3]]))
    array([0.5])
    """

    weighs_instances = False

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, l2: float = 1e-3,
                 outer_l2: float = 1e-3) -> None:  # fmt: skip
        classes = classes_of(model)
        super().__init__(model, ShiftedCrossEntropy(classes, classes), X, y, X_val, y_val, l2=l2, outer_l2=outer_l2)
