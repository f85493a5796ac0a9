"""What `figures`, `verification` and `benchmarks` share: kept results, tables, plots, provenance.

    store       experiments made of parts, resumable, equal bytes for equal numbers
    table       a table of text for the terminal, a spreadsheet, a README and a page
    style       one look for all plots, written without a date
    provenance  versions and the commit behind a number
    overview    one page of all results, `python -m reporting`
    extras      a missing optional library as one line that names the extra

No part of hgp_ref's public interface.
"""
