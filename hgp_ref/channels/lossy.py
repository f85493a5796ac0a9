"""Links that lose and delay: all clients in one process, over the graphs of an Unreliable network.

A call is still linear in what clients hold, z ← P z and ω ← P ω with P ≥ 0, but columns of P no longer sum to one:
what is lost or under way at its end is missing. Divided by the weights, K = diag(P 1)⁻¹ P is non-negative with rows
that sum to one all the same, which is what bounds A and B rest on. That sums over clients are kept, by which C3 and C4
place the mean among the averages of clients, is not so; `enclose` places it among those of the last few steps.

Plain messages lose mass for good, and K tends to a matrix whose rows agree on something that is not the mean. Running
sums (`use_running_sums`) lose none, and K tends to 11ᵀ/n; so it does where messages are late and none is lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from hgp_ref._kernels import links
from hgp_ref.backend import Array, array_namespace, host_dtype
from hgp_ref.channels.base import BALANCED, CARRIED, FRESH, Channel, Weights, connect
from hgp_ref.channels.calls import PreparedCalls
from hgp_ref.channels.lossy_calls import LossyCall, Mail
from hgp_ref.channels.products import chunks
from hgp_ref.channels.simulated import Simulated
from hgp_ref.channels.traffic import Traffic
from hgp_ref.errors import outside
from hgp_ref.networks import Unreliable

FEW = 32  # clients up to which composing is taken in any case
ROUNDING = 1e-9  # of the mass, which no call loses by rounding


class Lossy(Simulated):
    """The graphs of `net`, whose messages are lost or late.

    Calls with fresh weights begin with nothing under way, and what arrives after their end is not added: it belongs to
    no other call. With carried weights what is under way goes on from call to call. A message is counted when it is
    sent, whether it arrives or not.

    Parameters
    ----------
    net : Unreliable
        Links that lose and delay.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Examples
    --------
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(3), loss=0.1, delay=1)
    >>> isinstance(hgp.channels.connect(net), hgp.channels.Lossy)
    True
    """

    keeps_mass = False
    net: Unreliable

    def __init__(self, net: Unreliable, mode: str = "auto") -> None:
        super().__init__(net, mode)
        self.robust = False
        self._mail = Mail.nothing()
        self._warned = False

    @property
    def loses_mass(self) -> bool:  # type: ignore[override]
        return not self.robust and self.net.loss > 0

    @property
    def underway(self) -> bool:  # type: ignore[override]
        self.settle()
        return bool(self._mail.entries.due.size)

    @property
    def rows_underway(self) -> bool:
        """Whether vectors are under way, not weights alone."""
        self.settle()
        return self._mail.holds_rows

    def use_running_sums(self) -> None:
        self.robust = True

    def forget(self) -> None:
        self.settle()
        self._mail = Mail.nothing()

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """P of the next calls with fresh weights, and their messages."""
        P, messages = np.empty((len(steps), self.n, self.n)), np.empty(len(steps), dtype=np.int64)
        first = self.net.t + self.step + 1
        for part, W, S in chunks(self.net, self.step, steps):
            links.products(W, S, first, *self.net.rule, self.robust, P[part], messages[part])
            first += len(W)
        return P, messages

    def composes(self, z: Array, steps: int, weights: Weights = FRESH) -> bool:
        """One matrix a call costs S n E on the host and n² d / 8 on the vectors, stepping S E d."""
        if weights != FRESH:
            if self.mode == "composed":
                raise ValueError(
                    f"mode='composed' given, needed 'auto' or 'stepping': over {self.net!r} messages of one call with "
                    "carried weights arrive in later ones, so that no matrix tells what a call does"
                )
            return False
        if self.mode != "auto":
            return self.mode == "composed"
        columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
        sent = steps * self.net.expected_edges
        return self.n <= FEW or sent * self.n + self.n**2 * columns / 8 <= sent * columns

    def _call(self, z: Array, steps: int, weights: Weights, divide: bool) -> Array:
        if weights is BALANCED:
            raise ValueError(
                f"net: {self.net!r} loses or delays messages, and without weights nobody can tell how much of a sum is "
                "missing; needed PushSum, or RobustPushSum, in place of Gossip"
            )
        mixed = super()._call(z, steps, weights, divide)
        if self.loses_mass and not self._warned:
            self._warn(steps, weights)
        return mixed

    def enclose(
        self, z: Array, steps: int, weights: Weights = FRESH, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """Boxes over the last averages, from the oldest step on of which a share is still under way.

        With y_i(t) = z_i(t) / ω_i(t) after t steps, the sums of all clients are at the end with the clients, or under
        way: shares W_ij(s) z_j(s - 1) of steps s. Both sums and weights are conserved, so that

            n z̄ = Σ_i ω_i(S) y_i(S) + Σ_{under way} W_ij(s) ω_j(s - 1) y_j(s - 1),
            n   = Σ_i ω_i(S)        + Σ_{under way} W_ij(s) ω_j(s - 1):

        the mean is a convex combination of y_i(S) and of y_j(s - 1) for the steps s of which something is under way.
        Every message carries the number of its step as well (one number more, counted), so that receivers know which
        shares they miss; flooding makes the oldest of them known to all, who have kept their averages since.
        """
        past, missing, sent = self.averages_since_missing(z, steps, weights)
        self._sent += stamps(sent, z)
        oldest = -self.largest(-missing[:, None], z, max_rounds)[0]
        return box(past, oldest)

    def averages_since_missing(
        self, z: Array, steps: int, weights: Weights
    ) -> tuple[dict[int, Array], np.ndarray, int]:
        """({t: y(t)}, the oldest t of which each client misses a share, messages) of a call that is made for `enclose`.

        The y(t) are those after the oldest one of all.
        """
        if self.loses_mass or weights is BALANCED:
            raise ValueError(f"net: {self.net!r} loses sums for good, needed running sums: RobustPushSum")
        self.forget()
        self._omega = np.ones(self.n)
        first, sent, held, past = self.step + 1, self.traffic.messages, z, {0: z}  # past[t] = y(t)
        for t in range(1, steps + 1):
            held = self.mix(held, 1, CARRIED)
            past[t] = held / self.weights
            missing = self._missing(first, t)
            past = {s: y for s, y in past.items() if s >= missing.min()}
        sent = self.traffic.messages - sent
        self.forget()
        return past, missing, sent

    def _missing(self, first: int, t: int) -> np.ndarray:
        """After t steps, the oldest average of which each client misses a share, (n,); t where it misses none."""
        self.settle()
        oldest = np.full(self.n, float(t))
        np.minimum.at(oldest, self._mail.entries.receivers, self._mail.entries.since - first)
        return oldest

    def _stepping(self, z: Array, steps: int, weights: Weights, divide: bool) -> PreparedCalls:
        return LossyCall(self.net, self.step, self._omega, self._mail, steps, weights, z, divide, self.robust)

    def settle(self) -> None:
        if self._calls is not None:
            self._mail = self._calls.mail if isinstance(self._calls, LossyCall) else Mail.nothing()
        super().settle()

    def _warn(self, steps: int, weights: Weights) -> None:
        """Once, at the first call that loses something."""
        lost = self._calls.lost if isinstance(self._calls, LossyCall) else 1.0 - float(self.omega.mean())
        if lost > ROUNDING:
            self._warned = True
            late = "" if weights == CARRIED else " or came after its end"
            warnings.warn(
                f"PushSum over {self.net!r} loses mass: {100 * lost:.2g} % of it was lost{late} in a call of {steps} "
                "steps, so that clients agree on something that is not the mean; RobustPushSum loses none",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        """Vectors that are under way are dropped where weights are carried: they belong to calls that are not made."""
        self.settle()
        if weights == CARRIED and graphs:
            sent = self._sent
            self._mail = self._mail.weights_alone()
            self.mix(like[..., :0], graphs, weights)
            self.settle()
            self._sent, self._mail = sent, self._mail.weights_alone()
        else:
            super().skip(graphs, weights, like)


def stamps(messages: int, z: Array) -> Traffic:
    """The number of its step, in so many messages that are counted already."""
    return Traffic(0, messages, messages * host_dtype(z).itemsize, 0)


def box(past: dict[int, Array], oldest: float) -> tuple[Array, Array]:
    """(low, high) of the averages y(t), t ≥ oldest."""
    kept = [y for t, y in past.items() if t >= oldest]
    xp = array_namespace(kept[0])
    return xp.min(xp.stack(kept), axis=0), xp.max(xp.stack(kept), axis=0)


@connect.register
def _(net: Unreliable, mode: str = "auto") -> Channel:
    return Simulated(net, mode) if net.in_time else Lossy(net, mode)
