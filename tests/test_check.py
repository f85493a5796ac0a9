"""`python -m hgp_ref check`: it passes on every library, fails where results differ, and explains missing libraries."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
from support.libraries import CUPY

from hgp_ref import __main__ as command
from hgp_ref import check
from hgp_ref.backend import get_backend
from hgp_ref.mixing import simulated

LIGHT = {"scale": 20}  # smaller sizes for the timings


LIBRARIES = [
    (name, dtype) for name in ("numpy", "cupy", "array_api_strict", "torch") for dtype in ("float64", "float32")
]


@pytest.mark.parametrize(("name", "dtype"), [*LIBRARIES, pytest.param("jax", "float64", marks=pytest.mark.slow)])
def test_every_case_agrees(name, dtype, capsys):
    if name in ("torch", "jax"):
        pytest.importorskip(name, reason=f"{name} not exercised: it is not installed")
    assert check.main(["--backend", name, "--dtype", dtype], **LIGHT) == 0
    printed = capsys.readouterr().out
    assert f"backend {name}" in printed and dtype in printed
    assert "24 of 24 cases agree" in printed and "FAILED" not in printed
    for operation in ("hvp", "Push-Sum composed", "Push-Sum stepping", "one HGP iteration"):
        assert operation in printed.split("milliseconds")[1]


def test_a_wrong_average_fails(monkeypatch, capsys):
    right = simulated.ComposedCalls.__call__
    monkeypatch.setattr(simulated.ComposedCalls, "__call__", lambda self, z: right(self, z) * (1 + 1e-9))
    assert check.main([], **LIGHT) == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert [line for line in printed.splitlines() if line.startswith("hvp, logistic") and line.endswith("ok")]


def test_a_case_that_raises_fails_and_the_others_still_run(monkeypatch, capsys):
    def broken(self, z):
        raise NotImplementedError("no such kernel\nand more")

    monkeypatch.setattr(simulated.DeviceCalls, "__call__", broken)
    outcomes = check.Comparison(get_backend("cupy"), "float64")()
    failed = [o for o in outcomes if not o.ok]
    assert [o.case for o in failed] == ["Push-Sum stepping, RandomDirected", "Push-Sum stepping, RandomOut"]
    assert failed[0].note == "NotImplementedError: no such kernel"
    assert "FAILED  NotImplementedError: no such kernel" in check.table(outcomes)


def test_nan_is_no_agreement():
    assert not check.Outcome("case", float("nan"), 1.0).ok
    assert check.Outcome("case", 1e-13, 1e-12).ok


def test_tolerances_come_from_the_dtype():
    for dtype in ("float64", "float32"):
        comparison = check.Comparison(get_backend("numpy"), dtype)
        eps = float(np.finfo(dtype).eps)
        assert (comparison.identity, comparison.limit) == (1000 * eps, 4 * np.sqrt(eps))


def test_a_missing_library_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert check.main(["--backend", "torch"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert "pip install 'hgp_ref[torch]'" in printed.err


@pytest.mark.skipif(CUPY == "cupy", reason="there is a GPU")
def test_no_gpu_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(importlib.import_module("cupy").cuda.runtime, "getDeviceCount", lambda: 0)
    assert check.main(["--backend", "cupy"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "no usable GPU" in error


def test_the_command_line(capsys):
    run = subprocess.run(
        [sys.executable, "-m", "hgp_ref", "check", "--dtype", "float16"], capture_output=True, text=True
    )
    assert run.returncode == 2 and "float16" in run.stderr
    assert command.main(["unknown"]) == command.main([]) == 2
    assert "python -m hgp_ref check" in capsys.readouterr().err
    assert command.main(["--help"]) == 0


def test_the_command_calls_the_check(monkeypatch):
    given = []
    monkeypatch.setattr(check, "main", lambda arguments: given.append(arguments) or 0)
    assert command.main(["check", "--backend", "torch"]) == 0
    assert given == [["--backend", "torch"]]
