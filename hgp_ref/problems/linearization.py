"""u -> X_i^T (weight l'' (X_i u)) + rate u at a fixed point, in whichever of three ways suits a client.

    Hessian    On full batches with d_x <= N_i the (d_x, d_x) matrix is formed once and applied by one batched product:
               it is no larger than C times the data, and applying it costs d_x² against 2 N_i d_x.
    one pass   Otherwise on NumPy, where the client's data are large: both products with the features in one sweep.
    text       Otherwise two products with the features through logit space; no d_x x d_x array is ever formed.

Which way a client goes depends on its own data alone, so that its numbers are the same bit for bit whoever shares the
arrays. On libraries other than NumPy all clients are padded to one length and go the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.backend import Array, device, is_numpy
from hgp_ref.problems import fused
from hgp_ref.problems.arrays import Shape, check_argument, expand, matvec, run_axes
from hgp_ref.problems.instances import View

if TYPE_CHECKING:
    from hgp_ref.problems.linear import LinearProblem

Way = tuple[np.ndarray | None, Callable[[Array], Array]]  # clients (None: all) and their products d²_x g_i u_i


class LinearLinearization:
    """Second derivatives of a linear model. Kept from the first use on: what only the point and the batch decide."""

    def __init__(self, problem: LinearProblem, x: Array, lam: Array, view: View, lead: Shape) -> None:
        xp = problem._xp
        self._problem, self._view, self._lead = problem, view, lead
        self._x = xp.asarray(x, copy=True)  # a caller may go on to change x and lam in place
        self._lam = xp.asarray(lam, copy=True)

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (n, d_x)"""
        lead = self._check(u)
        return expand(self._bend(u, lead), lead, 2, xp=self._problem._xp)

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        lead = self._check(u)
        crossed = self._problem._cross(self._x, self._slopes, self._view, u)
        return expand(crossed, lead, 2, xp=self._problem._xp)

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u), with one product X_i u_i for both where both go through the data."""
        if not (self._problem._cross_needs_logits and self._all_by_text):
            return self.hvp(u), self.cross(u)
        lead, p, xp = self._check(u), self._problem, self._problem._xp
        along = self._view.forward(u, xp=xp)
        bent = self._text(u, self._view, along) + self._rate * u
        crossed = p._cross(self._x, self._slopes, self._view, u, along)
        return expand(bent, lead, 2, xp=xp), expand(crossed, lead, 2, xp=xp)

    def on(self, batch: Any) -> LinearLinearization:
        """The same point on a mini-batch: l' and l'' of its instances are picked from those of all."""
        if self._lead:
            return self._problem.linearize(self._x, self._lam, batch=batch)
        return OnBatch(self, self._problem._train.select(batch, xp=self._problem._xp), tuple(batch.shape[:-2]))

    # What the point decides.

    @cached_property
    def _rate(self) -> Any:
        return self._problem._rate(self._lam)

    @cached_property
    def _logits(self) -> Array:
        return self._view.forward(self._x, xp=self._problem._xp)

    @cached_property
    def _slope(self) -> Array:
        p = self._problem
        return p._loss.slope(self._logits, self._view.targets, xp=p._xp)

    def _slopes(self) -> Array:
        """l' of every instance.  # (..., n, N, C)"""
        return self._slope

    @cached_property
    def _kept(self) -> Any:
        """weight l'' of every instance, as the loss keeps it."""
        p = self._problem
        return p._loss.curvature(self._logits, p._weight(self._lam, self._view), xp=p._xp)

    @cached_property
    def plain(self) -> Any:
        """l'' of every instance, without weights."""
        p = self._problem
        return p._loss.curvature(self._logits, p._xp.ones_like(self._view.mean), xp=p._xp)

    # The three ways.

    @cached_property
    def _ways(self) -> list[Way]:
        view = self._view
        if view.rows is None:  # all clients of one length
            dense, large = self._suits(view.features.shape[-2])
            return [(None, self._by_hessian(None) if dense else self._through(view, one_pass=large))]
        dense, large = self._suits(view.rows)
        ways: list[Way] = []
        for k, group in enumerate((dense, large, ~dense & ~large)):
            clients = None if group.all() else np.flatnonzero(group)
            if clients is not None and not clients.size:
                continue
            data = view if clients is None else view.only(clients)
            ways.append((clients, self._by_hessian(clients) if k == 0 else self._through(data, one_pass=k == 1)))
        return ways

    def _suits(self, rows: Any) -> tuple[Any, Any]:
        """Whether clients with so many rows go by Hessians, and whether in one pass."""
        p, d = self._problem, self._view.features.shape[-1]
        dense = (rows >= p.dim_x) & (self._view.index is None)
        item = self._view.features.itemsize if is_numpy(self._x) else 0
        return dense, (rows * d * item >= fused.SMALLEST) > dense

    @property
    def _all_by_text(self) -> bool:
        rows = self._view.features.shape[-2] if self._view.rows is None else self._view.rows
        return not any(np.any(suits) for suits in self._suits(rows))

    def _bend(self, u: Array, lead: Shape) -> Array:
        """d²_x g_i u_i, each client in its way.  # (..., n, d_x)"""
        clients, apply = self._ways[0]
        if clients is None:
            return apply(u)
        bent = np.empty((*lead, *u.shape[-2:]), dtype=u.dtype)
        for clients, apply in self._ways:
            product = apply(u)
            bent[..., clients, :] = product if product.shape[-2] < u.shape[-2] else product[..., clients, :]
        return bent

    def _by_hessian(self, clients: np.ndarray | None) -> Callable[[Array], Array]:
        """Products with Hessians formed now, of all or of some clients only."""
        xp, part = self._problem._xp, self
        if clients is not None:
            x, lam = self._x[..., clients, :], self._lam[..., clients, :]
            part = LinearLinearization(self._problem, x, lam, self._view.of(clients), self._lead)
        hessian = part._form()  # (..., n, d_x, d_x)
        return lambda u: matvec(hessian, u if clients is None else u[..., clients, :], xp=xp)

    def _through(self, view: View, one_pass: bool) -> Callable[[Array], Array]:
        """Products with the features, of the clients whose rows `view` looks at."""

        def apply(u: Array) -> Array:
            if one_pass and fused.applies(view.features, self._kept, u):
                return fused.hvp(view.features, self._kept, self._rate, u, view.rows)
            return self._text(u, view) + self._rate * u

        return apply

    def _text(self, u: Array, view: View, along: Array | None = None) -> Array:
        """X_i^T (weight l'' (X_i u)), where `along` is X_i u if that is known.  # (..., n, d_x)"""
        xp = self._problem._xp
        along = view.forward(u, xp=xp) if along is None else along
        return view.adjoint(self._problem._loss.bend(self._kept, along, xp=xp), xp=xp)

    def _form(self) -> Array:
        """The Hessians, by `_text` of all unit vectors of one class at a time (d of them as a run axis)."""
        p, xp = self._problem, self._problem._xp
        C, n = p._loss.logits, int(self._x.shape[-2])
        d = p.dim_x // C
        identity = xp.reshape(xp.eye(p.dim_x, dtype=self._x.dtype, device=device(self._x)), (d, C, p.dim_x))
        rows = []
        for c in range(C):
            unit = xp.reshape(identity[:, c, :], (d, *(1 for _ in self._lead), 1, p.dim_x))
            unit = xp.broadcast_to(unit, (*unit.shape[:-2], n, p.dim_x))
            bent = self._text(unit, self._view)  # (d, ..., n, d_x): rows (., c) of the symmetric Hessians
            rows.append(xp.moveaxis(bent, 0, -2))
        data = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        data = xp.reshape(data, (*data.shape[:-3], p.dim_x, p.dim_x))
        return data + p._diagonal(self._rate, self._x)

    def _check(self, u: Array) -> Shape:
        p = self._problem
        lead = check_argument("u", u, self._x, (p.n_clients, p.dim_x), "n_clients, dim_x")
        return run_axes(point=self._lead, u=lead)


class OnBatch(LinearLinearization):
    """The point of `whole` on a mini-batch."""

    def __init__(self, whole: LinearLinearization, view: View, lead: Shape) -> None:
        self._problem, self._view, self._lead = whole._problem, view, lead
        self._x, self._lam, self._whole = whole._x, whole._lam, whole

    @cached_property
    def _slope(self) -> Array:
        return self._view.pick(self._whole._slopes())

    @cached_property
    def _kept(self) -> Any:
        p = self._problem
        return p._loss.picked(self._whole.plain, self._view.pick, p._weight(self._lam, self._view))
