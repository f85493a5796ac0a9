"""The experiment behind Fig. 1a, 1b and their appendix versions: error of HGP's estimate against m, for each S.

Train by SGP and compute the true hyper-gradient d at the trained point x, by the formula that HGP estimates there; the
distance of x from the exact inner solution is stored too. Run HGP for every S and seed at once and store ‖v^(m) − d‖
for m = 1 … M. `limit` is the error with exact averaging, ‖J (I − ηH̄)^m w*‖. It depends on the spectrum of the mean
Hessian H̄ only and bounds from below what any S can reach.

The variants are what the paper says and what its program did:

    paper      data as described, one rate of L2 per coordinate, f = Σ f_k, full-batch truth; a network for each seed
    published  data with overwritten rows, one rate of L2 per client, f/n; the graphs of that program, whose rates are
               the same for all seeds; for mini-batches the "truth" of each seed is computed from one mini-batch
               (`errors_printed`, while `errors` has the full-batch truth here too)

At small S the error is heavy-tailed over seeds: the standard error of a mean of 10 is of the order of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.backend import Array, Backend, from_host, get_backend, to_host
from hgp_ref.data import synthetic_mixture
from hgp_ref.networks import Network
from hgp_ref.problems.batches import sample_batches
from reporting.store import Arrays, Experiment

MILESTONES = (3000, 4000, 4500, 4600, 4700, 4800, 4900, 4950, 4990, 4999)
BLOCK = 5  # seeds in one part
REFERENCE_STREAM = 7  # of the batches of the printed reference; HGP uses streams 0 and 1


def training(quick: bool) -> dict[str, Any]:
    """Network and training that the convex experiments share."""
    return {
        "n": 3,
        "low": 0.4,
        "high": 0.8,
        "train_steps": 600 if quick else 5000,
        "lr": 2.0,
        "milestones": [400, 500, 550, 590] if quick else list(MILESTONES),
    }


def experiment(
    data: str, regularization: str, batch_size: int | None = None, *, quick: bool = False, backend: str = "numpy"
) -> Experiment:
    """Errors on the `data` and graphs "paper" or "published", with λ per "coordinate" or per "client"."""
    settings = {
        "revision": 1,
        "data": data,
        "regularization": regularization,
        "batch_size": batch_size,
        **training(quick),
        "eta": 1.0,
        "iterations": 100 if quick else 1000,
        "steps": [1, 2, 5, 10, 100],
        "seeds": list(range(2 if quick else 10)),
        "seed": 1234,
        "backend": backend,
        "dtype": "float64",
    }
    blocks = range(0, len(settings["seeds"]), BLOCK)
    parts = ("train", *(f"seeds-{first}" for first in blocks))

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        if part == "train":
            return _train(settings)
        first = int(part.removeprefix("seeds-"))
        return _run_block(settings, finished["train"], settings["seeds"][first : first + BLOCK])

    return Experiment("estimation", settings, parts, compute, _join)


def for_variant(
    variant: str, batch_size: int | None = None, *, quick: bool = False, backend: str = "numpy"
) -> Experiment:
    """The experiment as the paper's text has it or as its published program ran it."""
    regularization = "coordinate" if variant == "paper" else "client"
    return experiment(variant, regularization, batch_size, quick=quick, backend=backend)


@lru_cache(maxsize=4)
def _problem(data: str, regularization: str, seed: int, backend: str, dtype: str) -> tuple[Any, Any]:
    """The problem and λ = 0."""
    library = get_backend(backend)
    problem = hgp.problems.LogisticRegression(*mixture(data, seed, library, dtype), regularization=regularization)
    return problem, library.asarray(np.zeros((problem.n_clients, problem.dim_lam)), dtype=dtype)


def mixture(data: str, seed: int, library: Backend, dtype: str) -> list[Array]:
    """X, y, X_val, y_val of the synthetic mixture as arrays of `library`."""
    clients = synthetic_mixture(seed=seed, variant=data)
    return [library.asarray(a, dtype=dtype) for a in (clients.X, clients.y, clients.X_val, clients.y_val)]


def _from(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    return _problem(*(settings[name] for name in ("data", "regularization", "seed", "backend", "dtype")))


def network(settings: Mapping[str, Any], seed: int, count: int) -> Network:
    """The network of the variant, with at least `count` graphs."""
    arguments = (settings["n"], settings["low"], settings["high"])
    if settings["data"] == "published":
        return PublishedGraphs(*arguments, rates_seed=settings["seed"], seed=seed, count=count)
    return hgp.networks.RandomDirected(*arguments, seed=seed)


def _batches(settings: Mapping[str, Any], seed: Any) -> Any:
    """The mini-batches of a run; None for full batches."""
    return None if settings["batch_size"] is None else hgp.MiniBatches(settings["batch_size"], seed=seed)


def _train(settings: Mapping[str, Any]) -> Arrays:
    """SGP, the truth at the trained point, and the error with exact averaging."""
    problem, lam = _from(settings)
    fit = hgp.sgp(
        problem,
        lam,
        network(settings, settings["seed"], settings["train_steps"]),
        steps=settings["train_steps"],
        lr=settings["lr"],
        milestones=settings["milestones"],
        batches=_batches(settings, settings["seed"]),
    )
    H = hgp.exact.hessians(problem, fit.x, lam)
    J = hgp.exact.jacobians(problem, fit.x, lam)
    f_x, _ = hgp.exact.outer_gradients(problem, fit.x, lam)
    values, vectors = np.linalg.eigh(H.mean(axis=0))
    w = vectors.T @ np.linalg.solve(H.sum(axis=0), f_x.sum(axis=0))  # w* in the eigenbasis of H̄
    m = np.arange(1, settings["iterations"] + 1)
    left = np.power(1 - settings["eta"] * values, m[:, None]) * w  # (M, d)
    exact_x = to_host(hgp.exact.inner_solution(problem, lam))
    return {
        "x": to_host(fit.x),
        "truth": hgp.exact.hypergradient(problem, fit.x, lam),
        "distance": np.array(np.linalg.norm(to_host(fit.x) - exact_x)),
        "consensus_gap": np.array(fit.consensus_gap),
        "spectrum": values,
        "limit": np.linalg.norm(np.einsum("nld,dk,mk->mnl", J, vectors, left), axis=(1, 2)),
    }


def _run_block(settings: Mapping[str, Any], trained: Arrays, seeds: list[int]) -> Arrays:
    """‖v^(m) − d‖ for all S and the given seeds, (S, seeds, M), in one call of the estimator."""
    problem, lam = _from(settings)
    x = from_host(trained["x"], like=lam)
    steps = settings["steps"]
    nets = [network(settings, seed, settings["iterations"] * max(steps)) for seed in seeds]
    est = hgp.hypergradient(
        problem,
        x,
        lam,
        [hgp.PushSum(net, S) for S in steps for net in nets],
        eta=settings["eta"],
        iterations=settings["iterations"],
        history=True,
        batches=_batches(settings, seeds * len(steps)),
    )
    history = to_host(est.history)  # (S · seeds, M, n, d_λ)
    history = history.reshape(len(steps), len(seeds), *history.shape[1:])
    arrays = {"errors": np.linalg.norm(history - trained["truth"], axis=(-2, -1))}
    if settings["batch_size"] is not None:
        printed = np.stack([_printed_truth(settings, x, seed) for seed in seeds])  # (seeds, n, d_λ)
        arrays["printed_truth"] = printed
        arrays["errors_printed"] = np.linalg.norm(history - printed[None, :, None], axis=(-2, -1))
    return arrays


def _printed_truth(settings: Mapping[str, Any], x: Any, seed: int) -> np.ndarray:
    """The published kind of mini-batch reference: the hyper-gradient formula with H and J of one mini-batch."""
    problem, lam = _from(settings)
    batch = sample_batches(problem.counts, settings["batch_size"], seed, 0, 1, stream=REFERENCE_STREAM)[0]
    H = hgp.exact.hessians(problem, x, lam, batch)
    J = hgp.exact.jacobians(problem, x, lam, batch)
    f_x, f_lam = hgp.exact.outer_gradients(problem, x, lam)
    return f_lam - J @ np.linalg.solve(H.sum(axis=0), f_x.sum(axis=0))


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    """The arrays of training, and those of the blocks along their axis of seeds."""
    blocks = [arrays for part, arrays in parts.items() if part != "train"]
    axes = {"errors": 1, "errors_printed": 1, "printed_truth": 0}
    joined = {name: np.concatenate([b[name] for b in blocks], axis=axes[name]) for name in blocks[0]}
    return {**parts["train"], **joined}


# The graphs of the published program ----------------------------------------------------------------------------------
#
# The published program draws the rates ρ_ij ~ U[low, high] once. At each step it draws one uniform number for each
# ordered pair i ≠ j, row by row; the edge j → i exists if the number does not exceed ρ_ij. Both come from NumPy's
# frozen legacy generator, so the same graphs can be drawn here, but only in sequence.


class PublishedGraphs(Network):
    """`count` graphs on n clients: rates from `rates_seed`, edges from `seed`."""

    def __init__(self, n: int, low: float, high: float, rates_seed: int, seed: int, count: int) -> None:
        super().__init__(n, seed)
        self.low, self.high, self.rates_seed, self.count = low, high, rates_seed, count
        rates = np.random.RandomState(rates_seed).uniform(low, high, (n, n)).astype(np.float32)
        off = ~np.eye(n, dtype=bool)
        present = np.ones((count, n, n), dtype=bool)
        present[:, off] = np.random.RandomState(seed).random_sample((count, n * n - n)) <= rates[off]
        self._present = present  # [s − 1, i, j]: j → i
        self._rates = np.where(off, rates, 1.0)

    @property
    def expected_edges(self) -> float:
        return float(self._rates.sum())

    def out_adjacency(self, s: int) -> tuple[np.ndarray, np.ndarray]:
        senders, receivers = np.nonzero(self._graphs(s, 1)[0].T)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(senders, minlength=self.n))]).astype(np.int64)
        return indptr, receivers.astype(np.int32)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        present = self._graphs(first, count)
        return present / present.sum(axis=1, keepdims=True)

    def _graphs(self, first: int, count: int) -> np.ndarray:
        if first < 1 or first + count - 1 > self.count:
            raise ValueError(f"s must be 1 … {self.count}, got {first} … {first + count - 1}")
        return self._present[first - 1 : first - 1 + count]

    def _arguments(self) -> dict[str, Any]:
        names = ("n", "low", "high", "rates_seed", "seed", "count")
        return {name: getattr(self, name) for name in names}
