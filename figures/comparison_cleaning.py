"""Outer cost over floats sent on hyper-cleaning: HGP and the other bilevel methods, each with its best outer step.

n = 6 clients have 12 training instances each, of a mixture of Gaussians (3 classes, 4 features: d_x = 12, d_λ = 12).
Three in ten labels are wrong; f is the validation loss. Every run starts at λ = 0 and the inner solution x there. Inner
steps follow from L by rule. The outer step is one of six, chosen on seed 0 and shown on other seeds. The cost is
evaluated at the exact inner solution of each λ, not at the clients' x. A first grid, 100 … 0.3, was moved up because
eight of nine methods chose its end. Four still choose the end of this one, since σ(λ) saturates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.figure import Figure

import hgp_ref as hgp
from figures.experiments.comparison.runs import gaussians
from figures.options import Data, Options
from hgp_ref import baselines, bilevel
from reporting.store import Arrays, Experiment
from reporting.style import method_line, new_figure

SHOWS = "Hyper-cleaning: validation cost against floats sent, for HGP and eight other bilevel methods"
NUMPY = True
SIZES = ("reduced", "paper")  # 200 iterations of a single loop, or 2,000
N, SIZE, FEATURES, CLASSES, WRONG, L2 = 6, 12, 4, 3, 0.3, 0.05
OUTER = (3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0)  # the grid
ENTRIES = 12  # of a path that are evaluated
FEWEST = 10.0  # floats at the left end of the plot


def problem(seed: int) -> tuple[hgp.problems.HyperCleaning, np.ndarray, float]:
    """The problem, x at λ = 0, and L."""
    X, y, X_val, y_val = gaussians(N, SIZE, seed, FEATURES, CLASSES)
    rng = np.random.default_rng([4, seed])
    y = np.where(rng.random(y.shape) < WRONG, (y + rng.integers(1, CLASSES, y.shape)) % CLASSES, y)
    cleaning = hgp.problems.HyperCleaning(X, y, X_val, y_val, l2=L2, n_classes=CLASSES)
    lam = np.zeros((N, SIZE))
    x = hgp.exact.inner_solution(cleaning, lam)
    return cleaning, x, float(np.linalg.eigvalsh(hgp.exact.hessians(cleaning, x, lam)).max())


def _static(seed: int) -> hgp.networks.Network:
    return hgp.networks.StaticUndirected(N, p=0.5, seed=seed)


def _directed(seed: int) -> hgp.networks.Network:
    rate = (_static(seed).expected_edges - N) / (N * (N - 1))
    return hgp.networks.RandomDirected(N, low=rate, high=rate, seed=seed)


Run = Callable[[hgp.problems.HyperCleaning, np.ndarray, float, float, int, int], bilevel.Path]


def _hgp(cleaning, x, L, lr, seed, K):  # type: ignore[no-untyped-def]
    return bilevel.optimise(
        cleaning, np.zeros((N, SIZE)), _directed(seed), outer_steps=max(2, K // 12),
        train=bilevel.Trainer(hgp.training.SGP(60, 0.5 / L, (0.6, 0.8)), x0=x),
        estimate=bilevel.Estimator(4, 40, eta=1 / L), update=bilevel.GradientDescent(lr),
    )  # fmt: skip


def _baseline(name: str, net: Callable[[int], hgp.networks.Network], share: float,
           settings: Callable[[float], dict[str, float]]) -> Run:  # fmt: skip
    """A baseline with its inner steps by rule; `share` of the outer iterations of a single loop."""

    def run(cleaning, x, L, lr, seed, K):  # type: ignore[no-untyped-def]
        steps = max(ENTRIES, int(K * share))
        return getattr(baselines, name)(cleaning, np.zeros((N, SIZE)), net(seed), steps, lr=lr,
                                      x0=x, every=max(1, steps // ENTRIES), **settings(L))  # fmt: skip

    return run


RUNS: dict[str, Run] = {
    "HGP (directed)": _hgp,
    "FAB (directed)": _baseline("fab", _directed, 1.0, lambda L: {"inner_lr": 0.1 / (100 * L), "penalty": 100.0}),
    "SPARKLE-ED": _baseline("sparkle", _static, 1.0, lambda L: {"inner_lr": 0.8 / L, "aux_lr": 0.8 / L}),
    "D-SOBA": _baseline("dsoba", _static, 1.0, lambda L: {"inner_lr": 0.2 / L, "aux_lr": 0.2 / L}),
    "MA-DSBO": _baseline("ma_dsbo", _static, 0.1, lambda L: {"inner_lr": 0.2 / L, "higp_lr": 0.2 / L}),
    "DBO": _baseline("dbo", _static, 0.02, lambda L: {"inner_lr": 0.2 / L, "jhip_lr": 0.2 / L}),
    "GBDSBO": _baseline("gbdsbo", _static, 0.3, lambda L: {"inner_lr": 0.2 / L, "mixing": 0.1, "ell": L, "terms": 40}),
    "MDBO": _baseline("mdbo", _static, 0.5, lambda L: {"inner_lr": 0.4 / L, "ell": L, "terms": 40, "eta": 0.5}),
    "FedNest (server)": _baseline(
        "fednest", lambda seed: hgp.networks.FullyConnected(N), 0.1, lambda L: {"inner_lr": 0.5 / L, "ell": L}
    ),
}


def experiments(options: Options) -> dict[str, Experiment]:
    """One part per method."""
    settings = {
        "revision": 3,
        "outer": OUTER,
        "iterations": 40 if options.quick else 2000 if options.size == "paper" else 200,
        "methods": list(RUNS),
        "seeds": [1] if options.quick else [1, 2, 3],
        "seed": 0,
        "backend": "numpy",
        "dtype": "float64",
    }

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        run, K = RUNS[list(RUNS)[int(part)]], int(settings["iterations"])  # type: ignore[call-overload]
        trials = [evaluated(run, lr, 0, K) for lr in OUTER]
        best = min(range(len(OUTER)), key=lambda k: trials[k][-1, 1])
        shown = [evaluated(run, OUTER[best], seed, K) for seed in settings["seeds"]]  # type: ignore[attr-defined]
        return {"chosen": np.array(OUTER[best]), "curves": np.stack(shown)}

    def join(parts: Mapping[str, Arrays]) -> Arrays:
        return {f"{part}/{name}": a for part, arrays in parts.items() for name, a in arrays.items()}

    return {"runs": Experiment("comparison_cleaning", settings, tuple(map(str, range(len(RUNS)))), compute, join)}


def evaluated(run: Run, lr: float, seed: int, K: int) -> np.ndarray:
    """(ENTRIES, 2): floats per client in units of d_x, and Σ f at the exact inner solution; inf if diverged."""
    cleaning, x, L = problem(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of estimates that have not converged
            path = run(cleaning, x, L, lr, seed, K)
        keep = np.unique(np.linspace(0, len(path.lam) - 1, ENTRIES).round().astype(int))
        costs = [cleaning.outer_cost(hgp.exact.inner_solution(cleaning, path.lam[k]), path.lam[k]).sum() for k in keep]
    except (hgp.DivergenceError, RuntimeError):  # the latter: at λ there is no inner solution to be found
        return np.full((ENTRIES, 2), np.inf)
    curve = np.stack([path.floats[keep] / (N * cleaning.dim_x), costs], axis=1)
    return np.concatenate([curve, np.repeat(curve[-1:], ENTRIES - len(curve), axis=0)])


def draw(data: Data, options: Options) -> Figure:
    """Medians over seeds that were not used for choosing; HGP in both panels, with four other methods in each."""
    figure = new_figure(height=5.0)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    ours, *others = RUNS
    for ax, names in zip(panels, (others[::2], others[1::2]), strict=True):
        for name in (ours, *names):
            k = list(RUNS).index(name)
            floats, cost = np.median(data["runs"][f"{k}/curves"], axis=0).T
            label = f"{name}: {data['runs'][f'{k}/chosen']:g}"
            x = np.maximum(floats, FEWEST)
            ax.step(x, cost, where="post", label=label, markevery=2, **method_line(name))
        ax.set(xscale="log", xlim=(FEWEST, None), ylabel="validation cost")
        ax.legend(loc="lower left", bbox_to_anchor=(-0.1, 1), ncols=2)
    figure.suptitle("number behind a name: outer step, chosen on seed 0", fontsize=7)
    panels[1].set_xlabel("floats sent per client, in units of $d_x$")
    return figure
