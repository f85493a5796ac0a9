"""What the pages need: equations, rows of figures, computed data, pages made of other files, accessibility."""

from __future__ import annotations

import ast
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from docutils import nodes
from latex2mathml.converter import convert
from PIL import Image
from reference import write_if_new
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

import hgp_ref as hgp
from reporting.style import COLOURS, DASHES, RC, new_figure, style

# Equations as MathML --------------------------------------------------------------------------------------------------
#
# They are converted when the site is built, so that reading a page needs no script, no font and no other host. Browsers
# draw MathML in the colours and at the size of the surrounding text, and read it aloud.

logger = logging.getLogger(__name__)


LEFT_OVER = re.compile(r"\\|<m[a-z]+>&(amp;)?</")  # a command or a mark of alignment that the converter does not know
ORDERS = re.compile(r"<mi>(&#x02AAF;|&#x02AB0;)</mi>")  # ⪯ and ⪰, which the converter takes for letters
BARS = re.compile(r"<mo>(&#x02016;|&#x0007C;|\|)</mo>")  # of norms and moduli, as high as a letter


def to_mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """The equation of `node` as a <math> element; a warning if some of its LaTeX is left."""
    latex = node.astext().strip().replace("{aligned}", "{align*}")  # of the two the converter knows the second only
    markup = BARS.sub(r'<mo stretchy="false">\1</mo>', convert(latex, display=display))
    markup = ORDERS.sub(r"<mo>\1</mo>", markup)
    if LEFT_OVER.search(markup):
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


# Rows of figures ------------------------------------------------------------------------------------------------------


class FigureRow(SphinxDirective):
    """Each paragraph is an image followed by its caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        row = nodes.container(classes=["figures"])
        content = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, content)
        for paragraph in content.findall(nodes.paragraph):
            image, *caption = paragraph.children
            if not isinstance(image, nodes.image) or not image.get("alt"):
                raise self.error("each paragraph of a figure-row must begin with an image that has an alternative text")
            row += nodes.figure("", image, nodes.caption("", "", *caption))
        return [row]


def print_size(app: Sphinx, doctree: nodes.document) -> None:
    """Show the pictures of docs/figures at half of their dots, the size that they were drawn for."""
    folder = Path(app.srcdir) / "figures"
    for image in doctree.findall(nodes.image):
        file = folder / Path(image["uri"]).name
        if isinstance(image.parent, nodes.paragraph) and file.suffix == ".png" and file.exists():
            with Image.open(file) as picture:
                image["width"] = f"{picture.width // 2}px"


class Folded(SphinxDirective):
    """Details that a click on the title opens."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        title = f"<details><summary>{html.escape(self.arguments[0])}</summary>\n"
        content = nodes.container(classes=["folded"])
        self.state.nested_parse(self.content, self.content_offset, content)
        return [nodes.raw("", title, format="html"), content, nodes.raw("", "</details>\n", format="html")]


# Data and figures that are computed while the site is built -----------------------------------------------------------

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30)
LONGEST = 1000
SPEEDUP = re.compile(r"([\d.,]+) × faster than ([^;|]+)")


def explorer() -> dict[str, Any]:
    """Relative errors of HGP for each S over M, with exact averaging (truncation) and after many terms (floor)."""
    data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    lam = np.full((3, problem.dim_x), 0.03)
    x = hgp.exact.inner_solution(problem, lam)
    truth = hgp.exact.hypergradient(problem, x, lam)
    net = hgp.networks.RandomDirected(n=3, seed=1)
    runs = [*(hgp.PushSum(net, steps=S) for S in STEPS), hgp.ExactAverage(3)]
    errors = []
    for avg in runs:
        est = hgp.hypergradient(problem, x, lam, avg, iterations=LONGEST, history=True)
        errors.append(np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth))
    M = np.unique(np.geomspace(1, LONGEST, 48).astype(int))
    curves = np.array(errors)[:, M - 1]
    rounded = [[float(f"{e:.3g}") for e in curve] for curve in curves]
    floors = [float(f"{error[-1]:.3g}") for error in errors[:-1]]
    return {"S": STEPS, "M": M.tolist(), "error": rounded[:-1], "truncation": rounded[-1], "floor": floors}


def bars(table: str) -> str:
    """Every "N × faster than" of the page's table as a bar, SVG."""
    found = []
    for line in table.splitlines():
        if line.startswith("| ") and "× faster than" in line:
            workload = line.split("|")[1].strip().split(",")[0].split(" (")[0]
            found += [(f"{workload}: {peer.strip()}", float(n.replace(",", ""))) for n, peer in SPEEDUP.findall(line)]
    with style():
        figure = new_figure(height=0.36 * len(found) + 0.6)
        axes = figure.subplots()
        labels, values = zip(*found[::-1], strict=True)
        axes.barh(range(len(values)), values, color=COLOURS[0], height=0.4)
        axes.set(xscale="log", xlim=(1, 6 * max(values)), xlabel="times faster (CPU time)", yticks=[])
        axes.minorticks_off()
        for k, (label, value) in enumerate(zip(labels, values, strict=True)):
            axes.text(1.1, k + 0.38, label, va="center", fontsize=7)
            axes.text(value * 1.1, k, f"{value:,g} ×", va="center", fontsize=7)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()


def write_computed(app: Sphinx) -> None:
    """Write the data of the explorer and the bars of the benchmarks to docs/generated."""
    docs = Path(app.srcdir)
    text = f"window.EXPLORER = {json.dumps(explorer())};\n"
    write_if_new(docs / "generated" / "static" / "explorer-data.js", text)
    page = docs / "benchmarks.md"
    write_if_new(docs / "generated" / "benchmarks.svg", bars(page.read_text(encoding="utf-8")))


def gallery_style(gallery_conf: dict[str, object], fname: str) -> None:
    """The style of the figures of the gallery, which calls this before each example: legible as thumbnails, too."""
    mpl.rcParams.update(mpl.rcParamsDefault)
    mpl.use("Agg")
    mpl.rcParams.update(RC)
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLOURS[: len(DASHES)]) + mpl.cycler(linestyle=DASHES)
    sizes = {"font.size": 10, "axes.labelsize": 10, "legend.fontsize": 9, "xtick.labelsize": 9, "ytick.labelsize": 9}
    mpl.rcParams.update(sizes | {"figure.figsize": (4.4, 2.9), "lines.linewidth": 1.8, "lines.markersize": 5})
    mpl.rcParams.update({"savefig.dpi": 170, "figure.dpi": 170})


# The page of tutorials: groups, and for each tutorial its picture and its first sentence ------------------------------

GALLERY = {  # three to a row
    "First steps": ("05_influence", "07_outer_loop", "04_certificate"),
    "Training data": ("15_mislabelled", "09_hyper_cleaning", "08_cnn"),
    "Your own costs": ("01_own_costs", "17_torch", "18_jax"),
    "Networks": ("03_own_network", "16_networks", "10_lossy_links"),
    "Methods and messages": ("06_methods", "13_plan", "12_new_method"),
    "Arrays, machines, long runs": ("02_own_arrays", "11_machines", "14_resume"),
}
CARD = """   .. container:: tutorial

      .. image:: images/thumb/sphx_glr_{stem}_thumb.png
         :alt:

      :doc:`{stem}`

      {sentence}
"""


def first_sentence(script: Path) -> str:
    """The first sentence below the title of a tutorial, and the second if that is short."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    sentences = re.split(r"(?<=[.?])\s", text.split("\n\n")[1].replace("\n", " "))
    return " ".join(sentences[: 1 if len(sentences[0]) > 60 else 2])


def group_gallery(app: Sphinx) -> None:
    """Replace the index that sphinx-gallery writes. Tutorials that no group names come last."""
    source, target = Path(app.srcdir) / "gallery", Path(app.srcdir) / "generated" / "gallery"
    stems = sorted(path.stem for path in source.glob("plot_*.py"))
    groups = {title: [stem for name in names if (stem := f"plot_{name}") in stems] for title, names in GALLERY.items()}
    grouped = {stem for names in groups.values() for stem in names}
    groups["More"] = [stem for stem in stems if stem not in grouped]
    head = (source / "GALLERY_HEADER.rst").read_text(encoding="utf-8")
    lines = [
        head,
        ".. toctree::",
        "   :hidden:",
        "",
        *(f"   {stem}" for names in groups.values() for stem in names),
        "",
    ]
    for title, names in groups.items():
        if names:
            cards = [CARD.format(stem=n, sentence=first_sentence(source / f"{n}.py")) for n in names]
            lines += [title, "-" * len(title), "", ".. container:: tutorials", "", *cards]
    write_if_new(target / "index.rst", "\n".join(lines))


# Pages made of other files of the repository --------------------------------------------------------------------------

FOLDER = "generated"
CODE = re.compile(r"(`[^`]*`)")


def errata(text: str) -> str:
    """ERRATA.md with anchors that a page may link to: (erratum-4)=."""
    text = re.sub(r'^## <a id="(\d+)"></a>', r"(erratum-\1)=\n## ", text, flags=re.MULTILINE)
    return re.sub(r"\[(\d+)\]\(#\d+\)", r"[\1](#erratum-\1)", text)


def glossary(text: str) -> str:
    """NOTATION.md with links to pages of the site."""
    return text.replace("ERRATA.md", "[the errata](errata.md)").replace(
        "see CONTRIBUTING.md", "see {doc}`contributing`"
    )


def contributing(text: str) -> str:
    """CONTRIBUTING.md with links to pages of the site."""
    text = text.replace("[How we treat each other](CODE_OF_CONDUCT.md) · ", "")  # no page of the site
    return text.replace("(docs/", "(../")


SOURCES = {
    "errata": ("ERRATA.md", errata),
    "glossary": ("NOTATION.md", glossary),
    "contributing": ("CONTRIBUTING.md", contributing),
    "changes": ("CHANGELOG.md", str),
}


def without_mathematics(text: str) -> str:
    """Escape dollars outside code: these files have no LaTeX."""
    pieces = CODE.split(text)
    return "".join(p if p.startswith("`") else p.replace("$", r"\$") for p in pieces)


def write_pages(app: Sphinx) -> None:
    """Write each page whose source has changed."""
    root = Path(app.srcdir)
    for name, (source, convert_page) in SOURCES.items():
        text = (root.parent / source).read_text(encoding="utf-8")
        write_if_new(root / FOLDER / f"{name}.md", convert_page(without_mathematics(text)))


# Accessibility --------------------------------------------------------------------------------------------------------

PATH = re.compile(r'<span class="pre">[^<]*/[^<]*</span>')
BARE = "<summary><span"
NAMED = '<summary aria-label="Show or hide the pages of this part"><span'


def name_arrows(app: Sphinx, error: Exception | None) -> None:
    """Name the arrows of the theme's sidebar for screen readers, and remove the maps of its sources.

    Paths in code may break behind a slash, so that no name in them breaks on a phone.
    """
    if error or app.builder.format != "html":
        return
    for path in (Path(app.outdir) / "_static").rglob("*.map"):  # 3 MB that no reader needs
        path.unlink()
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        changed = PATH.sub(lambda found: found[0].replace("/", "/<wbr>").replace("</<wbr>", "</"), text)
        changed = changed.replace(BARE, NAMED)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and the directive; write files before Sphinx looks for them."""
    (Path(app.srcdir) / "generated" / "static").mkdir(parents=True, exist_ok=True)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))  # type: ignore[arg-type]
    app.add_directive("figure-row", FigureRow)
    app.add_directive("folded", Folded)
    app.connect("builder-inited", write_computed, priority=150)
    app.connect("builder-inited", write_pages, priority=200)
    app.connect("builder-inited", group_gallery, priority=600)  # sphinx-gallery, with 500, has written its own
    app.connect("doctree-read", print_size)
    app.connect("build-finished", name_arrows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
