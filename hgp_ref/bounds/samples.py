"""Per-instance derivatives and the constants of mini-batches.

For client i with instances s = 1 … N_i and the derivatives H_i^(s), J_i^(s) of each alone (means H_i, J_i):

    κ_x = max_{i,s} ‖H_i^(s) − H_i‖,     σ_x² = max_i ‖mean_s (H_i^(s) − H_i)ᵀ(H_i^(s) − H_i)‖,     likewise κ_λ, σ_λ,
    ρ = max_{i,s} ‖I − ηH_i^(s)‖: the supremum over samples; a batch mean is no larger, the norm being convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.bounds.scaled import power_of_two
from hgp_ref.exact import hessians, jacobians
from hgp_ref.problems.protocol import Problem


@dataclass(frozen=True)
class SampleConstants:
    """Suprema and root mean squares over the instances of all clients.

    Attributes
    ----------
    kappa_x : κ_x, max over instances of ‖H_i^(s) − H_i‖.
    kappa_lam : κ_λ, the same of J.
    sigma_x : σ_x, the root of the largest ‖mean_s (H_i^(s) − H_i)ᵀ(H_i^(s) − H_i)‖ of a client.
    sigma_lam : σ_λ, the same of J.
    rho : max over instances of ‖I − ηH_i^(s)‖.
    alpha : min over instances of σ_min(H_i^(s)), as Theorem 1 prints it.
    beta : max over instances of ‖J_i^(s)‖.

    Raises
    ------
    TypeError, ValueError
        Constants must be numbers ≥ 0.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, n_train=20, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, 6), 0.1)
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> Hs, Js = hgp.bounds.sample_derivatives(problem, x, lam)
    >>> s = hgp.bounds.sample_constants(Hs, Js, 1.0)
    >>> bool(s.kappa_lam >= 0)
    True
    """

    kappa_x: float
    kappa_lam: float
    sigma_x: float
    sigma_lam: float
    rho: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        for field in fields(self):
            arguments.nonnegative(field.name, getattr(self, field.name))


def sample_derivatives(problem: Problem, x: Array, lam: Array) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """H_i^(s) as n arrays (N_i, d_x, d_x) and J_i^(s) as n arrays (N_i, d_lam, d_x), from batches of one instance.

    Parameters
    ----------
    problem : Problem
        With instances.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where.

    Returns
    -------
    two lists of arrays
        For each client (N_i, d_x, d_x) and (N_i, d_lam, d_x).

    Raises
    ------
    TypeError
        The problem has no instances.
    ValueError
        x or λ does not fit it.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, n_train=20, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, 6), 0.1)
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> Hs, Js = hgp.bounds.sample_derivatives(problem, x, lam)
    >>> len(Hs), Hs[0].shape
    (3, (20, 6, 6))
    """
    counts = arguments.host_array("problem.counts", getattr(problem, "counts", None))
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise TypeError(f"problem={problem!r} given, needed a problem with instances (`counts`) and mini-batches")
    for name, value in (("x", x), ("lam", lam)):
        arguments.array(name, value)
        if len(value.shape) != 2 or value.shape[0] != len(counts):
            raise ValueError(
                f"{name}: {tuple(value.shape)} given, needed an array of shape (n, d) with n = {len(counts)} clients"
            )
    H: list[list[np.ndarray]] = [[] for _ in counts]
    J: list[list[np.ndarray]] = [[] for _ in counts]
    for s in range(int(counts.max())):
        batch = np.minimum(s, counts - 1)[:, None].astype(
            np.int64
        )  # (n, 1); a client that has run out repeats its last
        H_s, J_s = hessians(problem, x, lam, batch), jacobians(problem, x, lam, batch)
        for i in np.flatnonzero(s < counts):
            H[i].append(H_s[i])
            J[i].append(J_s[i])
    return [np.stack(a) for a in H], [np.stack(a) for a in J]


def check_samples(
    H: Sequence[np.ndarray],
    J: Sequence[np.ndarray],
    n: int | None = None,
    d_x: int | None = None,
    names: tuple[str, str] = ("H_samples", "J_samples"),
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """H_i^(s) and J_i^(s) in float64; an error unless they are of `n` clients, instance by instance alike."""
    for name, samples in zip(names, (H, J), strict=True):
        if not isinstance(samples, Sequence) or len(samples) == 0 or (n is not None and len(samples) != n):
            count = len(samples) if isinstance(samples, Sequence) else type(samples).__name__
            raise ValueError(f"{name}: {count} given, needed a list of one array for each of the clients ({n or 'n'})")
    if len(H) != len(J):
        raise ValueError(f"{names[1]}: {len(J)} clients given, needed {len(H)} as in {names[0]}")
    H = [arguments.real_array(f"{names[0]}[{i}]", a, (None, d_x, d_x), "(N_i, d_x, d_x)") for i, a in enumerate(H)]
    d_x = H[0].shape[1]
    H = [arguments.real_array(f"{names[0]}[{i}]", a, (None, d_x, d_x), "(N_i, d_x, d_x)") for i, a in enumerate(H)]
    meaning = f"(N_i, d_lam, d_x) with N_i as in {names[0]}"
    J = [arguments.real_array(f"{names[1]}[{i}]", a, (len(H[i]), None, d_x), meaning) for i, a in enumerate(J)]
    if len({a.shape[1] for a in J}) > 1:
        raise ValueError(f"{names[1]}: d_lam = {[a.shape[1] for a in J]} given, needed the same for all clients")
    return H, J


def sample_constants(H: Sequence[np.ndarray], J: Sequence[np.ndarray], eta: float) -> SampleConstants:
    """The constants from the derivatives of single instances.

    Parameters
    ----------
    H, J : lists of arrays
        As `sample_derivatives` gives them.
    eta : float
        η.

    Returns
    -------
    SampleConstants
        κ, σ, and ρ, α, β over single instances.

    Raises
    ------
    TypeError, ValueError
        Shapes must fit together, numbers be finite, η positive.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, n_train=20, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, 6), 0.1)
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> Hs, Js = hgp.bounds.sample_derivatives(problem, x, lam)
    >>> s = hgp.bounds.sample_constants(Hs, Js, 1.0)
    >>> bool(s.sigma_x <= s.kappa_x)
    True
    """
    H, J = check_samples(H, J, names=("H", "J"))
    eta = arguments.positive("eta", eta)
    unit = max(power_of_two(a) for a in J)
    kappa_x, sigma_x = _spread(H)
    kappa_lam, sigma_lam = _spread(J)
    eigenvalues = np.concatenate([np.linalg.eigvalsh(a).ravel() for a in H])
    return SampleConstants(
        kappa_x=kappa_x,
        kappa_lam=kappa_lam,
        sigma_x=sigma_x,
        sigma_lam=sigma_lam,
        rho=float(np.abs(1 - eta * eigenvalues).max()),
        alpha=float(np.abs(eigenvalues).min()),
        beta=unit * float(max(np.linalg.norm(a / unit, 2, axis=(1, 2)).max() for a in J)),
    )


def _spread(samples: Sequence[np.ndarray]) -> tuple[float, float]:
    """Largest deviation from a client's mean, and the largest root mean square deviation."""
    largest, square = 0.0, 0.0
    unit = max(power_of_two(a) for a in samples)
    for a in samples:
        deviation = a / unit - (a / unit).mean(axis=0)
        largest = max(largest, float(np.linalg.norm(deviation, 2, axis=(1, 2)).max()))
        second = (np.swapaxes(deviation, 1, 2) @ deviation).mean(axis=0)
        square = max(square, float(np.linalg.norm(second, 2)))
    return unit * largest, unit * float(np.sqrt(square))
