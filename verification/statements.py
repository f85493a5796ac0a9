"""The statements, in a line or two each, for the head of the report."""

from __future__ import annotations

GLOSSARY = {
    "Notation": "n clients; K_m the matrix of the m-th call of Push-Sum with S steps, E_m = K_m − 11ᵀ/n; H_i, J_i "
    "second derivatives of client i's inner cost, H̄ their mean; d the true hyper-gradient, v^(M) HGP's estimate after "
    "M iterations with step η. ρ = max ‖I − ηH_i‖, ρ̄ = ‖I − ηH̄‖, ᾱ = λ_min(H̄), β_i = ‖J_i‖.",
    "Lemma 1": "x is a fixed point of x ↦ Θ(x − η∂_x g) exactly if all clients agree and the gradients sum to zero.",
    "Lemma 2": "σ_max(E) ≤ √n c as in the printed proof, n c as corrected, where c bounds the entries of E.",
    "Remark": "v^(M) as a sum of products of block matrices, each iteration with its own averaging and samples.",
    "Theorem 1, Corollaries 1 and 2, Theorem 2": "the paper's error bounds with mini-batches, with exact Jacobians, "
    "with batches of size b, and at an inexact inner solution; “printed” rows test them as printed, with realised "
    "constants and exp(−O(M)) = (β/α)(1 − ηα)^M; “repaired” rows of the corollaries add the step "
    "condition of erratum 4.",
    "A": "‖v_i − d_i‖ ≤ β_i [ηG∞ Σ_j γ_j ρ^j (1 + ρ g_{M−1−j}) + ρ̄^M ‖ḡ‖/ᾱ] with γ_j the largest absolute row sum of "
    "E_j: for any S and M, from row-stochasticity alone.",
    "B": "the same kind of bound from a recursion in the consensus part and the disagreement of u; only H̄ must be "
    "positive "
    "definite.",
    "C1 – C4": "bounds on a finished run from its residual: v_i − d_i = J_i H̄⁻¹(ḡ − H̄w_i) exactly. C1 and C2 need the "
    "mean Hessian, C3 and C4 only averages of vectors and scalars.",
    "Rounding where sums cancel": "certificates, plans and certified steps include the rounding of all sums, from the "
    "sizes of their terms: near an outer optimum those of ∂_x f cancel, and an allowance relative to their sum is too "
    "small.",
    "D": "with probability 1 − ϵ for mini-batches, in the forms of Azuma and Bernstein, without a factor of dimension.",
    "E": "the mean-square error of mini-batch runs, exactly.",
    "2*": "the effect of an inner solution x̂ ≠ x, with the term that Theorem 2 lacks.",
    "Unreliable links": "messages are lost with probability p or delayed by 0 … q steps, and clients may be inactive. "
    "With running sums for every edge, averages and hyper-gradients converge; plain Push-Sum has a floor. A "
    "and B hold with the realised matrices, C3 and C4 with the averages since the oldest share in transit.",
    "Chebyshev": "the error of a Chebyshev iteration in place of the Neumann series.",
    "F": "the same with inexact averages: injections of averaging errors into the exact recursion, each "
    "amplified by at most 1/low.",
    "tracking, refinement, falling S": "methods that need fewer messages: rates, floors, contraction and rounds as "
    "their docstrings state them.",
}
