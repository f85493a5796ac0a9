"""A command whose optional library is missing says in one line what to install."""

from __future__ import annotations

import sys
from importlib import import_module


def require(command: str, **extras: str) -> None:
    """End `command` with a line and exit code 2 unless each library=extra of hgp_ref that brings it can be imported."""
    for library, extra in extras.items():
        try:
            import_module(library)
        except ImportError as error:
            print(f"{command}: needs {library}: pip install 'hgp_ref[{extra}]' ({error})", file=sys.stderr)
            raise SystemExit(2) from error
