"""A page for every public name and every module, written when the site is built."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from public_names import Name, modules, public_names
from sphinx.application import Sphinx

FOLDER = "generated/api"


def directive(name: Name) -> str:
    """What autodoc is asked to do with it."""
    if inspect.isclass(name.value):
        kind = "autoexception" if issubclass(name.value, BaseException) else "autoclass"
        return f".. {kind}:: {name.path}\n   :members:\n   :show-inheritance:\n"
    return f".. autofunction:: {name.path}\n" if callable(name.value) else f".. autodata:: {name.path}\n"


def page(name: Name) -> str:
    """One object: title, other names, documentation."""
    also = "".join(f"Also ``{alias}``.\n\n" for alias in name.aliases)
    title = name.name
    return f"{title}\n{'=' * len(title)}\n\n.. currentmodule:: {name.module}\n\n{directive(name)}\n{also}"


def module_page(module: str, names: list[Name]) -> str:
    """A module: its docstring and a table of what it has."""
    title = module.removeprefix("hgp_ref.") if module != "hgp_ref" else "hgp_ref: the names at the top"
    own = [name for name in names if name.module == module]
    away = [n for n in names if n.module != module and any(a.rpartition(".")[0] == module for a in n.aliases)]
    automodule = f".. automodule:: {module}\n   :no-members:\n" + ("   :no-index:\n" if module == "hgp_ref" else "")
    lines = [title, "=" * len(title), "", automodule, ".. currentmodule:: None", ""]  # the tables give full paths
    lines += _table([f"~{n.path}" for n in own]) + _table([f"~{n.path}" for n in away], "Found here too")
    lines += [".. toctree::", "   :hidden:", "", *(f"   {n.path}" for n in own), ""]
    return "\n".join(lines)


def _table(paths: list[str], title: str = "") -> list[str]:
    if not paths:
        return []
    head = [f".. rubric:: {title}", ""] if title else []
    return [*head, ".. autosummary::", "   :nosignatures:", "", *(f"   {path}" for path in sorted(paths)), ""]


def write_if_new(path: Path, text: str) -> None:
    """Leave unchanged files alone, so that Sphinx reads only what is new."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write(app: Sphinx) -> None:
    """All pages, and none of names that are gone."""
    folder = Path(app.srcdir) / FOLDER
    names = public_names()
    pages = {name.path: page(name) for name in names}
    places = ["hgp_ref", *modules()]
    pages |= {place: module_page(place, names) for place in places}
    index = ["API reference", "=============", "", INTRODUCTION, ".. toctree::", "   :maxdepth: 1", ""]
    pages["index"] = "\n".join([*index, *(f"   {place}" for place in places), ""])
    for stem, text in pages.items():
        write_if_new(folder / f"{stem}.rst", text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def by_other_name(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """`hgp_ref.plan` leads to the page of `hgp_ref.planning.plan`."""
    homes = {alias: name.path for name in public_names() for alias in name.aliases}
    target = str(node.get("reftarget", "")).lstrip("~.")
    if node.get("refdomain") != "py" or target not in homes:
        return None
    return env.domains["py"].resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], homes[target], node, content
    )


INTRODUCTION = """Every public name has a page: what it computes, its parameters, what it returns, and an example
that the tests run. ``import hgp_ref as hgp`` is assumed throughout, and ``import numpy as np``.
"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Before files are looked for."""
    app.connect("builder-inited", write, priority=200)
    app.connect("missing-reference", by_other_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
