"""Compiling where no cache can be written: a read-only package and home, as in a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from hgp_ref._numba import njit

PACKAGE = Path(__file__).parents[1] / "hgp_ref"
PROGRAM = """
import hgp_ref as hgp
print(hgp.__file__)
print(hgp.networks.RandomDirected(3, seed=1).mixing_matrix(1).sum(axis=0).tolist())
"""


@pytest.fixture
def sealed(tmp_path):
    """A copy of the package in which even root cannot make a __pycache__: a file has taken its place everywhere."""
    shutil.copytree(PACKAGE, tmp_path / "hgp_ref", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (tmp_path / "hgp_ref", *(tmp_path / "hgp_ref").rglob("*")):
        if folder.is_dir():
            (folder / "__pycache__").touch()
    return tmp_path


def run(folder, **variables):
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": "/dev/null", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=folder, env=environment)


def test_without_a_place_for_a_cache_one_warning_names_the_variable(sealed):
    result = run(sealed)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(sealed))
    assert result.stderr.count("Warning") == result.stderr.count("NUMBA_CACHE_DIR") == 1


def test_where_warnings_are_errors_the_package_is_imported_and_the_warning_is_printed(sealed):
    result = run(sealed, PYTHONWARNINGS="error")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [str(sealed / "hgp_ref" / "__init__.py"), "[1.0, 1.0, 1.0]"]
    assert result.stderr.splitlines() == [line for line in result.stderr.splitlines() if "NUMBA_CACHE_DIR" in line]
    assert result.stderr.startswith("RuntimeWarning: hgp_ref: no directory") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("program", [PROGRAM, "import hgp_ref.check", "import hgp_ref; hgp_ref.hypergradient"])
def test_without_the_compiler_import_raises_one_line(program, tmp_path):
    """Kernels that hold vectors in registers have no form in Python: better none than the first of them."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_DISABLE_JIT": "1"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert result.returncode == 1
    needed = "ImportError: hgp_ref needs Numba's compiler, which is switched off: unset NUMBA_DISABLE_JIT"
    assert result.stderr.splitlines()[-1] == needed and result.stderr.count("Traceback") == 1


def test_the_variable_helps(sealed):
    kept = sealed / "kept"
    result = run(sealed, NUMBA_CACHE_DIR=str(kept))
    assert (result.returncode, result.stderr) == (0, "")
    assert list(kept.rglob("*.nbc"))


def test_numba_itself_refuses(sealed):
    """Why the decorator is there: if this fails, Numba has learnt to do without."""
    (sealed / "plain.py").write_text("from numba import njit\n@njit(cache=True)\ndef f(x): return x\n")
    (sealed / "__pycache__").touch()
    program = [sys.executable, "-c", "import plain"]
    environment = {"HOME": "/dev/null", "PYTHONPATH": str(sealed), "PATH": os.environ["PATH"]}
    result = subprocess.run(program, capture_output=True, text=True, cwd=sealed, env=environment)
    assert "RuntimeError: cannot cache function 'f': no locator available" in result.stderr


def test_other_errors_of_numba_are_not_swallowed(monkeypatch):
    def refuse(**options):
        raise RuntimeError("Unknown cache locator class")

    monkeypatch.setattr(numba, "njit", refuse)
    with pytest.raises(RuntimeError, match="Unknown cache locator class"):
        njit(cache=True)(lambda x: x)
