"""Thumbnails, the lines of methods, and curves that leave the axes."""

from __future__ import annotations

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
style = pytest.importorskip("reporting.style")


def test_a_picture_with_fewer_colours_keeps_the_rare_ones():
    """Median cut spends its palette on greys that many dots have; a marker's colour has few."""
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (200, 200, 1), dtype=np.uint8)
    dots = np.repeat(grey, 3, axis=2)
    rare = {"blue": (0, 114, 178), "red": (213, 94, 0), "green": (0, 158, 115)}
    for k, colour in enumerate(rare.values()):
        dots[10 * k : 10 * k + 3, :3] = colour
    buffer = io.BytesIO()
    Image.fromarray(dots).save(buffer, "png")
    few = np.asarray(Image.open(io.BytesIO(style._few_colours(buffer.getvalue()))).convert("RGB"))
    for k, colour in enumerate(rare.values()):
        assert np.abs(few[10 * k + 1, 1].astype(int) - colour).max() <= 16


def test_lines_of_methods_differ_in_grey():
    """No two methods share marker and dashes, which remain without colour; those of this package have colours apart."""
    lines = style.METHODS
    assert len({(str(line.dashes), line.marker) for line in lines.values()}) == len(lines)
    assert len({line.colour for line in lines.values()}) == len(lines) - 1  # MDBO and VRDBO
    assert style.method_line("HGP (directed)") == style.method_line("Neumann") == lines["HGP"].options()
    assert style.method_line("one's own")["color"] == "#000000"


def test_steps_go_from_light_to_dark():
    """In grey as well: the lightness falls by 0.05 or more from each S to the next."""
    rgb = [[int(line.colour[k : k + 2], 16) / 255 for k in (1, 3, 5)] for line in style.STEP_LINES.values()]
    grey = np.array(rgb) @ (0.299, 0.587, 0.114)
    assert (np.diff(grey) < -0.05).all() and grey[0] < 0.75, grey


def test_a_curve_that_leaves_the_axes_ends_in_a_triangle():
    """A floor stays flat; a fall below the axes ends where it crosses the edge; what is above the axes is left out."""
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    figure = style.new_figure()
    axes = figure.subplots()
    axes.set_xscale("log")
    floor = style.plot_cut(axes, x, np.array([5.0, 1e-2, 1e-3, 1e-3]), 1e-5, 3.0)
    assert len(axes.lines) == 1
    np.testing.assert_array_equal(floor.get_ydata(), [np.nan, 1e-2, 1e-3, 1e-3])
    cut = style.plot_cut(axes, x, np.array([1.0, 1e-2, 1e-8, 1e-9]), 1e-5, 3.0, color="k")
    np.testing.assert_array_equal(cut.get_ydata(), [1.0, 1e-2, 1e-5, np.nan, np.nan])
    np.testing.assert_allclose(cut.get_xdata()[2], 10**1.5, rtol=1e-14)
    (triangle,) = [line for line in axes.lines if line.get_marker() == 7]
    assert triangle.get_xdata()[0] == cut.get_xdata()[2] and triangle.get_ydata()[0] == 1e-5
    axes.set_xscale("linear")
    straight = style.plot_cut(axes, x, np.array([1.0, 1e-2, 1e-8, 1e-9]), 1e-5, 3.0)
    np.testing.assert_allclose(straight.get_xdata()[2], 55, rtol=1e-14)
    zero = style.plot_cut(axes, x, np.array([1.0, 0.0, 0.0, 0.0]), 1e-5, 3.0)
    assert zero.get_xdata()[1] == 10 and len(axes.lines) == 7
