"""Influence on real data: breast cancer and digits over 10 clients on a time-varying directed network.

Clients have very unequal sizes and labels (Dirichlet(1) for each label). The L2 rate is 0.01 as in the published
influence experiment, and training is by SGP. HGP predicts the change of f = Σ f_k for every training instance, and for
all training data of each client. The model is then retrained exactly without each of the 50 instances with the largest
predictions, and without each client. `predicted_true` is the exact first-order change −d_λ f at the exact inner
solution. Its difference from the actual change is due to the first order; its difference from `predicted` is due to
HGP and SGP.

R² is well below that of the synthetic data because of the first order. The most influential instances have high
leverage. A prediction that keeps their curvature in the Hessian is too small, especially in clients with few instances
and with many parameters (digits: 650 for 1078 instances). `newton_step` removes it and agrees with retraining. Signs
and ranks are right. Removing whole clients is a far larger step still.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
import hgp_ref.data
from figures.experiments.influence.removal import as_removals, newton_step_changes
from hgp_ref import attribution
from hgp_ref.backend import get_backend, to_host
from hgp_ref.methods import Neumann
from reporting.store import Arrays, Experiment

BLOCK = 25  # removals in one part


def experiment(dataset: str, *, quick: bool = False, backend: str = "numpy") -> Experiment:
    """Predicted and actual changes on "breast_cancer" or "digits"."""
    settings: dict[str, Any] = {
        "revision": 1,
        "data": dataset,
        "n": 10,
        "alpha": 1.0,
        "l2": 0.01,
        "low": 0.4,
        "high": 0.8,
        "train_steps": 500 if quick else 3000,
        "milestones": [300, 400] if quick else [1800, 2400, 2700],
        "iterations": 300 if quick else 2000,
        "steps": 20,
        "removals": 6 if quick else 50,
        "clients": 2 if quick else 10,
        "seed": 0,
        "backend": backend,
        "dtype": "float64",
    }
    parts = ("predict", *(f"retrain-{first}" for first in range(0, settings["removals"], BLOCK)), "clients")

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        if part == "predict":
            return _predict(settings)
        start = finished["predict"]["x_exact"]
        if part == "clients":
            return {"actual_clients": _retrain(settings, _clients(settings), start)}
        first = int(part.removeprefix("retrain-"))
        chosen = finished["predict"]["chosen"][first : first + BLOCK]
        return {"actual": _retrain(settings, as_removals(chosen), start)}

    return Experiment("real_data", settings, parts, compute, _join)


@lru_cache(maxsize=2)
def _problem(dataset: str, n: int, alpha: float, l2: float, seed: int, backend: str, dtype: str) -> tuple[Any, Any]:
    """The problem and λ = 1."""
    data = getattr(hgp_ref.data, dataset)(n, alpha=alpha, seed=seed)
    library = get_backend(backend)
    X, y, X_val, y_val = (
        [library.asarray(a, dtype=dtype) for a in clients] for clients in (data.X, data.y, data.X_val, data.y_val)
    )
    loss = {"loss": "binary"} if data.n_classes == 2 else {"loss": "softmax", "n_classes": data.n_classes}
    problem = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=l2, **loss)
    return problem, library.asarray(np.ones((problem.n_clients, problem.dim_lam)), dtype=dtype)


def _from(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    return _problem(*(settings[name] for name in ("data", "n", "alpha", "l2", "seed", "backend", "dtype")))


def _network(settings: Mapping[str, Any], seed: int) -> Any:
    return hgp.networks.RandomDirected(settings["n"], settings["low"], settings["high"], seed=seed)


def _clients(settings: Mapping[str, Any]) -> tuple[attribution.retraining.Removal, ...]:
    return attribution.client_removals(_from(settings)[0])[: settings["clients"]]


def _predict(settings: Mapping[str, Any]) -> Arrays:
    problem, lam = _from(settings)
    exact = hgp.exact.inner_solution(problem, lam)
    H = hgp.exact.hessians(problem, exact, lam)
    largest = max(float(np.linalg.eigvalsh(H_i)[-1]) for H_i in H)  # each client can find its own; they share the max
    fit = hgp.sgp(
        problem,
        lam,
        _network(settings, settings["seed"]),
        steps=settings["train_steps"],
        lr=1 / largest,
        milestones=settings["milestones"],
    )
    predictions = attribution.influence(
        problem,
        fit.x,
        lam,
        hgp.PushSum(_network(settings, settings["seed"] + 1), settings["steps"]),
        method=Neumann(1 / largest),
        iterations=settings["iterations"],
    )
    truth = -to_host(lam) * hgp.exact.hypergradient(problem, exact, lam)
    chosen = np.array(predictions.most_influential(settings["removals"]))
    clients = range(settings["clients"])
    return {
        "x_exact": to_host(exact)[0],
        "chosen": chosen,
        "counts": predictions.counts,
        "predicted": predictions.predict(chosen),
        "predicted_true": truth[chosen[:, 0], chosen[:, 1]],
        "newton_step": newton_step_changes(problem, lam, exact, chosen),
        "predicted_clients": predictions.per_client[clients],
        "predicted_clients_true": truth.sum(axis=1)[clients],
        "spectrum": np.linalg.eigvalsh(H.mean(axis=0)),
        "largest": np.array(largest),
    }


def _retrain(settings: Mapping[str, Any], removals: Any, start: np.ndarray) -> np.ndarray:
    problem, lam = _from(settings)
    return attribution.retrain(problem, lam, removals, x0=start).actual


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    blocks = [arrays["actual"] for part, arrays in parts.items() if part.startswith("retrain-")]
    return {**parts["predict"], **parts["clients"], "actual": np.concatenate(blocks)}
