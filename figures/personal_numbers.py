"""What is read off the personalization experiment: for every part the look that validation data choose, and its test
accuracies. Tables, findings and the kept JSON are made of these numbers, so that rows of it can be made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from figures.personal import ROWS, SAME, looks
from hgp_ref.personalization.task import best_look
from reporting.store import Arrays

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
    return best_look(one["validation"], one["validation_sizes"])


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
