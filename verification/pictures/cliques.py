"""Erratum 2: σ_max against what the two forms of Lemma 2 allow, on two cliques."""

from __future__ import annotations

from collections.abc import Sequence

from verification.pictures.base import COLOURS, DASHES, panels, picture, reference_line
from verification.run import Picture


def draw(sizes: Sequence[int], ratios: Sequence[tuple[float, float]]) -> Picture:
    """σ_max/(√n c) and σ_max/(n c) against n."""
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        for k, label in enumerate(
            (r"$\sigma_{\max} / (\sqrt{n}\,c)$, as printed", r"$\sigma_{\max} / (n\,c)$, corrected")
        ):
            axes.plot(
                sizes,
                [r[k] for r in ratios],
                color=COLOURS[1 - k],
                linestyle=DASHES[k],
                marker="os"[k],
                ms=3,
                label=label,
            )
        reference_line(axes, 1, "must not exceed 1")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.set_xlabel("clients $n$")
        axes.legend()
        return picture(
            figure,
            "lemma2_cliques",
            "Lemma 2: the factor must be n, not √n (erratum 2)",
            "Two cliques of n/2 clients joined by one edge each way, S = 10, c the largest entry of |Θ − Θ̂|. σ_max "
            "exceeds √n c by a factor close to √n; it never exceeds n c.",
        )
