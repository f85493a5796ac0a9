"""Imports of the package point one way, only backend.py knows the name of a GPU library, names do not hide modules."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hgp_ref"

# The order of the parts: each may import those above it. `exact` judges the core and shares no code with it.
BASE = {"backend", "validation", "errors", "philox", "progress", "results", "rounding", "_numba"}
ORDER = (
    "_kernels",
    "networks",
    "mixing",
    "mpi",
    "neural",
    "problems",
    "methods",
    "training",
    "exact",
    "bounds",
    "certificates",
    "planning",
    "attribution",
    "bilevel",
    "baselines",
    "data",
    "personalization",
)
BARRED = {
    "problems": {"networks", "mixing"},  # problems know no network
    "exact": {"mixing", "methods", "training"},
}
ALLOWED = {
    **{name: set() for name in BASE},
    "validation": {"backend"},
    "philox": {"backend", "validation", "_numba"},
    "results": {"validation", "backend"},
    **{name: (BASE | set(ORDER[:k])) - BARRED.get(name, set()) for k, name in enumerate(ORDER)},
}
TOP = {"", "__init__", "__main__", "check"}  # these put the parts together
OUTSIDE = {"reporting", "verification", "figures", "benchmarks", "tests"}
CORE = {"numpy", "scipy", "numba", "array_api_compat"}


def part(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or its own name."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0].removesuffix(".py")


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Absolute dotted names of everything imported, with the line; `package` resolves the relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            if node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), node.lineno


def wrong_imports(source: str, own: str, package: str) -> list[str]:
    """Imports of a file of the part `own` that point the wrong way."""
    wrong = []
    for name, line in imports(ast.parse(source), package):
        root, _, rest = name.partition(".")
        if root in OUTSIDE:
            wrong.append(f"line {line}: {own} imports {name}, which is outside the package")
        elif root == "hgp_ref" and own not in TOP:
            target = rest.split(".")[0]
            if target != own and target not in ALLOWED[own]:
                wrong.append(f"line {line}: {own} imports {name}")
    return wrong


def optional_at_top(source: str) -> list[str]:
    """Imports outside functions of anything but the standard library, the four core dependencies and the package."""
    known = CORE | {"hgp_ref"} | set(sys.stdlib_module_names)
    pending, found = list(ast.parse(source).body), []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"line {node.lineno}: {n}" for n in names if n.split(".")[0] not in known]
        pending += ast.iter_child_nodes(node)
    return found


def names_cupy(source: str) -> list[str]:
    """Where the code says cupy: imports, names, attributes and strings; docstrings and comments may."""
    tree = ast.parse(source)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False)
    }
    found = []
    for node in ast.walk(tree):
        words = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            words = re.findall(r"\w*cupy\w*", node.value, re.IGNORECASE)
        elif isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef):
            words = [node.name]
        elif isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.keyword | ast.ImportFrom):
            fields = (getattr(node, f, None) for f in ("id", "attr", "arg", "module"))
            words = [f for f in fields if isinstance(f, str)]
        found += [f"{w} (line {getattr(node, 'lineno', '?')})" for w in words if "cupy" in w.lower()]
    return found


def relative_imports(source: str) -> list[str]:
    """Imports that begin with a dot."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level)
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in found]


def hidden_modules(package: str) -> set[str]:
    """Submodules of `package`, at any depth, that their parent's attribute of the same name is not."""
    modules = [info.name for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")]
    modules = [name for name in modules if not name.endswith("__main__")]
    loaded = {name: importlib.import_module(name) for name in modules}  # all of them before the first look
    hidden = set()
    for name, module in loaded.items():
        parent, _, attribute = name.rpartition(".")
        if getattr(sys.modules[parent], attribute) is not module:
            hidden.add(name)
    return hidden


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    own = part(path)
    assert own in ALLOWED or own in TOP, f"{own} has no place in the order of imports yet: add it to ALLOWED"
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    wrong = wrong_imports(path.read_text(encoding="utf-8"), own, package)
    assert wrong == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_optional_libraries_are_imported_where_they_are_used(path):
    assert optional_at_top(path.read_text(encoding="utf-8")) == []


def test_cupy_is_named_in_backend_only():
    found = {path.relative_to(PACKAGE): names_cupy(path.read_text(encoding="utf-8")) for path in FILES}
    assert found.pop(Path("backend.py")), "backend.py is where CuPy is named"
    assert {name: where for name, where in found.items() if where} == {}


def test_njit_comes_from_one_module():
    """Numba's own refuses to compile where no cache can be written."""
    for path in FILES:
        names = {name for name, _ in imports(ast.parse(path.read_text(encoding="utf-8")), "hgp_ref")}
        taken = names & {"numba", "numba.njit", "numba.jit", "numba.vectorize", "numba.guvectorize"}
        assert not taken or path.name == "_numba.py", f"{path}: {taken}"


def test_the_order_of_imports_has_no_circle():
    placed: set[str] = set()
    while len(placed) < len(ALLOWED):
        ready = {name for name, below in ALLOWED.items() if below <= placed and name not in placed}
        assert ready, f"a circle among {sorted(set(ALLOWED) - placed)}"
        placed |= ready
    assert "exact" not in ALLOWED["training"] | ALLOWED["methods"]
    assert not ALLOWED["exact"] & {"mixing", "methods", "training"}
    assert not ALLOWED["problems"] & {"networks", "mixing"}


def test_importing_the_package_brings_no_optional_library():
    optional = "torch jax cupy matplotlib sklearn cvxpy networkx tqdm array_api_strict pytest mpi4py".split()
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES if path.stem != "__main__"]
    code = f"import sys, importlib\nfor m in {modules}: importlib.import_module(m)\n"
    code += f"print([m for m in {optional} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr


def test_imports_are_absolute():
    relative = {str(path.relative_to(PACKAGE)) for path in FILES if relative_imports(path.read_text(encoding="utf-8"))}
    assert relative == set()


def test_no_package_attribute_hides_a_submodule_of_the_same_name():
    assert hidden_modules("hgp_ref") == set()


def test_a_planted_hidden_module_is_seen(tmp_path, monkeypatch):
    package = tmp_path / "planted" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").touch()
    (package / "__init__.py").write_text("from planted.inner.run import run\nfrom planted.inner.walk import step\n")
    (package / "run.py").write_text("def run(): ...\n")
    (package / "walk.py").write_text("def step(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert hidden_modules("planted") == {"planted.inner.run"}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from . import x", True),
        ("def f():\n    from ..backend import to_host", True),
        ("from hgp_ref.backend import to_host\nimport hgp_ref.exact", False),
    ],
)
def test_planted_relative_imports_are_seen(source, seen):
    assert bool(relative_imports(source)) is seen


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ("exact", "from hgp_ref.methods import hypergradient"),
        ("exact", "from ..mixing import PushSum"),
        ("exact", "def f():\n    from .. import training"),
        ("methods", "import hgp_ref.exact as e"),
        ("methods", "from ..exact.inner import inner_solution"),
        ("methods", "import importlib\nimportlib.import_module('hgp_ref.exact')"),
        ("networks", "from ..mixing.averaging import PushSum"),
        ("networks", "import hgp_ref as hgp"),
        ("problems", "from hgp_ref import networks"),
        ("mixing", "from ..check import main"),
        ("bounds", "import verification.theorem_1"),
        ("check", "from figures import fig1a"),
    ],
)
def test_planted_wrong_imports_are_seen(own, source):
    assert len(wrong_imports(source, own, f"hgp_ref.{own}")) == 1


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ("exact", "import numpy as np\nfrom ..networks import Network\nfrom .operators import theta"),
        ("methods", "from ..problems.batches import sample_batches\nfrom ..backend import to_host"),
        ("check", "from . import exact, methods"),
    ],
)
def test_right_imports_are_not_blamed(own, source):
    assert wrong_imports(source, own, "hgp_ref" if own in TOP else f"hgp_ref.{own}") == []


@pytest.mark.parametrize(
    "source",
    [
        "import cupy",
        "from cupy import cuda",
        "from array_api_compat import cupy as xp",
        "x = compat.is_cupy_array(y)",
        "name = 'cupy'",
        "def f(x):\n    '''Doc.'''\n    return f'not {x} CuPy'",
        "def g(cupy=None): ...",
    ],
)
def test_planted_cupy_is_seen(source):
    assert names_cupy(source)


def test_documentation_may_name_cupy():
    assert names_cupy('"""Runs on CuPy."""\n# cupy\ndef f():\n    """cupy"""\n    return "numpy"') == []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import torch", True),
        ("try:\n    import jax.numpy as jnp\nexcept ImportError:\n    jnp = None", True),
        ("class A:\n    from sklearn import datasets", True),
        ("def f():\n    import torch", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", False),
        ("import numpy as np, scipy.linalg\nfrom numba import njit\nfrom . import x", False),
    ],
)
def test_planted_optional_imports_are_seen(source, seen):
    assert bool(optional_at_top(source)) is seen
