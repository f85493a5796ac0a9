"""`python -m reporting [RESULTS]`: one page for everything in the folder of results; its path is printed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hgp_ref.results import write_whole
from reporting.overview import page


def main(arguments: Sequence[str] | None = None) -> int:
    """Write index.html."""
    parser = argparse.ArgumentParser(prog="python -m reporting", description="One page for all results.")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="default: results")
    results = parser.parse_args(arguments).results
    path = results / "index.html"
    write_whole(path, page(results).encode())
    print(f"everything on one page: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
