"""The equations of the report: LaTeX here, MathML in the report, which the browser draws.

A long equation has several parts; a line may end between two of them.
"""

from __future__ import annotations

import re
from html import escape

from latex2mathml.converter import convert

EQUATIONS: dict[str, tuple[str, ...]] = {
    "Lemma 1": (
        r"x = \Theta (x - \eta\, \partial_x g)",
        r"\Longleftrightarrow\; x_1 = \cdots = x_n",
        r"\text{and } \sum_k \partial_x g_k = 0",
    ),
    "Lemma 2": (
        r"|E_{ij}| \le c \;\Longrightarrow\; \sigma_{\max}(E) \le n\, c,",
        r"c = \frac{8}{\delta} \tau^{S-1}",
    ),
    "Remark": (
        r"v^{(M)} = \partial_\lambda f - \eta \sum_{m<M} J\, \hat\Theta_m",
        r"\prod_{k<m} \left( (I - \eta H) \hat\Theta_k \right) \partial_x f",
    ),
    "A": (
        r"\lVert v_i - d_i \rVert \le \beta_i \bigl[",
        r"\eta\, G_\infty \sum_{j<M} \gamma_j \rho^j (1 + \rho\, g_{M-1-j})",
        r"+\; \bar\rho^M \frac{\lVert \bar g \rVert}{\bar\alpha} \bigr]",
    ),
    "B": (
        r"\lVert v_i - d_i \rVert \le \beta_i \left[ \eta F + \bar\rho^M \frac{\lVert \bar g \rVert}{\bar\alpha} "
        r"\right]",
    ),
    "C1 – C4": (
        r"v_i - d_i = J_i \bar H^{-1} (\bar g - \bar H w_i),",
        r"C1 = \beta_i \frac{\lVert \bar g - \bar H w_i \rVert}{\bar\alpha}",
    ),
    "D": (
        r"\text{noise}^2 \le 2 \log\frac{2}{\epsilon}",
        r"\sum_{m<M} \eta^2 n \rho^{2m} G_\infty^2",
        r"\frac{\kappa_\lambda^2 + y_m^2 \kappa_x^2}{b}",
    ),
    "E": (
        r"\mathbb{E} \lVert v_i - d_i \rVert^2 = \lVert \mathbb{E} v_i - d_i \rVert^2",
        r"+ \sum_m \mathbb{E} \lVert D_i^{(m)} \rVert^2",
    ),
    "2*": (
        r"\lVert \hat d_i - d_i \rVert \le (\nu_{f\lambda} + \nu_J \lVert \hat w \rVert)\, e_i",
        r"+\; \beta_i \frac{\nu_{fx} + \nu_H \lVert \hat w \rVert}{\bar\alpha} \frac1n \sum_k e_k",
    ),
    "Chebyshev": (
        r"\lVert v - d \rVert \le \sqrt{\sum_i \beta_i^2} \; \frac{2 q^M}{1 + q^{2M}} \; \lVert w^\ast \rVert,",
        r"q = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}",
    ),
    "F": (
        r"\lVert v_i - d_i \rVert \le \beta_i \left( \frac{F_\parallel}{\sqrt n} + F_\perp \right),",
        r"F_\parallel = \frac{a_0}{\bar\alpha\, \tau_M} + \sum_{j<M} \chi_j i_j, \quad \chi_j \le \frac{1}{\ell}",
    ),
    "Unreliable links": (
        r"\sigma_{ij} \leftarrow \sigma_{ij} + W_{ij} z_j,",
        r"z_i \leftarrow z_i + (\sigma_{ij} - \rho_{ij}),",
        r"\rho_{ij} \leftarrow \sigma_{ij}",
    ),
    "curvature": (
        r"\operatorname{spec}(Q\bar H) \subset \bigl[ \frac{\bar\alpha}{\bar\alpha + \delta},",
        r"\max_\lambda \frac{\lambda}{\lambda + \delta}",
        r"\left( 1 + \frac{\zeta_2^2}{p(\lambda + \delta)} \right) \bigr]",
    ),
    "tracking, refinement, falling S": (
        r"u \leftarrow P(u - \eta y), \quad \omega \leftarrow P\omega,",
        r"w^{+} = u/\omega,",
        r"y \leftarrow P y + H(w^{+} - w)",
    ),
}


def mathml(name: str) -> str:
    """The equation of a statement as <math> elements; empty where it has none."""
    if name not in EQUATIONS:
        return ""
    parts = "".join(_convert(part, "block") for part in EQUATIONS[name])
    return f"<div class='equation'>{parts}</div>"


def inline(text: str) -> str:
    """HTML of a text with LaTeX between dollar signs."""
    parts = re.split(r"\$([^$]+)\$", text)
    return "".join(_convert(part) if k % 2 else escape(part) for k, part in enumerate(parts))


def _convert(latex: str, display: str = "inline") -> str:
    return convert(latex, display=display).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
