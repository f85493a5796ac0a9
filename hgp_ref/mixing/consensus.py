"""One round in which several things travel together: each is a talk, and all that is offered is one message.

A talk is a generator that lives for one iteration. It yields the rows that it wants mixed, is sent back what they have
become, and returns its next state:

    def consensus(s, d, step):                 s ← W s − step d
        (mixed,) = yield (s,)
        return mixed - step * d

Talks know nothing of each other nor of the network; `run_round` puts the columns of their offers side by side, so that
what is counted is one message with all of them. With W_s the matrix of the graph(s) of the round, ω = W_s 1,

    pulled rows    diag(ω)⁻¹ W_s s       rows sum to one: a mean of what is heard (plain W_s where no weights travel)
    pushed rows    W_s t                 columns sum to one: the sum over clients is conserved

so that over directed graphs one and the same column-stochastic W_s gives the pull with the same edges: client i divides
by the weight that the same message has brought. Where W_s is doubly stochastic, both are W_s.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from hgp_ref.backend import Array, array_namespace
from hgp_ref.mixing.averaging import Mixer
from hgp_ref.mixing.channel import WeightRule


class SumPreserving:
    """Rows whose sum over clients is to be conserved: trackers.

    Parameters
    ----------
    rows : array (n, d)
        One row for each client.

    Examples
    --------
    >>> def talk():
    ...     (t,) = yield [hgp.mixing.SumPreserving(np.arange(6.0).reshape(3, 2))]
    ...     return t
    >>> net = hgp.networks.RandomDirected(n=3, seed=1)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, 1)], 3, np.zeros((3, 2)), 1)
    >>> (t,) = hgp.mixing.run_round(mixer, talk())
    >>> t.sum(axis=0).round(12).tolist()  # as before
    [6.0, 9.0]
    """

    def __init__(self, rows: Array) -> None:
        self.rows = rows


Payload = Sequence[Array | SumPreserving]
MixingRoutine = Generator[Payload, list[Array], Any]


def run_round(mixer: Mixer, *talks: MixingRoutine) -> list[Any]:
    """What the talks return; in each phase those that still talk send what they offer in one message.

    Parameters
    ----------
    mixer : Mixer
        At work.
    *talks : talks
        What travels together in one call.

    Returns
    -------
    list
        What became of each.

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
    together = concurrently(*talks)
    try:
        offer = next(together)
        while True:
            offer = together.send(_sent(mixer, offer))
    except StopIteration as end:
        return end.value


def concurrently(*talks: MixingRoutine) -> MixingRoutine:
    """Several talks as one: in each phase it offers what those offer that still talk; returns what they return."""
    returned: list[Any] = [None] * len(talks)
    replies: dict[int, Any] = dict.fromkeys(range(len(talks)))
    while True:
        offers: dict[int, Payload] = {}
        for k, reply in replies.items():
            try:
                offers[k] = talks[k].send(reply)
            except StopIteration as end:
                returned[k] = end.value
        if not offers:
            return returned
        mixed = iter((yield [part for offer in offers.values() for part in offer]))
        replies = {k: [next(mixed) for _ in offer] for k, offer in offers.items()}


def no_communication(state: Any) -> MixingRoutine:
    """A talk that sends nothing and returns `state`."""
    yield from ()
    return state


def _sent(mixer: Mixer, offer: Payload) -> list[Array]:
    """What is offered, after one call of the mean, in one message."""
    rows = [part.rows if isinstance(part, SumPreserving) else part for part in offer]
    xp = array_namespace(rows[0])
    mixed = mixer.average(rows[0] if len(rows) == 1 else xp.concat(rows, axis=-1))
    weighted = _weighted(mixer)
    if not mixer.channel.conserves_mass and any(isinstance(part, SumPreserving) for part in offer):
        raise ValueError(
            f"avg: {mixer.averagings[0]!r} given, over links that lose or delay messages; needed others for rows that "
            "are pushed: their sum over clients must be conserved in every call, and part of it is under way"
        )
    back, begin = [], 0
    for part, row in zip(offer, rows, strict=True):
        own = mixed if len(rows) == 1 else mixed[..., begin : begin + row.shape[-1]]
        back.append(own * mixer.channel.weights if weighted and isinstance(part, SumPreserving) else own)
        begin += row.shape[-1]
    return back


def _weighted(mixer: Mixer) -> bool:
    """Whether sums are divided by weights that travel beside them; these must be fresh in every call."""
    rules = {averaging.weight_rule for averaging in mixer.averagings}
    if not rules <= {WeightRule.NONE, WeightRule.RESET} or len(rules) > 1:
        raise ValueError(
            f"avg: {mixer.averagings[0]!r} given, whose weights are carried from call to call; needed an averaging "
            "with fresh weights, PushSum(debias='reset'), or without any, and of one kind"
        )
    return rules == {WeightRule.RESET}
