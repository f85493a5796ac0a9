"""What mini-batches add to influence with a CNN: the noise of HGP's predictions, and the retraining that shares it.

With batches ξ̂_m for J, ξ̂̂_m for H̄, of b of a client's N_i instances, exact averaging and ḡ = mean_j ∂_x f_j,

    v^(M) = −Σ_{m<M} η J(ξ̂_m) u_m,    u_m = (I − ηH̄(ξ̂̂_{m−1})) … (I − ηH̄(ξ̂̂_0)) ḡ.

Batches of one term are independent and each is unbiased, so E v^(M) is v^(M) of full batches: a mini-batch prediction
estimates what M full-batch steps from x change, and is as good as its noise is small. Two sources:

    J    a removal a of client i, a_m = −η (J_k u_m)_k over its instances, enters as (N_i/b) Σ_{k in ξ̂_m} a_mk. For u_m
         of full batches the variance is that of sampling b of N_i without replacement,
             Σ_m (N_i/b − 1) N_i/(N_i − 1) (Σ_k a_mk² − (Σ_k a_mk)²/N_i),      a_mk² for a single instance;
         relative to the squared prediction (N_i/b − 1)/M' if its terms are of one size for M' iterations and then
         vanish: an instance that HGP meets M' b/N_i times only is known badly.
    H̄    u_m strays from that of full batches. By the law of total variance this adds the variance with J on full
         batches, and (N_i/b − 1) Var a_m to each term above (for a single instance).

`full_jacobian` takes J on full batches and leaves the first of these two. A retraining on mini-batches has the first
kind of noise too: what M steps on the batches of HGP, the last one first, change has v^(M) of exactly these batches
for its derivative if they are held to x (`hgp_ref.attribution.retraining`), and less so if they are not, for x moves
away; on other batches it is another random number. Last, instances are chosen by the size of a noisy prediction, which
favours those that came out too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.cnn_clients import from_settings
from figures.cnn_parts import Settings, averaging, predict_with, removals_of
from hgp_ref.attribution import retrain_from
from hgp_ref.attribution.retraining import Removal
from hgp_ref.backend import from_host, to_host
from reporting.store import Arrays

# M mini-batch steps from x: which batches (the own of HGP or others), and whether they are held to x.
STEPS: dict[str, Mapping[str, Any]] = {
    "held": {"other": False, "held": True},
    "same": {"other": False, "held": False},
    "other": {"other": True, "held": False},
}


def repeat(settings: Settings, x_host: np.ndarray, removed: np.ndarray) -> Arrays:
    """Predictions of the removals again: on other batches, on one sequence for J and H̄, with less noise, with none."""
    removals, seeds = removals_of(removed), [settings["seed"] + k for k in range(settings["repeats"])]

    def predicted(seed: int, **choices: Any) -> np.ndarray:
        return sums(predict_with(settings, x_host, seed=seed, **choices).per_instance, removals)

    full, noise = _full_batch(settings, x_host, removals)
    return {
        "repeated": np.stack([predicted(seed) for seed in seeds]),  # (K, R), as HGP draws: ξ̂ and ξ̂̂ apart
        "whole": np.stack([predicted(seed, full_jacobian=True) for seed in seeds]),  # (K, R), J on full batches
        "shared": predicted(settings["seed"], share=True),  # (R,), ξ̂ = ξ̂̂, as a training step has it
        "full": sums(full, removals),  # (R,)
        "full_per_instance": full,  # (n, N)
        "noise": noise,  # (R,), standard deviation by the first formula of the module
    }


def mini_batch_steps(settings: Settings, x: np.ndarray, removed: np.ndarray, way: str) -> np.ndarray:
    """Actual changes after M mini-batch steps of size η from x, with and without on the same batches."""
    problem, lam, x0, _, _ = from_settings(settings)
    given = {"eta": settings["eta"], "steps": settings["iterations"], "batch_size": settings["batch"]}
    given |= {"seed": settings["seed"] + settings["repeats"] * STEPS[way]["other"], "held": STEPS[way]["held"]}
    return retrain_from(problem, from_host(x, like=x0), lam, removals_of(removed), **given).actual


def _full_batch(settings: Settings, x_host: np.ndarray, removals: list[Removal]) -> tuple[np.ndarray, np.ndarray]:
    """Full-batch predictions of every instance (n, N), and the noise that batches for J would add to removals (R,)."""
    problem, lam, x0, _, _ = from_settings(settings)
    estimate = hgp.hypergradient(
        problem,
        from_host(x_host, like=x0),
        lam,
        averaging(settings),
        eta=settings["eta"],
        iterations=settings["iterations"],
        history=True,
    )
    terms = -np.diff(to_host(estimate.history).astype(np.float64), axis=0, prepend=0.0)  # (M, n, N): ∂_λ f = 0
    return terms.sum(axis=0), np.array([sampling_noise(terms, problem.counts, r, settings["batch"]) for r in removals])


def sampling_noise(terms: np.ndarray, counts: np.ndarray, removal: Removal, batch: int) -> float:
    """The standard deviation of Σ_m (N/b) Σ_{k in ξ_m} a_mk, a = `terms` (M, n, N) of a removal of one client."""
    client, N = removal[0][0], int(counts[removal[0][0]])
    if batch >= N:
        return 0.0
    a = terms[:, client, [k for _, k in removal]]  # (M, size)
    each = np.sum(a**2, axis=1) - np.sum(a, axis=1) ** 2 / N
    return float(np.sqrt((N / batch - 1) * N / (N - 1) * np.sum(each)))


def sums(per_instance: np.ndarray, removals: list[Removal]) -> np.ndarray:
    """The prediction of each removal, (R,)."""
    return np.array([sum(per_instance[pair] for pair in removal) for removal in removals])
