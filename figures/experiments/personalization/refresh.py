"""`python -m figures personal_refresh [--write | PART …]`: make anew what has changed of the kept numbers.

docs/measured/personalization-reduced.json says with which settings each part (network, method, seed) was made. Parts
not there, or whose settings are no longer those of `settings`, are computed and put in, one after the other;
the file is written after each, so that an interrupted run goes on. The page beside it and the picture of learning
curves in docs/figures are then written from the numbers; with --write they are written from what is there, and the page
says which parts are missing or of earlier settings. PART: only those parts that begin so, such as FC.fedem. --folder
DIR: all of it there instead.
"""

from __future__ import annotations

import json
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
    """What the numbers of a part depend on; None where the settings know no rate for it."""
    network, method, _ = part.split(".")
    rates = settings["rates"].get("push" if network in ("RandU", "RandD") else "rounds", {})
    name = rate_of({"rates": {"push": rates, "rounds": rates}}, network, method)
    if name not in rates:
        return None
    without = ("rates", "seeds") if follows_sizes(network, method) else ("rates", "seeds", "of_what_is_trained")
    kept = {key: value for key, value in settings.items() if key not in without}
    return {**kept, "rate": rates[name]}


def follows_sizes(network: str, method: str) -> bool:
    """Whether training sizes matter to the hyper-gradients of a part: over FC, where there are terms to correct by."""
    return network == "FC" and base_of(method) in ("hgp_pl", "hgp_mtl") and not method.endswith("_m0")


def stale(whole: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Parts to compute, with the settings of their experiment."""
    out = []
    for group, experiment in experiments_of(SIZE).items():
        settings, before = dict(experiment.settings), whole["stamps"].get(group, {}).get("settings")
        for part in experiment.parts:
            anew = whole["stamps"].get("refreshed", {}).get(part)
            old = anew["settings"] if anew else before and made_with(before, part)
            if part not in whole["accuracies"] or old != made_with(settings, part):
                out.append((part, settings))
    return sorted(out, key=lambda one: (one[0] in whole["accuracies"], "_m0" in one[0]))  # what is missing first


def main(folder: Path, pictures: Path, *only: str) -> int:
    """0 if every comparison holds."""
    place = folder / f"personalization-{SIZE}.json"
    whole = json.loads(place.read_text(encoding="utf-8"))
    for part, settings in stale(whole):
        if only and not part.startswith(only):
            continue
        start = time.process_time()
        numbers = entry(run_part(settings, part, {}))
        network, method, seed = part.split(".")
        same = [net for net, source in SAME.get(method, {}).items() if source == network]
        whole["accuracies"] |= {f"{net}.{method}.{seed}": numbers for net in (network, *same)}
        whole["stamps"].setdefault("refreshed", {})[part] = {
            "settings": made_with(settings, part),
            "cpu_seconds": round(time.process_time() - start, 3),
            "commit": commit(),
        }
        write_whole(place, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
        print(f"{part}: {numbers['test_plain']} plain, {numbers['test_by_size']} by size", flush=True)
    settings = dict(experiments_of(SIZE)["push"].settings)
    whole["stamps"]["stale"] = [part for part, _ in stale(whole)]
    for name, text in written(whole["accuracies"], settings, whole["stamps"]).items():
        write_whole(folder / name, text.encode())
    with style():
        save_thumbnail(figA3.drawn(whole["accuracies"], settings["seeds"]), pictures / f"figA3-{SIZE}_size.png")
    rows = comparisons(whole["accuracies"], settings["seeds"], SIZE)
    seconds = sum(whole["stamps"][group]["cpu_seconds"] for group in GROUPS if group in whole["stamps"])
    print(summary([Product("table_personalization", "", SHOWS, [place], rows, seconds, False)]))
    return int(any(row.met is False for row in rows))


def refresh(*arguments: str) -> int:
    """The command: 0 if every comparison holds."""
    if "--folder" in arguments:
        at = arguments.index("--folder")
        folder = Path(arguments[at + 1])
        return main(folder, folder, *arguments[:at], *arguments[at + 2 :])
    return main(Path("docs/measured"), Path("docs/figures"), *arguments)
