"""Errata in the proof of Theorem 2, from one derivation: 16, 17 and 18.

With ^ at x and ˇ at x̂, u^(m) = Π_{m'<m} ((I − ηȞ^(m'))Θ̂_m') ∂f(x̂), T = (I − ηH)Θ and j = m − t − 1,

    v − d = −(A) + (B) + (C),
    (A) = η Σ_{m<M} {J̌^(m) Θ̂_m u^(m) − JΘT^m ∂f(x)},    (B) = ηJΘ Σ_{m≥M} T^m ∂f(x),    (C) = ∂_λ f(x̂) − ∂_λ f(x),
    (A) = (A1) + (A2) − (A3) + (A4) + (D1) − (D2) + (D3).

Take J̌ = (J̌ − Ĵ) + (Ĵ − J) + J and Θ̂ = (Θ̂ − Θ) + Θ: this is (D1) + (A1) + (A2) and what is left is ηJΘ(u^(m) − T^m
∂f(x)). Now u^(m) − T^m ∂f(x̂) = Σ_{t<m} T^t [(I − ηȞ^(j))Θ̂_j − T] u^(j), and with Ȟ = (Ȟ − Ĥ) + (Ĥ − H) + H the bracket
is −η(Ȟ − Ĥ)Θ̂ − η(Ĥ − H)Θ̂ + (I − ηH)(Θ̂ − Θ): (D2), (A3) and (A4) with these signs. The rest is

    (D3) = η Σ_{m<M} JΘT^m (∂f(x̂) − ∂f(x)),        ‖(D3)‖ ≤ ηβ Σ (1 − ηα)^m ν_f ‖x̂ − x‖ ≤ (β/α) ν_f ‖x̂ − x‖.

So every u in (A1)–(A4), (D1), (D2) starts from ∂f(x̂) and its bound carries ‖∂f(x̂)‖; (D3) has powers of T, not products
of samples, and β/α is right as printed. (Had (A1)–(A4) the u of Theorem 1, at x throughout, (D3) would be η Σ ĴΘ̂Π̂(…),
whose bound is (2β/α)(1 + ε̂), and (D2) another sum: the printed bounds do not belong to this reading.)
"""

from __future__ import annotations

import numpy as np

from verification.errata.blocks import Blocks, blocks
from verification.errata.entry import SLIP, Erratum, Shown, figure
from verification.run import Run

ROUNDING = 1e-12
SETTING = "logistic n=2 d=3, b=3, M=6"


def true_point_in_the_series(run: Run) -> Shown:
    """Erratum 16: v − d = −(A) + (B) + (C) with ∂_x f at x and, as printed, at x̂ in the subtracted series."""
    b = blocks(run.seed)
    v = b.value(b.H_check, b.J_check, b.f_x_hat, b.f_lam_hat)
    C = b.f_lam_hat - b.f_lam
    estimated = b.f_lam_hat - v  # η Σ J̌ Θ̂ Π(…) ∂f(x̂)

    def residual(start: np.ndarray) -> float:
        A = estimated - b.series(start, 0, b.M)
        B = b.whole_series(np.linalg.matrix_power(b.T, b.M) @ start)
        return float(np.linalg.norm(v - b.truth - (-A + B + C)))

    right, printed = residual(b.f_x), residual(b.f_x_hat)
    return Shown(
        SETTING,
        printed,
        right,
        right < ROUNDING and printed > 1e-6,
        f"‖v − d + (A) − (B) − (C)‖ is {figure(right)} with ∂_x f(x) in the subtracted series and {figure(printed)} "
        "with "
        "∂_x f(x̂)",
    )


def parts(b: Blocks, start: np.ndarray) -> dict[str, np.ndarray]:
    """(A1) … (A4), (D1), (D2) and (D2) with the printed index m, for u^(0) = `start`."""
    u = b.iterates(b.H_check, start)
    step = np.eye(len(b.H)) - b.eta * b.H
    mixed = [Theta_m @ u_m for Theta_m, u_m in zip(b.Thetas, u, strict=True)]
    terms = {
        "A1": sum(b.eta * (b.J_hat[m] - b.J) @ mixed[m] for m in range(b.M)),
        "A2": sum(b.eta * b.J @ (mixed[m] - b.Theta @ u[m]) for m in range(b.M)),
        "D1": sum(b.eta * (b.J_check[m] - b.J_hat[m]) @ mixed[m] for m in range(b.M)),
    }
    terms |= {name: np.zeros_like(terms["A1"]) for name in ("A3", "A4", "D2", "D2 printed")}
    for m in range(1, b.M):
        for t in range(m):
            j = m - t - 1
            terms["A3"] += b.eta * b.series((b.H_hat[j] - b.H) @ mixed[j], t, t + 1)
            terms["A4"] += b.series(step @ (mixed[j] - b.Theta @ u[j]), t, t + 1)
            terms["D2"] += b.eta * b.series((b.H_check[j] - b.H_hat[j]) @ mixed[j], t, t + 1)
            terms["D2 printed"] += b.eta * b.series((b.H_check[j] - b.H_hat[m]) @ mixed[j], t, t + 1)
    return terms


def whole(b: Blocks) -> np.ndarray:
    """(A), with ∂f(x) in the subtracted series."""
    v = b.value(b.H_check, b.J_check, b.f_x_hat, b.f_lam_hat)
    return b.f_lam_hat - v - b.series(b.f_x, 0, b.M)


def without_d3(terms: dict[str, np.ndarray]) -> np.ndarray:
    """(A1) + (A2) − (A3) + (A4) + (D1) − (D2)."""
    return terms["A1"] + terms["A2"] - terms["A3"] + terms["A4"] + terms["D1"] - terms["D2"]


def signs_of_theorem_2(run: Run) -> Shown:
    """Erratum 17: (A) of Theorem 2 from its parts, with the sign of (A3) and the index in (D2) right and as printed."""
    b = blocks(run.seed)
    terms, A = parts(b, b.f_x_hat), whole(b)
    rest = A - without_d3(terms) - b.series(b.f_x_hat - b.f_x, 0, b.M)
    right = float(np.linalg.norm(rest))
    sign = float(np.linalg.norm(rest - 2 * terms["A3"]))
    index = float(np.linalg.norm(rest - terms["D2"] + terms["D2 printed"]))
    return Shown(
        SETTING,
        min(sign, index),
        right,
        right < ROUNDING and min(sign, index) > 1e-6,
        f"‖(A) − its parts‖ is {figure(right)} with −(A3) and index m − t − 1 in (D2), {figure(sign)} with the printed "
        f"+(A3), {figure(index)} with the printed index m",
    )


def products_and_points(run: Run) -> Shown:
    """Erratum 18: what stays unexplained of (A) with the printed products in (D3) and with ∂f(x) for ∂f(x̂)."""
    b = blocks(run.seed)
    A, shift = whole(b), b.f_x_hat - b.f_x
    D3 = b.series(shift, 0, b.M)
    D3_printed = b.eta * b.J @ b.Theta @ sum(b.iterates(b.H_hat, shift))
    there, here = without_d3(parts(b, b.f_x_hat)), without_d3(parts(b, b.f_x))
    size = np.linalg.norm(A)
    right, products, start, both = (
        float(np.linalg.norm(A - known) / size)
        for known in (there + D3, there + D3_printed, here + D3, here + D3_printed)
    )
    rate = float(np.linalg.norm(b.T, 2))
    allowed = b.eta * np.linalg.norm(b.J, 2) * sum(rate**m for m in range(b.M)) * np.linalg.norm(shift)
    return Shown(
        SETTING,
        min(products, start, both),
        right,
        bool(right < ROUNDING and min(products, start, both) > 1e-4 and np.linalg.norm(D3) <= allowed),
        f"the parts add up to (A) with relative error {figure(right)} with powers of T in (D3) and ∂f(x̂) elsewhere; "
        f"{figure(products)} with the printed products in (D3), {figure(start)} with the printed ∂f(x), "
        f"{figure(both)} with both. ‖(D3)‖ is {figure(np.linalg.norm(D3) / allowed)} of ηβ Σ‖T‖^m ‖∂f(x̂) − ∂f(x)‖, so "
        "β/α needs no factor 2",
    )


ENTRIES = (
    Erratum(
        16,
        SLIP,
        "Theorem 2, proof, (A) and (B)",
        "The series of the true hyper-gradient is subtracted with ∂_x f(x̂).",
        "The true hyper-gradient contains ∂_x f(x); only the estimate contains ∂_x f(x̂).",
        true_point_in_the_series,
    ),
    Erratum(
        17,
        SLIP,
        "Theorem 2, proof, decomposition of (A)",
        "(A3) enters with a plus sign; (D2) subtracts the Hessian sample of iteration m.",
        "(A3) enters with a minus sign, as in Theorem 1; the sample in (D2) is that of iteration m − t − 1.",
        signs_of_theorem_2,
    ),
    Erratum(
        18,
        SLIP,
        "Theorem 2, proof, (D3) and the start of the other terms",
        "(D3) contains the products Π(I − ηĤ)Θ̂; (A1)–(A4), (D1) and (D2) start from ∂_x f(x), and their bounds "
        "contain ‖∂_x f(x)‖.",
        "(D3) contains the powers ((I − ηH)Θ)^m, whose geometric sum is the printed β/α (the line before it, with "
        "(1 + ε̂)^m, would give 2β/α). The other terms start from ∂_x f(x̂), so the first three terms of the "
        "theorem contain ‖∂_x f(x̂)‖ ≤ ‖∂_x f(x)‖ + ν_f ‖x̂ − x‖.",
        products_and_points,
    ),
)
