"""A missing optional library is one line that names the extra, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BLOCK = """
import runpy, sys
from importlib.abc import MetaPathFinder

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = {command!r}
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def without(missing: tuple[str, ...], *command: str) -> subprocess.CompletedProcess[str]:
    """`python -m command` in a process in which the libraries `missing` cannot be imported."""
    code = BLOCK.format(missing=missing, command=list(command))
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [
        ("matplotlib", "figures", ("figures", "fig1a", "--quick")),
        ("matplotlib", "figures", ("verification", "lemma2", "--quick")),
        ("matplotlib", "figures", ("benchmarks", "precision", "--quick")),
        ("torch", "torch", ("benchmarks", "mixing", "--quick")),
        ("networkx", "dev", ("benchmarks", "precision", "sampling", "--quick")),
        ("mpi4py", "mpi", ("hgp_ref", "check", "--mpi")),
        ("sklearn", "data", ("figures", "influence_digits", "--quick", "--out", "OUT")),
    ],
)
def test_one_line_names_the_extra(missing, extra, command, tmp_path):
    run = without((missing, "tqdm"), *(str(tmp_path) if word == "OUT" else word for word in command))
    lines = [line for line in run.stderr.splitlines() if " of " not in line]  # without tqdm parts are counted in lines
    assert run.returncode == 2 and len(lines) == 1, run.stderr
    assert f"pip install 'hgp_ref[{extra}]'" in lines[0] and run.stdout == ""


def test_commands_run_without_tqdm(tmp_path):
    run = without(("tqdm",), "verification", "lemma2", "--quick", "--jobs", "1", "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert run.stderr.startswith("verification: lemma2, 1 of 1, ") and len(run.stderr.splitlines()) == 1


def test_a_requested_progress_bar_names_the_extra(monkeypatch):
    from hgp_ref.progress import bar

    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"pip install 'hgp_ref\[progress\]'"):
        bar(3, "sgp", True)
    bar(3, "sgp", False).update(1)


def test_the_requirement_is_met_where_the_library_is_there(capsys):
    from reporting.extras import require

    require("python -m figures", numpy="figures")
    with pytest.raises(SystemExit):
        require("python -m figures", numpy="figures", no_such_library="figures")
    assert capsys.readouterr().err.startswith(
        "python -m figures: needs no_such_library: pip install 'hgp_ref[figures]'"
    )


def test_a_plot_of_a_network_names_the_extra(monkeypatch):
    import hgp_ref as hgp

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plot needs matplotlib: pip install 'hgp_ref\[figures\]'"):
        hgp.networks.Ring(3).plot()


def test_networks_from_networkx_do_not_import_it(monkeypatch):
    import hgp_ref as hgp

    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(TypeError, match=r"graphs\[0\] must be a networkx Graph or DiGraph, got int"):
        hgp.networks.from_networkx([3])
    assert "networkx" not in sys.modules
