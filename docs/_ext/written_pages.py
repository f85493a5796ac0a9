"""Pages that are other files of the repository, so that nothing is written twice: errata, glossary, changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reference import write_if_new
from sphinx.application import Sphinx

FOLDER = "generated"
CODE = re.compile(r"(`[^`]*`)")


def errata(text: str) -> str:
    """ERRATA.md with anchors that a page may link to: (erratum-4)=."""
    text = re.sub(r'^## <a id="(\d+)"></a>', r"(erratum-\1)=\n## ", text, flags=re.MULTILINE)
    return re.sub(r"\[(\d+)\]\(#\d+\)", r"[\1](#erratum-\1)", text)


def glossary(text: str) -> str:
    """NOTATION.md as it stands."""
    return text.replace("ERRATA.md", "[the errata](errata.md)").replace(
        "see CONTRIBUTING.md", "see {doc}`contributing`"
    )


def contributing(text: str) -> str:
    """CONTRIBUTING.md with links to pages of the site."""
    return text.replace("(docs/", "(../")


def changes(text: str) -> str:
    """CHANGELOG.md as it stands."""
    return text


SOURCES = {
    "errata": ("ERRATA.md", errata),
    "glossary": ("NOTATION.md", glossary),
    "contributing": ("CONTRIBUTING.md", contributing),
    "changes": ("CHANGELOG.md", changes),
}


def inline_only(text: str) -> str:
    """Dollars and stars of Unicode mathematics are characters here, not Markdown."""
    pieces = CODE.split(text)
    return "".join(p if p.startswith("`") else p.replace("$", r"\$") for p in pieces)


def write(app: Sphinx) -> None:
    """Each page, whenever its source has changed."""
    root = Path(app.srcdir)
    for name, (source, shape) in SOURCES.items():
        text = (root.parent / source).read_text(encoding="utf-8")
        write_if_new(root / FOLDER / f"{name}.md", shape(inline_only(text)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Before files are looked for."""
    app.connect("builder-inited", write, priority=200)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
