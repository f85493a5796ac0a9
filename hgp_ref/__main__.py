"""`python -m hgp_ref check` and `info`: is this installation correct, and what does it consist of?"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

CHECK = "compare an array library with the reference, and time it"
INFO = "versions, array libraries and their devices, threads"
REPOSITORY = {  # commands that are no part of the installed package
    "figures": "draw the figures and compare them with the paper",
    "verification": "verify or refute every statement of the paper",
    "benchmarks": "compare speed with other implementations",
}
ELSEWHERE = "belongs to the repository and to the source distribution: run it in their top folder"
CORE = ("numpy", "scipy", "numba", "array-api-compat")
OPTIONAL = {"matplotlib": "figures", "latex2mathml": "figures", "scikit-learn": "data", "mlxtend": "images"}
OPTIONAL |= {"tqdm": "progress", "threadpoolctl": "threads", "mpi4py": "mpi", "cvxpy": "fastmixing"}


def main(arguments: Sequence[str]) -> int:
    """Run the command named first; 2 if there is none of that name."""
    if arguments and arguments[0] == "check":
        from hgp_ref import check

        return check.main(arguments[1:])
    if arguments and arguments[0] in REPOSITORY:
        print(f"hgp_ref: python -m {arguments[0]} {ELSEWHERE}", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(
        prog="python -m hgp_ref",
        description="Hyper-Gradient Push: what is installed, and whether it is correct.",
        epilog="In the top folder of the repository: "
        + "; ".join(f"python -m {name}: {what}" for name, what in REPOSITORY.items())
        + ". Each has --list: its parts, with their durations.",
    )
    parser.add_argument("--version", action="version", version=f"hgp_ref {metadata.version('hgp_ref')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("check", help=CHECK)
    commands.add_parser("info", help=INFO, description=INFO)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        parser.parse_args(arguments)
    except SystemExit as end:  # help, the version, or a wrong argument
        return int(end.code or 0)
    print("\n".join(info()))
    return 0


def info() -> Iterator[str]:
    """Lines about this installation."""
    from hgp_ref._numba import limit

    yield f"hgp_ref {metadata.version('hgp_ref')} in {Path(__file__).parent}"
    yield f"Python {platform.python_version()}, {platform.platform()}"
    yield ", ".join(f"{name} {metadata.version(name)}" for name in CORE)
    yield ""
    yield from _backends()
    yield ""
    installed = [f"{name} {version}" for name in OPTIONAL if (version := _version(name))]
    yield f"optional libraries: {', '.join(installed) or 'none'}"
    missing = [f"{name} (hgp_ref[{extra}])" for name, extra in OPTIONAL.items() if not _version(name)]
    if missing:
        yield f"not installed: {', '.join(missing)}"
    setting = os.environ.get("OMP_NUM_THREADS")
    reason = f"OMP_NUM_THREADS={setting}" if setting else "OMP_NUM_THREADS is not set"
    yield f"threads of compiled loops: at most {limit()} ({reason}); cores: {os.cpu_count()}"


def _backends() -> Iterator[str]:
    """A line for each array library: version and device, or why it cannot be used."""
    from hgp_ref.backend import EXTRAS, get_backend, hardware

    for name in ("numpy", *EXTRAS):
        try:
            backend = get_backend(name)
        except (ImportError, RuntimeError, ValueError) as error:
            yield f"{name:17} {error}"
            continue
        version = getattr(sys.modules[name], "__version__", "")
        yield f"{name:17} {version}, device {backend.device}"
        for line in hardware(backend):
            yield f"{'':17} {line}"


def _version(distribution: str) -> str:
    """The version of a distribution; "" if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
