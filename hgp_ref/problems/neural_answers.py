"""What a cost answers, looked at: shape, library and dtype of each answer, and that z and λ are left as they are.

On NumPy an answer of a wrong shape would be spread over clients where it is put into place, and a cost that writes into
z would change the tape that every later product uses. A cost sees read-only views there; other libraries have none.
"""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace, is_numpy
from hgp_ref.problems.instances import View
from hgp_ref.problems.neural_cost import NeuralCost


def ask(cost: NeuralCost, name: str, z: Array, lam: Array, view: View, *z_dot: Array, xp: Namespace) -> Array:
    """The answer of the method `name` of `cost`."""
    shapes = {"value": tuple(z.shape[:2]), "along_lam": tuple(lam.shape), "cross": tuple(lam.shape)}
    seen = [_read_only(a) for a in (z, lam, *z_dot)]
    answer = getattr(cost, name)(*seen[:2], view, *seen[2:], xp)
    method = f"{type(cost).__name__}.{name}"
    return arguments.answer(method, answer, shapes.get(name, tuple(z.shape)), like=z)


def ask_scores(cost: NeuralCost, z: Array, lam: Array, classes: int, xp: Namespace) -> Array:
    """`cost.scores`.  # (n, N, C)"""
    answer = cost.scores(_read_only(z), _read_only(lam), xp)
    return arguments.answer(f"{type(cost).__name__}.scores", answer, (*z.shape[:2], classes), like=z)


def _read_only(a: Array) -> Array:
    if not is_numpy(a):
        return a
    seen = a.view()
    seen.flags.writeable = False
    return seen
