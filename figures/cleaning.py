"""Hyper-cleaning over a time-varying directed network: learn to distrust wrong labels, in five ways.

    none    all instances weigh 1, no cleaning
    hgp     `bilevel.optimise` from λ = 2, weights 0.88: SGP, then HGP with M terms and S steps each, then Adam
    zero    the same with M = 0: ∂_λ f alone, which is 0
    alone   the same without a network: each client trains on its own data and follows its own hyper-gradient; the
            weights that it finds are then used in training together
    centre  all data at one place, solved to 1e-5 at every step, at one share of wrong labels only

Every model has had the same number of steps of SGP in the end, (K + 1) times those of one training: without cleaning
the accuracy falls with more of them (wrong labels are learnt last), so that it would matter. What is before cleaning is
therefore `zero`. M, S, K and the rate of Adam were chosen before their outcome was seen, for what they cost; the equal
number of steps after an unequal one had been seen to favour `none`, and λ_0 = 2 after λ_0 = 0: weights of 1/2 are a
regularisation of their own, so that a start from them mixes two things.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import rankdata

import hgp_ref as hgp
from figures.cleaning_clients import Noisy, noisy_clients
from hgp_ref.backend import get_backend, to_host
from reporting.store import Arrays, Experiment

ARMS = ("none", "hgp", "zero", "alone")
SHOWN = 0.3  # the share of wrong labels at which there is a centre, and whose weights are drawn
PLAIN = 30.0  # σ(λ) is 1 to 1e-13
SIZES: Mapping[str, Mapping[str, Any]] = {
    "reduced": {"data": "digits", "side": 8, "train": 100, "validation": 40, "test": 397, "train_steps": 100,
                "iterations": 100, "outer_steps": 10},
    "emnist": {"data": "emnist", "side": 14, "train": 200, "validation": 80, "test": 4000, "train_steps": 100,
               "iterations": 100, "outer_steps": 10},
}  # fmt: skip
QUICK = {"train": 30, "validation": 10, "test": 200, "train_steps": 40, "iterations": 20, "outer_steps": 3}


def experiment(size: str = "reduced", *, quick: bool = False, backend: str = "numpy", seed: int = 0) -> Experiment:
    """Accuracy, weights and AUC of every way, for each share of wrong labels."""
    settings = {
        "revision": 1,
        **SIZES["emnist" if size == "paper" else size or "reduced"],
        **(QUICK if quick else {}),
        "n": 10,
        "l2": 1e-3,
        "shares": [SHOWN, 0.6] if quick else [0.1, 0.2, SHOWN, 0.4, 0.6],
        "low": 0.4,
        "high": 0.8,
        "steps": 5,
        "lr": 1.0,
        "eta": 1.0,
        "adam": 1.0,
        "start": 2.0,
        "seed": seed,
        "backend": backend,
        "dtype": "float64",
    }
    parts = tuple(f"{share:g}" for share in settings["shares"])
    return Experiment("cleaning", settings, parts, lambda part, _: _clean(settings, float(part)), _join)


def auc(score: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: the probability that a positive one has the higher score, ties counting half."""
    ranks, a = rankdata(score.ravel()), int(positive.sum())
    b = positive.size - a
    return float((ranks[positive.ravel()].sum() - a * (a + 1) / 2) / (a * b))


def _clean(settings: Mapping[str, Any], share: float) -> Arrays:
    """All ways at one share of wrong labels."""
    data = noisy_clients(settings, share)
    net = hgp.networks.RandomDirected(settings["n"], settings["low"], settings["high"], seed=settings["seed"])
    problem = data.problem(settings["l2"], settings["backend"], settings["dtype"])
    start = get_backend(settings["backend"]).asarray(np.full(data.y.shape, settings["start"]), dtype=settings["dtype"])
    paths = {
        "hgp": _path(settings, problem, net, start),
        "zero": _path(settings, problem, net, start, iterations=0),
        "alone": _path(settings, problem, hgp.networks.SelfLoops(settings["n"]), start),
    }
    total = {"steps": (settings["outer_steps"] + 1) * settings["train_steps"], "lr": settings["lr"]}
    x = {name: path.x for name, path in paths.items()}
    x |= {"none": hgp.sgp(problem, net, start + PLAIN, **total).x}
    x |= {"alone": hgp.sgp(problem, net, paths["alone"].lam[-1, ...], **total).x}
    lam = {name: to_host(path.lam) for name, path in paths.items()}
    arrays = {
        "accuracy": np.array([data.accuracy(to_host(x[arm])).mean() for arm in ARMS]),
        "auc": np.array([np.nan, *(auc(-lam[arm][-1], data.wrong) for arm in ARMS[1:])]),
        "auc_first": np.array(auc(-lam["hgp"][1], data.wrong)),
        "cost": paths["hgp"].outer_cost,
        "moved": np.array(np.abs(lam["zero"] - settings["start"]).max()),
        "lam": lam["hgp"][-1],
        "wrong": data.wrong,
        "given": data.y,
        "floats": np.array(paths["hgp"].traffic.floats),
    }
    if share == SHOWN:
        arrays |= {"pixels": data.pixels, **_centre(settings, data)}
    return arrays


def _path(settings: Mapping[str, Any], problem: Any, net: Any, start: Any, **changes: int) -> hgp.bilevel.Path:
    estimate = {name: settings[name] for name in ("steps", "iterations", "eta")} | changes
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*cut off|.*never reach|.*strongly connected")  # who is alone
        return hgp.bilevel.optimise(
            problem,
            net,
            start,
            settings["outer_steps"],
            train={"steps": settings["train_steps"], "lr": settings["lr"]},
            estimate=estimate,
            update=hgp.bilevel.Adam(settings["adam"]),
        )


def _centre(settings: Mapping[str, Any], data: Noisy) -> Arrays:
    """What someone with all data would do: the inner problem by L-BFGS, w* by Chebyshev's method, both to the end."""
    pooled = data.pooled(settings["l2"])
    # softmax curvature ≤ 1/2, weights ≤ 1
    top = 0.5 * float(np.linalg.norm(data.X.reshape(-1, data.X.shape[-1]), 2)) ** 2 / data.y.size + settings["l2"]

    def train(problem: Any, net: Any, lam: np.ndarray, x0: Any, **options: Any) -> SimpleNamespace:
        cost = lambda x: (problem.inner_cost(x[None], lam)[0], problem.inner_grad(x[None], lam)[0])  # noqa: E731
        begin = np.zeros(problem.dim_x) if x0 is None else x0[0]
        solved = minimize(cost, begin, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "gtol": 1e-5, "ftol": 0})
        return SimpleNamespace(x=solved.x[None], traffic=hgp.Traffic())

    estimate = {
        "average": lambda net, steps: hgp.ExactAverage(1),
        "method": hgp.methods.Chebyshev(settings["l2"], top),
        "iterations": 2000,
        "tol": 1e-5,
    }
    path = hgp.bilevel.optimise(
        pooled,
        hgp.networks.FullyConnected(1),
        np.full((1, data.y.size), settings["start"]),
        settings["outer_steps"],
        train,
        estimate,
        hgp.bilevel.Adam(settings["adam"]),
    )
    return {
        "centre_accuracy": np.array(data.accuracy(path.x).mean()),
        "centre_auc": np.array(auc(-path.lam[-1], data.wrong)),
        "centre_cost": path.outer_cost * settings["n"],
    }


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    """Arrays of all shares stacked, and those of the share that is shown in full."""
    names = ("accuracy", "auc", "auc_first", "cost", "moved", "floats")
    stacked = {name: np.stack([np.asarray(arrays[name]) for arrays in parts.values()]) for name in names}
    shown = parts[f"{SHOWN:g}"]
    kept = ("lam", "wrong", "given", "pixels", "centre_accuracy", "centre_auc", "centre_cost")
    return {"shares": np.array([float(part) for part in parts]), **stacked, **{name: shown[name] for name in kept}}
