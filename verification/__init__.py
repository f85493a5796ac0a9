"""Check every statement of the paper, as printed and as corrected: `python -m verification`.

One file per statement. Each has a TITLE and `verify(run) -> Result`: rows (statement, setting, measured, bound, ratio,
verdict), figures for the report, and numbers for its summary. The command ends with exit code 1 if a corrected
statement is violated anywhere, or if an erratum cannot be reproduced.
"""

NAMES = (
    "lemma1",
    "lemma2",
    "remark",
    "theorem1",
    "corollary1",
    "corollary2",
    "theorem2",
    "contracting_clients",
    "convex_mean",
    "certificate",
    "rounding",
    "minibatch_tail",
    "mean_square",
    "inexact",
    "chebyshev",
    "unreliable",
    "falling_steps",
    "tracking",
    "curvature",
    "refinement",
    "communication",
    "fewer_messages",
    "lower_bound",
    "plans",
    "tightness",
    "search",
    "search_methods",
    "optimiser",
    "errata",
)

__all__ = ["NAMES"]
