"""A cost of one instance as a function of a network's outputs z and of the client's λ: what a user writes.

    g_i(x, λ_i) = Σ_k mean_ik l(z_ik(x), λ_i) + (l2/2) |x|²

The network's derivatives are known; a cost adds those of l. With a dot for the derivative along a direction u of x,
which moves outputs by ż, five functions give every derivative that hyper-gradients need:

    value       l                                    # (n, N)
    slope       ∂l/∂z                                # (n, N, *output_shape)
    bend        (∂²l/∂z²) ż                          # (n, N, *output_shape)
    along_lam   Σ_k mean_k ∂l_k/∂λ                   # (n, d_λ)
    cross       Σ_k mean_k (∂²l_k/∂λ∂z) ż_k          # (n, d_λ)

Arguments: z (n, N, *output_shape), lam (n, d_λ), view with `targets` (n, N, C) one-hot booleans, `mean` (n, N) the
weight of each instance in its client's mean and `index` (n, N) or None, which instances they are; xp the array library.
n may be any run of clients and N their number of instances, so nothing may mix clients. Answers are checked for their
shape and dtype; z, lam and ż must be left as they are (on NumPy they are read-only). Large problems ask from several
threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from hgp_ref import validation
from hgp_ref.backend import Array, Namespace, is_numpy
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import SoftmaxLoss


class NeuralCost(ABC):
    """Cross-entropy that λ acts on; see the module. `loss` has the derivatives of cross-entropy in its logits.

    Parameters
    ----------
    classes : int
        C, the number of classes.
    dim_lam : int
        d_λ, numbers in a client's λ.

    Examples
    --------
    A bias of each client's own on the logits, l = CE(z + λ_i, y), a = z + λ_i: ∂l/∂z = ∂l/∂λ = CE'(a).

    >>> class OwnBias(hgp.problems.NeuralCost):
    ...     def value(self, z, lam, view, xp):
    ...         return self.loss.value(z + lam[:, None, :], view.targets, xp=xp)
    ...     def slope(self, z, lam, view, xp):
    ...         return self.loss.slope(z + lam[:, None, :], view.targets, xp=xp)
    ...     def bend(self, z, lam, view, z_dot, xp):
    ...         return self.curved(z + lam[:, None, :], z_dot, xp)
    ...     def along_lam(self, z, lam, view, xp):
    ...         return xp.sum(view.mean[..., None] * self.slope(z, lam, view, xp), axis=1)
    ...     def cross(self, z, lam, view, z_dot, xp):
    ...         return xp.sum(view.mean[..., None] * self.bend(z, lam, view, z_dot, xp), axis=1)
    ...     def scores(self, z, lam, xp):
    ...         return z + lam[:, None, :]

    >>> import numpy as np, hgp_ref as hgp
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((2, 6, 4)), rng.integers(0, 3, (2, 6))
    >>> problem = hgp.problems.NeuralProblem(model, OwnBias(3, 3), X, y, l2=0.1, outer_l2=0.1)
    >>> x, lam = model.init(2), np.zeros((2, 3))
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=0.5, iterations=400)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-8)
    True
    """

    # Costs of this package say sizes_known = True: `neural_sizes` evaluates their text, too. It is not inherited.

    def __init__(self, classes: int, dim_lam: int) -> None:
        self.loss, self.dim_lam = SoftmaxLoss(classes), validation.integer("dim_lam", dim_lam, 1, validation.LONGEST)

    @abstractmethod
    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """l of every instance.  # (n, N)"""

    @abstractmethod
    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """∂l/∂z.  # (n, N, *output_shape)"""

    @abstractmethod
    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        """(∂²l/∂z²) ż.  # (n, N, *output_shape)"""

    @abstractmethod
    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """Σ_k mean_k ∂l_k/∂λ.  # (n, d_λ)"""

    @abstractmethod
    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        """Its derivative along ż.  # (n, d_λ)"""

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        """A number for each class, the largest of which is predicted.  # (n, N, C)"""
        return z

    def curved(self, a: Array, a_dot: Array, xp: Namespace) -> Array:
        """(∂²CE/∂a²) ȧ at logits a: (diag(p) - p p^T) ȧ.  # like a"""
        return self.loss.curvature_product(self.loss.curvature(a, xp.ones_like(a[..., 0]), xp=xp), a_dot, xp=xp)


class CrossEntropy(NeuralCost):
    """l = CE(z, y); λ has no part in it."""

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(z, view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.slope(z, view.targets, xp=xp)

    def bend(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self.curved(z, z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return xp.zeros_like(lam)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return xp.zeros_like(lam)


# ----------------------------------------------------------------------------------------------------
# What a cost answers, looked at: shape, library and dtype of each answer, and that z and λ are left as they are.
#
# On NumPy an answer of a wrong shape would be spread over clients where it is put into place, and a cost that writes
# into z would change the tape that every later product uses. A cost sees read-only views there; other libraries have
# none.


def ask(cost: NeuralCost, name: str, z: Array, lam: Array, view: View, *z_dot: Array, xp: Namespace) -> Array:
    """The answer of the method `name` of `cost`."""
    shapes = {"value": tuple(z.shape[:2]), "along_lam": tuple(lam.shape), "cross": tuple(lam.shape)}
    seen = [_read_only(a) for a in (z, lam, *z_dot)]
    answer = getattr(cost, name)(*seen[:2], view, *seen[2:], xp)
    method = f"{type(cost).__name__}.{name}"
    return validation.returned_array(method, answer, shapes.get(name, tuple(z.shape)), like=z)


def ask_scores(cost: NeuralCost, z: Array, lam: Array, classes: int, xp: Namespace) -> Array:
    """`cost.scores`.  # (n, N, C)"""
    answer = cost.scores(_read_only(z), _read_only(lam), xp)
    return validation.returned_array(f"{type(cost).__name__}.scores", answer, (*z.shape[:2], classes), like=z)


def _read_only(a: Array) -> Array:
    if not is_numpy(a):
        return a
    seen = a.view()
    seen.flags.writeable = False
    return seen
