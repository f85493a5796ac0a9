"""The README's Python blocks run in order and print the stated results."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4 and len(README.read_text(encoding="utf-8").splitlines()) < 150
    namespace: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+),", printed)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 1e-6
    assert namespace["out"].met and namespace["out"].bound <= 1e-6
    assert (namespace["certificate"].bound >= abs(namespace["est"].value - namespace["truth"]).max(axis=1)).all()
    assert re.search(r"R² 0\.9\d", printed)
    costs = namespace["path"].outer_cost
    assert abs(costs[0] - 1.13) < 0.005 and costs[-1] < 0.45 and len(costs) == 41
    assert all(f"{cost:.3f}" in README.read_text(encoding="utf-8") for cost in costs[[0, 20, 40]])
    shown = next(block for block in blocks if "breast_cancer" in block)
    assert len(shown.splitlines()) <= 15


def test_numbers_of_speed_are_those_of_the_table():
    said = re.search(
        r"take ([\d.]+ s), ([\d.]+ ×) less than jitted JAX; .*certificate (\d+ s) ", README.read_text(encoding="utf-8")
    )
    table = (README.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert all(number in table for number in said.groups())


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", README.read_text(encoding="utf-8"))
    files = [a or b for a, b in links if not (a or b).startswith("http")]
    assert len(files) > 20 and [file for file in files if not (README.parent / file.partition("#")[0]).exists()] == []


def test_every_folder_is_listed():
    root = README.parent
    listed = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where new code goes")[1]
    packages = {path.parent for pattern in ("*/__init__.py", "hgp_ref/*/__init__.py") for path in root.glob(pattern)}
    folders = {path.name for path in packages} - {"hgp_ref"}
    assert folders <= set(re.findall(r"^(\w+) +\w", listed, flags=re.MULTILINE))


def test_every_command_names_a_target_or_module_that_exists():
    text, root = README.read_text(encoding="utf-8"), README.parent
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets
    for module in re.findall(r"python -m (\w+)", text):
        assert (root / module / "__main__.py").exists(), module
