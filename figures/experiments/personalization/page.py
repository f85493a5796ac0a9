"""The page of the documentation with the tables of personalization, written from the numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figures.experiments.personalization.settings import GROUPS, ROWS, SAME, looks, parts
from hgp_ref.personalization.task import best_evaluation
from reporting.store import Arrays
from reporting.table import Table

AT_CHOSEN = {"hgp_pl": "HGP-PL", "hgp_pl_m0": "M = 0", "class_prior": "a shift by class frequencies"}
NO_GAIN = 1.0  # points: a mean difference up to this is called none


def page(kept: Numbers, settings: Mapping[str, Any], tables: Sequence[Table], stamps: Mapping[str, Any]) -> str:
    """Markdown: the table beside the paper's, what the controls show, how often something diverged, and the cost."""
    seeds, size, (main, controls, wrong) = settings["seeds"], settings["size"], tables
    intro = f"""
        Written by `python -m figures table_personalization --size {size} --docs docs/measured`; numbers of every
        seed, curves and traffic are in `docs/measured/personalization-{size}.json`. {settings["images"]:,} images of
        {settings["data"]} ({settings["side"]} × {settings["side"]}) at {settings["n"]} clients, {len(seeds)} seeds.
        Test accuracy in per cent: average ± standard deviation over seeds / bottom 10 % of clients; in square brackets
        the paper's (100 clients, other images and a larger network). The average is over clients by test size over FC
        and FixU, plain over RandU and RandD, as the paper's was made. Each method reports the look (round, step, outer
        step) with the best validation accuracy."""
    body = [_filled(intro), main.markdown(), f"**Controls, size `{size}`**", controls.markdown()]
    body.append("\n".join(findings(kept, seeds)))
    if all(there(kept, "RandD", method, seeds) for method in ("wrong_fedavg", "wrong_weights")):
        body += [f"**Wrong labels, size `{size}`**", _filled(_about_wrong(settings)), wrong.markdown()]
        body.append("\n".join(wrong_findings(kept, seeds)))
    body += [troubles(kept, seeds), _cost(stamps)]
    if stamps.get("stale"):
        names = ", ".join(dict.fromkeys(part.rsplit(".", 1)[0] for part in stamps["stale"]))
        where = "figures/experiments/personalization/settings.py"
        body.append(_filled(f"Not made yet with the settings of today (`{where}`), or missing: {names}."))
    return "\n\n".join(body) + "\n"


def findings(kept: Numbers, seeds: list[int]) -> list[str]:
    """Differences of averages, seed by seed, in words."""

    def gain(network: str, method: str, over: str) -> np.ndarray:
        return scores(kept, network, method, seeds)[0] - scores(kept, network, over, seeds)[0]

    lines = [
        f"- {net}: HGP-PL gains {_spread(gain(net, 'hgp_pl', 'fedavg'))} points over SGP/FedAvg; M = 0, for which "
        f"clients send nothing about λ, {_spread(gain(net, 'hgp_pl_m0', 'fedavg'))}; a shift by class frequencies "
        f"{_spread(gain(net, 'class_prior', 'fedavg'))}."
        for net in ("FC", "RandD")
    ]
    if all(there(kept, "RandD", f"{method}_chosen", seeds) for method in ("fedavg", *AT_CHOSEN)):
        each = (f"{words} {_spread(gain('RandD', f'{method}_chosen', 'fedavg_chosen'))}"
                for method, words in AT_CHOSEN.items())  # fmt: skip
        holds = bool(np.all(gain("RandD", "hgp_pl_chosen", "fedavg_chosen") > 0))
        lines.append(
            "- RandD, all at the rate that validation accuracy at a seed which is none of these chooses for SGP: over "
            f"SGP, in points, {'; '.join(each)}. HGP-PL is {'' if holds else 'not '}above SGP on each seed. The "
            f"rate alone moves SGP by {_spread(gain('RandD', 'fedavg_chosen', 'fedavg'))}."
        )
    correction = gain("RandD", "hgp_pl", "hgp_pl_m0")
    beside = gain("RandD", "hgp_pl_validation", "hgp_pl_validation_m0")
    lines += [
        f"- RandD: fine-tuning gains {_spread(gain('RandD', 'fine_tuned', 'fedavg'))} points over SGP.",
        f"- RandD: M = 10 adds {_spread(correction)} points to M = 0 with f on training data, {_spread(beside)} with f "
        "on validation data.",
        *(
            f"- {net}: S = 1 against S = 10: {_spread(gain(net, 'hgp_pl_s1', 'hgp_pl'))} points."
            for net in ("FixU", "RandU", "RandD")
        ),
    ]
    if correction.mean() <= NO_GAIN < gain("RandD", "hgp_pl_m0", "fedavg").mean():
        lines.append(
            "- So each client's own ∂_λ f finds what the mask gains, and class frequencies are another way to it: the "
            "gain of HGP-PL in this experiment is not owed to the hyper-gradients that clients estimate together."
        )
    if beside.mean() <= NO_GAIN < gain("RandD", "hgp_pl_validation_m0", "fedavg").mean():
        lines.append(
            "- Nor does the correction (M = 10) show in accuracy with f on validation data: the mask has a direct "
            "gradient there too. In hyper-cleaning λ has none."
        )
    return lines


def _about_wrong(settings: Mapping[str, Any]) -> str:
    share = settings.get("wrong", {}).get("share", 0.6)
    return f"""
        The same protocol over RandD with another class as the label of {100 * share:.0f} % of the training images.
        HGP-weights: λ are weights of training images, f is on validation data, so that ∂_λ f = 0; the model is one for
        all. Class prior and fine-tuning use the labels as they are given."""


def wrong_findings(kept: Numbers, seeds: list[int]) -> list[str]:
    """What weights by hyper-gradients gain, seed by seed."""

    def gain(method: str) -> np.ndarray:
        return scores(kept, "RandD", f"wrong_{method}", seeds)[0] - scores(kept, "RandD", "wrong_fedavg", seeds)[0]

    words = {"weights": "HGP-weights", "weights_m0": "M = 0", "class_prior": "class prior", "fine_tuned": "fine-tuning",
             "known": "perfect knowledge of the wrong labels"}  # fmt: skip
    gains = {name: gain(name) for name in words if there(kept, "RandD", f"wrong_{name}", seeds)}
    lines = [f"- Over SGP, in points: {'; '.join(f'{words[name]} {_spread(by)}' for name, by in gains.items())}."]
    zero = gains.get("weights_m0")
    if gains["weights"].min() > NO_GAIN and zero is not None and np.all(gains["weights"] > zero + NO_GAIN):
        lines.append(
            "- In this formulation hyper-gradients that clients estimate together are what gains: M = 0 has nothing to "
            "follow. SGP, class prior and fine-tuning were not given the right labels of validation data to train on."
        )
    return lines


def troubles(kept: Numbers, seeds: list[int]) -> str:
    """How often a hyper-gradient or a training was refused, and how often a series grew without being refused."""
    every = [part for group in GROUPS for part in parts(seeds, group)]
    hyper = [part for part in every if (".hgp_" in part or "_weights" in part) and "_m0" not in part]
    runs = {part: kept[part] for part in hyper if part in kept}
    steps = sum(len(one["turns"]) - 1 for one in runs.values())
    bad = {part: int(one["refused"]) for part, one in runs.items() if int(one["refused"])}
    growing = sum(int(one["growing"]) > 0 for one in runs.values())
    where = f" ({'; '.join(f'{part}: {count}' for part, count in bad.items())})" if bad else ""
    return _filled(f"""
        Of {steps} outer steps with HGP in {len(runs)} runs, {sum(bad.values())} had a hyper-gradient or a training
        that diverged{where}. The rule: such a hyper-gradient never reaches Adam; it is estimated again with η halved,
        at most four times, and the smaller η stays; else the step is refused. In {growing} of these runs some
        series of M terms ended larger than it began without meeting the test of divergence.""")


def _cost(stamps: Mapping[str, Any]) -> str:
    one, anew = stamps["push"], stamps.get("refreshed", {})
    groups = [stamp for name, stamp in stamps.items() if name in GROUPS]
    seconds = sum(stamp["cpu_seconds"] for stamp in (*groups, *anew.values()))
    commits = ", ".join(dict.fromkeys(str(stamp["commit"])[:10] for stamp in (*groups, *anew.values())))
    later = (
        f" {len(anew)} parts were made later than the others (`python -m figures personal_refresh`)." if anew else ""
    )
    return f"{seconds:.0f} CPU seconds; commits {commits}, NumPy {one['versions'].get('numpy')}, {one['dtype']}.{later}"


def _filled(words: str) -> str:
    return textwrap.fill(" ".join(words.split()), 150, break_long_words=False, break_on_hyphens=False)


def _spread(values: np.ndarray) -> str:
    each = ", ".join(f"{value:+.1f}" for value in values)
    return f"{values.mean():+.1f} ({each})"


# ----- the numbers: each run's test accuracies at the point that validation data choose

Numbers = Mapping[str, Mapping[str, Any]]  # of network.method.seed


def numbers(data: Arrays, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Of every part that was computed."""
    cells = [(net, method, seed) for method, (_, nets) in ROWS.items() for net in nets for seed in seeds]
    each = {f"{net}.{method}.{seed}": looks(data, net, method, seed) for net, method, seed in cells}
    return {part: entry(one) for part, one in each.items() if one}


def entry(one: Arrays) -> dict[str, Any]:
    """The chosen look, averages by size and plain, bottom 10 % (per cent), the curves, and what was sent."""
    k = best(one)
    return {
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


def best(one: Arrays) -> int:
    """The look with the most right answers on validation data, the first one of those."""
    return best_evaluation(one["validation"], one["validation_sizes"])


def scores(kept: Numbers, network: str, method: str, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and bottom-10 % test accuracy in per cent, (seeds,) each, at the look that validation accuracy chooses.

    The mean is over clients by test size over FC and FixU and plain over RandU and RandD, as in the paper's table.
    """
    name = "test_by_size" if network in ("FC", "FixU") else "test_plain"
    each = [kept[f"{SAME.get(method, {}).get(network, network)}.{method}.{seed}"] for seed in seeds]
    return np.array([one[name] for one in each]), np.array([one["test_bottom_10"] for one in each])


def there(kept: Numbers, network: str, method: str, seeds: Sequence[int]) -> bool:
    """Whether the numbers of all seeds are."""
    return all(f"{SAME.get(method, {}).get(network, network)}.{method}.{seed}" in kept for seed in seeds)


def _shares(sizes: np.ndarray) -> np.ndarray:
    return np.asarray(sizes / sizes.sum())


def _percent(share: float) -> float:
    return round(100 * float(share), 2)
