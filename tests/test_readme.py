"""The README's Python blocks run, in order, and print what they promise."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # examples write files
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+),", printed)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 1e-6
    assert "tolerance" in printed and namespace["hgp"].load(tmp_path / "better.npz") == namespace["better"]
    assert abs(namespace["better"].value - namespace["truth"]).max() < 1e-8
    ridge = namespace["hgp"].exact.hypergradient(namespace["ridge"], namespace["x"], namespace["rates"])
    assert abs(ridge).max() > 0
    costs = namespace["path"].outer_cost
    assert abs(costs[0] - 1.13) < 0.005 and costs[-1] < 0.45 and len(costs) == 41
    assert all(f"{cost:.3f}" in README.read_text(encoding="utf-8") for cost in costs[[0, 20, 40]])


def test_every_folder_is_listed():
    root, listed = README.parent, README.read_text(encoding="utf-8").split("## Where things are")[1]
    packages = {path.parent for pattern in ("*/__init__.py", "hgp_ref/*/__init__.py") for path in root.glob(pattern)}
    folders = {path.relative_to(root).as_posix() for path in packages} - {"hgp_ref", "tests"}
    assert set(re.findall(r"^([\w/]+)/ ", listed, flags=re.MULTILINE)) == folders
    for file in re.findall(r"^([\w/]+\.py)", listed, flags=re.MULTILINE):
        assert (root / file).exists(), file


def test_every_command_names_a_target_or_module_that_exists():
    text, root = README.read_text(encoding="utf-8"), README.parent
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets
    for module in re.findall(r"python -m (\w+)", text):
        assert (root / module / "__main__.py").exists(), module
