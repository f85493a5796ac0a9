"""Thumbnails of figures."""

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
