"""Equations as MathML, written at build time: no script, no font and no host is asked for when a page is read.

Every browser of today draws MathML itself, in the colours and at the size of the text around it, and reads it aloud.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def to_mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """The equation of `node` as a <math> element; what the converter does not know it leaves as a backslash."""
    markup = convert(node.astext().strip(), display=display)
    if "\\" in markup:
        logger.warning("no MathML for %r", node.astext(), location=node)
    return markup


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """An equation within a line."""
    self.body.append(f'<span class="math">{to_mathml(node, "inline")}</span>')
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """An equation on a line of its own, which scrolls by itself where the page is narrow."""
    self.body.append(self.starttag(node, "div", CLASS="math-block", tabindex="0", role="group"))
    self.body.append(to_mathml(node, "block"))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="equation-number">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer that conf.py names."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))  # type: ignore[arg-type]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
