"""Many mini-batch runs of one setting at once, with the constants that their bounds need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import sample_constants, sample_derivatives
from hgp_ref.rounding import norms
from verification.cases import Case, logistic, matrices_of
from verification.run import Run


@dataclass(frozen=True)
class Batches:
    """Errors ‖v − d‖ of independent runs on the same graphs, (runs,)."""

    setting: str
    case: Case
    eta: float
    size: int
    shared: bool
    replace: bool
    matrices: np.ndarray  # (M, n, n)
    H: list[np.ndarray]  # per instance
    J: list[np.ndarray]
    constants: Any
    samples: Any
    errors: np.ndarray


def batches(
    run: Run,
    runs: int,
    *,
    n: int = 3,
    S: int = 10,
    size: int = 20,
    eta: float = 1.0,
    M: int = 100,
    rate: float = 0.2,
    shared: bool = False,
    replace: bool = False,
) -> Batches:
    """Logistic regression, `runs` seeds of batches, one random digraph."""
    case = logistic(n, 5, seed=run.seed, rate=rate)
    avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=1000 * run.seed + 1), S)
    batches = hgp.MiniBatches(size, seed=run.seeds(runs, stream=size + S), share=shared, replace=replace)
    est = case.estimate(avg, run.backend, eta=eta, iterations=M, batches=batches)
    H, J = sample_derivatives(case.problem, case.x, case.lam)
    K = matrices_of(avg, M)
    description = (
        f"{case.name}, S={S}, b={size}" + (", one sample" if shared else "") + (", replaced" if replace else "")
    )
    c, s = case.constants(eta, K), sample_constants(H, J, eta)
    return Batches(description, case, eta, size, shared, replace, K, H, J, c, s, np.asarray(case.error(est)))


def simulate(
    H: np.ndarray,
    J: np.ndarray,
    f_x: np.ndarray,
    eta: float,
    matrices: np.ndarray,
    size: int,
    runs: int,
    rng: np.random.Generator,
    *,
    shared: bool = False,
) -> np.ndarray:
    """‖v − d‖ of Algorithm 2 with given derivatives of every instance and batches with replacement, (runs,).

    H (n, N, d, d) and J (n, N, d_lam, d): the means over N are the full-batch derivatives. ∂_λ f plays no part.
    """
    n, N = H.shape[:2]
    clients = np.arange(n)[:, None]
    u = np.broadcast_to(f_x, (runs, *f_x.shape))
    v = np.zeros((runs, n, J.shape[2]))
    for K in matrices:
        mean = K @ u
        for_v = rng.integers(0, N, (runs, n, size))
        for_u = for_v if shared else rng.integers(0, N, (runs, n, size))
        v = v - eta * np.einsum("rnab,rnb->rna", J[clients, for_v].mean(axis=2), mean)
        u = mean - eta * np.einsum("rnab,rnb->rna", H[clients, for_u].mean(axis=2), mean)
    w = np.linalg.solve(H.mean(axis=(0, 1)), f_x.mean(axis=0))
    return norms((v + J.mean(axis=1) @ w).reshape(runs, -1))
