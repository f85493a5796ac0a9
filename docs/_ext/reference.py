"""The API reference: public names of the package, a page for each of them, and docstrings as reStructuredText."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import hgp_ref

if TYPE_CHECKING:  # the tests read the names without Sphinx
    from sphinx.application import Sphinx

# Public names ---------------------------------------------------------------------------------------------------------
#
# They are read from `__all__`, so that a new module appears without further work. Modules without `__all__` show the
# public functions and classes they define. A name that several modules have is shown once: in the module of
# `hgp_ref.__all__` nearest to its definition. The others are aliases.


@dataclass(frozen=True)
class Name:
    """A public object, the module that shows it, and its other names."""

    module: str
    name: str
    value: object
    aliases: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def modules() -> list[str]:
    """Public modules of the package, in the order of its `__all__`."""
    members = (getattr(hgp_ref, name) for name in hgp_ref.__all__)
    return [member.__name__ for member in members if inspect.ismodule(member)]


def listed(module: ModuleType) -> list[str]:
    """Public names of a module."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    defined = (n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__)
    return [name for name in defined if not name.startswith("_")]


def public_names() -> list[Name]:
    """Every public object once, with its other names."""
    first: dict[object, tuple[str, str]] = {}
    aliases: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str], object] = {}
    places = [*modules(), "hgp_ref"]
    for place in places:
        module = importlib.import_module(place)
        for name in listed(module):
            value = getattr(module, name)
            if inspect.ismodule(value) or name.startswith("__"):
                continue
            key = id(value) if callable(value) else (place, name)
            home = first.setdefault(key, (place, name))
            values.setdefault(home, value)
            aliases.setdefault(home, [])
            if home != (place, name):
                aliases[home].append(f"{place}.{name}")
    homes = {home: _preferred(home, aliases[home], value) for home, value in values.items()}
    return [
        Name(*homes[home], value, tuple(a for a in [*aliases[home], ".".join(home)] if a != ".".join(homes[home])))
        for home, value in values.items()
    ]


def _preferred(home: tuple[str, str], aliases: list[str], value: object) -> tuple[str, str]:
    """The module in which the object has its own name and which is nearest to its definition."""
    proper, defined = getattr(value, "__name__", home[1]), getattr(value, "__module__", home[0])
    places = [home, *((a.rpartition(".")[0], a.rpartition(".")[2]) for a in aliases)]
    right = [place for place in places if place[1] == proper] or places
    return max(right, key=lambda place: len(place[0]) if defined.startswith(place[0]) else -1)


# Pages ----------------------------------------------------------------------------------------------------------------

FOLDER = "generated/api"


def directive(name: Name) -> str:
    """The directive of autodoc for it."""
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
    shown = [name for name in names if name.module == module]
    aliases = [n for n in names if n.module != module and any(a.rpartition(".")[0] == module for a in n.aliases)]
    automodule = f".. automodule:: {module}\n   :no-members:\n" + ("   :no-index:\n" if module == "hgp_ref" else "")
    lines = [title, "=" * len(title), "", automodule, ".. currentmodule:: None", ""]  # the tables give full paths
    lines += _table([f"~{n.path}" for n in shown]) + _table([f"~{n.path}" for n in aliases], "Also here")
    lines += [".. toctree::", "   :hidden:", "", *(f"   {n.path}" for n in shown), ""]
    return "\n".join(lines)


def index_page(places: list[str], names: list[Name]) -> str:
    """Every public name with its first line, module by module; the names at the top of the package come first."""
    lines = ["API reference", "=============", "", INTRODUCTION, ".. toctree::", "   :hidden:", ""]
    lines += [*(f"   {place}" for place in places), ""]
    top = [f"~{n.path}" for n in names if n.module == "hgp_ref" or f"hgp_ref.{n.name}" in n.aliases]
    lines += ["hgp_ref", "-------", "", "What most programs need; ``hgp.name`` reaches it.", "", *_table(top)]
    for place in places[1:]:
        title = place.removeprefix("hgp_ref.")
        summary = (importlib.import_module(place).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        lines += [title, "-" * len(title), "", f":doc:`{title} <{place}>`: {_outside_code(summary)}", ""]
        lines += _table([f"~{n.path}" for n in names if n.module == place])
    return "\n".join(lines)


def _table(paths: list[str], title: str = "") -> list[str]:
    if not paths:
        return []
    head = [f".. rubric:: {title}", ""] if title else []
    return [
        *head,
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *(f"   {path}" for path in sorted(paths, key=lambda p: p.rpartition(".")[2].lower())),
        "",
    ]


def write_if_new(path: Path, text: str) -> None:
    """Leave unchanged files alone, so that Sphinx reads only what is new."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write(app: Sphinx) -> None:
    """Write all pages, and remove those of names that no longer exist."""
    folder = Path(app.srcdir) / FOLDER
    names = public_names()
    pages = {name.path: page(name) for name in names}
    places = ["hgp_ref", *modules()]
    pages |= {place: module_page(place, names) for place in places}
    pages["index"] = index_page(places, names)
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


INTRODUCTION = """Every public name has a page: what it computes, its parameters and, for what users call, an example
that the tests run. The examples assume ``import hgp_ref as hgp`` and ``import numpy as np``.
"""


# Docstrings -----------------------------------------------------------------------------------------------------------
#
# Docstrings are numpydoc with equations in Unicode, as indented blocks. In reStructuredText an indented block is a
# quotation, in which w* would begin emphasis and |x| name a substitution. So an indented block that belongs to no list,
# no section of numpydoc and no directive becomes a literal block here.

FIELD = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes|Other Parameters|Warns|See Also|Methods|Receives)$")
RULE = re.compile(r"^-{3,}$")
SHAPE = re.compile(r"\.\s+# (\(.*\))$")  # a comment behind a sentence: "∂_x f_i.  # (n, d_x)"
CALL = re.compile(r"[\w., =]*\w\(.*\)$")
ENTRY = re.compile(r"([*\w][\w*, .]*?) : (.+)$")
LISTED = re.compile(r"^\s*([-*•]|\d+\.)\s")


def descriptions_below(lines: list[str]) -> list[str]:
    """Parameters and attributes with their descriptions on the lines below, where numpydoc expects them."""
    out: list[str] = []
    named = False
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and RULE.match(lines[k + 1]):
            named = line in ("Parameters", "Other Parameters", "Attributes")
        entry = ENTRY.match(line) if named else None
        out += [entry[1], "    " + entry[2]] if entry else [line]
    return out


def literal_equations(lines: list[str]) -> list[str]:
    """The lines with `::` before every indented block of prose sections."""
    out: list[str] = []
    prose, k = True, 0
    while k < len(lines):
        line = lines[k]
        if k + 1 < len(lines) and RULE.match(lines[k + 1]):
            prose = not FIELD.match(line)
        if prose and _begins_equation(lines, k):
            out += ["::", ""]
            while k < len(lines) and (not lines[k].strip() or lines[k].startswith(" ")):
                out.append(lines[k])
                k += 1
            if out[-1].strip():
                out.append("")
            continue
        out.append(line)
        k += 1
    return out


def _begins_equation(lines: list[str], k: int) -> bool:
    """Whether line k is indented, follows a blank line, and belongs to no list, directive or literal block."""
    if not lines[k].startswith(" ") or (k and lines[k - 1].strip()):
        return False
    before = [line for line in lines[:k] if line.strip()]
    while before and before[-1].startswith(" "):
        before.pop()
    last = before[-1] if before else ""
    return not (LISTED.match(last) or last.startswith("..") or last.rstrip().endswith("::"))


def escape_mathematics(lines: list[str]) -> list[str]:
    """Escape | and *: |x| is a norm, w* a solution. Emphasis (*words*), literal blocks and examples are unchanged."""
    out, literal = [], False
    for line in lines:
        if line.strip() == "::":
            literal = True
        elif literal and line.strip() and not line.startswith(" "):
            literal = False
        plain = literal or line.lstrip().startswith((">>>", "...", ".. "))
        out.append(line if plain else _outside_code(line))
    return out


def _outside_code(line: str) -> str:
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(p if p.startswith("`") else _escape(p.replace(" ... ", " … ")) for p in pieces)


def _escape(prose: str) -> str:
    pieces = re.split(r"((?<![\w*])\*{1,2}[^*\s](?:[^*]*[^*\s])?\*{1,2}(?![\w*]))", prose)
    return "".join(p if k % 2 else re.sub(r"(?<!\\)([|*])", r"\\\1", p) for k, p in enumerate(pieces))


def process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Rewrite the lines of a docstring before numpydoc reads them.

    numpydoc takes a first paragraph that looks like a call, such as "g_i(x_i, λ_i).  # (n,)", for a signature.
    """
    if what == "data":
        lines[:] = [_comment(name)]
    lines[:] = [SHAPE.sub(r". Shape \1.", line) for line in lines]
    lines[:] = escape_mathematics(literal_equations(descriptions_below(lines)))
    if CALL.match(_summary(lines)):
        lines[0] = "\\ " + lines[0]


def _comment(name: str) -> str:
    """The comment behind the definition of a constant, which has no docstring of its own."""
    module, _, constant = name.rpartition(".")
    files = sorted(Path(str(importlib.import_module(module).__file__)).parent.glob("*.py"))
    found = re.search(rf"^{constant} = .*# (.+)$", "\n".join(f.read_text("utf-8") for f in files), re.MULTILINE)
    return found[1] + "." if found else ""


def keep_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str, returns: str
) -> tuple[str, str] | None:
    """The signature of the function where numpydoc would take it from such a first line; none of a protocol."""
    if what == "class" and getattr(obj, "_is_protocol", False):
        return "", ""
    return (signature, returns) if CALL.match(_summary((inspect.getdoc(obj) or "").split("\n"))) else None


def _summary(lines: list[str]) -> str:
    """The first paragraph in one line."""
    return " ".join(line.strip() for line in "\n".join(lines).strip().split("\n\n")[0].splitlines())


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for files; process docstrings before numpydoc, whose priority is 500."""
    app.connect("builder-inited", write, priority=200)
    app.connect("missing-reference", by_other_name)
    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-process-signature", keep_signature, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
