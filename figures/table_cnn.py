"""The CNN's rows of the paper's table of R² and F1: single instances and groups, with every retraining."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from figures.experiments.influence import cnn
from figures.figA2b import KINDS, RETRAININGS, of_kind
from figures.options import INFLUENCE_SIZES, Data, Options
from figures.reference import CNN_PAPER
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.table import Table

SHOWS = "R², F1, rank correlation of predicted influence with a CNN: full batch and mini-batches, every retraining"
SIZES = INFLUENCE_SIZES
HEADER = ("data", "removed, retrained", "number", "R²", "F1", "Spearman", "paper's R²", "paper's F1")
STORED = ("removed", "predicted", "shared", "full", "noise", *cnn.MINI_RETRAININGS)  # in the JSON file


def experiments(options: Options) -> dict[str, Experiment]:
    """Those of appendix Fig. 2b and 2c."""
    return {key: cnn.experiment(options.size, mini_batch=key == "mini", **options.computation) for key in CNN_PAPER}


def table(data: Data, options: Options) -> Table:
    """Full batch, then mini-batches."""
    rows = []
    for key, printed in CNN_PAPER.items():
        rows += _rows(data[key], f"CNN ({options.size}), {key} batch", tuple(f"{value:.2f}" for value in printed))
    return Table("", HEADER, tuple(rows))


def _rows(d: Arrays, name: str, printed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Both kinds of removal with all retrainings; the paper's numbers are of instances, from scratch."""
    rows = []
    for kind, unit in zip(KINDS, ("instances", "groups"), strict=True):
        chosen = of_kind(d, kind)
        for retraining, end in zip(RETRAININGS, ("more steps from x", "SGP"), strict=True):
            paper = printed if (unit, end) == ("instances", "SGP") else ("", "")
            rows.append((name, f"{unit}, {end}", *scored(d[retraining][chosen], d["predicted"][0, chosen]), *paper))
        if "held" in d:  # mini-batches: retraining on the batches of HGP
            row = scored(d["held"][chosen], d["shared"][chosen])
            rows.append((name, f"{unit}, more steps on HGP's batches", *row, "", ""))
    return rows


def scored(actual: np.ndarray, predicted: np.ndarray) -> tuple[str, str, str, str]:
    """The number of removals, R², F1 and Spearman's rank correlation."""
    of = scores(actual, predicted)
    f1, order = ("none negative" if np.isnan(value) else f"{value:.3f}" for value in (of.f1, of.spearman))
    return str(len(actual)), f"{of.r2:.4f}", f1, order


def pages(data: Data, options: Options, stamps: Mapping[str, Any]) -> dict[str, str]:
    """The table with its provenance, and predictions, changes and stamps as JSON."""
    content = {
        key: {"stamp": stamps[key], **{name: d[name].tolist() for name in STORED if name in d}}
        for key, d in data.items()
    }
    settings, name = stamps["mini"]["settings"], f"influence-{options.size}"
    commit = (stamps["mini"]["commit"] or "unknown")[:12]
    seconds = sum(stamp["cpu_seconds"] for stamp in stamps.values())
    intro = (
        f"Written by `python -m figures table_cnn --size {options.size} --docs docs/measured` at commit "
        f"{commit}, {seconds:.0f} CPU seconds; settings, predictions and changes are in\n"
        f"`docs/measured/{name}.json`. {settings['data']}, {settings['side']} × {settings['side']}, "
        f"{settings['n']} clients; batches of {settings['batch']} where there are any."
    )
    text = f"{intro}\n\n{table(data, options).markdown()}\n"
    return {f"{name}.md": text, f"{name}.json": json.dumps(content, indent=1, sort_keys=True) + "\n"}
