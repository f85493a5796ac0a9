"""Second derivatives of a neural problem at a fixed point, part by part.

    z, c at the point;   ż = J u;   ċ = mean (∂²l/∂z²) ż
    hvp(u) = (J^T c)˙ + l2 u,       cross(u) = Σ_k mean_k (∂²l_k/∂λ∂z) ż_k

`hvp` costs a tangent pass and a backward tangent pass, `cross` the tangent pass alone, `products` no more than `hvp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hgp_ref.backend import Array
from hgp_ref.problems.arrays import check_argument
from hgp_ref.problems.neural_answers import ask
from hgp_ref.problems.neural_parts import Part, Parts, Rows, add_scaled, weighted

if TYPE_CHECKING:
    from hgp_ref.problems.neural import NeuralProblem


class NeuralLinearization:
    """hvp, cross, and both at once. Tapes are made at the first product and kept if they fit (`Parts.fit`)."""

    def __init__(self, problem: NeuralProblem, x: Array, lam: Array, parts: Parts) -> None:
        xp = problem._xp
        self._problem = problem
        self._x, self._lam = xp.asarray(x, copy=True), xp.asarray(lam, copy=True)  # a caller may go on to change them
        self._parts = parts
        self._kept: dict[int, _Opened] | None = {} if parts.fit() else None

    def hvp(self, u: Array) -> Array:
        """∂²_x g_i u_i.  # (n, d_x)"""
        return self._pass(u, True, False)[0]

    def cross(self, u: Array) -> Array:
        """∂²_{xλ} g_i u_i.  # (n, d_λ)"""
        return self._pass(u, False, True)[1]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) from one tangent pass.  # (n, d_x), (n, d_λ)"""
        return self._pass(u, True, True)

    def _pass(self, u: Array, bend: bool, cross: bool) -> tuple[Any, Any]:
        problem = self._problem
        lead = check_argument("u", u, self._x, tuple(self._x.shape), "n_clients, dim_x")
        if lead:
            raise ValueError(f"u: leading run axes {lead} given, needed none; call once for each run")
        xp, bent, crossed = problem._xp, Rows(tuple(u.shape), u), Rows(tuple(self._lam.shape), u)

        def work(k: int, part: Part) -> None:
            at, opened = part.clients, self._open(k, part)
            moved = opened.tape.tangent(u[at, :])
            if cross:
                crossed.put(at, ask(problem.cost, "cross", opened.z, opened.lam, part.view, moved.output, xp=xp))
            if bend:
                bent.put(at, opened.bend(u[at, :], moved, bent.out(at)))

        self._parts.each(work)
        return bent.array(xp) if bend else None, crossed.array(xp) if cross else None

    def _open(self, k: int, part: Part) -> _Opened:
        if self._kept is None:
            return _Opened(self, part)
        if k not in self._kept:
            self._kept[k] = _Opened(self, part)
        return self._kept[k]


class _Opened:
    """A part with its tape, and the adjoint from the first use on."""

    def __init__(self, lin: NeuralLinearization, part: Part) -> None:
        self._problem, self._part = lin._problem, part
        self.tape = self._problem.model.forward(lin._x[part.clients, :], part.images)
        self.z, self.lam = self.tape.output, lin._lam[part.clients, :]
        self._adjoint: Any = None

    def bend(self, u: Array, moved: Any, out: Array | None) -> Array:
        """(J^T c)˙ + l2 u.  # (n, d_x)"""
        problem, view = self._problem, self._part.view
        if self._adjoint is None:
            self._adjoint = self.tape.adjoint(problem.weighted_slope(problem.cost, self.z, self.lam, view))
        c_dot = weighted(view.mean, ask(problem.cost, "bend", self.z, self.lam, view, moved.output, xp=problem._xp))
        return add_scaled(self._adjoint.tangent(moved, c_dot, out), problem.l2, u)
