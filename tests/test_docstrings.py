"""Examples in docstrings run, and every public name says what it takes, what it returns and how it is used."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))
pages = importlib.import_module("public_names")

NAMES = {name.path: name for name in pages.public_names()}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NEEDS = {"hgp_ref.problems.from_torch": "torch", "hgp_ref.problems.from_jax": "jax"}


def examples(value: object) -> list[doctest.DocTest]:
    """The examples of an object and of its members."""
    module = sys.modules[value.__module__]
    globs = {**vars(module), "hgp": hgp, "np": np}
    return doctest.DocTestFinder(exclude_empty=True).find(value, module=module, globs=globs)


@pytest.mark.parametrize("path", [path for path, name in NAMES.items() if callable(name.value)])
def test_examples_run(path, monkeypatch, tmp_path):
    if path in NEEDS:
        pytest.importorskip(NEEDS[path], exc_type=ImportError)
    monkeypatch.chdir(tmp_path)  # some write files
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    printed: list[str] = []
    for test in examples(NAMES[path].value):
        runner.run(test, out=printed.append)
    assert runner.failures == 0, "".join(printed)
