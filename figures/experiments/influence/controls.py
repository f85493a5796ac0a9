"""Why predictions with a CNN differ from M more steps: the reduced size with one thing changed at a time.

`python -m figures cnn_controls [NAME …]`: full batch, 12 instances removed one by one. v^(M) is the slope of M more
steps along the removed weight where ∂g(x) = 0. What can make R² small is then a gradient that is left at x, a change
that is not small (R² of a tenth of the weight removed shows how much of it that is), kinks, or an η λ_max beyond 2.
Controls are at seed 0, where settings were chosen; seeds 1 to 5 took no part in that.
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
    """Train, predict, take M more steps without all and without a tenth of each instance."""
    given = {"groups": 0, "damping": [0.0], "ways": ["continued"], **changes}
    settings = experiment("reduced", mini_batch=False, **{"seed": 0, **given}).settings
    problem = from_settings(settings)[0]
    trained = train(settings)
    arrays = predict(settings, trained["x"])
    whole, tenth = (
        scores(continued(settings, trained["x"], arrays["removed"], part) / part, arrays["predicted"][0])
        for part in (1.0, 0.1)
    )
    spectrum = (f"{settings['eta'] * float(arrays['high']):.2f}", f"{float(arrays['low']):.4f}")
    numbers = (f"{value:.3f}" for value in (whole.r2, tenth.r2, whole.spearman, whole.f1))
    return (name, str(problem.counts.sum()), f"{float(trained['gradient']):.4f}", *spectrum, *numbers)


def controls(*names: str) -> int:
    """Print the rows called `names`, all by default, as they are ready; then all of them as a table."""
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
