"""Influence on digits over 10 clients: predicted against actual change, for instances and for clients."""

from __future__ import annotations

from figures.experiments.influence.real_data import experiment
from figures.influence_breast_cancer import compare, draw
from figures.options import Options
from reporting.store import Experiment

__all__ = ["BY_VARIANT", "SHOWS", "compare", "draw", "experiments"]
SHOWS = "Influence on digits over 10 clients, directed time-varying network: 50 instances; whole clients"
BY_VARIANT = False


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and exact retrainings."""
    return {"real": experiment("digits", quick=options.quick, backend=options.backend)}
