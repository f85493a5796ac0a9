"""The exact mean by way of a server, as in federated learning."""

from __future__ import annotations

from hgp_ref.averaging.exact_average import ExactAverage
from hgp_ref.channels import Server


class ServerAverage(ExactAverage):
    """Θ = 11ᵀ/n ⊗ I through a server: n messages of one vector to it and n back, one round a call.

    Parameters
    ----------
    n : int
        Clients.

    Examples
    --------
    >>> import numpy as np
    >>> from hgp_ref.averaging import ServerAverage
    >>> avg = ServerAverage(5)
    >>> avg.apply(np.arange(10.0).reshape(5, 2))[0].tolist(), avg.ledger.messages
    ([4.0, 5.0], 10)
    """

    def connect(self) -> Server:
        return Server(self.n)

    def __repr__(self) -> str:
        return f"ServerAverage({self.n})"
