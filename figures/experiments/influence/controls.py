"""Why predictions with a CNN differ from M more steps: the reduced size with one setting changed at a time.

`python -m figures cnn_controls [NAME …]`: full batch, 12 instances removed one by one. Where ∂g(x) = 0, v^(M) is the
derivative of M more steps along the removed weight. R² can then be small for four reasons: a remaining gradient at x, a
change that is not small (removing a tenth of the weight shows how much of it this is), kinks, or η λ_max > 2. Controls
run at seed 0, at which settings were chosen; seeds 1 to 5 had no part in that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from figures.experiments.influence.cnn import continued, experiment, from_settings, predict, train
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
