"""Results on disk: equal bytes for equal numbers, whole files or none, no pickle, resumption after an interruption."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hgp_ref import progress, results
from hgp_ref.results import npz_bytes, write_whole
from reporting.store import Experiment, obtain, read_stored

ROOT = Path(__file__).parents[2]
PARTS = ("first", "second", "third")

SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {folder!r})
import test_store
test_store.obtain(test_store.make(pause=0.5), Path({out!r}))
"""


def make(pause: float = 0.0, interrupt_at: str | None = None, calls: list[str] | None = None, seed: int = 0):
    """Three parts of random numbers, each a function of the seed and of the part before it."""

    def compute(part, finished):
        if calls is not None:
            calls.append(part)
        if part == interrupt_at:
            raise KeyboardInterrupt
        time.sleep(pause)
        before = sum(float(np.sum(arrays["a"])) for arrays in finished.values())
        return {"a": np.random.default_rng([seed, PARTS.index(part)]).standard_normal(50) + before}

    def join(parts):
        return {"all": np.stack([parts[part]["a"] for part in PARTS]), "count": np.array(len(parts))}

    settings = {"seed": seed, "backend": "numpy", "dtype": "float64"}
    return Experiment("trial", settings, PARTS, compute, join)


def the_file(folder: Path) -> Path:
    (found,) = folder.glob("trial-*.npz")
    return found


def test_a_result_is_computed_once_and_then_read(tmp_path):
    calls: list[str] = []
    first = obtain(make(calls=calls), tmp_path)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".npz"]  # parts and temporary files are gone
    again = obtain(make(calls=calls), tmp_path)
    assert calls == list(PARTS)
    assert first.fresh and not again.fresh
    assert np.array_equal(first.data["all"], again.data["all"])
    assert again.data["count"].shape == ()
    obtain(make(calls=calls), tmp_path, recompute=True)
    assert calls == list(PARTS) * 2


def test_settings_decide_the_name(tmp_path):
    obtain(make(seed=0), tmp_path)
    obtain(make(seed=1), tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 2


@pytest.mark.parametrize("part", PARTS)
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, part):
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    obtain(make(), whole)
    with pytest.raises(KeyboardInterrupt):
        obtain(make(interrupt_at=part), halved)
    assert not list(halved.glob("*.npz"))
    calls: list[str] = []
    obtain(make(calls=calls), halved)
    assert calls == list(PARTS[PARTS.index(part) :])
    assert the_file(whole).read_bytes() == the_file(halved).read_bytes()


def test_a_killed_process_leaves_nothing_wrong(tmp_path):
    """SIGKILL while the second part is being computed: the file that a later run makes is the same byte for byte."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    script = SCRIPT.format(folder=str(Path(__file__).parent), out=str(killed))
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    while not list(killed.glob("*.parts/first.npz")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(killed.glob("*.npz"))
    calls: list[str] = []
    obtain(make(calls=calls), killed)
    obtain(make(), whole)
    assert "first" not in calls and "third" in calls
    assert the_file(killed).read_bytes() == the_file(whole).read_bytes()


def test_the_stamp_records_how_the_result_was_made(tmp_path):
    result = obtain(make(), tmp_path)
    stamp = json.loads(result.path.with_suffix(".json").read_text(encoding="utf-8"))
    assert stamp == result.stamp
    assert stamp["backend"] == "numpy" and stamp["dtype"] == "float64" and stamp["seed"] == 0
    assert set(stamp["cpu_seconds_by_part"]) == set(PARTS)
    assert stamp["versions"]["numpy"] == np.__version__
    assert "commit" in stamp


def test_equal_arrays_give_equal_bytes_that_numpy_reads():
    a, b = np.arange(6.0).reshape(2, 3), np.array(3)
    packed = npz_bytes({"b": b, "a": a})
    assert packed == npz_bytes({"a": np.asfortranarray(a), "b": b})
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert all(entry.date_time == results.EPOCH for entry in archive.infolist())
    with np.load(io.BytesIO(packed), allow_pickle=False) as read:
        assert np.array_equal(read["a"], a) and read["b"].shape == ()


def test_pickles_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        npz_bytes({"a": np.array([{}], dtype=object)})
    path = tmp_path / "a.npz"
    np.savez(path, a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"a\.npz cannot be read: .*--recompute"):
        read_stored(path)


def test_a_damaged_file_is_named(tmp_path):
    result = obtain(make(), tmp_path)
    result.path.write_bytes(result.path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"trial-.*\.npz cannot be read"):
        obtain(make(), tmp_path)


def test_a_file_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_whole(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(results.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("installed", [True, False])
def test_progress_without_a_terminal_or_tqdm_prints_lines(installed, monkeypatch, capsys, tmp_path):
    if not installed:
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    obtain(make(), tmp_path)
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 3 and printed.splitlines()[1].startswith("trial: second, 2 of 3")
    assert "\r" not in printed


def test_a_terminal_and_a_notebook_have_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress.bar(2, "run", True).close()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    progress.bar(2, "cell", True).close()
    printed = capsys.readouterr().err
    assert "run:   0%" in printed and "cell:   0%" in printed


def test_many_short_steps_are_a_few_lines_in_a_file(monkeypatch, capsys):
    shown = progress.bar(100, "run", True)
    for _ in range(99):
        shown.update()
    assert capsys.readouterr().err == ""
    shown.update()
    assert capsys.readouterr().err.startswith("run: 100 of 100, ")
