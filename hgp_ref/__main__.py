"""`python -m hgp_ref check`: compare the core with the explicit reference on an array library, and time it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = ("check",)


def main(arguments: Sequence[str]) -> int:
    """Run the command named first; 2 if there is none of that name."""
    if not arguments or arguments[0] not in COMMANDS:
        print("usage: python -m hgp_ref check [--backend NAME] [--dtype float32|float64] [--mpi]", file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    from hgp_ref import check

    return check.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
