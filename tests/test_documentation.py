"""The documentation names only what exists, and shows every table and figure: commands, names, examples."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest
from support.printed import same_up_to_digits

import hgp_ref

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path: path.read_text(encoding="utf-8") for path in [*DOCS.glob("*.md"), *DOCS.glob("*/*.md")]}
WRITTEN = {
    path: text for path, text in PAGES.items() if path.parent.name not in ("generated", "measured", "notes", "figures")
}
OTHERS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
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


FOLDERS = ("hgp_ref", "tests", "docs", "figures", "verification", "benchmarks", "reporting")


@pytest.mark.parametrize(
    "page", [*WRITTEN, *OTHERS, ROOT / "CONTRIBUTING.md", ROOT / "NOTATION.md", ROOT / "ERRATA.md"]
)
def test_files_that_pages_name_exist(page):
    text = page.read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.]+)`", text)}

    assert {path for path in named if not (ROOT / path).exists()} == set(), page.name


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


def test_measured_tables_and_figures_have_a_text_alternative():
    text = "\n".join(WRITTEN.values())
    tables = {path.name for path in (DOCS / "measured").glob("*.md")}
    assert tables == set(re.findall(r"\{include\} (?:\.\./)?measured/(\S+)", text))
    notes = {path.name for path in (DOCS / "notes").glob("*.md")}
    assert notes == set(re.findall(r"\{include\} (?:\.\./)?notes/(\S+)", text))
    pictures = {path.name for path in (DOCS / "figures").glob("*.png")}
    shown = re.findall(r"!\[([^\]]*)\]\((?:\.\./)?figures/([^)]+)\)", text)
    assert {name for _, name in shown} <= pictures and all(len(words) > 15 for words, _ in shown)
    unseen = {name for name in pictures - {name for _, name in shown} if "-paper" not in name}
    assert unseen == set()


def test_a_command_writes_every_file_in_docs_measured():
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Measured tables")[1].split("\n## ")[0]
    named = [name for names, _ in re.findall(r"^\| (`.*`) \| (`.*) \|$", listed, re.M)
             for name in re.findall(r"`([^`]+)`", names)]  # fmt: skip
    assert len(named) == len(set(named)) and set(named) == {path.name for path in (DOCS / "measured").iterdir()}


def test_every_statement_of_the_theory_names_its_function_and_its_verification():
    verified = set(importlib.import_module("verification").NAMES)
    rows = re.findall(
        r"^\| \[(.+?)\]\(.*\) \|(.*)\|(.*)\|(.*)\|$", TEXTS[DOCS / "theory" / "index.md"], flags=re.MULTILINE
    )
    assert len(rows) >= 19
    for name, _, function, command in rows:
        assert "{py:" in function or name == "Lemma 1", name
        assert set(re.findall(r"`([a-z0-9_]+)`", command)) <= verified and "`" in command, name


def test_examples_of_the_page_on_problems_run(capsys):
    pytest.importorskip("torch")
    text = TEXTS[DOCS / "problems.md"]
    namespace: dict = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        exec(compile(block, f"problems.md block {number}", "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    shown = re.search(r"```text\n(.*?)```", text, flags=re.DOTALL)[1].splitlines()
    assert printed[0] == shown[0] and [line.split()[0] for line in shown[1:4]] == ["inner_grad", "hvp", "cross"]
    assert shown[-1] in printed
    assert namespace["est"].value.shape == (4, 1000)


def test_the_page_on_problems_lists_every_optional_member():
    documented = set(re.findall(r"^\| `(\w+)", TEXTS[DOCS / "problems.md"], flags=re.MULTILINE))
    listed = set(re.findall(r"^    - `(\w+)", hgp_ref.problems.Problem.__doc__, flags=re.MULTILINE))
    assert len(listed) > 8 and listed - {"broadcasts"} <= documented and "broadcasts" in documented


def test_examples_of_the_start_page_print_what_is_shown(capsys):
    text = TEXTS[DOCS / "start.md"]
    blocks, shown = (re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL) for kind in ("python", "text"))
    namespace: dict = {}
    for number, (block, output) in enumerate(zip(blocks, shown, strict=True)):
        exec(compile(block, f"start.md block {number}", "exec"), namespace)
        printed = capsys.readouterr().out
        assert same_up_to_digits(printed, output), printed
    truth = namespace["truth"]
    assert len({tuple(row) for row in truth.round(12).tolist()}) == 3, "clients have different hyper-gradients"
    error = abs(namespace["est"].value - truth)
    assert (namespace["certificate"].bound >= (error**2).sum(axis=1) ** 0.5).all()


def test_examples_for_users_of_other_libraries_run():
    namespace: dict = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", TEXTS[DOCS / "coming_from.md"], flags=re.DOTALL)):
        exec(compile(block, f"coming_from.md block {number}", "exec"), namespace)
    assert namespace["est"].traffic.messages == 0
    names = set(re.findall(r"`hgp\.([\w.]+)[(` ]", TEXTS[DOCS / "coming_from.md"]))
    assert len(names) > 2
    for name in names:
        functools.reduce(getattr, name.split("."), hgp_ref)


def test_the_page_on_methods_lists_and_counts_all_of_them():
    text, methods = TEXTS[DOCS / "methods.md"], hgp_ref.methods
    classes = {n for n in methods.__all__ if inspect.isclass(getattr(methods, n))}
    subclasses = {n for n in classes if issubclass(getattr(methods, n), methods.Method)} - {"Method"}
    rows = set(re.findall(r"^\| \{py:class\}`~hgp_ref\.methods\.(\w+)`", text, flags=re.MULTILINE))
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    assert rows == subclasses and f"All {words[len(rows)]} estimate" in text
    baselines = [n for n in hgp_ref.baselines.__all__ if inspect.isfunction(getattr(hgp_ref.baselines, n))]
    count = words[len(set(baselines) - {"at_point"})]
    pages = [DOCS / "methods.md", DOCS / "experiments" / "index.md", DOCS / "experiments" / "comparison.md"]
    for path in (*pages, ROOT / "README.md"):
        text = TEXTS[path]
        assert re.search(rf"{count} other|with {count} others", text), path
