"""Lipschitz constants of problems that tell them; the built-in ones do, see `hgp_ref.problems.constants`."""

from __future__ import annotations

from collections.abc import Mapping

from hgp_ref.backend import Array
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.normalised import closed_form
from hgp_ref.problems.protocol import Problem


def known_lipschitz(problem: Problem, lam: Array) -> Lipschitz | None:
    """What the problem's optional member `lipschitz(lam)` says; None without it, or where it says None.

    The member returns a `Lipschitz` or a mapping with its fields: nu_flam, nu_fx, nu_J, nu_H and, optionally,
    strong_convexity, a lower bound on λ_min of the mean Hessian for this lam at every x.

    Parameters
    ----------
    problem : Problem
        Which may know its constants.
    lam : array (n, d_lam)
        Where.

    Returns
    -------
    Lipschitz or None
        What the problem's own `lipschitz(lam)` says; None where it has none.

    Raises
    ------
    TypeError
        The problem's `lipschitz` returns something else.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> hgp.bounds.known_lipschitz(problem, np.zeros((3, 2))).nu_H
    0.0
    """
    tell = closed_form(problem, "lipschitz")
    told = None if tell is None else tell(lam)
    if told is None or isinstance(told, Lipschitz):
        return told
    if not isinstance(told, Mapping):
        raise TypeError(
            f"problem: lipschitz(lam) returned {type(told).__name__}, needed a Lipschitz, a mapping like it or None"
        )
    return Lipschitz(**told)
