"""`python -m figures personal_refresh [--write | PART …]`: recompute stored numbers whose settings have changed.

docs/measured/personalization-reduced.json stores the settings of each part (network, method, seed). Parts that are
missing, or whose settings differ from those of `settings`, are computed one after the other. The file is written after
each, so that an interrupted run can continue. Then the page next to it and the learning curves in docs/figures are
written. With --write nothing is computed, and the page says which parts are missing or have old settings. PART selects
the parts whose names start with it, such as FC.fedem. --folder DIR uses another folder.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from figures import figA3
from figures.cli import summary
from figures.experiments.personalization.page import entry
from figures.experiments.personalization.runs import base_of, rate_of, run_part
from figures.experiments.personalization.settings import GROUPS, SAME, experiments_of
from figures.options import Product
from figures.table_personalization import SHOWS, comparisons, written
from hgp_ref.results import write_whole
from reporting.provenance import commit
from reporting.style import save_thumbnail, style

SIZE = "reduced"


def made_with(settings: dict[str, Any], part: str) -> dict[str, Any] | None:
    """The settings that a part depends on; None if they have no rate for it."""
    network, method, _ = part.split(".")
    rates = settings["rates"].get("push" if network in ("RandU", "RandD") else "rounds", {})
    name = rate_of({"rates": {"push": rates, "rounds": rates}}, network, method)
    if name not in rates:
        return None
    without = ("rates", "seeds") if follows_sizes(network, method) else ("rates", "seeds", "of_what_is_trained")
    needed = {key: value for key, value in settings.items() if key not in without}
    return {**needed, "rate": rates[name]}


def follows_sizes(network: str, method: str) -> bool:
    """Whether training sizes affect the hyper-gradients of a part: over FC with M > 0."""
    return network == "FC" and base_of(method) in ("hgp_pl", "hgp_mtl") and not method.endswith("_m0")


def stale(stored: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Parts to compute, with the settings of their experiment."""
    out = []
    for group, experiment in experiments_of(SIZE).items():
        settings, before = dict(experiment.settings), stored["stamps"].get(group, {}).get("settings")
        for part in experiment.parts:
            refreshed = stored["stamps"].get("refreshed", {}).get(part)
            old = refreshed["settings"] if refreshed else before and made_with(before, part)
            if part not in stored["accuracies"] or old != made_with(settings, part):
                out.append((part, settings))
    return sorted(out, key=lambda item: (item[0] in stored["accuracies"], "_m0" in item[0]))  # missing parts first


def main(folder: Path, pictures: Path, *only: str) -> int:
    """Recompute, write the files, and compare; 0 if every comparison holds."""
    file = folder / f"personalization-{SIZE}.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    for part, settings in stale(stored):
        if only and not part.startswith(only):
            continue
        start = time.process_time()
        result = entry(run_part(settings, part, {}))
        network, method, seed = part.split(".")
        same = [net for net, source in SAME.get(method, {}).items() if source == network]
        stored["accuracies"] |= {f"{net}.{method}.{seed}": result for net in (network, *same)}
        stored["stamps"].setdefault("refreshed", {})[part] = {
            "settings": made_with(settings, part),
            "cpu_seconds": round(time.process_time() - start, 3),
            "commit": commit(),
        }
        write_whole(file, (json.dumps(stored, indent=1, sort_keys=True) + "\n").encode())
        print(f"{part}: {result['test_plain']} plain, {result['test_by_size']} by size", flush=True)
    settings = dict(experiments_of(SIZE)["push"].settings)
    stored["stamps"]["stale"] = [part for part, _ in stale(stored)]
    for name, text in written(stored["accuracies"], settings, stored["stamps"]).items():
        write_whole(folder / name, text.encode())
    with style():
        save_thumbnail(figA3.drawn(stored["accuracies"], settings["seeds"]), pictures / f"figA3-{SIZE}_size.png")
    rows = comparisons(stored["accuracies"], settings["seeds"], SIZE)
    seconds = sum(stored["stamps"][group]["cpu_seconds"] for group in GROUPS if group in stored["stamps"])
    print(summary([Product("table_personalization", "", SHOWS, [file], rows, seconds, False)]))
    return int(any(row.met is False for row in rows))


def refresh(*arguments: str) -> int:
    """The command: 0 if every comparison holds."""
    if "--folder" in arguments:
        k = arguments.index("--folder")
        folder = Path(arguments[k + 1])
        return main(folder, folder, *arguments[:k], *arguments[k + 2 :])
    stored = Path("docs/measured")
    if not stored.is_dir():
        print(
            "figures: personal_refresh needs docs/measured: run it in the top folder of the repository", file=sys.stderr
        )
        return 2
    return main(stored, Path("docs/figures"), *arguments)
