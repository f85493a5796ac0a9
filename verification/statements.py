"""The statements in one or two lines each, for the start of the report, with LaTeX between dollar signs."""

from __future__ import annotations

import re

GLOSSARY = {
    "Notation": r"n clients; $K_m$ the matrix of the m-th call of Push-Sum with S steps, $E_m = K_m - 11^\top/n$; "
    r"$H_i$, $J_i$ second derivatives of client i's inner cost, $\bar H$ the mean of the $H_i$; $d$ the true "
    r"hyper-gradient, $v^{(M)}$ HGP's estimate after M iterations with step $\eta$. "
    r"$\rho = \max_i \lVert I - \eta H_i \rVert$, $\bar\rho = \lVert I - \eta \bar H \rVert$, "
    r"$\bar\alpha = \lambda_{\min}(\bar H)$, $\beta_i = \lVert J_i \rVert$.",
    "Lemma 1": r"$x$ is a fixed point of $x \mapsto \Theta(x - \eta\, \partial_x g)$ exactly if all clients agree and "
    "the gradients sum to zero.",
    "Lemma 2": r"$\sigma_{\max}(E) \le \sqrt{n}\, c$ as in the printed proof, $n\, c$ as corrected, where $c$ bounds "
    "the entries of $E$.",
    "Remark": r"$v^{(M)}$ as a sum of products of block matrices, each iteration with its own averaging and samples.",
    "Theorem 1, Corollaries 1 and 2, Theorem 2": "the paper's error bounds with mini-batches, with exact Jacobians, "
    "with batches of size b, and at an inexact inner solution. Rows “as printed” test them with realised constants and "
    r"$\exp(-O(M)) = (\beta/\alpha)(1 - \eta\alpha)^M$. “Repaired” rows of the corollaries add the step "
    "condition of erratum 4.",
    "A": r"for any S and M, from row-stochasticity alone; $\gamma_j$ is the largest absolute row sum of $E_j$.",
    "B": "the same kind of bound from a recursion in the consensus part and the disagreement of $u$; only "
    r"$\bar H$ must be positive definite.",
    "C1 – C4": "bounds on a finished run from its residual. C1 and C2 need the mean Hessian, C3 and C4 only averages "
    "of vectors and scalars.",
    "Rounding where sums cancel": "certificates, plans and certified steps include the rounding of all sums, from the "
    r"sizes of their terms: near an outer optimum those of $\partial_x f$ cancel, and an allowance relative to their "
    "sum is too small.",
    "D": r"with probability $1 - \epsilon$ for mini-batches, in the forms of Azuma and Bernstein, without a factor of "
    "dimension.",
    "E": "the mean-square error of mini-batch runs, exactly.",
    "2*": r"Theorem 2, corrected: the effect of an inner solution $\hat x \ne x$, with the term that Theorem 2 lacks.",
    "Unreliable links": "messages are lost with probability p or delayed by 0 … q steps, and clients may be inactive. "
    "With running sums for every edge, averages and hyper-gradients converge; plain Push-Sum has a floor. A "
    "and B hold with the realised matrices, C3 and C4 with the averages since the oldest share in transit.",
    "Chebyshev": "the error of a Chebyshev iteration in place of the Neumann series.",
    "F": "the same with inexact averages: injections of averaging errors into the exact recursion, each "
    r"amplified by at most $1/\ell$.",
    "curvature": r"gradient tracking with solves $(H_i + \delta I)^{-1}$ at each client: the spectrum of $Q\bar H$, "
    r"$Q$ the mean of these inverses, from $\zeta_\infty = \max_i \lVert H_i - \bar H \rVert$ and "
    r"$\zeta_2^2$, the norm of the mean of $(H_i - \bar H)^2$; exact limits for any preconditioners; small steps.",
    "tracking, refinement, falling S": "methods that need fewer messages: rates, floors, contraction and rounds as "
    "their docstrings state them.",
}

_KINDS = {"D (azuma)": "Bound D, Azuma's form", "D (bernstein)": "Bound D, Bernstein's form"}
_KINDS |= {
    "C,": "Certificate C,",
    "2*": "Theorem 2, corrected",
    "E": "Mean-square error E",
    "min": "Smaller bound, min",
}
_KINDS |= {f"C{k}": f"Certificate C{k}" for k in (1, 2, 3, 4)} | {letter: f"Bound {letter}" for letter in "ABDF"}


def title(name: str) -> str:
    """The title of a statement or row in words: C2 is Certificate C2."""
    for kind, words in _KINDS.items():
        if re.match(re.escape(kind) + r"(?![\w’'])", name):
            return words + name[len(kind) :]
    return name if name.startswith(("certify", "κ")) else name[:1].upper() + name[1:]
