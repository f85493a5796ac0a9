"""The experiment behind Fig. 1c and the R²/F1 table: predicted against actual change when an instance is removed.

Train by SGP with all weights λ = 1 and predict the change of f for every training instance by HGP. Retrain without each
of the 50 instances with the largest predictions: by the same SGP on the same graphs, as in the paper, and exactly by
Newton's method.

    paper      data as described, no regulariser (the text names none)
    published  data with overwritten rows, L2 of 0.01 on all of x, the bias included

`predicted_true` is the exact first-order change at the exact inner solution, `newton_step` the change by one Newton
step. Changes are of f = Σ f_k; the published program divides by n, which changes neither R² nor F1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.experiments.estimation import mixture, network, training
from hgp_ref.attribution import influence, retrain, retrain_over_network
from hgp_ref.backend import from_host, get_backend, host_dtype, to_host
from hgp_ref.methods import Neumann
from reporting.store import Arrays, Experiment

BLOCK = 25  # removals in one part


def experiment(variant: str, *, quick: bool = False, backend: str = "numpy") -> Experiment:
    """Predicted and actual changes on the synthetic data."""
    settings = {
        "revision": 1,
        "data": variant,
        "l2": 0.0 if variant == "paper" else 0.01,
        **training(quick),
        "eta": 1.0,
        "iterations": 100 if quick else 500,
        "steps": 100,
        "removals": 8 if quick else 50,
        "seed": 1234,
        "backend": backend,
        "dtype": "float64",
    }
    blocks = range(0, settings["removals"], BLOCK)
    parts = ("predict", *(f"retrain-{first}" for first in blocks), "exact")

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        if part == "predict":
            return _predict(settings)
        chosen = finished["predict"]["chosen"]
        if part == "exact":
            return {"actual_exact": _retrain_exactly(settings, chosen, finished["predict"]["x"])}
        first = int(part.removeprefix("retrain-"))
        return {"actual": _retrain(settings, chosen[first : first + BLOCK])}

    return Experiment("removal", settings, parts, compute, _join)


@lru_cache(maxsize=4)
def _problem(data: str, l2: float, seed: int, backend: str, dtype: str) -> tuple[Any, Any]:
    """The problem and λ = 1."""
    library = get_backend(backend)
    problem = hgp.problems.InstanceWeights(*mixture(data, seed, library, dtype), l2=l2)
    return problem, library.asarray(np.ones((problem.n_clients, problem.dim_lam)), dtype=dtype)


def _from(settings: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    problem, lam = _problem(*(settings[name] for name in ("data", "l2", "seed", "backend", "dtype")))
    return problem, lam, network(settings, settings["seed"], settings["train_steps"])


def _sgp(settings: Mapping[str, Any]) -> hgp.training.SGP:
    return hgp.training.SGP(settings["train_steps"], settings["lr"], settings["milestones"])


def _predict(settings: Mapping[str, Any]) -> Arrays:
    problem, lam, net = _from(settings)
    fit = hgp.train(problem, lam, net, _sgp(settings))
    other_graphs = network(settings, settings["seed"] + 1, settings["iterations"] * settings["steps"])
    predictions = influence(
        problem,
        fit.x,
        lam,
        hgp.PushSum(other_graphs, settings["steps"]),
        method=Neumann(settings["eta"]),
        iterations=settings["iterations"],
    )
    chosen = np.array(predictions.most_influential(settings["removals"]))  # (R, 2): client, index
    exact = hgp.exact.inner_solution(problem, lam)
    truth = -to_host(lam) * hgp.exact.hypergradient(problem, exact, lam)
    return {
        "x": to_host(fit.x),
        "per_instance": predictions.per_instance,
        "per_instance_true": truth,
        "chosen": chosen,
        "predicted": predictions.predict(chosen),
        "predicted_true": truth[chosen[:, 0], chosen[:, 1]],
        "newton_step": newton_step_changes(problem, lam, exact, chosen),
    }


def _retrain(settings: Mapping[str, Any], chosen: np.ndarray) -> np.ndarray:
    problem, lam, net = _from(settings)
    return retrain_over_network(problem, lam, net, _sgp(settings), as_removals(chosen)).actual


def _retrain_exactly(settings: Mapping[str, Any], chosen: np.ndarray, x: np.ndarray) -> np.ndarray:
    problem, lam, _ = _from(settings)
    return retrain(problem, lam, as_removals(chosen), x0=x.mean(axis=0)).actual


def as_removals(chosen: np.ndarray) -> list[tuple[tuple[int, int], ...]]:
    """One removal for each row (client, index)."""
    return [((int(i), int(k)),) for i, k in chosen]


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    blocks = [arrays["actual"] for part, arrays in parts.items() if part.startswith("retrain-")]
    return {**parts["predict"], **parts["exact"], "actual": np.concatenate(blocks)}


# One Newton step after a removal --------------------------------------------------------------------------------------
#
# First order uses the Hessian H̄ of the training cost with all instances, and a linear validation cost. The Newton step
# drops the curvature of the removed instance from H̄ and evaluates the validation cost at the new point,
#
#     x' = x + (H̄ − ∇²ℓ_ik/(n N_i))⁻¹ ∇ℓ_ik/(n N_i),      change = f(x') − f(x).
#
# If this agrees with retraining and first order does not, the instance had high leverage, and neither HGP nor the
# network is at fault. It needs H̄, which no client has: it is a diagnosis, not an estimator.


def newton_step_changes(problem: Any, lam: Any, x: Any, chosen: np.ndarray) -> np.ndarray:
    """Changes of Σ f_k for the instances `chosen` (R, 2) of an `InstanceWeights` at its exact solution x (n, d_x)."""
    n, counts = problem.n_clients, problem.counts
    H = hgp.exact.hessians(problem, x, lam).mean(axis=0)
    J = hgp.exact.jacobians(problem, x, lam)  # (n, N_max, d_x): rows ∇ℓ_ik / N_i
    before = float(np.sum(to_host(problem.outer_cost(x, lam))))
    changes = []
    for i, k in chosen:
        batch = np.full((n, 1), -1)
        batch[i, 0] = k
        alone = hgp.exact.hessians(problem, x, lam, batch)[i] - problem.l2 * np.eye(problem.dim_x)
        step = np.linalg.solve(H - alone / (n * counts[i]), J[i, k] / n)
        x_new = (to_host(x) + step).astype(host_dtype(x))
        changes.append(float(np.sum(to_host(problem.outer_cost(from_host(x_new, like=x), lam)))) - before)
    return np.array(changes)
