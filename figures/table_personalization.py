"""The paper's table of personalization: test accuracy by method and network, average / bottom 10 % of clients.

`python -m figures table_personalization --size small|reduced|paper`; `figures.personal` says what the sizes are and how
settings were chosen. Each method reports the look (rounds, steps or outer steps) that validation accuracy chooses. The
average is over clients by test size over FC and FixU and plain over RandU and RandD, as in the paper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from figures.options import PERSONAL_SIZES, Data, Options, Row
from figures.personal import CONTROLS, NETWORKS, PUBLISHED, SINGLE, TABLE, best, experiments_of, looks, merged, scores
from figures.personal_page import page
from figures.reference import PERSONAL_PAPER, PERSONAL_REDUCED
from reporting.store import Arrays, Experiment
from reporting.table import Table

SHOWS = "Personalization: test accuracy of HGP-PL, HGP-MTL and seven baselines over four networks"
BY_VARIANT = False
BY_SIZE = True
SIZES = PERSONAL_SIZES
POINTS = 3.0  # how near to the averages of another program's run of the same protocol


def experiments(options: Options) -> dict[str, Experiment]:
    """All parts of the personalization experiment."""
    return experiments_of(options.size or SIZES[0], quick=options.quick, backend=options.backend)


def table(data: Data, options: Options) -> Table:
    """A row for each method; the paper's numbers in brackets."""
    seeds = experiments(options)["push"].settings["seeds"]
    rows = []
    for method, (words, networks) in {**TABLE, **PUBLISHED}.items():
        cells = [cell(merged(data), net, method, seeds) if net in networks else "" for net in NETWORKS]
        printed = PERSONAL_PAPER.get(method, {})
        cells = [c + (f" [{printed[net][0]} / {printed[net][1]}]" if net in printed else "")
                 for c, net in zip(cells, NETWORKS, strict=True)]  # fmt: skip
        rows.append((words, *cells))
    return Table("", ("method", *NETWORKS), tuple(rows))


def cell(data: Arrays, network: str, method: str, seeds: list[int]) -> str:
    """Average / bottom 10 %, means over seeds, and the standard deviation of the average over seeds."""
    means, bottoms = scores(data, network, method, seeds)
    return f"{means.mean():.1f} ± {means.std(ddof=min(1, len(means) - 1)):.1f} / {bottoms.mean():.1f}"


def compare(data: Data, options: Options) -> list[Row]:
    """Averages beside the paper's; at `reduced`, RandD beside those of another program, with the order asked for."""
    if options.quick:
        return []
    settings = experiments(options)["push"].settings
    seeds, d = settings["seeds"], merged(data)
    rows = [
        Row(f"{words}, {net}", float(scores(d, net, method, seeds)[0].mean()), PERSONAL_PAPER[method][net][0], None,
            "other data, clients and network than the paper's" if options.size != "paper" else "")
        for method, (words, networks) in TABLE.items() for net in networks
    ]  # fmt: skip
    if options.size == "reduced":
        at = {method: scores(d, "RandD", method, seeds)[0] for method in PERSONAL_REDUCED}
        ordered = bool(np.all(at["hgp_pl"] > at["fedavg"]) and np.all(at["fedavg"] > at["local"]))
        for method, (average, _) in PERSONAL_REDUCED.items():
            ours, note = float(at[method].mean()), f"HGP-PL > SGP > Local on each seed: {ordered}"
            near = abs(ours - average) <= POINTS
            note += "" if near else f"; more than {POINTS:g} points from the other program's"
            rows.append(Row(f"{TABLE[method][0]}, RandD, this protocol", ours, average, near and ordered, note))
    return rows


def pages(data: Data, options: Options, stamps: Mapping[str, Any]) -> dict[str, str]:
    """A page with the tables, and the numbers behind it as JSON."""
    settings, d = experiments(options)["push"].settings, merged(data)
    kept = {"stamps": dict(stamps), "accuracies": _numbers(d, settings["seeds"])}
    tables = table(data, options), controls(d, settings["seeds"])
    return {
        f"personalization-{options.size}.json": json.dumps(kept, indent=1, sort_keys=True) + "\n",
        f"personalization-{options.size}.md": page(d, settings, tables, stamps),
    }


def controls(d: Arrays, seeds: list[int]) -> Table:
    """SGP, HGP-PL and what stands between."""
    chosen = {"fedavg": TABLE["fedavg"], "hgp_pl": TABLE["hgp_pl"], **SINGLE, **CONTROLS}
    rows = [
        (words, *(cell(d, net, method, seeds) if net in networks else "" for net in NETWORKS))
        for method, (words, networks) in chosen.items()
    ]
    return Table("", ("method", *NETWORKS), tuple(rows))


def _numbers(d: Arrays, seeds: list[int]) -> dict[str, Any]:
    """Of every part: the chosen look, averages by size and plain, bottom 10 %, the curves, and what was sent."""
    out: dict[str, Any] = {}
    for method, (_, networks) in {**TABLE, **PUBLISHED, **CONTROLS, **SINGLE}.items():
        for net in networks:
            for seed in seeds:
                one = looks(d, net, method, seed)
                k = best(one)
                out[f"{net}.{method}.{seed}"] = {
                    "chosen": int(one["turns"][k]),
                    "test_by_size": _percent(np.average(one["test"][k], weights=one["test_sizes"])),
                    "test_plain": _percent(one["test"][k].mean()),
                    "test_bottom_10": _percent(np.quantile(one["test"][k], 0.1)),
                    "turns": one["turns"].tolist(),
                    "validation_curve": [_percent(v) for v in one["validation"] @ _shares(one["validation_sizes"])],
                    "test_curve": [_percent(v) for v in one["test"] @ _shares(one["test_sizes"])],
                    "messages_floats_rounds": one["traffic"].tolist(),
                    "refused": int(one["refused"]),
                    "growing": int(one["growing"]),
                    "splits": int(one["splits"]),
                }
    return out


def _shares(sizes: np.ndarray) -> np.ndarray:
    return np.asarray(sizes / sizes.sum())


def _percent(share: float) -> float:
    return round(100 * float(share), 2)
