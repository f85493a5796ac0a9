"""Bound E, `mean_square_error`: the exact mean-square error of a mini-batch run, by second moments.

    E v = v of the run with exact Jacobians, hence    E‖v_i − d_i‖² = ‖E v_i − d_i‖² + Σ_m E‖D_i^(m)‖².

Derivation. ū^(m) is fixed by the batches before m, and the batches of iteration m have mean H and J: E ū^(m)
follows the exact recursion and E[Ĵ^(m) ū^(m)] = J E ū^(m). The deviation v − E v is the sum of the martingale
differences

    D^(m) = −η ε_λ^(m) ū^(m) + η² J Q_{m+1} ε_x^(m) ū^(m),     Q_m = Θ̂_m + Q_{m+1} (I − ηH) Θ̂_m,   Q_M = 0,

where Q_m maps u^(m) to its part in Σ_{k≥m} ū^(k); they are uncorrelated. With C_m = E[u^(m) u^(m)ᵀ] and U =
Θ̂_m C_m Θ̂_mᵀ,

    C_{m+1} = (I − ηH) U (I − ηH) + η² blockdiag_i(Cov_i(U_ii)),
    Cov_i(U) = c_i mean_s (H_i^(s) − H_i) U (H_i^(s) − H_i),

because batches of different clients are independent. The mean of b of N_i instances has c_i = 1/b with
replacement and (N_i − b)/((N_i − 1) b) without, 0 if the batch holds them all. If one batch serves v and u, ε_λ
and ε_x of the same client are correlated and the cross term is added. Holds for any matrices K_m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from hgp_ref import arguments
from hgp_ref.bounds.samples import check_samples
from hgp_ref.bounds.scaled import power_of_two


@dataclass(frozen=True)
class MeanSquareError:
    """E‖v_i − d_i‖² = bias² + variance, each (n,).

    Attributes
    ----------
    bias : ‖E v_i − d_i‖.
    variance : E‖v_i − E v_i‖².

    Examples
    --------
    >>> hgp.bounds.MeanSquareError(bias=np.array([0.1]), variance=np.array([0.02])).variance
    array([0.02])
    """

    bias: np.ndarray
    variance: np.ndarray

    @property
    def per_client(self) -> np.ndarray:
        """E‖v_i − d_i‖², (n,)."""
        return self.bias**2 + self.variance

    @property
    def total(self) -> float:
        """E‖v − d‖²."""
        return float(self.per_client.sum())


def mean_square_error(
    H_samples: Sequence[np.ndarray],
    J_samples: Sequence[np.ndarray],
    f_x: np.ndarray,
    eta: float,
    matrices: Sequence[np.ndarray],
    size: int,
    *,
    replace: bool = False,
    shared: bool = False,
) -> MeanSquareError:
    """The mean-square error over all draws of batches of `size`; samples as `sample_derivatives` gives them.

    H^(s) and J^(s) hold the instances of one client each, ∂_x f is (n, d_x) and K_0 … K_{M−1} are (n, n).

    Parameters
    ----------
    H_samples, J_samples : lists of arrays
        As `sample_derivatives` gives them.
    f_x : array (n, d_x)
        ∂_x f.
    eta : float
        η.
    matrices : sequence of (n, n)
        K_0 … K_{M−1}.
    size : int
        Instances in a batch.
    replace, shared : bool
        Whether batches are drawn with replacement, and whether one serves both v and u.

    Returns
    -------
    MeanSquareError
        `bias` and `variance` of each client.

    Raises
    ------
    TypeError, ValueError
        Shapes must fit together, η be positive, `size` at most the number of instances without replacement.
    ValueError
        The mean square leaves the floating-point range.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, n_train=20, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, 6), 0.1)
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> Hs, Js = hgp.bounds.sample_derivatives(problem, x, lam)
    >>> error = hgp.bounds.mean_square_error(Hs, Js, f_x, 1.0, K[:20], size=10)
    >>> error.variance.shape, bool(np.all(error.variance > 0))
    ((3,), True)
    """
    f_x = arguments.real_array("f_x", f_x, (None, None), "(n, d_x)")
    H_samples, J_samples = check_samples(H_samples, J_samples, *f_x.shape)
    n = len(f_x)
    K = arguments.real_array("matrices", matrices, (None, n, n), "(M, n, n)")
    eta, size = arguments.positive("eta", eta), arguments.integer("size", size)
    replace, shared = arguments.boolean("replace", replace), arguments.boolean("shared", shared)
    unit_f, unit_J = power_of_two(f_x), max(power_of_two(a) for a in J_samples)
    unit_H = max(power_of_two(a) for a in H_samples)
    f_x, eta = f_x / unit_f, eta * unit_H
    H_samples, J_samples = [a / unit_H for a in H_samples], [a / unit_J for a in J_samples]
    with np.errstate(over="ignore", invalid="ignore"):
        error = _mean_square(H_samples, J_samples, f_x, eta, K, size, replace, shared)
        factor = unit_J / unit_H * unit_f
        bias, variance = factor * error.bias, factor * factor * error.variance
    lost = factor == 0 or (factor * factor == 0 and error.variance.any())
    if lost or not np.isfinite([bias**2, variance]).all():
        raise ValueError(
            f"f_x, J_samples, H_samples, eta: the mean square of v, of the order of ({factor:.1e})², leaves the "
            "floating-point range; needed other units or a series that converges"
        )
    return MeanSquareError(bias, variance)


def _mean_square(
    H_samples: Sequence[np.ndarray],
    J_samples: Sequence[np.ndarray],
    f_x: np.ndarray,
    eta: float,
    matrices: np.ndarray,
    size: int,
    replace: bool,
    shared: bool,
) -> MeanSquareError:
    """The recursions at the head of this module."""
    n, d = f_x.shape
    H_dev = [a - a.mean(axis=0) for a in H_samples]  # (N_i, d, d) each
    J_dev = [a - a.mean(axis=0) for a in J_samples]
    H = block_diag(*(a.mean(axis=0) for a in H_samples))
    J = block_diag(*(a.mean(axis=0) for a in J_samples))
    factor = [sampling_factor(len(a), size, replace) for a in H_samples]
    step, Thetas = np.eye(n * d) - eta * H, [np.kron(K, np.eye(d)) for K in matrices]
    Q = _future(Thetas, step)
    C = np.outer(f_x.ravel(), f_x.ravel())  # E[u uᵀ]
    variance = np.zeros(n)
    for m, Theta_m in enumerate(Thetas):
        U = _blocks(Theta_m @ C @ Theta_m.T, n)  # (n, d, d), diagonal blocks
        spread = [f * np.einsum("sab,bc,sdc->ad", a, u, a) / len(a) for f, a, u in zip(factor, H_dev, U, strict=True)]
        B = eta * eta * (J @ Q[m + 1]).reshape(n, -1, n * d)  # (n, d_lam, nd): what ε_x ū does to v_i
        variance += _increments(B, U, spread, H_dev, J_dev, factor, eta, shared)
        C = step @ Theta_m @ C @ Theta_m.T @ step + eta * eta * block_diag(*spread)
    return MeanSquareError(_bias(H, J, f_x, eta, Q[0]), variance)


def sampling_factor(count: int, size: int, replace: bool) -> float:
    """c with Cov(mean of a batch) = c · Cov(one instance)."""
    if replace:
        return 1 / size
    return 0.0 if size >= count else (count - size) / ((count - 1) * size)


def _increments(
    B: np.ndarray,
    U: np.ndarray,
    spread: list[np.ndarray],
    H_dev: list[np.ndarray],
    J_dev: list[np.ndarray],
    factor: list[float],
    eta: float,
    shared: bool,
) -> np.ndarray:
    """E‖D_i^(m)‖² of one iteration, (n,)."""
    S = block_diag(*spread)
    squares = np.einsum("iab,bc,iac->i", B, S, B)
    d = U.shape[-1]
    for i, (a, h) in enumerate(zip(J_dev, H_dev, strict=True)):
        squares[i] += eta * eta * factor[i] * np.einsum("sab,bc,sac->", a, U[i], a) / len(a)
        if shared:
            both = factor[i] * np.einsum("sab,bc,sdc->ad", h, U[i], a) / len(a)  # E[ε_x U ε_λᵀ]
            squares[i] -= 2 * eta * np.trace(B[i, :, i * d : (i + 1) * d] @ both)
    return squares


def _future(Thetas: list[np.ndarray], step: np.ndarray) -> list[np.ndarray]:
    """Q_0 … Q_M."""
    Q = [np.zeros_like(step)]
    for Theta_m in reversed(Thetas):
        Q.append(Theta_m + Q[-1] @ step @ Theta_m)
    return Q[::-1]


def _bias(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, eta: float, Q: np.ndarray) -> np.ndarray:
    """‖J_i (w* − E w_i)‖ with E w = η Q_0 ∂_x f, (n,)."""
    n = len(f_x)
    w_star = np.linalg.solve(_blocks(H, n).sum(axis=0), f_x.sum(axis=0))
    missing = np.tile(w_star, n) - eta * Q @ f_x.ravel()
    return np.linalg.norm((J @ missing).reshape(n, -1), axis=1)


def _blocks(A: np.ndarray, n: int) -> np.ndarray:
    """The n diagonal blocks of a square A, (n, d, d)."""
    d = len(A) // n
    return np.stack([A[i * d : (i + 1) * d, i * d : (i + 1) * d] for i in range(n)])
