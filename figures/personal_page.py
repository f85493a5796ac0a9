"""The page of the documentation with the tables of personalization, written from the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from figures.personal import GROUPS, looks, parts, scores
from reporting.store import Arrays
from reporting.table import Table


def page(d: Arrays, settings: Mapping[str, Any], table: Table, stamps: Mapping[str, Any]) -> str:
    """Markdown: the table beside the paper's, what the controls show, how often something diverged, and the cost."""
    from figures.table_controls import controls  # which uses the table above

    seeds = settings["seeds"]
    size, one = settings["size"], stamps["push"]
    texts = [
        f"# Personalization, size `{size}`",
        "",
        f"Written by `python -m figures table_personalization --size {size} --docs docs`; numbers of every seed, curves and "
        f"traffic are in [personalization-{size}.json](personalization-{size}.json).",
        "",
        f"{settings['images']:,} images of {settings['data']} ({settings['side']} × {settings['side']}) at {settings['n']} "
        f"clients, {len(seeds)} seeds. Test accuracy in per cent: average ± standard deviation over seeds / bottom 10 % of "
        "clients; in square brackets the paper's (100 clients, other images and a larger network). The average is over "
        "clients by test size over FC and FixU, plain over RandU and RandD, as the paper's was made. Each method reports the "
        "look (round, step, outer step) with the best validation accuracy.",
        "",
        table.markdown(),
        "",
        "## Controls",
        "",
        controls(d, seeds).markdown(),
        "",
        *findings(d, seeds),
        "",
        "## Divergence and cost",
        "",
        troubles(d, seeds),
        "",
        f"{sum(stamp['cpu_seconds'] for stamp in stamps.values()):.0f} CPU seconds in all; commit {one['commit']}, NumPy "
        f"{one['versions'].get('numpy')}, {one['dtype']}.",
    ]
    return "\n".join(texts) + "\n"


def findings(d: Arrays, seeds: list[int]) -> list[str]:
    """Differences of averages, seed by seed, in words."""
    at = {
        (net, m): scores(d, net, m, seeds)[0]
        for net in ("FC", "RandD")
        for m in ("fedavg", "hgp_pl", "hgp_pl_m0", "class_prior")
    }
    at |= {
        ("RandD", m): scores(d, "RandD", m, seeds)[0]
        for m in ("fine_tuned", "hgp_pl_validation", "hgp_pl_validation_m0", "hgp_pl_s1")
    }
    lines = []
    for net in ("FC", "RandD"):
        gain, alone = at[net, "hgp_pl"] - at[net, "fedavg"], at[net, "hgp_pl_m0"] - at[net, "fedavg"]
        prior = at[net, "class_prior"] - at[net, "fedavg"]
        lines.append(
            f"- {net}: HGP-PL gains {_spread(gain)} points over SGP/FedAvg; M = 0, which sends nothing for λ, gains "
            f"{_spread(alone)}; class frequencies alone {_spread(prior)}."
        )
    tuned = at["RandD", "fine_tuned"] - at["RandD", "fedavg"]
    lines.append(f"- RandD: fine-tuning gains {_spread(tuned)} points over SGP.")
    correction = at["RandD", "hgp_pl"] - at["RandD", "hgp_pl_m0"]
    there = at["RandD", "hgp_pl_validation"] - at["RandD", "hgp_pl_validation_m0"]
    lines.append(
        f"- RandD: what the correction (M = 10 against M = 0) adds is {_spread(correction)} points with f on training data "
        f"and {_spread(there)} with f on validation data."
    )
    lines.append(f"- RandD: S = 1 against S = 10: {_spread(at['RandD', 'hgp_pl_s1'] - at['RandD', 'hgp_pl'])} points.")
    if abs(correction.mean()) <= max(correction.std(), 1.0):
        lines.append("- So the personal mask is what gains, and each client's own gradient finds it: the gain of HGP-PL in this "
                     "experiment is not owed to hyper-gradients that clients estimate together.")  # fmt: skip
    return lines


def troubles(d: Arrays, seeds: list[int]) -> str:
    """How often a hyper-gradient or a training was refused, and how often a series grew without being refused."""
    every = [part for group in GROUPS for part in parts(seeds, group)]
    names = [part for part in every if ".hgp_" in part and "_m0" not in part]
    refused = {part: int(looks(d, *_split(part))["refused"]) for part in names}
    growing = sum(int(looks(d, *_split(part))["growing"]) > 0 for part in names)
    steps = sum(len(looks(d, *_split(part))["turns"]) - 1 for part in names)
    bad = {part: count for part, count in refused.items() if count}
    where = "; ".join(f"{part}: {count}" for part, count in bad.items())
    return (
        f"Of {steps} outer steps with HGP in {len(names)} runs, {sum(bad.values())} had a hyper-gradient or a training that "
        f"diverged{f' ({where})' if where else ''}. Rule: it never reaches Adam, is estimated again with η halved (at most four "
        f"times, and the smaller η stays), else the step is refused. In {growing} runs some series of M terms was larger at its "
        "end than at its beginning without meeting the test of divergence."
    )


def _split(part: str) -> tuple[str, str, int]:
    network, method, seed = part.split(".")
    return network, method, int(seed)


def _spread(values: np.ndarray) -> str:
    each = ", ".join(f"{value:+.1f}" for value in values)
    return f"{values.mean():+.1f} ({each})"
