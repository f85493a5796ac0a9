"""The README's Python blocks run, in order, and print what they promise."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    errors = [float(e) for e in re.findall(r"relative error ([\d.e+-]+),", printed)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 1e-6
    ridge = namespace["hgp"].exact.hypergradient(namespace["ridge"], namespace["x"], namespace["rates"])
    assert abs(ridge).max() > 0


def test_every_command_names_a_target_or_module_that_exists():
    text, root = README.read_text(encoding="utf-8"), README.parent
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets
    for module in re.findall(r"python -m (\w+)", text):
        assert (root / module / "__main__.py").exists(), module
