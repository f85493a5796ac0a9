"""`figure-row`: pictures side by side where there is room, each with the line below it as its caption."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class FigureRow(SphinxDirective):
    """Each paragraph is an image followed by its caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        row = nodes.container(classes=["figures"])
        written = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, written)
        for paragraph in written.findall(nodes.paragraph):
            image, *words = paragraph.children
            if not isinstance(image, nodes.image) or not image.get("alt"):
                raise self.error("each paragraph of a figure-row begins with an image that has an alternative text")
            row += nodes.figure("", image, nodes.caption("", "", *words))
        return [row]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("figure-row", FigureRow)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
