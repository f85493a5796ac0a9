"""Why predictions with a CNN differ from M more steps: the reduced size with one setting changed at a time.

`python -m figures cnn_controls [NAME …]`: full batch, 12 instances removed one by one. Where ∂g(x) = 0, v^(M) is the
derivative of M more steps along the removed weight. R² can then be small for four reasons: a remaining gradient at x, a
change that is not small (removing a tenth of the weight shows how much of it this is), kinks, or η λ_max > 2. Controls
run at seed 0, at which settings were chosen; seeds 1 to 5 had no part in that.

`python -m figures cnn_damping [IMAGES [SEED]]`: predictions with the Hessian and with the Gauss–Newton matrix, damped
by μ, compared with retraining. The truncated series is compared with as many steps from x. The solution of the damped
system, which the series tends to if λ_min + μ > 0, is compared with many steps from x and with training from scratch.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.experiments.influence.cnn import (
    averaging,
    continued,
    experiment,
    from_settings,
    predict,
    removals_of,
    retrain_from_scratch,
    spectrum,
    train,
)
from hgp_ref.attribution import scores
from reporting.table import Table

CONTROLS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "not settled": {"settle_steps": 0},
    "settled longer": {"settle_steps": 2000},
    "600 images": {"share": 600},
    "300 images": {"share": 300},
    "300 images, not settled": {"share": 300, "settle_steps": 0},
    "twice the step": {"eta": 0.1},
    "no kinks": {"smooth": True},
}
SEEDS = {f"seed {seed}": {"seed": seed} for seed in range(1, 6)}
HEADER = ("changed", "images", "gradient", "η λ_max", "λ_min", "R²", "R² of a tenth", "Spearman", "F1")


def row(name: str, changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Train, predict, and take M more steps without each instance and without a tenth of it."""
    changes = {"seed": 0, "groups": 0, "damping": [0.0], "ways": ["continued"], **changes}
    settings = experiment("reduced", mini_batch=False, **changes).settings
    problem = from_settings(settings)[0]
    trained = train(settings)
    arrays = predict(settings, trained["x"])
    full, tenth = (
        scores(continued(settings, trained["x"], arrays["removed"], part) / part, arrays["predicted"][0])
        for part in (1.0, 0.1)
    )
    spectrum = (f"{settings['eta'] * float(arrays['high']):.2f}", f"{float(arrays['low']):.4f}")
    numbers = (f"{value:.3f}" for value in (full.r2, tenth.r2, full.spearman, full.f1))
    return (name, str(problem.counts.sum()), f"{float(trained['gradient']):.4f}", *spectrum, *numbers)


def controls(*names: str) -> int:
    """Print the rows called `names`, by default all, one by one and then as a table."""
    every = {**CONTROLS, **SEEDS}
    for name in names:
        if name not in every:
            print(f"no control is called {name!r}; there are: {', '.join(every)}", file=sys.stderr)
            return 2
    rows = []
    for name in names or every:
        rows.append(row(name, every[name]))
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(Table("", HEADER, tuple(rows)).text())
    return 0


# Damping and Gauss–Newton curvature -----------------------------------------------------------------------------------

DAMPING = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)  # μ
MANY_STEPS = 1000  # from x, of size η
DAMPING_HEADER = ("curvature", "μ", "λ_min + μ", "R² of M steps", "Spearman", f"R² of {MANY_STEPS} steps", "Spearman",
                  "R² from scratch", "Spearman")  # fmt: skip


def damping(images: str = "300", seed: str = "1") -> int:
    """Print the table for so many images."""
    settings = experiment(
        "reduced", mini_batch=False, share=int(images), seed=int(seed), removals=12, groups=0, damping=[0.0]
    ).settings
    problem, lam, _, _, _ = from_settings(settings)
    trained = train(settings)
    x, removed = trained["x"], predict(settings, trained["x"])["removed"]
    actual = {
        "M": continued(settings, x, removed),
        "many": continued({**settings, "iterations": MANY_STEPS}, x, removed),
        "scratch": retrain_from_scratch(settings, removed) - trained["cost_sgp"],
    }
    rows = []
    for curvature in ("hessian", "gauss-newton"):
        chosen = copy.copy(problem)
        chosen.curvature = curvature
        low, high = spectrum(chosen, x, lam)
        for mu in DAMPING:
            damped, ends = hgp.problems.Damped(chosen, mu), (low + mu, high + mu)
            methods: list[Any] = [hgp.methods.Neumann(settings["eta"])]
            if ends[0] > 1e-3:  # from inside by Lanczos: less would not be known to be positive
                methods.append(hgp.methods.Chebyshev(0.8 * ends[0], 1.05 * ends[1]))
            found = []
            for method, iterations in zip(methods, (settings["iterations"], 4000), strict=False):
                tol = None if iterations == settings["iterations"] else 1e-6
                run = hgp.influence(damped, x, lam, averaging(settings), method, iterations=iterations, tol=tol)
                found.append(run.predict(removals_of(removed)))
            compared = [("M", found[0]), ("many", found[-1]), ("scratch", found[-1])]
            if len(found) == 1:
                compared = compared[:1]
            values = [scores(actual[key], predicted) for key, predicted in compared]
            numbers = [f"{number:.3f}" for score in values for number in (score.r2, score.spearman)]
            rows.append((curvature, f"{mu:g}", f"{ends[0]:.4f}", *numbers, *["no limit", ""] * (3 - len(compared))))
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(f"{int(np.sum(problem.counts))} training images, seed {seed}, gradient left at x "
          f"{float(trained['gradient']):.1e}, M = {settings['iterations']} steps of {settings['eta']:g}")  # fmt: skip
    print(Table("", DAMPING_HEADER, tuple(rows)).text())
    return 0
