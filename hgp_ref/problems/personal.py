"""A personal shift of the logits of a shared network:  l = CE(z + λ_i, y).

∂l/∂z = ∂l/∂λ = CE'(z + λ),      (∂²l/∂z²) ż = (∂²l/∂λ∂z) ż = CE''(z + λ) ż
"""

from __future__ import annotations

from typing import Any

from hgp_ref import validation
from hgp_ref.backend import Array, Namespace, device
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import softmax
from hgp_ref.problems.neural import NeuralProblem, Rows, classes_of, longest_of
from hgp_ref.problems.neural_costs import CrossEntropy, NeuralCost


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


# ----------------------------------------------------------------------------------------------------
# A personal mask on the logits of a shared network (HGP-PL):  l = CE(a, y),  a = z ∘ m,  m = s softmax(λ_i).
#
# With p = CE'(a), σ = softmax(λ) and q_k = z_k ∘ p_k, the derivative of l_k along m:
#
#     ∂l/∂z = m ∘ p,    (∂²l/∂z²) ż = m ∘ CE''(a)(m ∘ ż)
#     ∂l/∂λ = (∂m/∂λ)^T q = m ∘ (q - <σ, q>),   and along ż the same of  q̇ = ż ∘ p + z ∘ CE''(a)(m ∘ ż)


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
        self.scale = float(classes) if scale is None else validation.positive("scale", scale)
        cost = MaskedCrossEntropy(classes, self.scale)
        super().__init__(model, cost, X, y, X_val, y_val, l2=l2, outer_l2=outer_l2)


# ----------------------------------------------------------------------------------------------------
# A personal mixture of K shared networks (HGP-MTL):  l = -log Σ_c w_c P_c(y),  w = softmax(λ_i),  P_c = softmax(z_c).
#
# With e_c = -CE(z_c, y) = log P_c(y) this is  l = lse(λ) - lse(λ + e),  lse = log Σ exp, and nothing under- or
# overflows. With the responsibilities r = softmax(λ + e) and  ė_c = -<CE'_c, ż_c>:
#
#     ∂l/∂z_c = r_c CE'_c,       ṙ_c = r_c (ė_c - <r, ė>)
#     (∂²l/∂z²) ż = ṙ_c CE'_c + r_c CE''_c ż_c
#     ∂l/∂λ = w - r,   and along ż:  -ṙ


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
        """r of every training instance, 0 behind a client's own: the E step of a mixture.  # (n, N, K)"""
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


# ----------------------------------------------------------------------------------------------------
# A weight for every training instance of a network:  l_k = λ_ik CE(z_k, y_k).
#
#     ∂l/∂z = λ CE',    (∂²l/∂z²) ż = λ CE'' ż,    ∂l_k/∂λ_k = CE_k,    its derivative along ż: <CE'_k, ż_k>
#
# At λ = 1 this is the usual mean. f is the plain mean loss on validation instances.


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
