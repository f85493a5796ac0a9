"""The README: its code runs and prints what is shown, its numbers are those of the tables, its links lead somewhere."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path

import pytest
from support.printed import same_up_to_digits

import hgp_ref as hgp

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_quickstart_prints_what_is_shown(capsys):
    pytest.importorskip("sklearn")
    (code,), (shown,) = blocks("python"), blocks("text")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 12 and len(TEXT.splitlines()) <= 150
    namespace: dict = {}
    exec(compile(code, "README quickstart", "exec"), namespace)
    printed = capsys.readouterr().out
    assert same_up_to_digits(printed, shown), printed
    problem, ones = namespace["problem"], namespace["ones"]
    truth = hgp.exact.hypergradient(problem, hgp.exact.inner_solution(problem, ones), ones)
    errors = ((namespace["found"].estimate.value - truth) ** 2).sum(axis=1) ** 0.5
    assert (errors <= namespace["bound"]).all()
    assert len({tuple(row) for row in truth.round(12).tolist()}) == 8, "clients have different hyper-gradients"
    hits, bound = re.findall(r"^(\d+) of 30 are wrong, error <= ([\d.e-]+)$", shown, flags=re.MULTILINE)[0]
    stated, off = re.search(r"(\d+) of the 30 most harmful .* off by more than ([\d.e-]+\d)", TEXT).groups()
    assert stated == hits and float(bound) <= float(off) <= 1.05 * float(bound)


def test_numbers_agree_up_to_digits():
    assert same_up_to_digits("error 1.02e-07 of 341, 1,000", "error 1.4e-07 of 341, 1,001")
    assert not same_up_to_digits("error 1.02e-07", "error 4.1e-07")
    assert not same_up_to_digits("29 of 30", "27 of 30")
    assert not same_up_to_digits("29 of the 30", "29 of 30")


def test_every_task_names_a_function_that_exists():
    table = TEXT.split("## What do you want to do?")[1].split("\n## ")[0]
    names = set(re.findall(r"`hgp\.([\w.]+)", table))
    assert len(names) >= 10
    for name in names:
        functools.reduce(getattr, name.split("."), hgp)
    assert hgp.problems.from_jax and "`from_jax(" in table


def test_numbers_are_those_of_the_tables():
    docs = ROOT / "docs"
    speed = re.search(r"take ([\d.]+ s) of CPU time, ([\d.]+ ×) less .*certificate for 1e5 clients take (\d+ s) ", TEXT)
    table = (docs / "benchmarks.md").read_text(encoding="utf-8")
    assert all(number in table for number in speed.groups())

    rows = (docs / "measured" / "communication.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if re.match(r"\| P[123] ", row)]
    plans = [round(float(row[3])) for row in cells if row[1] == "vectors along a tree"]
    grid = [int(row[4]) for row in cells if row[1] == "HGP, constant S"]
    assert len(plans) == len(grid) == 3
    assert f"certifies 1e-6 with {min(plans)} to {max(plans)} vectors per link" in TEXT
    assert f"sends {min(grid)} to {max(grid)} with" in TEXT

    rows = (docs / "measured" / "readme.md").read_text(encoding="utf-8").splitlines()[2:]
    last = [row.split("|")[-2].strip() for row in rows]
    sends = re.search(
        r"sends ([\d,]+), tracking with local solves (\d+), conjugate gradients along a tree (\d+)\.", TEXT
    )
    assert list(sends.groups()) == [last[1], last[3], last[4]]

    statements = importlib.import_module("verification").NAMES
    assert f"a verification in {len(statements)} parts" in TEXT


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", TEXT)
    files = [a or b for a, b in links if not (a or b).startswith("http")]
    assert len(files) > 20 and [file for file in files if not (ROOT / file.partition("#")[0]).exists()] == []
    assert all(len(text) > 100 for text in re.findall(r'<img [^>]*alt="([^"]+)"', TEXT)) and "<img " in TEXT


def test_every_folder_is_listed():
    listed = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Packages")[1]
    packages = {path.parent for pattern in ("*/__init__.py", "hgp_ref/*/__init__.py") for path in ROOT.glob(pattern)}
    folders = {path.name for path in packages} - {"hgp_ref"}
    first_cells = re.findall(r"^\| ([^|]*) \|", listed.split("\n## ")[0], flags=re.MULTILINE)
    assert folders <= set(re.findall(r"`(\w+)`", " ".join(first_cells)))


def test_every_command_names_a_target_or_module_that_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, flags=re.MULTILINE)) <= targets
    for module in re.findall(r"python -m (\w+)", TEXT):
        assert (ROOT / module / "__main__.py").exists(), module
