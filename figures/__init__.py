"""Regenerate the paper's figures and tables, one module each: `python -m figures fig1a`.

`python -m figures --list` names all figures, tables and controls. Their numbers come from `figures.experiments`.

Computing and drawing are separate steps that communicate by files (`reporting.store`). Every figure module has

    SHOWS                          what it shows, in one line
    experiments(options)           its experiments, by name
    draw(data, options)            the figure, or `table(data, options)` the table

and may have

    BY_VARIANT = True              it exists as `paper` and as `published`
    SIZES                          the sizes in which it exists, the default first
    NUMPY = True                   it is computed with NumPy, whatever --backend says
    compare(data, options)         rows that compare its numbers with the paper's
    ADDS_METHODS = True            it takes methods from the files of --with
    exports(data, options)         texts of further files, by suffix
    pages(data, options, stamps)   names and texts of files for the documentation (default: its table)

A control is a function of strings. It returns a table or a text, or it prints and returns an exit code.
"""

NAMES = (
    "readme",
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
    "comparison_package",
    "comparison_others",
    "comparison_cleaning",
    "table1",
    "table_comparison",
    "table_planner",
)

CONTROLS = {  # name: (module in figures.experiments, function, what it shows)
    "cleaning_controls": ("cleaning.controls", "controls_table", "hyper-cleaning: the validation labels alone [SIZE]"),
    "cleaning_fewer": ("cleaning.controls", "fewer_table", "hyper-cleaning with fewer validation images"),
    "cleaning_centre": ("cleaning.controls", "centre_table", "hyper-cleaning: HGP against all data in one place"),
    "cleaning_choices": ("cleaning.controls", "choices_text", "hyper-cleaning: choice of the settings [IMAGES]"),
    "cleaning_seeds": ("cleaning.controls", "seeds_table", "hyper-cleaning: gain over M = 0 on twenty draws"),
    "cnn_controls": ("influence.controls", "controls", "influence with a CNN, one setting changed at a time [NAME …]"),
    "cnn_damping": ("influence.controls", "damping", "influence with a CNN: damping and Gauss–Newton [IMAGES [SEED]]"),
    "personal_correction": ("personalization.controls", "correction", "size of HGP's correction of ∂_λ f [SIZE]"),
    "personal_rates": (
        "personalization.controls",
        "rates_on_grid",
        "validation accuracy on a grid of rates [METHOD …]",
    ),
    "personal_refresh": ("personalization.refresh", "refresh", "recompute stored numbers with old settings [PART …]"),
}

__all__ = ["CONTROLS", "NAMES"]
