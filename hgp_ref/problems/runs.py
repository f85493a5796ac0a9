"""Answers of a problem, checked, and a run axis for problems that know none: one call for each run, stacked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached
from hgp_ref.problems.arrays import Shape, run_axes
from hgp_ref.problems.protocol import Linearization
from hgp_ref.problems.unchanged import Unchanged, read_only

Answers = Mapping[str, Shape]  # what a call returns, in order: a name for messages, and the shape without run axes


def checked(returned: tuple[Array, ...], answers: Answers, lead: Shape, like: Array) -> tuple[Array, ...]:
    """Copies of what a problem returned, which may reuse its arrays, without graphs.

    An error unless they meet `answers` with run axes `lead`.
    """
    xp = array_namespace(like)
    return tuple(
        xp.asarray(detached(arguments.answer(name, a, (*lead, *shape), like=like)), copy=True)
        for a, (name, shape) in zip(returned, answers.items(), strict=True)
    )


def each_run(
    call: Callable[[Shape], tuple[Array, ...]], answers: Answers, lead: Shape, like: Array
) -> tuple[Array, ...]:
    """call(r) for every run r, an index into the run axes `lead`; each array of the answers stacked along `lead`."""
    xp = array_namespace(like)
    rows = [checked(call(r), answers, (), like) for r in np.ndindex(*lead)]
    return tuple(
        xp.reshape(xp.stack(column), (*lead, *shape))
        for column, shape in zip(zip(*rows, strict=True), answers.values(), strict=True)
    )


def pick(a: Array, run: Shape, trailing: int) -> Array:
    """The entry of `a` for `run`, an index into run axes that those of `a` broadcast to."""
    axes = tuple(a.shape[: a.ndim - trailing])
    own = run[len(run) - len(axes) :]
    return a[(*(k if size > 1 else 0 for k, size in zip(own, axes, strict=True)), ...)]


class CheckedLinearization:
    """hvp, cross and products of a problem's own linearizations, one for each run of the point (`lead`)."""

    def __init__(
        self,
        each: Mapping[Shape, Linearization],
        lead: Shape,
        loops: bool,
        like: Array,
        sizes: Shape,
        unchanged: Unchanged | None = None,
    ) -> None:
        n, dim_x, dim_lam = sizes
        self._unchanged = unchanged  # of a user's problem
        self._each, self._lead, self._loops, self._like = each, lead, loops, like
        self._hvp, self._cross = {"hvp(u)": (n, dim_x)}, {"cross(u)": (n, dim_lam)}
        self._products = {"products(u)[0]": (n, dim_x), "products(u)[1]": (n, dim_lam)}

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (..., n, d_x)"""
        return self._apply(lambda lin, u: (lin.hvp(u),), self._hvp, u)[0]

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (..., n, d_lam)"""
        return self._apply(lambda lin, u: (lin.cross(u),), self._cross, u)[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u), with the work shared that the problem's own linearization shares."""
        if not all(hasattr(lin, "products") for lin in self._each.values()):
            return self.hvp(u), self.cross(u)
        return self._apply(lambda lin, u: pair("products(u)", lin.products(u)), self._products, u)

    def _apply(self, product: Callable[[Any, Array], tuple[Array, ...]], answers: Answers, u: Array) -> Any:
        u = detached(u)
        if self._unchanged is None:
            return self._products_of(product, answers, u)
        u, name = read_only(u), next(iter(answers)).removesuffix("[0]")
        return self._unchanged(name, lambda: self._products_of(product, answers, u), u)

    def _products_of(self, product: Callable[[Any, Array], tuple[Array, ...]], answers: Answers, u: Array) -> Any:
        lead = run_axes(point=self._lead, u=tuple(u.shape[:-2]))
        if not (lead and self._loops):
            return checked(product(self._each[()], u), answers, lead, self._like)
        return each_run(lambda r: product(self._at(r), pick(u, r, 2)), answers, lead, self._like)

    def _at(self, run: Shape) -> Linearization:
        own = run[len(run) - len(self._lead) :]
        return self._each[tuple(k if size > 1 else 0 for k, size in zip(own, self._lead, strict=True))]


def pair(name: str, returned: Any) -> tuple[Array, Array]:
    """The two arrays that a method which answers with two returned."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise TypeError(f"problem: {name} returned {type(returned).__name__}, needed a tuple of two arrays")
    return returned[0], returned[1]
