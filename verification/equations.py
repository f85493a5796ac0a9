"""The statements as equations, drawn by the browser itself: LaTeX here, MathML in the report."""

from __future__ import annotations

from latex2mathml.converter import convert

EQUATIONS = {
    "Lemma 1": (
        r"x = \Theta (x - \eta\, \partial_x g) \;\Longleftrightarrow\; x_1 = \cdots = x_n \text{ and } \sum_k "
        r"\partial_x g_k = 0"
    ),
    "Lemma 2": (
        r"|E_{ij}| \le c \;\Longrightarrow\; \sigma_{\max}(E) \le n\, c, \qquad c = \frac{8}{\delta} \tau^{S-1}"
    ),
    "Remark": (
        r"v^{(M)} = \partial_\lambda f - \eta \sum_{m<M} J\, \hat\Theta_m \prod_{k<m} \left( (I - \eta H) "
        r"\hat\Theta_k \right) \partial_x f"
    ),
    "A": (
        r"\lVert v_i - d_i \rVert \le \beta_i \left[ \eta\, G_\infty \sum_{j<M} \gamma_j \rho^j (1 + \rho\, "
        r"g_{M-1-j}) + \bar\rho^M \frac{\lVert \bar g \rVert}{\bar\alpha} \right]"
    ),
    "B": (
        r"\lVert v_i - d_i \rVert \le \beta_i \left[ \eta F + \bar\rho^M \frac{\lVert \bar g \rVert}{\bar\alpha} "
        r"\right]"
    ),
    "C1 – C4": (
        r"v_i - d_i = J_i \bar H^{-1} (\bar g - \bar H w_i), \qquad C1 = \beta_i \frac{\lVert \bar g - \bar H w_i "
        r"\rVert}{\bar\alpha}"
    ),
    "D": (
        r"\text{noise} \le \sqrt{ 2 \log\frac{2}{\epsilon} \sum_{m<M} \eta^2 n \rho^{2m} G_\infty^2\, "
        r"\frac{\kappa_\lambda^2 + y_m^2 \kappa_x^2}{b} }"
    ),
    "E": (
        r"\mathbb{E} \lVert v_i - d_i \rVert^2 = \lVert \mathbb{E} v_i - d_i \rVert^2 + \sum_m \mathbb{E} \lVert "
        r"D_i^{(m)} \rVert^2"
    ),
    "2*": (
        r"\lVert \hat d_i - d_i \rVert \le (\nu_{f\lambda} + \nu_J \lVert \hat w \rVert)\, e_i + \beta_i "
        r"\frac{\nu_{fx} + \nu_H \lVert \hat w \rVert}{\bar\alpha} \frac1n \sum_k e_k"
    ),
    "Chebyshev": (
        r"\lVert v - d \rVert \le \sqrt{\sum_i \beta_i^2} \; \frac{2 q^M}{1 + q^{2M}} \; \lVert w^\ast \rVert, "
        r"\qquad q = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}"
    ),
    "F": (
        r"\lVert v_i - d_i \rVert \le \beta_i \left( \frac{F_\parallel}{\sqrt n} + F_\perp \right), \qquad "
        r"F_\parallel = \frac{a_0}{\bar\alpha\, \tau_M} + \sum_{j<M} \chi_j i_j, \quad \chi_j \le \frac{1}{\ell}"
    ),
    "Unreliable links": (
        r"\sigma_{ij} \leftarrow \sigma_{ij} + W_{ij} z_j, \qquad z_i \leftarrow z_i + (\sigma_{ij} - \rho_{ij}), "
        r"\quad \rho_{ij} \leftarrow \sigma_{ij}"
    ),
    "tracking, refinement, falling S": (
        r"u \leftarrow P(u - \eta y), \quad \omega \leftarrow P\omega, \quad w^{+} = u/\omega, \quad y \leftarrow P y "
        r"+ H(w^{+} - w)"
    ),
}


def mathml(name: str) -> str:
    """The equation of a statement as a <math> element; empty where it has none."""
    if name not in EQUATIONS:
        return ""
    markup = convert(EQUATIONS[name], display="block").replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    return f"<div class='scroll' tabindex='0' role='group' aria-label='equation of {name}'>{markup}</div>"
