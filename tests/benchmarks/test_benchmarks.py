"""The benchmarks run, report what they measured, and can be read back. Speed is for `python -m benchmarks`."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.libraries import open_library

from benchmarks import NAMES, harness, show
from benchmarks.__main__ import cpu_seconds
from benchmarks.results import Bar, Report, Timing

ROOT = Path(__file__).parents[2]
ALONE = ("scale", "clients", "precision", "startup")  # need no other library


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_durations_are_cpu_seconds_of_finished_processes():
    before = cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(1)"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert 0.3 <= cpu_seconds() - before < 1


@pytest.mark.parametrize(
    "names",
    [ALONE[:3], pytest.param([n for n in NAMES if n not in ALONE[:3]], marks=pytest.mark.slow)],
    ids=["alone", "with peers"],
)
def test_quick_run(names, tmp_path):
    pytest.importorskip("matplotlib")
    if set(names) - set(ALONE):
        for library in ("torch", "jax", "networkx"):
            pytest.importorskip(library)
    file = tmp_path / "numbers.json"
    done = command(*names, "--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["quick"] and document["environment"]["versions"]["numpy"]
    assert {r["name"].split("-")[0] for r in document["reports"]} == set(names)
    for report in map(Report.of, document["reports"]):
        assert all(t.median >= 0 and t.wall_median >= 0 for t in report.timings.values())
        assert report.title in done.stdout
    assert file.with_suffix(".png").stat().st_size > 0


def test_unknown_name_is_refused():
    done = command("no-such", "--quick")
    assert done.returncode == 2 and "no-such" in done.stderr and "figure" in done.stderr


@pytest.mark.parametrize("name", ["cupy", "torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_the_core_on_a_device(name, tmp_path):
    pytest.importorskip("matplotlib")
    library, file = open_library(name), tmp_path / "numbers.json"
    device = str(library.device.id) if name == "cupy" else "cpu"
    done = command("--backend", name, "--device", device, "--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    double = Report.of(json.loads(file.read_text())["reports"][1])
    assert f"{name} on {library.device}" == double.title
    assert {label.split(",")[0] for label in double.timings} == {"hgp_ref", "NumPy"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "1"), "--device needs --backend"),
        (("mixing", "--backend", "array_api_strict"), "names cannot be chosen"),
        (("--backend", "array_api_strict", "--device", "no-such"), "device must be a device of array_api_strict"),
    ],
)
def test_devices_that_cannot_be_measured(arguments, said):
    done = command(*arguments)
    assert done.returncode == 2 and said in done.stderr


def test_every_name_is_a_module():
    for name in NAMES:
        assert importlib.util.find_spec(f"benchmarks.{name}") is not None


def test_cases_are_called_in_turn():
    called = []
    timings = harness.interleave({name: lambda n=name: called.append(n) for name in "abc"}, repetitions=2)
    turns = "".join(name for name, before in zip(called, [None, *called], strict=False) if name != before)
    assert turns.endswith("abcabc")
    assert all(len(t.cpu) == 2 and len(t.wall) == 2 for t in timings.values())


def test_spread_and_bars():
    timing = Timing([1.0, 2.0, 3.0, 4.0, 100.0], [1.0], 5.0)
    assert timing.median == 3.0 and timing.spread == (2.0, 4.0)
    assert Bar("x", 3.0, 3.0).reached and not Bar("x", 3.1, 3.0).reached
    assert Bar("x", 3.0, 3.0, at_least=True).reached and not Bar("x", 2.9, 3.0, at_least=True).reached


def test_reports_survive_the_file_and_show_what_was_missed():
    report = Report("a-b", "A title", {"n": (1, 2)}, timings={"hgp_ref": Timing([0.5], [0.6], 0.7)})
    report.at_least("faster", 0.5, 2.0)
    report.at_most("slower", 0.5, 2.0)
    again = Report.of(json.loads(json.dumps(report.document())))
    assert again.timings == report.timings and again.bars == report.bars
    text = show.table([again])
    assert "MISSED" in text and "reached" in text and "500 ms" in text
    assert "MISSED" not in show.table([again], judge=False)
    assert show.summary([again]).startswith("1 of 2 bars reached")


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2 s"), (0.0125, "12.5 ms"), (3e-6, "3 µs"), (5e-9, "5 ns"), (0, "0 s")]
)
def test_times_read_well(value, text):
    assert show.seconds(value) == text
