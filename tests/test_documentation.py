"""The documentation names only what exists, and shows every table and figure: commands, names, examples."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path: path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), *DOCS.glob("*/*.md")]}
WRITTEN = {path: text for path, text in PAGES.items() if path.parent.name not in ("generated", "measured", "figures")}
OTHERS = (ROOT / "README.md", DOCS / "measured" / "README.md")
TEXTS = {**WRITTEN, **{path: path.read_text(encoding="utf-8") for path in OTHERS}}


def commands(module: str) -> list[tuple[str, list[str]]]:
    """(page, words after `python -m module`) wherever it stands."""
    found = []
    for path, text in TEXTS.items():
        for line in re.findall(rf"python -m {module}\b([^`\n#]*)", text):
            found.append((path.name, shlex.split(line.partition(">")[0])))  # "> FILE" stores what is printed
    return found


def check_control(page: str, name: str, entry: tuple[str, str, str], arguments: list[str]) -> None:
    """The control takes these arguments: as many as it has, and each is a value that it knows."""
    module = importlib.import_module(f"figures.experiments.{entry[0]}")
    inspect.signature(getattr(module, entry[1])).bind(*arguments)
    known = {
        "cleaning_controls": lambda: importlib.import_module("figures.experiments.cleaning.runs").SIZES,
        "personal_correction": lambda: module.SIZES,
        "personal_rates": lambda: {method for _, method in module.GRID},
    }.get(name, tuple)()
    assert set(arguments) <= set(known), f"{page}: python -m figures {name} {' '.join(arguments)}"


@pytest.mark.parametrize("module", ["verification", "figures"])
def test_commands_name_what_exists(module):
    package = importlib.import_module(module)
    known, controls = {*package.NAMES, "all", "N"}, getattr(package, "CONTROLS", {})
    found = commands(module)
    assert len(found) > 5
    for page, words in found:
        if words and words[0].startswith("."):  # a module of its own
            assert (ROOT / module / f"{words[0].strip('.').rstrip(',;')}.py").exists(), f"{page}: {module}{words[0]}"
            continue
        if words and words[0] in controls:
            check_control(page, words[0], controls[words[0]], words[1:])
            continue
        names = [
            w
            for k, w in enumerate(words)
            if w[:1] != "-" and (k == 0 or words[k - 1][:2] != "--" or words[k - 1] == "--quick")
        ]
        unknown = {name for name in names if name not in known and not name.isdigit()}
        assert unknown == set(), f"{page}: python -m {module} {' '.join(words)}"


def test_measured_tables_and_figures_are_shown_with_words_for_who_cannot_see_them():
    text = "\n".join(WRITTEN.values())
    tables = {path.name for path in (DOCS / "measured").glob("*.md")} - {"README.md"}
    assert tables == set(re.findall(r"\{include\} (?:\.\./)?measured/(\S+)", text))
    pictures = {path.name for path in (DOCS / "figures").glob("*.png")}
    shown = re.findall(r"!\[([^\]]*)\]\((?:\.\./)?figures/([^)]+)\)", text)
    assert {name for _, name in shown} <= pictures and all(len(words) > 15 for words, _ in shown)
    unseen = {name for name in pictures - {name for _, name in shown} if "-paper" not in name}
    assert unseen == set()


def test_every_statement_of_the_theory_names_its_function_and_its_verification():
    verified = set(importlib.import_module("verification").NAMES)
    rows = re.findall(
        r"^\| \[(.+?)\]\(.*\) \|(.*)\|(.*)\|(.*)\|$", TEXTS[DOCS / "theory" / "index.md"], flags=re.MULTILINE
    )
    assert len(rows) >= 19
    for name, _, function, command in rows:
        assert "{py:" in function or name == "Lemma 1", name
        assert set(re.findall(r"`([a-z0-9_]+)`", command)) <= verified and "`" in command, name


def test_examples_of_the_start_page_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXTS[DOCS / "start.md"], flags=re.DOTALL)
    namespace: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"start.md block {number}", "exec"), namespace)
    errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+),", capsys.readouterr().out)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 1e-6
    error = abs(namespace["est"].value - namespace["truth"])
    assert (namespace["certificate"].bound >= (error**2).sum(axis=1) ** 0.5).all()
