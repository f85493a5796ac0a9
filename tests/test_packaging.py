"""What setup.py declares: the oldest versions, which `make test-oldest` installs, and the version of the package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import hgp_ref

ROOT = Path(__file__).parents[1]


def declared() -> dict[str, str]:
    """The lower end of every requirement of the core and of the extras that `test` takes together."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    lists = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    core = next(k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "install_requires")
    names = {"test", *(n.id for n in ast.walk(lists["test"]) if isinstance(n, ast.Name))}
    texts = [core, *(lists[name] for name in names if name in lists)]
    strings = [n.value for text in texts for n in ast.walk(text) if isinstance(n, ast.Constant)]
    return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<[\d.]+)?", string).groups() for string in strings)


def test_every_lower_end_is_installed_by_test_oldest():
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "tests/oldest.txt").read_text(encoding="utf-8"), re.M))
    wanted = declared()
    assert {"numpy", "scipy", "numba", "array-api-compat", "pytest", "matplotlib"} <= set(wanted)
    for name, version in wanted.items():
        assert f"{pinned[name]}.".startswith(f"{version}."), f"{name}: setup.py {version}, oldest.txt {pinned[name]}"


def test_the_oldest_python_is_the_one_of_test_oldest():
    python = re.search(r'python_requires=">=([\d.]+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))[1]
    assert f"OLDEST_PYTHON ?= python{python}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_ci_runs_every_suite():
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    stages = re.findall(r"^stage make (\S+)", run, flags=re.MULTILINE)
    assert stages == ["libraries", "lint", "test", "test-oldest", "docs-test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    selected = {
        name: re.search(rf"^{name}:.*\n\t(.*)\n", makefile, flags=re.MULTILINE)[1] for name in ("test", "test-slow")
    }
    assert selected["test"].endswith('-m "not slow"') and selected["test-slow"].endswith("-m slow")  # each test once


def test_the_oldest_versions_run_tests_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    chosen = re.search(r"^OLDEST_TESTS = \$\(addprefix tests/,(.*?)\)", makefile, flags=re.MULTILINE | re.DOTALL)[1]
    names = chosen.replace("\\\n", " ").split()
    assert len(names) > 10 and all((ROOT / "tests" / name).exists() for name in names)


def test_the_version_is_stated_once():
    stated = re.search(r'^VERSION = "([\d.]+)"$', (ROOT / "setup.py").read_text(encoding="utf-8"), re.M)[1]
    assert hgp_ref.__version__ == stated, "reinstall the package: pip install -e ."
    for file in ("pyproject.toml", "hgp_ref/__init__.py", "CITATION.cff"):
        assert f'"{stated}"' not in (ROOT / file).read_text(encoding="utf-8"), file


def test_pre_commit_runs_what_make_lint_runs():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\n\n")[0]
    commands = set(re.findall(r"\$\(BIN\)/(\w+(?: (?:check|format))?)", lint))
    assert len(commands) == 4
    for command in commands:
        assert f"entry: {command}" in hooks
