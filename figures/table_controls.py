"""Controls beside the table of personalization: what of HGP-PL's gain is owed to hyper-gradients.

f is g without its L2 term on the same training data, so that at the trained x the correction that HGP computes has little
to correct: Σ ∂_x f ≈ −l2 Σ x. Controls: M = 0, each client's own ∂_λ f and no message; a shift of the logits by class
frequencies, without any gradient along λ; fine-tuning. With f on validation data the correction is not small; the same
control stands beside it. Best looks are chosen on validation data only, also where f is on them.
"""

from __future__ import annotations

from figures.options import PERSONAL_SIZES, Data, Options, Row
from figures.personal import CONTROLS, SINGLE, TABLE, merged
from figures.table_personalization import cell, experiments
from reporting.store import Arrays
from reporting.table import Table

__all__ = ["compare", "experiments", "table"]

SHOWS = "What HGP-PL gains without HGP: M = 0, class prior, fine-tuning; S = 1; f on validation data"
BY_VARIANT = False
BY_SIZE = True
SIZES = PERSONAL_SIZES
COLUMNS = ("FC", "FixU", "RandU", "RandD")


def table(data: Data, options: Options) -> Table:
    """A row for each control, between SGP and HGP-PL."""
    seeds = experiments(options)["push"].settings["seeds"]
    return controls(merged(data), seeds)


def controls(d: Arrays, seeds: list[int]) -> Table:
    """SGP, HGP-PL and what stands between."""
    chosen = {"fedavg": TABLE["fedavg"], "hgp_pl": TABLE["hgp_pl"], **SINGLE, **CONTROLS}
    rows = [
        (words, *(cell(d, net, method, seeds) if net in networks else "" for net in COLUMNS))
        for method, (words, networks) in chosen.items()
    ]
    return Table("", ("method", *COLUMNS), tuple(rows))


def compare(data: Data, options: Options) -> list[Row]:
    """The paper has no controls."""
    return []
