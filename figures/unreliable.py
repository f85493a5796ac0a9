"""Averaging over links that lose and delay messages: plain Push-Sum and running sums, round by round.

Every client holds a vector of standard normal numbers. The error after t rounds is max_i ‖ū_i − mean‖ divided by the
root mean square of the initial vectors; the figure shows medians over seeds. Messages are lost with probability p and
otherwise delayed by 0 .. q rounds, uniformly. Plain Push-Sum converges to something else than the mean, because mass is
lost. Running sums converge to the mean up to rounding, more slowly with more loss and longer delays. If messages are
late but none is lost, both converge to the mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import hgp_ref as hgp
from figures.options import Data, Options
from hgp_ref.backend import get_backend, to_host
from hgp_ref.mixing import WeightRule
from reporting.store import Arrays, Experiment
from reporting.style import COLOURS, DASHES, HEIGHT, new_figure

SHOWS = "Error of averaging against rounds at 0 to 30 % loss and delays up to 5: plain Push-Sum and running sums"
LOSSES = (0.0, 0.05, 0.1, 0.2, 0.3)
DELAYS = (0, 5)
CLIENTS, DIM = 10, 5
ROUNDING = 1e-17  # drawn for an error of 0


def experiments(options: Options) -> dict[str, Experiment]:
    """One part per delay."""
    settings = {
        "backend": options.backend,
        "dtype": "float64",
        "seed": 0,
        "clients": CLIENTS,
        "dim": DIM,
        "losses": list(LOSSES),
        "rounds": 20 if options.quick else 200,
        "repeats": 1 if options.quick else 5,
    }
    parts = tuple(f"delay-{delay}" for delay in DELAYS)
    return {"errors": Experiment("unreliable", settings, parts, partial(_part, settings), _join)}


def _part(settings: Mapping[str, Any], part: str, finished: Mapping[str, Arrays]) -> Arrays:
    """Errors (2, losses, repeats, rounds + 1) with plain messages and with running sums."""
    delay = int(part.removeprefix("delay-"))
    shape = (2, len(settings["losses"]), settings["repeats"], settings["rounds"] + 1)
    errors = np.empty(shape)
    for k, p, r in np.ndindex(shape[:3]):
        seed = settings["seed"] + r
        inner = hgp.networks.RandomDirected(settings["clients"], seed=seed)
        net = hgp.networks.Unreliable(inner, loss=settings["losses"][p], delay=delay, seed=seed)
        errors[k, p, r] = round_by_round(net, settings, robust=bool(k), seed=seed)
    return {part: errors}


def round_by_round(net: Any, settings: Mapping[str, Any], robust: bool, seed: int) -> np.ndarray:
    """The error before the first round and after each one, (rounds + 1,)."""
    host = np.random.default_rng(seed).normal(size=(net.n, settings["dim"]))
    z = get_backend(settings["backend"]).asarray(host)
    channel = hgp.mixing.connect(net)
    if robust:
        channel.use_running_sums()
    averages = [host]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PushSum over .* loses mass")  # this is what the figure shows
        for _ in range(settings["rounds"]):
            z = channel.mix(z, 1, WeightRule.CARRY)
            averages.append(to_host(z / channel.weights))
    mean = host.mean(axis=0)
    off = np.linalg.norm(np.stack(averages) - mean, axis=2).max(axis=1)
    return off / np.sqrt(np.mean(np.sum(host**2, axis=1)))


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    return {name: array for arrays in parts.values() for name, array in arrays.items()}


def draw(data: Data, options: Options) -> Figure:
    """A panel for each delay: colours are losses, dashes plain messages."""
    figure = new_figure(6.6, HEIGHT)
    axes = figure.subplots(1, len(DELAYS), sharey=True)
    for ax, delay in zip(axes, DELAYS, strict=True):
        errors = np.median(data["errors"][f"delay-{delay}"], axis=2)  # (2, losses, rounds + 1)
        for k, dashes in ((0, DASHES[1]), (1, DASHES[0])):
            for p, loss in enumerate(LOSSES):
                label = f"{100 * loss:.0f} % lost" if k else None
                ax.semilogy(np.maximum(errors[k, p], ROUNDING), color=COLOURS[p], linestyle=dashes, label=label)
        late = "in time" if delay == 0 else f"late by 0 … {delay} rounds"
        ax.set_title(f"messages {late}")
        ax.set_xlabel("rounds")
    axes[0].set_ylabel("relative error of the average")
    axes[0].plot([], [], color="0.4", linestyle=DASHES[1], label="plain Push-Sum")
    axes[0].plot([], [], color="0.4", linestyle=DASHES[0], label="running sums")
    axes[0].legend(loc="center right")
    return figure
