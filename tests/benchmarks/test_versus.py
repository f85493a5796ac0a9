"""Comparison of two versions: the order of the calls, the verdict, and that each runs its own package."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import contender, versus, workloads
from benchmarks.__main__ import main

ROOT = Path(__file__).parents[2]
GIT = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode == 0
needs_git = pytest.mark.skipif(not GIT, reason="the tests do not run in a git repository")


class Scripted:
    """A contender that takes given seconds, and records its calls."""

    def __init__(self, name, seconds, asked):
        self.name, self.seconds, self.asked = name, iter(seconds), asked

    def __enter__(self):
        self.asked.append(f"{self.name} starts")

    def __exit__(self, *error):
        self.asked.append(f"{self.name} ends")

    def ask(self, **question):
        if "workload" in question:
            return {"first": 1.0, "again": 0.01}
        self.asked.append(self.name)
        assert question["number"] == 2  # calls of 10 ms, measured in 20
        seconds = next(self.seconds)
        return {"cpu": seconds, "wall": seconds}


def scripted(old, new, rounds=1):
    asked: list[str] = []
    both = {"old": Scripted("old", old, asked), "new": Scripted("new", new, asked)}
    return versus._times("figure", both, False, (rounds, len(old) // rounds), versus.LIMIT), asked


def test_versions_take_turns_and_start_anew():
    _, asked = scripted([1.0] * 4, [1.0] * 4, rounds=2)
    turns = ["old starts", "new starts", "old", "new", "new", "old", "new ends", "old ends"]
    assert asked == 2 * turns


@pytest.mark.parametrize(("slower", "reached"), [(0.5, True), (1.04, True), (1.06, False), (2.0, False)])
def test_pairs_are_judged_and_what_falls_on_both_is_not(slower, reached):
    load = [1.0, 3.0, 1.5, 7.0, 2.0]  # the machine's, the same for both neighbours
    report, _ = scripted(load, [slower * busy for busy in load])
    assert report.bars[0].value == pytest.approx(slower) and report.bars[0].reached is reached


def test_one_pair_that_was_disturbed_does_not_decide():
    report, _ = scripted([1.0] * 5, [1.0, 1.0, 9.0, 1.0, 1.0])
    assert report.bars[0].value == 1.0
    assert report.figures["new over old"] == "1.000 [1.000 .. 1.000]"


def test_a_contender_answers_line_by_line(monkeypatch):
    called = []
    monkeypatch.setitem(workloads.TIMED, "tiny", lambda quick: lambda: called.append(quick))
    questions = [{"workload": "tiny", "quick": True}, {"number": 1}, {"number": 3}]
    answers = io.StringIO()
    contender.serve(io.StringIO("".join(json.dumps(q) + "\n" for q in questions)), answers)
    said = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [set(answer) for answer in said] == [{"package"}, {"first", "again"}, {"cpu", "wall"}, {"cpu", "wall"}]
    assert Path(said[0]["package"]) == ROOT / "hgp_ref"
    assert called == [True] * (2 + 1 + 1 + 3)  # twice when made; more than one are warmed by a call that is not timed


@needs_git
def test_each_process_has_the_package_of_its_version():
    commit = versus._git("rev-parse", "HEAD").decode().strip()
    with versus.versions(commit) as folders:
        assert (folders["old"] / "hgp_ref" / "__init__.py").read_bytes() == versus._git(
            "show", "HEAD:hgp_ref/__init__.py"
        )
        packages = {}
        for version, folder in folders.items():
            with versus.Contender(folder):  # which refuses a process that has imported another
                packages[version] = (folder / "hgp_ref").resolve()
        assert packages["new"] == ROOT / "hgp_ref" and packages["old"] != packages["new"]
    assert not folders["old"].exists()


@needs_git
def test_a_process_with_another_package_is_refused(tmp_path):
    (tmp_path / "hgp_ref").mkdir()  # holds no package: the interpreter looks further and finds this one
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    environment = versus._environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versus, "_environment", lambda folder: environment(folder) | {"PYTHONPATH": f"{folder}:{ROOT}"})
        with pytest.raises(RuntimeError, match="was imported, needed"), versus.Contender(tmp_path):
            pass


@needs_git
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["HEAD", "no-such"], "no-such"),
        (["no-such-ref"], "REF must be a commit of the repository at"),
        (["HEAD", "--pairs", "0"], "--pairs must be an integer >= 1, got 0"),
        (["HEAD", "--rounds", "-1"], "--rounds must be an integer >= 1, got -1"),
    ],
)
def test_wrong_words_are_refused(words, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["versus", *words])
    assert stopped.value.code == 2 and said in capsys.readouterr().err


@needs_git
@pytest.mark.slow
def test_the_command_compares_this_version_with_the_last_commit(tmp_path):
    file = tmp_path / "versus.json"
    names = ["composed", "scale-1e4", "sgp-memory-n300"]
    command = [sys.executable, "-m", "benchmarks", "versus", "HEAD", *names, "--quick", "--rounds", "1", "--pairs", "2"]
    done = subprocess.run([*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [report["name"] for report in document["reports"]] == [f"versus-{name}" for name in names]
    assert document["old"] == versus._git("rev-parse", "HEAD").decode().strip()
    for report in document["reports"]:
        assert report["bars"][0]["value"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", workloads.TIMED)
def test_every_workload_runs(name):
    workloads.TIMED[name](True)()


def test_outside_a_clone_one_line_names_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(versus, "running", lambda: None)
    with pytest.raises(SystemExit):
        main(["versus", "HEAD"])
    assert "versus needs git and a clone of the repository" in capsys.readouterr().err.splitlines()[-1]
