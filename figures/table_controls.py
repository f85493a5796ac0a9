"""Controls of the table of personalization: how much of HGP-PL's gain is due to hyper-gradients.

f is g without its L2 term, on the same training data. At the trained x, Σ ∂_x f ≈ −l2 Σ x is therefore small, and HGP
has little to correct. The controls are M = 0, which is each client's ∂_λ f without communication; a shift of the logits
by class frequencies, without any gradient along λ; and fine-tuning. With f on validation data Σ ∂_x f is not small;
this is run with M = 0 too. The best evaluation is always chosen by validation accuracy.
"""

from __future__ import annotations

from figures.experiments.personalization.page import read_accuracies
from figures.experiments.personalization.settings import merged
from figures.options import PERSONAL_SIZES, Data, Options
from figures.table_personalization import controls, experiments
from reporting.table import Table

__all__ = ["experiments", "table"]

SHOWS = "Controls of HGP-PL: M = 0, class prior, fine-tuning; S = 1; f on validation data"
SIZES = PERSONAL_SIZES


def table(data: Data, options: Options) -> Table:
    """One row per control, between SGP and HGP-PL."""
    seeds = experiments(options)["push"].settings["seeds"]
    return controls(read_accuracies(merged(data), seeds), seeds)
