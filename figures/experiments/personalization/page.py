"""The documentation page with the tables of personalization, written from stored accuracies."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figures.experiments.personalization.settings import GROUPS, ROWS, SAME, arrays_of, parts
from hgp_ref.personalization.task import best_evaluation
from reporting.store import Arrays
from reporting.table import Table

AT_CHOSEN = {"hgp_pl": "HGP-PL", "hgp_pl_m0": "M = 0", "class_prior": "a shift by class frequencies"}
WRONG_LABELS = {
    "weights": "HGP-weights",
    "weights_m0": "M = 0",
    "class_prior": "class prior",
    "fine_tuned": "fine-tuning",
    "known": "perfect knowledge of the wrong labels",
}
NO_GAIN = 1.0  # points; a smaller mean difference counts as none

Accuracies = Mapping[str, Mapping[str, Any]]  # of network.method.seed


def page(
    accuracies: Accuracies, settings: Mapping[str, Any], tables: Sequence[Table], stamps: Mapping[str, Any]
) -> str:
    """The page in Markdown: the tables, what they show, how often something diverged, and the cost."""
    seeds, size, (main, controls, wrong) = settings["seeds"], settings["size"], tables
    intro = f"""
        Written by `python -m figures table_personalization --size {size} --docs docs/measured`. The numbers of every
        seed, curves and traffic are in `docs/measured/personalization-{size}.json`. {settings["images"]:,} images of
        {settings["data"]} ({settings["side"]} × {settings["side"]}) at {settings["n"]} clients, {len(seeds)} seeds.
        Test accuracy in per cent: average ± standard deviation over seeds / bottom 10 % of clients. The paper's numbers
        are in square brackets (100 clients, other images and a larger network). The average over clients is weighted by
        test size over FC and FixU and unweighted over RandU and RandD, as in the paper. Each method reports the
        evaluation (round, step, outer step) with the best validation accuracy."""
    body = [_filled(intro), main.markdown(), f"**Controls, size `{size}`**", controls.markdown()]
    body.append("\n".join(findings(accuracies, seeds)))
    if all(available(accuracies, "RandD", method, seeds) for method in ("wrong_fedavg", "wrong_weights")):
        body += [f"**Wrong labels, size `{size}`**", _filled(_about_wrong(settings)), wrong.markdown()]
        body.append("\n".join(wrong_findings(accuracies, seeds)))
    body += [divergences(accuracies, seeds), _cost(stamps)]
    if stamps.get("stale"):
        names = ", ".join(dict.fromkeys(part.rsplit(".", 1)[0] for part in stamps["stale"]))
        where = "figures/experiments/personalization/settings.py"
        body.append(_filled(f"Missing, or not yet computed with the current settings (`{where}`): {names}."))
    return "\n\n".join(body) + "\n"


def findings(accuracies: Accuracies, seeds: list[int]) -> list[str]:
    """Differences of averages, with those of every seed."""

    def gain(network: str, method: str, over: str) -> np.ndarray:
        return scores(accuracies, network, method, seeds)[0] - scores(accuracies, network, over, seeds)[0]

    def points(network: str, method: str, over: str) -> str:
        return _with_seeds(gain(network, method, over))

    lines = [
        f"- {net}: over SGP/FedAvg, HGP-PL gains {points(net, 'hgp_pl', 'fedavg')} points. With M = 0, for which "
        f"clients send nothing about λ, it gains {points(net, 'hgp_pl_m0', 'fedavg')}. A shift by class frequencies "
        f"gains {points(net, 'class_prior', 'fedavg')}."
        for net in ("FC", "RandD")
    ]
    if all(available(accuracies, "RandD", f"{method}_chosen", seeds) for method in ("fedavg", *AT_CHOSEN)):
        gains = [f"{label} {points('RandD', f'{m}_chosen', 'fedavg_chosen')}" for m, label in AT_CHOSEN.items()]
        holds = bool(np.all(gain("RandD", "hgp_pl_chosen", "fedavg_chosen") > 0))
        lines.append(
            "- RandD, with the rate that validation accuracy at another seed chooses for SGP: gains over SGP in points "
            f"are {'; '.join(gains)}. HGP-PL is {'' if holds else 'not '}above SGP on each seed. The rate alone moves "
            f"SGP by {points('RandD', 'fedavg_chosen', 'fedavg')}."
        )
    correction = gain("RandD", "hgp_pl", "hgp_pl_m0")
    on_validation = gain("RandD", "hgp_pl_validation", "hgp_pl_validation_m0")
    lines += [
        f"- RandD: fine-tuning gains {points('RandD', 'fine_tuned', 'fedavg')} points over SGP.",
        f"- RandD: M = 10 adds {_with_seeds(correction)} points to M = 0 with f on training data, "
        f"{_with_seeds(on_validation)} with f on validation data.",
        *(
            f"- {net}: S = 1 against S = 10: {points(net, 'hgp_pl_s1', 'hgp_pl')} points."
            for net in ("FixU", "RandU", "RandD")
        ),
    ]
    if correction.mean() <= NO_GAIN < gain("RandD", "hgp_pl_m0", "fedavg").mean():
        lines.append(
            "- The gain of HGP-PL in this experiment does not come from the decentralized hyper-gradient. The direct "
            "term ∂_λ f_i alone (M = 0) gains as much, and so does a shift by class frequencies."
        )
    if on_validation.mean() <= NO_GAIN < gain("RandD", "hgp_pl_validation_m0", "fedavg").mean():
        lines.append(
            "- The correction (M = 10) does not show in accuracy with f on validation data either: the mask has a "
            "direct gradient there too. In hyper-cleaning λ has none."
        )
    return lines


def _about_wrong(settings: Mapping[str, Any]) -> str:
    share = settings.get("wrong", {}).get("share", 0.6)
    return f"""
        The same protocol over RandD, with another class as the label of {100 * share:.0f} % of the training images.
        HGP-weights has one model for all; λ are weights of training images and f is on validation data, so that
        ∂_λ f = 0. Class prior and fine-tuning use all training labels, wrong ones too."""


def wrong_findings(accuracies: Accuracies, seeds: list[int]) -> list[str]:
    """The gains over SGP with wrong labels."""

    def score(method: str) -> np.ndarray:
        return scores(accuracies, "RandD", f"wrong_{method}", seeds)[0]

    methods = [name for name in WRONG_LABELS if available(accuracies, "RandD", f"wrong_{name}", seeds)]
    gains = {name: score(name) - score("fedavg") for name in methods}
    texts = [f"{WRONG_LABELS[name]} {_with_seeds(gain)}" for name, gain in gains.items()]
    lines = [f"- Gains over SGP in points: {'; '.join(texts)}."]
    zero = gains.get("weights_m0")
    if gains["weights"].min() > NO_GAIN and zero is not None and np.all(gains["weights"] > zero + NO_GAIN):
        lines.append(
            "- The gain of HGP-weights comes from the decentralized hyper-gradient: with M = 0 the gradient is zero. "
            "SGP, class prior and fine-tuning did not train on the right labels of the validation data."
        )
    return lines


def divergences(accuracies: Accuracies, seeds: list[int]) -> str:
    """How often a hyper-gradient or a training was refused, and how often a series grew without being refused."""
    every = [part for group in GROUPS for part in parts(seeds, group)]
    hyper = [part for part in every if (".hgp_" in part or "_weights" in part) and "_m0" not in part]
    runs = {part: accuracies[part] for part in hyper if part in accuracies}
    steps = sum(len(run["turns"]) - 1 for run in runs.values())
    refused = {part: int(run["refused"]) for part, run in runs.items() if int(run["refused"])}
    growing = sum(int(run["growing"]) > 0 for run in runs.values())
    where = f" ({'; '.join(f'{part}: {count}' for part, count in refused.items())})" if refused else ""
    return _filled(f"""
        Of {steps} outer steps with HGP in {len(runs)} runs, {sum(refused.values())} had a hyper-gradient or a training
        that diverged{where}. A hyper-gradient that diverges never reaches Adam. It is estimated again with η halved, at
        most four times, and the smaller η stays; otherwise the step is refused. In {growing} of these runs some series
        of M terms ended larger than it began without meeting the test of divergence.""")


def _cost(stamps: Mapping[str, Any]) -> str:
    push, refreshed = stamps["push"], stamps.get("refreshed", {})
    every = [*(stamp for name, stamp in stamps.items() if name in GROUPS), *refreshed.values()]
    seconds = sum(stamp["cpu_seconds"] for stamp in every)
    commits = ", ".join(dict.fromkeys(str(stamp["commit"])[:10] for stamp in every))
    text = f"{seconds:.0f} CPU seconds; commits {commits}, NumPy {push['versions'].get('numpy')}, {push['dtype']}."
    if refreshed:
        text += f" {len(refreshed)} parts were computed later than the others (`python -m figures personal_refresh`)."
    return text


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 150, break_long_words=False, break_on_hyphens=False)


def _with_seeds(values: np.ndarray) -> str:
    seeds = ", ".join(f"{value:+.1f}" for value in values)
    return f"{values.mean():+.1f} ({seeds})"


# The accuracies of each run at the evaluation that validation data choose --------------------------------------------


def read_accuracies(data: Arrays, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The entries of all parts that were computed."""
    cells = [(net, method, seed) for method, (_, nets) in ROWS.items() for net in nets for seed in seeds]
    arrays = {f"{net}.{method}.{seed}": arrays_of(data, net, method, seed) for net, method, seed in cells}
    return {part: entry(run) for part, run in arrays.items() if run}


def entry(run: Arrays) -> dict[str, Any]:
    """The chosen evaluation, its averages and bottom 10 % in per cent, the curves, and the traffic."""
    k = best_evaluation(run["validation"], run["validation_sizes"])
    return {
        "chosen": int(run["turns"][k]),
        "test_by_size": _percent(np.average(run["test"][k], weights=run["test_sizes"])),
        "test_plain": _percent(run["test"][k].mean()),
        "test_bottom_10": _percent(np.quantile(run["test"][k], 0.1)),
        "turns": run["turns"].tolist(),
        "validation_curve": [_percent(v) for v in run["validation"] @ _shares(run["validation_sizes"])],
        "test_curve": [_percent(v) for v in run["test"] @ _shares(run["test_sizes"])],
        "messages_floats_rounds": run["traffic"].tolist(),
        "refused": int(run["refused"]),
        "growing": int(run["growing"]),
        "splits": int(run["splits"]),
    }


def scores(accuracies: Accuracies, network: str, method: str, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and bottom-10 % test accuracy in per cent, (seeds,) each.

    The mean over clients is weighted by test size over FC and FixU only, as in the paper's table.
    """
    name = "test_by_size" if network in ("FC", "FixU") else "test_plain"
    entries = [accuracies[part] for part in _parts(network, method, seeds)]
    return np.array([run[name] for run in entries]), np.array([run["test_bottom_10"] for run in entries])


def available(accuracies: Accuracies, network: str, method: str, seeds: Sequence[int]) -> bool:
    """Whether there are accuracies for all seeds."""
    return all(part in accuracies for part in _parts(network, method, seeds))


def _parts(network: str, method: str, seeds: Sequence[int]) -> list[str]:
    source = SAME.get(method, {}).get(network, network)
    return [f"{source}.{method}.{seed}" for seed in seeds]


def _shares(sizes: np.ndarray) -> np.ndarray:
    return np.asarray(sizes / sizes.sum())


def _percent(share: float) -> float:
    return round(100 * float(share), 2)
