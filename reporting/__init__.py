"""What `figures`, `verification` and `benchmarks` share: stored results, tables, plots, provenance.

    store       experiments in parts that can be resumed; equal numbers give equal bytes
    table       a table of text for the terminal, a spreadsheet, a README and a page
    style       one style for all plots, written without a date
    provenance  versions and the commit behind a number
    overview    one page of all results, `python -m reporting`
    extras      an error of one line for a missing optional library

None of this is part of the public interface of hgp_ref.
"""
