"""`python -m verification.choices [P1 P2 P3]`: which settings `communication` shows, chosen by a grid search.

Every trial of `price.grid` runs on NETWORKS networks of its problem that are used for nothing else. For each kind of
method, the trial with the smallest upper quartile of prices over these networks is chosen. (The median would choose
methods with a floor that fail on half of the networks. This was decided after looking at medians.) choices.json is
written after each problem. A problem that it contains is searched again only if it is named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgp_ref.results import write_whole
from reporting.provenance import commit
from verification.price import Trial, grid, prices
from verification.run import Run
from verification.three_problems import Priced, three_problems

CHOICES_FILE = Path(__file__).with_name("choices.json")
PROBLEM_SEED = 1000  # of problems that no constant of the planner was chosen on
NETWORKS, QUANTILE, STREAM = 9, 0.75, 71


def search(name: str, priced: Priced) -> dict[str, Any]:
    """For each kind of method: the chosen trial, its settings as text, its price, and the number of trials."""
    networks = [priced.network(seed) for seed in Run().seeds(NETWORKS, stream=STREAM)]
    best: dict[str, dict[str, Any]] = {}
    counted: dict[str, int] = {}
    for k, trial in enumerate(grid(name, priced.case)):
        counted[trial.kind] = counted.get(trial.kind, 0) + 1
        price = float(np.quantile(prices(priced.case, trial, networks), QUANTILE, method="higher"))
        if np.isfinite(price) and price < best.get(trial.kind, {}).get("upper quartile", np.inf):
            best[trial.kind] = {"trial": k, "settings": trial.description, "upper quartile": price}
    return {kind: one | {"trials": counted[kind]} for kind, one in best.items()}


def chosen(name: str, priced: Priced) -> dict[str, Trial]:
    """The trials that were chosen for a problem, by kind."""
    trials = grid(name, priced.case)
    return {kind: trials[one["trial"]] for kind, one in stored()["problems"][name].items()}


def stored() -> dict[str, Any]:
    """The contents of choices.json."""
    if not CHOICES_FILE.exists():
        return {"problems": {}}
    document: dict[str, Any] = json.loads(CHOICES_FILE.read_text(encoding="utf-8"))
    return document


def main(names: Sequence[str]) -> int:
    """Search the named problems, or those that are missing."""
    problems, at = three_problems(PROBLEM_SEED), commit()  # before choices.json changes
    for name in names or [p for p in problems if p not in stored()["problems"]]:
        one = search(name, problems[name])
        searched = stored()["problems"] | {name: one}
        settings: dict[str, Any] = {
            "problem seed": PROBLEM_SEED,
            "networks": NETWORKS,
            "quantile": QUANTILE,
            "commit": at,
        }
        settings["network seeds"] = Run().seeds(NETWORKS, stream=STREAM)
        document = {"chosen by": settings, "problems": {p: searched[p] for p in sorted(searched)}}
        write_whole(CHOICES_FILE, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
        print(name, json.dumps(one, indent=1, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
