"""One style for all figures: column width, print sizes, colours for colour-blind readers (Okabe–Ito).

Lines differ in dash pattern as well as in colour, so that they are distinct in grey. Files are PDF (fonts embedded as
TrueType) and PNG at 300 dpi. They contain no date, so equal data give equal files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from hgp_ref.results import write_whole

COLUMN = 3.25  # inches, the width of one column
HEIGHT = 2.5
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[object, ...] = ("-", (0, (5, 1.2)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (2.5, 0.8)))
THUMBNAIL_BYTES = 60_000

RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.visible": True,
    "ytick.minor.visible": True,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.0,
    "legend.handletextpad": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "figure.constrained_layout.use": True,
}


@contextmanager
def style() -> Iterator[None]:
    """The shared settings, for as long as the context lasts."""
    with mpl.rc_context(RC):  # type: ignore[arg-type]
        yield


def new_figure(width: float = COLUMN, height: float = HEIGHT) -> Figure:
    """An empty figure that draws without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf and `stem`.png, each whole or not at all."""
    with style():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once: the same in every file
    paths = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {})):
        path = stem.with_name(stem.name + suffix)
        write_whole(path, _rendered(figure, suffix[1:], metadata=metadata))
        paths.append(path)
    return paths


def save_thumbnail(figure: Figure, path: Path) -> Path:
    """Write a PNG of at most 60 KB for a table of figures, with fewer colours and then fewer dots if necessary."""
    for dpi in (110, 90, 70, 55):
        data = _rendered(figure, "png", dpi=dpi)
        for smaller in (data, _few_colours(data)):
            if len(smaller) <= THUMBNAIL_BYTES:
                write_whole(path, smaller)
                return path
    raise ValueError(f"{path.name}: the thumbnail must have at most {THUMBNAIL_BYTES} bytes, got {len(data)} at 55 dpi")


def _few_colours(png: bytes) -> bytes:
    """The same picture with a palette of 64 colours that are far apart: a curve has only few dots of its colour."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def _rendered(figure: Figure, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()
