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
from figures.curves import hidden_lines
from figures.options import Data, Options
from hgp_ref.backend import get_backend, to_host
from hgp_ref.mixing import WeightRule
from reporting.store import Arrays, Experiment
from reporting.style import RAMP, new_figure, plot_cut

SHOWS = "Lost messages stop plain Push-Sum at a wrong mean, not running sums: 0 to 30 % loss, delays up to 5 rounds"
LOSSES = (0.0, 0.05, 0.1, 0.2, 0.3)
DELAYS = (0, 5)
CLIENTS, DIM = 10, 5
SMALLEST = 1e-17  # at the lower end of the axes
KINDS = ("plain Push-Sum", "running sums")


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
    """A row for each kind of message, a column for each delay, and a line for each share of lost messages."""
    figure = new_figure(height=3.9)
    panels = figure.subplots(len(KINDS), len(DELAYS), sharex=True, sharey=True)
    for axes, (k, delay) in zip(panels.flat, np.ndindex(len(KINDS), len(DELAYS)), strict=True):
        errors = np.median(data["errors"][f"delay-{DELAYS[delay]}"][k], axis=1)  # (losses, rounds + 1)
        rounds = np.arange(errors.shape[1])
        axes.set(xlim=(0, rounds[-1]), ylim=(SMALLEST, 10), yscale="log")
        for loss, error, line in zip(LOSSES, errors, RAMP[::-1], strict=True):
            label = f"{100 * loss:.0f} %"
            zorder = 3 - loss  # the wide lines of many losses below
            plot_cut(axes, rounds, error, SMALLEST, 10, label=label, zorder=zorder, **line.options())
        late = "all in time" if DELAYS[delay] == 0 else f"late by 0 … {DELAYS[delay]} rounds"
        axes.set_title(f"{KINDS[k]},\n{late}", fontsize=7)
        axes.minorticks_off()
    figure.supxlabel("rounds", fontsize=8)
    figure.supylabel("relative error of the average", fontsize=8)
    lines = [line for line in panels.flat[0].lines if line.get_marker() == "None"]
    title = "\n".join(["messages lost", *(f"{KINDS[0]}: {hidden}" for hidden in hidden_lines(panels[0, 0], lines))])
    figure.legend(handles=lines, loc="outside upper center", ncols=5, title=title, handlelength=1.6)
    return figure
