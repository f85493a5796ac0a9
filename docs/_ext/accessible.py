"""What the theme leaves behind: arrows of the sidebar without a name to be read aloud, and maps of its own sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

BARE = "<summary><span"
NAMED = '<summary aria-label="Show or hide the pages of this part"><span'


def name_arrows(app: Sphinx, error: Exception | None) -> None:
    """In every page that was written."""
    if error or app.builder.format != "html":
        return
    for path in (Path(app.outdir) / "_static").rglob("*.map"):  # 3 MB that only the theme's authors look at
        path.unlink()
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if BARE in text:
            path.write_text(text.replace(BARE, NAMED), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """After everything is written."""
    app.connect("build-finished", name_arrows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
