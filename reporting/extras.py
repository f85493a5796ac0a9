"""An error of one line for a command whose optional library is missing."""

from __future__ import annotations

import sys
from importlib import import_module


def require(command: str, **extras: str) -> None:
    """End `command` with exit code 2 unless every library can be imported; `extras` is library=extra of hgp_ref."""
    for library, extra in extras.items():
        try:
            import_module(library)
        except ImportError as error:
            print(f"{command}: needs {library}: pip install 'hgp_ref[{extra}]' ({error})", file=sys.stderr)
            raise SystemExit(2) from error
