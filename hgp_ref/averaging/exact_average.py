"""The exact mean over clients: Θ itself."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.averaging.base import Averaging
from hgp_ref.channels import Everyone


class ExactAverage(Averaging):
    """Θ = 11ᵀ/n ⊗ I: every client gets the mean of all.

    As over a fully connected network in one step: n(n-1) messages of one vector each, one round a call.

    Parameters
    ----------
    n : int
        Clients.

    Raises
    ------
    TypeError, ValueError
        `n` must be an integer ≥ 1.

    Examples
    --------
    >>> hgp.ExactAverage(2).apply(np.array([[1.0], [3.0]]), 0)
    array([[2.],
           [2.]])
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.steps, self.net = arguments.integer("n", n), 1, None

    def connect(self) -> Everyone:
        return Everyone(self.n)

    def __repr__(self) -> str:
        return f"ExactAverage({self.n})"
