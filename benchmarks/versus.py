"""`python -m benchmarks versus REF [WORKLOAD ...]`: this version of the package against that of a commit, in turns.

Each version runs its own definition of a workload (`benchmarks/workloads.py`) in its own process, so that versions with
different signatures can be compared. Calls alternate, old new new old, so that other load on the machine affects both
alike. The memory layout of a process changes its speed by several per cent, so both processes restart after some pairs.
The result is the median over neighbouring pairs of

    ratio = CPU seconds (or peak bytes) of the new version / those of the old one.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.environment import ONE_THREAD, describe
from benchmarks.harness import SHORTEST
from benchmarks.results import Report, Timing
from benchmarks.show import summary, table
from benchmarks.workloads import MEASURED, NAMES
from hgp_ref.progress import bar
from reporting.provenance import commit as running

ROOT = Path(__file__).parents[1]
LIMIT = 1.05
ORDER = (("old", "new"), ("new", "old"))


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    cli = argparse.ArgumentParser(prog="python -m benchmarks versus", description=(__doc__ or "").splitlines()[0])
    cli.add_argument("ref", metavar="REF", help="the commit, branch or tag to compare with")
    cli.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"all by default: {', '.join(NAMES)}")
    cli.add_argument("--quick", action="store_true", help="small sizes: that everything runs, not how fast")
    cli.add_argument("--rounds", type=int, default=4, help="times that both processes start (default: 4)")
    cli.add_argument("--pairs", type=int, default=5, help="pairs of measurements in a round (default: 5)")
    cli.add_argument("--limit", type=float, default=LIMIT, help=f"largest median ratio allowed (default: {LIMIT})")
    cli.add_argument("--json", type=Path, default=Path("results/benchmarks/versus.json"), help="where numbers go")
    return cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show and write; 1 if a ratio is above the limit."""
    cli = parser()
    options = cli.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        cli.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    for option in ("rounds", "pairs"):
        if getattr(options, option) < 1:
            cli.error(f"--{option} must be an integer >= 1, got {getattr(options, option)}")
    if running() is None:
        cli.error(f"versus needs git and a clone of the repository; {ROOT} is none")
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{options.ref}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        cli.error(f"REF must be a commit of the repository at {ROOT}, got {options.ref!r}")
    reports = compare(
        commit, options.names or list(NAMES), options.quick, (options.rounds, options.pairs), options.limit
    )
    with_goals = not options.quick
    print("\n" + summary(reports) if with_goals else "\nsmall sizes: goals are not evaluated")
    document = {"environment": describe(), "old": commit, "quick": options.quick,
                "reports": [report.document() for report in reports]}  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    print(options.json)
    return int(with_goals and not all(b.reached for report in reports for b in report.bars))


def compare(commit: str, names: Sequence[str], quick: bool, times: tuple[int, int], limit: float) -> list[Report]:
    """A report for each workload, shown as soon as it is finished."""
    reports = []
    shown = bar(len(names), "versus", True, lines=True)
    with versions(commit) as folders:
        contenders = {version: Contender(folder) for version, folder in folders.items()}
        for name in names:
            if name in MEASURED:
                report = _memory(name, folders, quick, limit)
            else:
                report = _times(name, contenders, quick, times, limit)
            print(table([report], judge=not quick), flush=True)
            reports.append(report)
            shown.update(1)
    shown.close()
    return reports


@contextmanager
def versions(commit: str) -> Iterator[dict[str, Path]]:
    """The folders of the commit ("old") and of this tree ("new")."""
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
            archive.extractall(temporary, filter="data")
        yield {"old": Path(temporary), "new": ROOT}


class Contender:
    """One version of the package in a process that serves requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Contender:
        command = [sys.executable, "-m", "benchmarks.contender"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, cwd=self.folder, env=_environment(self.folder), **pipes)
        try:
            package, needed = Path(self._answer()["package"]), (self.folder / "hgp_ref").resolve()
            if package != needed:
                raise RuntimeError(f"{package} was imported, needed {needed}")
        except RuntimeError:
            self._process.communicate()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # closes its input: it ends by itself

    def ask(self, **question: Any) -> dict[str, Any]:
        """The reply to one request to `benchmarks.contender`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process in {self.folder} ended with status {self._process.wait()}")
        return json.loads(line)


def _times(name: str, contenders: dict[str, Contender], quick: bool, times: tuple[int, int], limit: float) -> Report:
    (rounds, pairs), number = times, 0
    starts: dict[str, list[dict[str, float]]] = {version: [] for version in contenders}
    taken: dict[str, list[dict[str, float]]] = {version: [] for version in contenders}
    for _ in range(rounds):
        with ExitStack() as processes:
            for version, one in contenders.items():
                processes.enter_context(one)
                starts[version].append(one.ask(workload=name, quick=quick))
            number = number or max(1, math.ceil(SHORTEST / max(1e-7, min(s[0]["again"] for s in starts.values()))))
            for pair in range(pairs):
                for version in ORDER[pair % 2]:
                    taken[version].append(contenders[version].ask(number=number))
    settings = {"rounds": rounds, "pairs": pairs, "calls": number, "quick": quick}
    report = Report(f"versus-{name}", f"{name}: new and old", settings)
    for version, measured in taken.items():
        cpu, wall = ([m[kind] for m in measured] for kind in ("cpu", "wall"))
        report.timings[version] = Timing(cpu, wall, starts[version][0]["first"])
    _add_ratio(report, report.timings["old"].cpu, report.timings["new"].cpu, limit)
    return report


def _memory(name: str, folders: dict[str, Path], quick: bool, limit: float) -> Report:
    """Peak memory of new processes, twice each: memory that a process has freed would hide later needs."""
    command = [sys.executable, "-m", "benchmarks.memory", *MEASURED[name][quick]]
    peaks: dict[str, list[float]] = {version: [] for version in folders}
    for order in ORDER:
        for version in order:
            folder = folders[version]
            done = subprocess.run(
                command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=True
            )
            answer = json.loads(done.stdout)
            peaks[version].append(answer["peak"])
    report = Report(f"versus-{name}", f"{name}: new and old", {"arguments": " ".join(command[3:])})
    medians = {version: f"{statistics.median(values):.0f} MB" for version, values in peaks.items()}
    report.figures = {**medians, "needed": f"{answer['needed']:.0f} MB"}
    _add_ratio(report, peaks["old"], peaks["new"], limit)
    return report


def _add_ratio(report: Report, old: list[float], new: list[float], limit: float) -> None:
    """The median of new / old over pairs, and its quartiles."""
    ratios = [b / a for a, b in zip(old, new, strict=True)]
    low, high = Timing(ratios, ratios, 0.0).spread
    report.at_most("new over old, median of pairs", statistics.median(ratios), limit)
    report.figures["new over old"] = f"{statistics.median(ratios):.3f} [{low:.3f} .. {high:.3f}]"


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | ONE_THREAD | {"PYTHONPATH": str(folder)}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE).stdout
