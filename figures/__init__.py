"""Regenerate the paper's figures and tables, one file each: `python -m figures fig1a`.

Computing and drawing are apart, joined by files (see `reporting.store`). Every figure module has

    SHOWS                          what one sees, in a line
    BY_VARIANT                     whether it exists as `paper` and as `published`
    BY_SIZE                        whether it exists in several sizes (left out: it does not)
    NUMPY                          whether it is computed with NumPy only (left out: --backend decides)
    SIZES                          which ones, the first by default (left out: those of `options`)
    pages(data, options, stamps)   names and texts of files for the documentation (left out: its table)
    experiments(options)           the experiments it needs, by name
    draw(data, options)            a figure, or `table(data, options)` a table
    compare(data, options)         rows of numbers beside those of the paper
"""

NAMES = (
    "fig1a",
    "fig1b",
    "fig1b_corrected",
    "fig1c",
    "figA1a",
    "figA1b",
    "figA2a",
    "figA2b",
    "figA2c",
    "influence_breast_cancer",
    "influence_digits",
    "unreliable",
    "hyper_cleaning",
    "table_error",
    "table_influence",
    "table_cnn",
    "table_curvature",
    "table_minibatch",
    "table_personalization",
    "table_controls",
    "figA3",
    "table_hyper_cleaning",
    "comparison",
    "comparison_cleaning",
    "table1",
    "table_comparison",
)

__all__ = ["NAMES"]
