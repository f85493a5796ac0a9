"""Several mixing operations in one round: their rows travel in one message.

A mixing routine is a generator that lives for one iteration. It yields the rows to be mixed, receives them mixed, and
returns its next state:

    def consensus(s, d, step):                 s ← W s − step d
        (mixed,) = yield (s,)
        return mixed - step * d

Routines know nothing of each other or of the network. `run_round` concatenates their rows, so that one message with all
of them is counted. With W the product of the mixing matrices of the round, and ω = W 1,

    rows by default        diag(ω)⁻¹ W s     row-stochastic: a mean of what is received (W s where no weights travel)
    SumPreserving rows     W t               column-stochastic: the sum over clients is conserved

Both come from the same column-stochastic W and the same messages: client i divides by the weight that it received. If W
is doubly stochastic, both are W.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from hgp_ref.backend import Array, array_namespace
from hgp_ref.mixing.averaging import Mixer
from hgp_ref.mixing.channel import WeightRule


class SumPreserving:
    """Rows whose sum over clients is to be conserved, such as gradient trackers.

    Examples
    --------
    >>> def routine():
    ...     (t,) = yield [hgp.mixing.SumPreserving(np.arange(6.0).reshape(3, 2))]
    ...     return t
    >>> net = hgp.networks.RandomDirected(n=3, seed=1)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, 1)], 3, np.zeros((3, 2)), 1)
    >>> (t,) = hgp.mixing.run_round(mixer, routine())
    >>> t.sum(axis=0).round(12).tolist()  # as before
    [6.0, 9.0]
    """

    def __init__(self, rows: Array) -> None:
        self.rows = rows


Payload = Sequence[Array | SumPreserving]
MixingRoutine = Generator[Payload, list[Array], Any]


def run_round(mixer: Mixer, *routines: MixingRoutine) -> list[Any]:
    """Run mixing routines together and return what they return. Rows yielded at the same time travel in one message.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> from hgp_ref.mixing import SumPreserving, run_round, start_averaging
    >>> mixer = start_averaging([hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 1)], 3, np.zeros((3, 2)), 1)
    >>> def both(s, t):
    ...     s, t = yield s, SumPreserving(t)
    ...     return s, t
    >>> ((s, t),) = run_round(mixer, both(np.ones((3, 2)), np.arange(6.0).reshape(3, 2)))
    >>> bool(np.allclose(s, 1)), t.sum(axis=0).round(12).tolist(), mixer.channel.traffic.rounds
    (True, [6.0, 9.0], 1)
    """
    joined = concurrently(*routines)
    try:
        payload = next(joined)
        while True:
            payload = joined.send(_mix(mixer, payload))
    except StopIteration as end:
        return end.value


def concurrently(*routines: MixingRoutine) -> MixingRoutine:
    """Several routines as one: yields the rows of all that are still running, returns what they return."""
    returned: list[Any] = [None] * len(routines)
    replies: dict[int, Any] = dict.fromkeys(range(len(routines)))
    while True:
        payloads: dict[int, Payload] = {}
        for k, reply in replies.items():
            try:
                payloads[k] = routines[k].send(reply)
            except StopIteration as end:
                returned[k] = end.value
        if not payloads:
            return returned
        mixed = iter((yield [part for payload in payloads.values() for part in payload]))
        replies = {k: [next(mixed) for _ in payload] for k, payload in payloads.items()}


def no_communication(state: Any) -> MixingRoutine:
    """A routine that sends nothing and returns `state`."""
    yield from ()
    return state


def _mix(mixer: Mixer, payload: Payload) -> list[Array]:
    """Mix a payload in one message, by one call of the mixer."""
    rows = [part.rows if isinstance(part, SumPreserving) else part for part in payload]
    xp = array_namespace(rows[0])
    mixed = mixer.average(rows[0] if len(rows) == 1 else xp.concat(rows, axis=-1))
    weighted = _weighted(mixer)
    if not mixer.channel.conserves_mass and any(isinstance(part, SumPreserving) for part in payload):
        raise ValueError(
            f"avg must have reliable links to conserve sums over clients in every call, got {mixer.averagings[0]!r}"
        )
    out, begin = [], 0
    for part, row in zip(payload, rows, strict=True):
        columns = mixed if len(rows) == 1 else mixed[..., begin : begin + row.shape[-1]]
        out.append(columns * mixer.channel.weights if weighted and isinstance(part, SumPreserving) else columns)
        begin += row.shape[-1]
    return out


def _weighted(mixer: Mixer) -> bool:
    """Whether Push-Sum weights travel; they must be reset in every call."""
    rules = {averaging.weight_rule for averaging in mixer.averagings}
    if not rules <= {WeightRule.NONE, WeightRule.RESET} or len(rules) > 1:
        raise ValueError(
            "avg must reset its weights at every call, as PushSum(debias='reset') does, or have none, and be of one "
            f"kind; got {mixer.averagings[0]!r}"
        )
    return rules == {WeightRule.RESET}
