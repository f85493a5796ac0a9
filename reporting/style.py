"""One style for all figures: column width, print sizes, one colour and line for each method and each S.

Lines differ in dash pattern, marker or lightness as well as in hue, so that they are distinct in grey and for
colour-blind readers. Files are PDF (fonts embedded as TrueType) and PNG at 300 dpi. They contain no date, so equal data
give equal files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from hgp_ref.results import write_whole

COLUMN = 3.4  # inches, the width of one column
HEIGHT = 2.5
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[object, ...] = ("-", (0, (5, 1.2)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (2.5, 0.8)))
THUMBNAIL_BYTES = 200_000
CUT = "curves that leave the axes end in a triangle"  # for captions


@dataclass(frozen=True)
class Line:
    """How a method or a value is drawn, wherever it appears."""

    colour: str
    dashes: Any = "-"
    marker: Any = ""
    width: float = 1.2

    def options(self, **others: Any) -> dict[str, Any]:
        """The keywords for `Axes.plot`; `others` override them."""
        line = {"color": self.colour, "linestyle": self.dashes, "linewidth": self.width}
        if self.marker:
            size = 6.0 if self.marker in ("*", (4, 1, 0)) else 4.2  # stars have small areas
            line |= {"marker": self.marker, "markersize": size, "markeredgewidth": 0.4, "markeredgecolor": "white"}
        return line | others


# Methods of this package are solid and thick, those of the literature dashed and thin. Each has its own marker.
_OURS, _OTHERS = 1.6, (0, (4, 1.3))
METHODS = {
    "HGP": Line("#0072B2", marker="o", width=_OURS),
    "Chebyshev": Line("#000000", marker="s", width=_OURS),
    "Refined": Line("#E69F00", marker="D", width=_OURS),
    "Tracking": Line("#009E73", marker="^", width=_OURS),
    "Preconditioned tracking": Line("#D55E00", marker="v", width=_OURS),
    "Conjugate gradients": Line("#7A3E9D", marker=(4, 1, 0), width=_OURS),
    "planner": Line("#C00000", marker="*", width=_OURS),
    "planner, no tree": Line("#555555", marker="d", width=_OURS),
    "planner, Hessians": Line("#8C2D04", (0, (1.2, 1.0)), "*", _OURS),
    "FAB": Line("#882255", _OTHERS, "X"),
    "SPARKLE-ED": Line("#56B4E9", _OTHERS, "P"),
    "SPARKLE-EXTRA": Line("#44AA99", _OTHERS, "<"),
    "SPARKLE-GT": Line("#332288", _OTHERS, ">"),
    "MA-DSBO": Line("#999933", _OTHERS, "p"),
    "D-SOBA": Line("#CC6677", _OTHERS, "h"),
    "DBO": Line("#AA4499", _OTHERS, "d"),
    "GBDSBO": Line("#B8A13C", _OTHERS, "*"),
    "FedNest": Line("#117733", _OTHERS, "8"),
    "MDBO": Line("#777777", _OTHERS, "H"),
    "VRDBO": Line("#777777", (0, (1.2, 1.2)), "H"),
}
NAMES = {"Neumann": "HGP", "PreconditionedTracking": "Preconditioned tracking", "MDBO, VRDBO": "MDBO"}
# Five ordered values, from light to dark and from wide to thin, so that one shows between the dashes of the next.
RAMP = (
    Line("#F0A030", "-", width=2.2),
    Line("#E16462", (0, (6, 1.5)), width=1.9),
    Line("#B12A90", (0, (3, 1.2)), width=1.7),
    Line("#6A00A8", (0, (5, 1.2, 1.2, 1.2)), width=1.4),
    Line("#0D0887", (0, (1.2, 1.5)), width=1.4),
)
STEP_LINES = dict(zip((1, 2, 5, 10, 100), RAMP, strict=True))  # steps S of each averaging


def method_line(name: str, **others: Any) -> dict[str, Any]:
    """The keywords of `Axes.plot` for a method, by its name without "(…)"; a method that is not listed is black."""
    plain = name.split(" (")[0]
    line = METHODS.get(NAMES.get(plain, plain), Line("#000000", (0, (1.2, 1.0)), "o", _OURS))
    return line.options(**others)


def plot_cut(axes: Any, x: np.ndarray, y: np.ndarray, low: float, high: float, **line: Any) -> Any:
    """Plot y on a logarithmic axis between `low` and `high`, and return the line; x has the scale of the axes.

    Where a curve falls below `low` it ends in a triangle at the lower edge. A floor is therefore flat, and a curve that
    goes on below the axes is not.
    """
    y = np.where(np.isfinite(y) & (y <= high), y, np.nan)
    below = np.flatnonzero(y < low)
    shown = y.copy()
    if len(below):
        first = int(below[0])
        shown[first:] = np.nan
        at = x[first]
        if first and np.isfinite(y[first - 1]) and y[first] > 0:  # the point where the edge is crossed
            share = np.log(y[first - 1] / low) / np.log(y[first - 1] / y[first])
            log = axes.get_xscale() == "log"
            at = x[first - 1] * (at / x[first - 1]) ** share if log else x[first - 1] + share * (at - x[first - 1])
        x, shown = np.insert(x.astype(float), first, at), np.insert(shown, first, low)
        axes.plot([at], [low], linestyle="", marker=7, markersize=5, color=line.get("color"), clip_on=False, zorder=5)
    (drawn,) = axes.plot(x, shown, **line)
    return drawn


RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
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
    """Write a PNG of at most 200 KB for a page: 300 dpi, with fewer colours and then fewer dots if necessary."""
    for dpi in (300, 220, 150, 110):
        data = _rendered(figure, "png", dpi=dpi)
        for smaller in (data, _few_colours(data)):
            if len(smaller) <= THUMBNAIL_BYTES:
                write_whole(path, smaller)
                return path
    raise ValueError(
        f"{path.name}: the thumbnail must have at most {THUMBNAIL_BYTES} bytes, got {len(data)} at {dpi} dpi"
    )


def _few_colours(png: bytes) -> bytes:
    """The same picture with a palette of 256 colours: white, those of curves, and others that are far apart.

    A curve may have only few dots of its colour.
    """
    own = sorted({"#FFFFFF", *COLOURS, *(line.colour for line in (*METHODS.values(), *RAMP))})
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        plain = image.convert("RGB")
    spread = plain.quantize(256 - len(own), Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    entries = [*bytes.fromhex("".join(own).replace("#", "")), *(spread.getpalette() or ())]
    palette = np.array(entries).reshape(-1, 3)
    dots = np.asarray(plain, dtype=np.int64)
    codes, where = np.unique(dots[..., 0] << 16 | dots[..., 1] << 8 | dots[..., 2], return_inverse=True)
    colours = np.stack([codes >> 16, (codes >> 8) & 255, codes & 255], axis=1)
    nearest = ((palette**2).sum(axis=1) - 2 * colours @ palette.T).argmin(axis=1).astype(np.uint8)
    few = Image.fromarray(nearest[where].reshape(dots.shape[:2]))
    few.putpalette(entries)
    few.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def _rendered(figure: Figure, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()
