"""`python -m benchmarks [NAME ...] [--quick] [--json FILE]`: a table, a JSON file and a plot.

`python -m benchmarks --backend cupy --device 1` compares the core on a device with NumPy.
`python -m benchmarks versus REF` compares this version of the package with another.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import NAMES, PEERS, versus
from benchmarks.environment import ONE_THREAD, describe
from benchmarks.results import Report
from benchmarks.show import plot, summary, table
from hgp_ref.backend import EXTRAS, get_backend
from hgp_ref.progress import bar
from hgp_ref.results import write_whole
from reporting.durations import first_sentence, listing
from reporting.extras import require

RESULTS = Path("results/benchmarks")


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    cli = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare the speed of hgp_ref with other implementations."
    )
    cli.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(NAMES)}")
    cli.add_argument("--list", action="store_true", help="list the names, what is measured, and how long it takes")
    cli.add_argument("--quick", action="store_true", help="small sizes: that everything runs, not how fast")
    cli.add_argument("--backend", choices=sorted(EXTRAS), help="measure the core on this array library instead")
    cli.add_argument("--device", help="with --backend: a number, or the library's name of the device")
    cli.add_argument("--json", type=Path, help=f"where to write the numbers (default: {RESULTS}/benchmarks.json)")
    return cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Run each benchmark in a process of its own, with one thread, and show what it found."""
    command = sys.argv[1:] if arguments is None else arguments
    if command and command[0] == "versus":
        return versus.main(command[1:])
    cli = parser()
    options = cli.parse_args(command)
    if options.list:
        print(listing("benchmarks", {name: _sentence(name) for name in NAMES}))
        return 0
    if options.backend:
        if options.names:
            cli.error("names cannot be chosen with --backend, which measures the core")
        try:
            get_backend(options.backend, options.device)
        except (ImportError, RuntimeError, ValueError) as error:
            cli.error(str(error))
    elif options.device:
        cli.error("--device needs --backend")
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        cli.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    path = options.json or RESULTS / f"{'quick' if options.quick else options.backend or 'benchmarks'}.json"
    names = options.names or (["device"] if options.backend else list(NAMES))
    where = [option for option in (options.backend, options.device) if option]
    for name in names:  # before anything is measured
        require(f"python -m benchmarks {name}", matplotlib="figures", **PEERS.get(name, {}))
    reports: list[Report] = []
    seconds: dict[str, float] = {}
    shown = bar(len(names), "benchmarks", True, lines=True)
    for name in names:
        start = cpu_seconds()
        measured = measure(name, options.quick, where)
        seconds[name] = round(cpu_seconds() - start, 1)
        print(table(measured, judge=not options.quick), flush=True)
        reports += measured
        shown.update(1, name)
    shown.close()
    print("\nsmall sizes: goals are not evaluated" if options.quick else "\n" + summary(reports))
    document = {
        "environment": describe(),
        "quick": options.quick,
        "seconds": seconds,
        "reports": [r.document() for r in reports],
    }
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False).encode())
    plot(reports, path.with_suffix(".png"))
    print(f"{path}\n{path.with_suffix('.png')}")
    return 0


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started and waited for: the same on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sentence(name: str) -> str:
    """The first line of a benchmark's file, which may need libraries that are not installed."""
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return first_sentence(ast.get_docstring(ast.parse(source)))


def measure(name: str, quick: bool, where: Sequence[str] = ()) -> list[Report]:
    """The reports of one benchmark, run in a process in which all libraries use one thread.

    `where` is the array library, and optionally the device, of the benchmark "device".
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reports.json"
        command = [sys.executable, "-m", "benchmarks.worker", name, str(file), *(["--quick"] if quick else []), *where]
        environment = os.environ | ONE_THREAD
        if len(where) > 1:
            del environment["JAX_PLATFORMS"]  # which keeps JAX on the processor
        subprocess.run(command, check=True, env=environment)
        return [Report.of(document) for document in json.loads(file.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    sys.exit(main())
