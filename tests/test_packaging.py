"""What pyproject.toml declares: oldest versions (`make test-oldest` installs them), version and description."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import hgp_ref

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(extra: str) -> list[str]:
    """The requirements of an extra and of the extras that it names."""
    own = PROJECT["optional-dependencies"][extra]
    others = [name for line in own if line.startswith("hgp_ref[") for name in line[8:-1].split(",")]
    plain = [line for line in own if not line.startswith("hgp_ref[")]
    return plain + [line for name in others for line in requirements(name)]


def declared() -> dict[str, str]:
    """The lower end of every requirement of the core and of the extras that `test` takes together."""
    lines = PROJECT["dependencies"] + requirements("test")
    return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<[\d.]+)?", line).groups() for line in lines)


def test_every_lower_end_is_installed_by_test_oldest():
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "tests/oldest.txt").read_text(encoding="utf-8"), re.M))
    wanted = declared()
    assert {"numpy", "scipy", "numba", "array-api-compat", "pytest", "matplotlib"} <= set(wanted)
    for name, version in wanted.items():
        assert f"{pinned[name]}.".startswith(f"{version}."), f"{name}: {version}, oldest.txt {pinned[name]}"


def test_the_oldest_python_is_the_one_of_test_oldest():
    python = PROJECT["requires-python"].removeprefix(">=")
    assert f"OLDEST_PYTHON ?= python{python}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_ci_runs_every_suite():
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    stages = re.findall(r"^stage make (\S+)", run, flags=re.MULTILINE)
    assert stages == ["libraries", "lint", "dist", "test", "test-commands", "test-oldest", "docs-test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    names = ("test", "test-commands", "test-slow")
    runs = {name: re.search(rf"^{name}:.*\n\t(.*)\n", makefile, flags=re.MULTILINE)[1] for name in names}
    assert runs["test"].endswith('-m "not slow" $(addprefix --ignore=,$(COMMAND_TESTS))')  # each test once
    assert runs["test-commands"].endswith('-m "not slow" $(COMMAND_TESTS)') and runs["test-slow"].endswith("-m slow")


@pytest.mark.parametrize(("variable", "more_than"), [("OLDEST_TESTS", 10), ("COMMAND_TESTS", 7)])
def test_selected_tests_exist(variable, more_than):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    chosen = re.search(rf"^{variable} = \$\(addprefix tests/,(.*?)\)", makefile, flags=re.MULTILINE | re.DOTALL)[1]
    names = chosen.replace("\\\n", " ").split()
    assert len(names) > more_than and all((ROOT / "tests" / name).exists() for name in names)


def test_the_version_is_that_of_the_citation_and_of_the_changelog():
    stated = PROJECT["version"]
    assert hgp_ref.__version__ == stated, "reinstall the package: pip install -e ."
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    date = re.search(r'^date-released: "([\d-]+)"$', citation, re.M)[1]
    assert f'\nversion: "{stated}"\n' in citation
    assert re.findall(r"^## ([\d.]+)(.*)$", changes, re.M)[0] == (stated, f" ({date})")
    assert set(re.findall(r"version += \{(.*)\}", README)) == {stated}  # BibTeX
    for file in ("setup.py", "hgp_ref/__init__.py", "docs/conf.py"):
        assert stated not in (ROOT / file).read_text(encoding="utf-8"), file


def long_description(repository: str) -> str:
    spec = importlib.util.spec_from_file_location("setup_of_hgp_ref", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.long_description(README, repository, "1.2")


@pytest.mark.parametrize("repository", ["", "https://example.org/project"])
def test_the_long_description_has_no_link_that_needs_the_repository(repository):
    text = long_description(repository)
    addresses = [a or b for a, b in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)]
    assert addresses and all(address.startswith(("https://", "#")) for address in addresses)
    pictures = re.findall(r"<img [^>]*>|!\[[^]]*\]\([^)]*\)", text)
    if not repository:
        words = re.findall(r"(?<!!)\[([^][]+)\]\((?!https:)[^)]+\)", README)
        assert not pictures and len(words) > 9 and all(word in text for word in words)
        return
    of_readme = re.findall(r"<img |!\[", README)
    assert len(pictures) == len(of_readme) > 0
    assert all(f"{repository}/raw/v1.2/docs/" in picture for picture in pictures)
    assert f"]({repository}/blob/v1.2/CHANGELOG.md)" in text


def test_pre_commit_runs_what_make_lint_runs():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\n\n")[0]
    commands = set(re.findall(r"\$\(BIN\)/(\w+(?: (?:check|format))?)", lint))
    assert len(commands) == 4
    for command in commands:
        assert f"entry: {command}" in hooks
