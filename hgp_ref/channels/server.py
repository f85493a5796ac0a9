"""A server in the middle: everybody sends it a vector and gets the mean back."""

from __future__ import annotations

from hgp_ref.channels.everyone import Everyone


class Server(Everyone):
    """The exact mean in one round: n messages to the server and n back, where everybody to everybody takes n(n-1).

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> isinstance(hgp.averaging.ServerAverage(3).connect(), hgp.channels.Server)
    True
    """

    @property
    def messages_a_step(self) -> int:
        return 2 * self.n
