"""Controls beside the table of personalization: what of HGP-PL's gain is owed to hyper-gradients.

f is g without its L2 term on the same training data, so that at the trained x there is little to correct for HGP:
Σ ∂_x f ≈ −l2 Σ x. Controls: M = 0, each client's own ∂_λ f and no message; a shift of the logits by class frequencies,
without any gradient along λ; fine-tuning. With f on validation data Σ ∂_x f is not small; M = 0 stands beside it too.
Best looks are chosen on validation data only, also where f is on them.
"""

from __future__ import annotations

from figures.experiments.personalization.page import numbers
from figures.experiments.personalization.settings import merged
from figures.options import PERSONAL_SIZES, Data, Options, Row
from figures.table_personalization import controls, experiments
from reporting.table import Table

__all__ = ["compare", "experiments", "table"]

SHOWS = "What HGP-PL gains without HGP: M = 0, class prior, fine-tuning; S = 1; f on validation data"
BY_VARIANT = False
BY_SIZE = True
SIZES = PERSONAL_SIZES


def table(data: Data, options: Options) -> Table:
    """A row for each control, between SGP and HGP-PL."""
    seeds = experiments(options)["push"].settings["seeds"]
    return controls(numbers(merged(data), seeds), seeds)


def compare(data: Data, options: Options) -> list[Row]:
    """The paper has no controls."""
    return []
