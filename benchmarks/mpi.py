"""Scaling over MPI ranks: `python -m benchmarks.mpi [--quick] [--ranks 2] [--docs FILE]`.

Measures strong and weak scaling against one process in the same run, and a static ring. A model fitted to the
measurements (`mpi_model`) predicts 100 and 10,000 ranks. Writes Markdown tables to the terminal and to FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.environment import ONE_THREAD, describe
from benchmarks.mpi_cases import Case, Timed
from benchmarks.mpi_model import CONSTANTS, Model, errors, fitted
from benchmarks.results import Report, Timing
from benchmarks.show import seconds
from hgp_ref.results import write_whole

USES = {"strong": "strong scaling", "weak": "weak scaling", "ring": "static ring"}
ROWS = (  # measured once, with a version that had both ways
    "Sending only the rows that cross between ranks, in every step, was compared with an exchange of columns on "
    "sparse static graphs: a ring, and two blocks of clients with two edges between them; n = 1,000 and 20,000, d "
    "= 16 to 1,000, two ranks. The fastest of 10 repetitions was taken, but other programs ran on the same two "
    "cores (load 13), so the ratios are rough. For calls of one step, rows took 0.14 to 0.77 times as long as "
    "columns, but 0.6 to 1.4 times as long as one process. For calls of 10 steps, rows took 0.6 to 1.2 times as "
    "long as columns, in one case 0.2. On random graphs with 4 receivers each, rows took three times as long as "
    "columns (measured at load 2). Ranks therefore always exchange columns. For calls of one step on a sparse "
    "static graph, use one process."
)
GOALS = {"hgp": 1.7, "cnn": 1.8}  # times one process, on two ranks
WORK = {"hgp": "HGP iteration, logistic regression", "cnn": "HGP iteration, CNN", "mixing": "step of Push-Sum"}
MODES = {"auto": "steps", "composed": "composed"}
NETWORK = (20e-6, 1.25e9)  # of a cluster that is assumed: seconds of a message, bytes a second (10 Gbit/s Ethernet)


def measure(ranks: int, quick: bool) -> list[Timed]:
    """Run all cases on `ranks` ranks with one thread each."""
    installed = Path(sys.executable).with_name("mpiexec")
    launcher = str(installed) if installed.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise SystemExit(
            "benchmarks.mpi: there is no mpiexec; pip install 'hgp_ref[mpi]' mpich, or load your cluster's"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        program = [sys.executable, "-m", "benchmarks.mpi_cases", str(file), *(["--quick"] if quick else [])]
        subprocess.run([launcher, "-n", str(ranks), *program], check=True, env=os.environ | ONE_THREAD)
        return [Timed(**one | {"case": Case(**one["case"])}) for one in json.loads(file.read_text(encoding="utf-8"))]


def run(quick: bool) -> list[Report]:
    """The reports of `python -m benchmarks mpi`: two ranks."""
    timings = measure(2, quick)
    reports = []
    for one in (one for one in timings if one.case.use in ("strong", "weak")):
        case = one.case
        name = f"mpi-{case.use}-{case.work}-{case.mode}"
        report = Report(name, f"{WORK[case.work]}, {MODES[case.mode]}, {case.use} scaling", settings(case))
        report.timings = {"hgp_ref, 2 ranks": Timing([one.all], [one.all], one.all),
                          "one process": Timing([one.one], [one.one], one.one)}  # fmt: skip
        if case.use == "strong" and case.work in GOALS:
            report.at_least("times one process", one.gain, GOALS[case.work])
        reports.append(report)
    last = reports[-1]
    last.figures = {"model": "; ".join(line for line in model_lines(fitted(timings), timings))}
    return reports


def settings(case: Case) -> dict[str, object]:
    """The settings of a case, as text for the tables."""
    sizes = {"n": case.n, "one process has n": case.alone or case.n, "d": case.d, "N": case.N, "S": case.S}
    return {**sizes, "receivers": case.degree, "dtype": case.dtype}


def scaling_table(timings: Sequence[Timed], use: str) -> list[str]:
    """One line for each case, against one process."""
    lines = [
        f"| {USES[use]} | n | d | N | S | receivers | one process | {timings[0].ranks} ranks | times | MB a rank |"
    ]
    lines.append("|---|" + "---:|" * 9)
    for one in timings:
        case = one.case
        if case.use == use:
            clients = f"{case.alone}, {case.n}" if case.alone else str(case.n)
            size = f"{clients} | {case.d} | {case.N or ''} | {case.S} | {case.degree:g}"
            times = f"{seconds(one.one)} | {seconds(one.all)} | {one.gain:.2f}"
            lines.append(f"| {WORK[case.work]}, {MODES[case.mode]} | {size} | {times} | {one.sent_bytes / 1e6:.3g} |")
    return lines


def model_lines(model: Model, timings: Sequence[Timed]) -> list[str]:
    """The constants, and the relative errors of the model on the fitted and on the other cases."""
    constants = dict(zip(CONSTANTS, model.constants.tolist(), strict=True))
    bandwidth = f"{1 / constants['byte'] / 1e9:.2f} GB/s" if constants["byte"] else "no limit seen"
    lines = [
        f"a step {seconds(constants['step'])}, an edge drawn {seconds(constants['draw'])}, an edge and column added "
        f"{seconds(constants['edge'])}, an iteration {seconds(constants['iteration'])}, "
        f"a Hessian-vector product {seconds(constants['product'])} a number of the data, "
        f"a message {seconds(constants['latency'])}, {bandwidth}"
    ]
    for use, label in (("model", "fitted"), ("unseen", "not fitted"), ("strong", "of the strong scaling, not fitted")):
        those = [one for one in timings if one.case.use == use]
        ratios = [predicted / measured for _, _, measured, predicted in errors(model, those)]
        low, middle, high = np.quantile(ratios, [0, 0.5, 1])
        lines.append(f"predicted / measured, {len(ratios)} times {label}: {low:.2f} to {high:.2f}, median {middle:.2f}")
    return lines


def prediction_table(model: Model) -> list[str]:
    """Predicted iterations of HGP on more and more ranks, with fixed numbers of clients per rank and in all."""
    lines = ["| PREDICTED, iteration of HGP, d = 1000, N = 100, S = 10, 10 receivers | ranks | n | with this machine's "
             "exchange | 20 µs, 1.25 GB/s | of that drawing graphs | exchange |"]  # fmt: skip
    lines.append("|---|" + "---:|" * 6)
    cluster = model.elsewhere(*NETWORK)
    base = Case("prediction", "hgp", 100, 1000, 10, 10, N=100)
    for label, clients in (("100 clients a rank", None), ("1,000,000 clients", 1_000_000)):
        for ranks in (1, 2, 100, 10_000):
            case = replace(base, n=clients or 100 * ranks)
            share = cluster.shares(case, ranks)
            times = f"{seconds(model(case, ranks))} | {seconds(cluster(case, ranks))}"
            parts = f"{share['draw']:.0%} | {share['latency'] + share['byte']:.0%}"
            lines.append(f"| {label} | {ranks} | {case.n} | {times} | {parts} |")
    return lines


def document(timings: Sequence[Timed]) -> str:
    """Everything as Markdown."""
    where = describe()
    model = fitted(timings)
    head = (
        f"Written by `python -m benchmarks.mpi`: {where['machine']}, one thread a rank, fastest of the repetitions, "
        f"load {where['load']} at the end; the process that holds all clients took turns with the ranks."
    )
    same = (
        '“Steps” equals the simulation\'s `mode="stepping"` bit for bit and is compared with it; “composed” equals '
        '`mode="composed"` to rounding and is compared with that.'
    )
    tables = (scaling_table(timings, "strong"), scaling_table(timings, "weak"), scaling_table(timings, "ring"))
    fit = ["The model (`benchmarks/mpi_model.py`):", *(f"- {line}" for line in model_lines(model, timings))]
    warning = "A prediction, not a measurement: no machine with more than two cores was at hand."
    parts = [head + " " + same, *("\n".join(table) for table in tables), ROWS, "\n".join(fit), warning,
             "\n".join(prediction_table(model))]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write them to FILE."""
    cli = argparse.ArgumentParser(prog="python -m benchmarks.mpi", description=__doc__)
    cli.add_argument("--quick", action="store_true", help="small sizes: that everything runs, not how fast")
    cli.add_argument("--ranks", type=int, default=2, help="how many")
    cli.add_argument("--docs", type=Path, help="write the tables there as well")
    options = cli.parse_args(arguments)
    text = document(measure(options.ranks, options.quick))
    if options.docs:
        write_whole(options.docs, text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
