"""The cost l(z, λ) of one instance as a function of the outputs z of a network and of the client's λ.

    g_i(x, λ_i) = Σ_k mean_ik l(z_ik(x), λ_i) + (l2/2) |x|²

The derivatives of the network are known, so a cost needs those of l only. With ż, the derivative of the outputs along a
direction of x, five functions give every derivative that hyper-gradients need:

    value        l                                    # (n, N)
    slope        ∂l/∂z                                # (n, N, *output_shape)
    curvature    (∂²l/∂z²) ż                          # (n, N, *output_shape)
    along_lam    Σ_k mean_k ∂l_k/∂λ                   # (n, d_λ)
    cross        Σ_k mean_k (∂²l_k/∂λ∂z) ż_k          # (n, d_λ)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from hgp_ref import validation
from hgp_ref._kernels import cuda
from hgp_ref.backend import Array, Namespace, device
from hgp_ref.problems.base import read_only
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import SoftmaxLoss, softmax


class NeuralCost(ABC):
    """The cost of one instance; `loss` has cross-entropy and its derivatives with respect to the logits.

    Arguments of the five functions: z (n, N, *output_shape); lam (n, d_λ); z_dot like z; xp, the array library; and
    view, which has `targets` (n, N, C), one-hot booleans, `mean` (n, N), the weight of each instance in the mean of its
    client, and `index` (n, N), the numbers of the instances, or None for all. n is some of the clients and N their
    number of instances: a function must not mix clients. It must not modify its arguments, which are read-only on
    NumPy. Several threads may call it at once.

    Parameters
    ----------
    classes : C, the number of classes.
    dim_lam : d_λ.

    Examples
    --------
    A bias of each client on the logits, l = CE(z + λ_i, y), a = z + λ_i: ∂l/∂z = ∂l/∂λ = CE'(a).

    >>> class Bias(hgp.problems.NeuralCost):
    ...     def value(self, z, lam, view, xp):
    ...         return self.loss.value(z + lam[:, None, :], view.targets, xp=xp)
    ...     def slope(self, z, lam, view, xp):
    ...         return self.loss.slope(z + lam[:, None, :], view.targets, xp=xp)
    ...     def curvature(self, z, lam, view, z_dot, xp):
    ...         return self.softmax_curvature(z + lam[:, None, :], z_dot, xp)
    ...     def along_lam(self, z, lam, view, xp):
    ...         return xp.sum(view.mean[..., None] * self.slope(z, lam, view, xp), axis=1)
    ...     def cross(self, z, lam, view, z_dot, xp):
    ...         return xp.sum(view.mean[..., None] * self.curvature(z, lam, view, z_dot, xp), axis=1)
    ...     def scores(self, z, lam, xp):
    ...         return z + lam[:, None, :]

    >>> import numpy as np, hgp_ref as hgp
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((2, 6, 4)), rng.integers(0, 3, (2, 6))
    >>> problem = hgp.problems.NeuralProblem(model, Bias(3, 3), X, y, l2=0.1, outer_l2=0.1)
    >>> x, lam = model.init(2), np.zeros((2, 3))
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=0.5, iterations=400)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-8)
    True
    """

    # A cost of this package sets sizes_known = True: `neural_sizes` can evaluate it. Subclasses do not inherit this.

    def __init__(self, classes: int, dim_lam: int) -> None:
        self.loss, self.dim_lam = SoftmaxLoss(classes), validation.integer("dim_lam", dim_lam, 1, validation.LONGEST)

    @abstractmethod
    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """l of every instance.  # (n, N)"""

    @abstractmethod
    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """∂l/∂z.  # (n, N, *output_shape)"""

    @abstractmethod
    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        """(∂²l/∂z²) ż.  # (n, N, *output_shape)"""

    @abstractmethod
    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """Σ_k mean_k ∂l_k/∂λ.  # (n, d_λ)"""

    @abstractmethod
    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        """The derivative of `along_lam` along ż.  # (n, d_λ)"""

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        """A number for each class; the largest one is predicted.  # (n, N, C)"""
        return z

    def softmax_curvature(self, a: Array, a_dot: Array, xp: Namespace) -> Array:
        """(∂²CE/∂a²) ȧ = (diag(p) − p pᵀ) ȧ at logits a.  # like a"""
        if cuda.applies(a):
            return cuda.softmax_curvature(a, a_dot)
        return self.loss.curvature_product(self.loss.curvature(a, xp.ones_like(a[..., 0]), xp=xp), a_dot, xp=xp)


def evaluate(cost: NeuralCost, name: str, z: Array, lam: Array, view: View, *z_dot: Array, xp: Namespace) -> Array:
    """The method `name` of `cost`, with a check of shape, library and dtype of the result.

    On NumPy a result of a wrong shape would be broadcast silently. A cost that modified z would change the activations
    that later products use, so that it sees read-only views there.
    """
    shapes = {
        "value": tuple(z.shape[:2]),
        "along_lam": tuple(lam.shape),
        "cross": tuple(lam.shape),
        "scores": (*z.shape[:2], view.targets.shape[-1]),
    }
    z_view, lam_view, *z_dot_view = map(read_only, (z, lam, *z_dot))
    if name == "scores":
        result = cost.scores(z_view, lam_view, xp)
    else:
        result = getattr(cost, name)(z_view, lam_view, view, *z_dot_view, xp)
    expected = shapes.get(name, tuple(z.shape))
    return validation.returned_array(name, result, expected, like=z, owner=type(cost).__name__)


def weighted(mean: Array, values: Array) -> Array:
    """mean_ik values_ik.  # like values"""
    return mean[(...,) + (None,) * (values.ndim - 2)] * values


class CrossEntropy(NeuralCost):
    """l = CE(z, y), independent of λ."""

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(z, view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.slope(z, view.targets, xp=xp)

    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self.softmax_curvature(z, z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return xp.zeros_like(lam)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return xp.zeros_like(lam)


class ShiftedCrossEntropy(NeuralCost):
    """l = CE(z + λ_i, y).

    ∂l/∂z = ∂l/∂λ = CE'(z + λ),    (∂²l/∂z²) ż = (∂²l/∂λ∂z) ż = CE''(z + λ) ż
    """

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(self.scores(z, lam, xp), view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.slope(self.scores(z, lam, xp), view.targets, xp=xp)

    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self.softmax_curvature(self.scores(z, lam, xp), z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return xp.sum(view.mean[..., None] * self.slope(z, lam, view, xp), axis=1)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return xp.sum(view.mean[..., None] * self.curvature(z, lam, view, z_dot, xp), axis=1)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        return z + lam[:, None, :]


class MaskedCrossEntropy(NeuralCost):
    """l = CE(a, y) with the masked logits a = m ∘ z, m = s softmax(λ_i); `scale` is s.

    With p = CE'(a), σ = softmax(λ) and q_k = z_k ∘ p_k, the derivative of l_k along m:

        ∂l/∂z = m ∘ p,    (∂²l/∂z²) ż = m ∘ CE''(a)(m ∘ ż)
        ∂l/∂λ = (∂m/∂λ)ᵀ q = m ∘ (q − ⟨σ, q⟩),   and along ż the same of  q̇ = ż ∘ p + z ∘ CE''(a)(m ∘ ż)
    """

    sizes_known = True

    def __init__(self, classes: int, scale: float) -> None:
        super().__init__(classes, classes)
        self.scale = scale

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.loss.value(self.scores(z, lam, xp), view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        return m * self.loss.slope(m * z, view.targets, xp=xp)

    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        return m * self.softmax_curvature(m * z, m * z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        p = self.loss.slope(self.scores(z, lam, xp), view.targets, xp=xp)
        return self._mask_adjoint(z * p, lam, view, xp)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        m = self._mask(lam, xp)
        p = self.loss.slope(m * z, view.targets, xp=xp)
        return self._mask_adjoint(z_dot * p + z * self.softmax_curvature(m * z, m * z_dot, xp), lam, view, xp)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        return self._mask(lam, xp) * z

    def _mask(self, lam: Array, xp: Namespace) -> Array:
        """m.  # (n, 1, C)"""
        return self.scale * softmax(lam, xp=xp)[:, None, :]

    def _mask_adjoint(self, q: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """(∂m/∂λ)ᵀ Σ_k mean_k q_k.  # (n, C)"""
        total = xp.sum(view.mean[..., None] * q, axis=1)
        sigma = softmax(lam, xp=xp)
        return self.scale * sigma * (total - xp.sum(sigma * total, axis=-1, keepdims=True))


class MixedCrossEntropy(NeuralCost):
    """l = −log Σ_c w_c P_c(y) with w = softmax(λ_i), P_c = softmax(z_c); z is (n, N, K, C), λ (n, K).

    With e_c = −CE(z_c, y) = log P_c(y) this is  l = lse(λ) − lse(λ + e),  lse = log Σ exp, and nothing under- or
    overflows. With the responsibilities r = softmax(λ + e) and  ė_c = −⟨CE'_c, ż_c⟩:

        ∂l/∂z_c = r_c CE'_c,       ṙ_c = r_c (ė_c − ⟨r, ė⟩)
        (∂²l/∂z²) ż = ṙ_c CE'_c + r_c CE''_c ż_c
        ∂l/∂λ = w − r,   and along ż:  −ṙ
    """

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        joint = lam[:, None, :] + self._log_likelihood(z, view, xp)
        return _log_sum_exp(lam, xp)[:, None] - _log_sum_exp(joint, xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self.responsibility(z, lam, view, xp)[..., None] * self._slopes(z, view, xp)

    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        r, slopes = self.responsibility(z, lam, view, xp), self._slopes(z, view, xp)
        return self._r_dot(r, slopes, z_dot, xp)[..., None] * slopes + r[..., None] * self.softmax_curvature(
            z, z_dot, xp
        )

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        gap = softmax(lam, xp=xp)[:, None, :] - self.responsibility(z, lam, view, xp)
        return xp.sum(view.mean[..., None] * gap, axis=1)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        r, slopes = self.responsibility(z, lam, view, xp), self._slopes(z, view, xp)
        return -xp.sum(view.mean[..., None] * self._r_dot(r, slopes, z_dot, xp), axis=1)

    def scores(self, z: Array, lam: Array, xp: Namespace) -> Array:
        """Σ_c w_c P_c."""
        return xp.sum(softmax(lam, xp=xp)[:, None, :, None] * softmax(z, xp=xp), axis=2)

    def responsibility(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        """r.  # (n, N, K)"""
        return softmax(lam[:, None, :] + self._log_likelihood(z, view, xp), xp=xp)

    def _log_likelihood(self, z: Array, view: View, xp: Namespace) -> Array:
        """e.  # (n, N, K)"""
        return -self.loss.value(z, xp.broadcast_to(view.targets[:, :, None, :], z.shape), xp=xp)

    def _slopes(self, z: Array, view: View, xp: Namespace) -> Array:
        """CE' of every component.  # (n, N, K, C)"""
        return self.loss.slope(z, xp.broadcast_to(view.targets[:, :, None, :], z.shape), xp=xp)

    def _r_dot(self, r: Array, slopes: Array, z_dot: Array, xp: Namespace) -> Array:
        """ṙ.  # (n, N, K)"""
        e_dot = -xp.sum(slopes * z_dot, axis=-1)
        return r * (e_dot - xp.sum(r * e_dot, axis=-1, keepdims=True))


def _log_sum_exp(a: Array, xp: Namespace) -> Array:
    top = xp.max(a, axis=-1, keepdims=True)
    return top[..., 0] + xp.log(xp.sum(xp.exp(a - top), axis=-1))


class WeightedCrossEntropy(NeuralCost):
    """l_k = λ_ik CE(z_k, y_k); d_λ is the number of instances of the client that has most.

    ∂l/∂z = λ CE',    (∂²l/∂z²) ż = λ CE'' ż,    ∂l_k/∂λ_k = CE_k, whose derivative along ż is ⟨CE'_k, ż_k⟩
    """

    sizes_known = True

    def value(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._weights(lam, view, xp) * self.loss.value(z, view.targets, xp=xp)

    def slope(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._weights(lam, view, xp)[..., None] * self.loss.slope(z, view.targets, xp=xp)

    def curvature(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        return self._weights(lam, view, xp)[..., None] * self.softmax_curvature(z, z_dot, xp)

    def along_lam(self, z: Array, lam: Array, view: View, xp: Namespace) -> Array:
        return self._weights_adjoint(view.mean * self.loss.value(z, view.targets, xp=xp), view, xp)

    def cross(self, z: Array, lam: Array, view: View, z_dot: Array, xp: Namespace) -> Array:
        value_dot = xp.sum(self.loss.slope(z, view.targets, xp=xp) * z_dot, axis=-1)
        return self._weights_adjoint(view.mean * value_dot, view, xp)

    def _weights(self, lam: Array, view: View, xp: Namespace) -> Array:
        """λ of the instances of `view`.  # (n, N)"""
        if view.index is None:
            return lam[:, : view.mean.shape[1]]
        if cuda.applies(lam):
            return cuda.gather_columns(lam, view.index)
        return xp.take_along_axis(lam, view.index, axis=-1)

    def _weights_adjoint(self, values: Array, view: View, xp: Namespace) -> Array:
        """Values of instances at the positions of their λ; an instance that occurs twice adds up.  # (n, d_λ)"""
        n, N = values.shape
        if view.index is None:
            padding = xp.zeros((n, self.dim_lam - N), dtype=values.dtype, device=device(values))
            return xp.concat([values, padding], axis=1)
        if cuda.applies(values):
            return cuda.add_columns(values, view.index, self.dim_lam)
        numbers = xp.arange(self.dim_lam, dtype=xp.int64, device=device(values))
        one_hot = xp.astype(view.index[..., None] == numbers, values.dtype)  # (n, b, d_λ)
        return xp.matmul(values[:, None, :], one_hot)[:, 0, :]
