"""`python -m hgp_ref check`: it passes on every library, fails where results differ, and explains missing libraries."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import hgp_ref
from hgp_ref import __main__ as command
from hgp_ref import backend, check
from hgp_ref.backend import get_backend
from hgp_ref.mixing import simulated

LIGHT = {"scale": 20}  # smaller sizes for the timings


NAMES = [(name, dtype) for name in ("numpy", "cupy", "array_api_strict", "torch") for dtype in ("float64", "float32")]


@pytest.mark.parametrize(("name", "dtype"), [*NAMES, pytest.param("jax", "float64", marks=pytest.mark.slow)])
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
    outcomes = check.BackendCases(get_backend("array_api_strict"), "float64")()
    failed = [o for o in outcomes if not o.ok]
    assert [o.case for o in failed] == ["Push-Sum stepping, RandomDirected", "Push-Sum stepping, RandomOut"]
    assert failed[0].note == "NotImplementedError: no such kernel"
    assert "FAILED  NotImplementedError: no such kernel" in check.table(outcomes)


@pytest.mark.parametrize("name", ["numpy", "cupy"])
def test_report(name, capsys):
    assert check.main(["--backend", name, "--report"], **LIGHT) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("----- report") and printed.endswith("----- end of report -----\n")
    for text in ("float64: 24 of 24 cases agree", "float32: 24 of 24", "TF32 is off", "GB/s", "HGP iteration"):
        assert text in printed
    if name == "cupy":
        assert "compute capability" in printed


def test_report_of_a_wrong_average_names_it(monkeypatch, capsys):
    right = simulated.ComposedCalls.__call__
    monkeypatch.setattr(simulated.ComposedCalls, "__call__", lambda self, z: right(self, z) * (1 + 1e-3))
    assert check.main(["--report"], **LIGHT) == 1
    assert "FAILED: Push-Sum composed" in capsys.readouterr().out


@pytest.mark.cupy
def test_products_in_tf32_are_named():
    code = "from hgp_ref import check; print(check.main(['--backend', 'cupy', '--dtype', 'float32'], scale=20))"
    environment = {name: value for name, value in os.environ.items() if name != "CUPY_TF32"}
    for setting, text, status in (({}, "TF32 is off", "0"), ({"CUPY_TF32": "1"}, "unset CUPY_TF32", "1")):
        run = subprocess.run([sys.executable, "-c", code], env=environment | setting, capture_output=True, text=True)
        assert text in run.stdout and run.stdout.split()[-1] == status, run.stderr


def test_the_device_is_chosen(capsys):
    assert check.main(["--backend", "array_api_strict", "--device", "device2"], **LIGHT) == 0
    assert "device2" in capsys.readouterr().out
    assert check.main(["--device", "cuda:0"], **LIGHT) == 2
    assert "device must be 'cpu' for NumPy, got 'cuda:0'" in capsys.readouterr().err


@pytest.mark.cupy
def test_the_last_gpu_is_chosen(capsys):
    last = importlib.import_module("cupy").cuda.runtime.getDeviceCount() - 1
    assert check.main(["--backend", "cupy", "--device", str(last)], **LIGHT) == 0
    assert f"<CUDA Device {last}>" in capsys.readouterr().out


def test_nan_is_no_agreement():
    assert not check.CaseOutcome("case", float("nan"), 1.0).ok
    assert check.CaseOutcome("case", 1e-13, 1e-12).ok


def test_tolerances_come_from_the_dtype():
    for dtype in ("float64", "float32"):
        comparison = check.BackendCases(get_backend("numpy"), dtype)
        eps = float(np.finfo(dtype).eps)
        assert (comparison.identity, comparison.limit) == (1000 * eps, 4 * np.sqrt(eps))


def test_a_missing_library_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert check.main(["--backend", "torch"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert "pip install 'hgp_ref[torch]'" in printed.err


@pytest.mark.cupy
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
    assert "choose from" in capsys.readouterr().err
    assert command.main(["--help"]) == 0
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith(("    check  ", "    info  "))]
    assert [len(line) <= 80 and not line.endswith(",") for line in lines] == [True, True]
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hgp_ref {hgp_ref.__version__}\n"


@pytest.mark.parametrize("name", ["figures", "verification", "benchmarks"])
def test_a_command_of_the_repository_is_no_part_of_the_package(name, capsys):
    assert (Path(hgp_ref.__file__).parents[1] / name / "__main__.py").exists()
    assert command.main([name, "--quick"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and f"python -m {name} belongs to the repository" in error


def test_info(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(backend, "EXTRAS", {"array_api_strict": "test", "no_such_library": "jax"})
    assert command.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"hgp_ref {hgp_ref.__version__} in {Path(hgp_ref.__file__).parent}\nPython ")
    assert re.search(rf"^numpy +{re.escape(np.__version__)}, device cpu$", printed, re.M)
    assert re.search(r"^no_such_library +backend '\w+' is not installed: pip install 'hgp_ref\[jax\]'$", printed, re.M)
    assert re.search(r"^array_api_strict +[\d.]+, device .*device1", printed, re.M) and "matplotlib" in printed
    assert "at most 3 (OMP_NUM_THREADS=3)" in printed


def test_info_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(backend, "EXTRAS", {})
    installed = command._version
    monkeypatch.setattr(command, "_version", lambda name: "" if name == "tqdm" else installed(name))
    lines = list(command.info())
    (missing,) = (line for line in lines if line.startswith("not installed: "))
    assert "tqdm (hgp_ref[progress])" in missing


def test_the_libraries_that_info_lists_are_in_the_extras_it_names():
    settings = tomllib.loads((Path(hgp_ref.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = settings["project"]["optional-dependencies"]
    for name, extra in command.OPTIONAL.items():
        assert any(requirement.startswith(f"{name}>=") for requirement in extras[extra])


def test_the_command_calls_the_check(monkeypatch):
    given = []
    monkeypatch.setattr(check, "main", lambda arguments: given.append(arguments) or 0)
    assert command.main(["check", "--backend", "torch"]) == 0
    assert given == [["--backend", "torch"]]
