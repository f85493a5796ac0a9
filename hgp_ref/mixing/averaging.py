"""The mean as an iteration meets it: call after call over one channel."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.mixing.channel import AllToAll, Channel, ParameterServer, Traffic, WeightRule, connect
from hgp_ref.mixing.simulated import MODES, Runs, check_balanced
from hgp_ref.networks import Network
from hgp_ref.networks.connectivity import obstacle
from hgp_ref.philox import MAX_STEP

AHEAD = 2**14  # calls whose steps are listed at once: a run may be allowed many more and end early
SEEN = 10_000  # graphs that are looked at before a run for clients that are cut off


class Mixer:
    """ū = Θ̂_m u for calls m = first, first + 1, ...: all that a method knows of the network.

        ubar = mean(u)           the next call
        mean.carry(ubar)          what an iteration goes on from: ū, or the sums ω ū where mass is conserved
        mean.debias(u)          the reverse
        mean.sums(z)             the next call without the division: P z, weights carried from call to call
        mean.drop_in_flight()            other vectors come next: nothing that is under way belongs to them
        mean.with_steps(S)           the same mean with calls of S steps that leave the numbering of the others alone

    With `runs`, u has a leading run axis and run r meets averaging r; `channel` is then one over all of them.

    Parameters
    ----------
    averagings : sequence of Averaging
        One for each run.
    channel : Channel
        Over which numbers travel.
    like : array
        Library, device and dtype of what is averaged.
    calls, first : int
        How many calls are to come, and the number of the first.
    runs : bool
        Whether arrays carry a run axis.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mixer.average(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """

    def __init__(
        self,
        averagings: Sequence[Averaging],
        channel: Channel,
        like: Array,
        calls: int,
        first: int = 0,
        runs: bool = False,
    ) -> None:
        self.averagings, self.channel, self.calls = averagings, channel, 0
        self._first, self._runs = first, runs
        self._fixed: Any = None  # steps of every call, where it does not follow the averaging
        self._begin, self._steps = 0, self._steps_of(0, min(calls, AHEAD))  # of the calls from number _begin on
        self._rule = self._per_run([a.weight_rule for a in averagings])
        self._carry_rule = self._per_run(
            [WeightRule.NONE if a.weight_rule is WeightRule.NONE else WeightRule.CARRY for a in averagings]
        )
        if first:
            passed = tuple(a.graphs_before(first) for a in averagings)
            asked: dict[str, Any] = {"graphs": passed if runs else passed[0], "weight_rule": self._rule}
            channel.advance(**asked, like=like)
        channel.foresee(self._steps)
        conserving = np.array([a.conserves for a in averagings])
        self._some = bool(conserving.any())
        self._mask: Array | None = None  # which runs conserve, where some do and some do not
        if self._some and not conserving.all():
            self._mask = from_host(conserving.astype(host_dtype(like))[:, None, None], like=like)

    def average(self, u: Array) -> Array:
        """Each client's estimate of the mean of the rows of u."""
        return self.channel.average(u, self._next(), self._rule)

    def push(self, z: Array) -> Array:
        """P z over the graphs of the next call; `weights` becomes P ω. ValueError where links lose sums for good."""
        if self.channel.drops_mass:
            raise ValueError(
                f"avg: {self.averagings[0]!r} given, whose links lose messages and with them part of the sums that "
                "must be conserved; needed RobustPushSum over the same network"
            )
        return self.channel.mix(z, self._next(), self._carry_rule)

    def drop_in_flight(self) -> None:
        """Other vectors come next; what is under way of those before, on links that delay, is dropped."""
        self.channel.drop_in_flight()

    @property
    def weights(self) -> Array | float:
        """ω after the last call, (..., n, 1): 1 before any, and where none travel."""
        omega = None if all(a.weight_rule is WeightRule.NONE for a in self.averagings) else self.channel.weights
        return 1.0 if omega is None else omega

    def with_steps(self, steps: int) -> Mixer:
        """A mean over the same channel whose calls take `steps` steps each; the calls of this one go on as numbered."""
        other = copy.copy(self)
        other._fixed = (steps,) * len(self.averagings) if self._runs else steps
        return other

    def _next(self) -> Any:
        """The steps of the next call."""
        if self._fixed is not None:
            return self._fixed
        if self.calls == self._begin + len(self._steps):  # of a long run, or more calls than were announced
            self._begin, self._steps = self.calls, self._steps_of(self.calls, min(max(1, self.calls), AHEAD))
            self.channel.foresee(self._steps)
        steps = self._steps[self.calls - self._begin]
        self.calls += 1
        return steps

    def _per_run(self, each: list[WeightRule]) -> Any:
        """What travels beside the vectors, as the channel is told: one rule, or one for each run."""
        return tuple(each) if self._runs else each[0]

    def _steps_of(self, begin: int, calls: int) -> Sequence[Any]:
        """The steps of `calls` calls of this mean from number `begin` on."""
        first = self._first + begin
        return (_steps_of_runs(self.averagings, first, calls) if self._runs
                else self.averagings[0].steps_of(first, calls))  # fmt: skip

    def carry(self, ubar: Array) -> Array:
        """ū, or ω ū where the averaging conserves sums: they are what the next iterate starts from."""
        if not self._some:
            return ubar
        return ubar * (self.channel.weights if self._mask is None else self._factor())

    def debias(self, u: Array) -> Array:
        """u / ω where the averaging conserves sums, u elsewhere: comparable between iterations."""
        return u / self._factor() if self._some and self.calls else u

    def _factor(self) -> Array:
        omega = self.channel.weights
        return omega if self._mask is None else self._mask * omega + (1 - self._mask)

    def record_traffic(self) -> Traffic:
        """What the channel has carried, added to the averagings' ledgers; with runs, fields are arrays."""
        sent = self.channel.traffic
        if len(self.averagings) == 1 and not np.ndim(sent.messages):
            self.averagings[0].traffic += sent
        else:
            for r, averaging in enumerate(self.averagings):
                averaging.traffic += sent.of_run(r)
        return sent


def _steps_of_runs(averagings: Sequence[Averaging], first: int, calls: int) -> Sequence[tuple[int, ...]]:
    """The steps of each call, a tuple with an entry for each run."""
    if all(isinstance(a.steps, int) for a in averagings):
        return (tuple(a.steps_of(first, 1)[0] for a in averagings),) * calls
    return tuple(zip(*(a.steps_of(first, calls) for a in averagings), strict=True))


def start_averaging(averagings: Sequence[Averaging], rows: int, like: Array, calls: int, runs: bool = False) -> Mixer:
    """The mean of `calls` calls from the first graph on, for arrays like `like` with `rows` clients.

    With `runs` there is one averaging for each entry of a leading run axis. Warns where graphs do not connect clients.

    Parameters
    ----------
    averagings : sequence of Averaging
        One for each run.
    rows : int
        Clients of the arrays to come.
    like : array
        Library, device and dtype of what is averaged.
    calls : int
        How many calls are to come.
    runs : bool
        Whether arrays carry a run axis.

    Returns
    -------
    Mixer
        At work over a channel of its own.

    Raises
    ------
    TypeError
        What `connect` returns is no channel.
    ValueError
        The averaging has another number of clients than there are rows.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mixer.average(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """
    channels = [a.connect() for a in averagings]
    for averaging, channel in zip(averagings, channels, strict=True):
        if not isinstance(channel, Channel):
            raise TypeError(
                f"avg: {type(averaging).__name__}.connect() returned {type(channel).__name__}, needed a Channel"
            )
        held = channel.clients.stop - channel.clients.start
        if held != rows:
            raise ValueError(f"avg: {averaging!r} averages {held} clients, but the problem has {rows}")
    _warn_of_obstacles(averagings, calls)
    channel = Runs(channels) if runs else channels[0]
    kind = {"dtype": host_dtype(like), "run axes": like.shape[:-2], "columns": like.shape[-1]}
    channel.check_same_on_all_ranks("averages", averagings=averagings, calls=calls, runs=runs, **kind)
    return Mixer(averagings, channel, like, calls, runs=runs)


def _warn_of_obstacles(averagings: Sequence[Averaging], calls: int) -> None:
    """One warning for each averaging whose graphs over the run, the first SEEN of them, cannot make a mean."""
    seen: set[tuple[int, int]] = set()
    for a in averagings:
        graphs = a.graphs_before(calls)
        if graphs > MAX_STEP:
            raise ValueError(f"avg: {a!r} given, which takes {graphs} graphs in {calls} calls; there are {MAX_STEP}")
        graphs = min(graphs, SEEN)
        if a.net is None or (id(a.net), graphs) in seen:
            continue
        seen.add((id(a.net), graphs))
        missing = obstacle(a.net, 1, graphs)
        if missing is not None:
            warnings.warn(f"{a!r}: {missing.message}", RuntimeWarning, stacklevel=4)


# ----------------------------------------------------------------------------------------------------
# Θ̂ as an operator: what every averaging offers.


class Averaging(ABC):
    """An estimate Θ̂_m of the mean over clients, for calls m = 0, 1, ...

    Call m takes S_m graphs of the network, after those of the calls before it: mS+1 .. (m+1)S where all S_m are S.
    An averaging says what it asks of a channel (`steps_of`, `weights`); it holds no state but its `ledger`, to which
    every run and every `apply` adds what was sent.

    Examples
    --------
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=0), steps=20)
    >>> isinstance(avg, hgp.mixing.Averaging), avg.graphs_before(2)
    (True, 40)
    """

    n: int
    steps: int | tuple[int, ...]  # S, or S_0, S_1, ..., the last of which repeats
    net: Network | None = None  # whose graphs are looked at for clients that are cut off
    traffic = Traffic()  # of an object whose class has an __init__ of its own, too
    weight_rule: WeightRule = WeightRule.NONE  # what travels beside the vectors
    conserves = False  # whether an iteration goes on from the sums ω ū instead of the means ū

    def __init__(self) -> None:
        self.traffic = Traffic()

    @abstractmethod
    def connect(self) -> Channel:
        """A channel of its own, at the first graph.

        Returns
        -------
        Channel.
        """

    def steps_of(self, first: int, calls: int) -> Sequence[int]:
        """S_m of the calls m = first .. first + calls - 1.

        Parameters
        ----------
        first : m of the first call.
        calls : how many.

        Returns
        -------
        sequence of S_m.
        """
        first = validation.integer("first", first, 0)
        calls = validation.integer("calls", calls, 0, validation.LONGEST)
        if isinstance(self.steps, int):
            return (self.steps,) * calls
        given = self.steps[first : first + calls]
        return given + self.steps[-1:] * (calls - len(given))

    def graphs_before(self, call: int) -> int:
        """S_0 + ... + S_{m-1}: how many graphs the calls before call m use.

        Parameters
        ----------
        call : m.

        Returns
        -------
        int.
        """
        call = validation.integer("call", call, 0, validation.LONGEST)
        if isinstance(self.steps, int):
            return call * self.steps
        given = self.steps[:call]
        return sum(given) + (call - len(given)) * self.steps[-1]

    def apply(self, u: Array, call: int = 0) -> Array:
        """ū = Θ̂_call u: client i's estimate of the mean of the rows of u.

        u is (n, d), or (..., n, d) with run axes; the result has its library, device and dtype. A pure function of
        (u, call); beside its result it adds what was sent to `ledger`.

        Parameters
        ----------
        u : (..., n, d), a row for each client.
        call : m: which graphs are used.

        Returns
        -------
        array like u.
        """
        call = validation.integer("call", call, 0, validation.LONGEST)
        validation.same_kind(u=u)
        channel = self.connect()
        rows = channel.clients.stop - channel.clients.start
        if u.ndim < 2 or u.shape[-2] != rows:
            raise ValueError(f"u: shape {tuple(u.shape)} given, needed (..., {rows}, d): one row per client")
        mixer = Mixer([self], channel, like=u, first=call, calls=1)
        averaged = mixer.average(u)
        self.traffic += channel.traffic
        return averaged


def read_steps(steps: object) -> int | tuple[int, ...]:
    """The number of steps S, or a sequence S_0, S_1, ... of them, each at least 1."""
    if not isinstance(steps, Iterable) or isinstance(steps, str | bytes) or getattr(steps, "ndim", 1) == 0:
        return validation.integer("steps", steps, 1, validation.LONGEST)
    given = tuple(validation.integer(f"steps[{m}]", S, 1, validation.LONGEST) for m, S in enumerate(steps))
    if not given:
        raise ValueError("steps: empty sequence given, needed at least one integer >= 1")
    return given


def check_network(net: Network) -> Network:
    """TypeError unless `net` is a network."""
    if isinstance(net, Network) and not hasattr(net, "n"):
        raise TypeError(f"net: {type(net).__name__} has no n, needed super().__init__(n) in its __init__")
    if not isinstance(net, Network):
        raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
    return net


# ----------------------------------------------------------------------------------------------------
# Push-Sum, Algorithm 1: averaging over directed graphs by dividing sums through weights.


PUSH_SUM_DEBIAS = ("reset", "keep", "conserve")


class PushSum(Averaging):
    """Θ̂_m u = diag(P_m ω)⁻¹ P_m u with P_m = W_{(m+1)S} ... W_{mS+1}, column-stochastic.

    `steps` is S, or a sequence S_0, S_1, ... whose last entry repeats: call m then takes S_m graphs after those of the
    calls before. The weights ω before call m depend on `debias`:

    - "reset": ω = 1 at every call, as in Algorithm 1. Θ̂_m is row-stochastic, which is what the error bounds need.
    - "keep": ω = P_{m-1} ... P_0 1, while vectors restart from the divided values. Neither averages nor conserves:
      it is not covered by any bound and can diverge (erratum 25), hence a warning.
    - "conserve": the same ω, and an iteration goes on from the sums ω ū in place of ū (Algorithm 2 from
      ω ū − η ∂²_x g ū), so that sums over clients are conserved. More accurate than "reset" where it converges; it
      can diverge for large η on sparse networks.

    A message carries d numbers and one weight. `mode` is "composed" (the graphs of a call are multiplied first),
    "stepping" or "auto" for the cheaper one.

    Parameters
    ----------
    net : Network
        Who hears whom.
    steps : int or sequence
        S, or S_0, S_1, ... whose last entry repeats.
    debias : {"reset", "conserve", "keep"}
        What becomes of the weights between calls, see above.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made; the result is the same up to rounding.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` hold integers ≥ 1, `debias` and `mode` be one of theirs.

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> u = np.array([[0.0], [0.0], [3.0]])
    >>> bool(np.allclose(hgp.PushSum(net, steps=60).apply(u, 0), 1.0))
    True
    >>> hgp.PushSum(net, steps=[3, 5]).graphs_before(2)
    8
    """

    def __init__(self, net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps, self.mode = net.n, read_steps(steps), validation.choice("mode", mode, MODES)
        self.debias = validation.choice("debias", debias, PUSH_SUM_DEBIAS)
        if debias == "keep":
            warnings.warn(
                "debias='keep' divides by weights of earlier calls: not an average, covered by no bound, and it can "
                "diverge (see ERRATA, 25); use 'reset' or 'conserve'",
                RuntimeWarning,
                stacklevel=2,
            )
        self.weight_rule = WeightRule.RESET if debias == "reset" else WeightRule.CARRY
        self.conserves = debias == "conserve"

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        debias = "" if self.debias == "reset" else f", debias={self.debias!r}"
        return f"PushSum({self.net!r}, steps={self.steps}{debias})"


# ----------------------------------------------------------------------------------------------------
# Gossip: averaging by doubly-stochastic mixing, without weights.


class Gossip(Averaging):
    """Θ̂_m = W_{(m+1)S} ... W_{mS+1} ⊗ I with doubly-stochastic W: rows and columns sum to one.

    A message is one vector, no weight. Networks whose matrices are only column-stochastic need PushSum instead: the
    first graphs are looked at here, and later ones as they are used.

    Parameters
    ----------
    net : Network
        With doubly stochastic weights.
    steps : int or sequence
        S, or S_0, S_1, ... whose last entry repeats.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made; the result is the same up to rounding.

    Raises
    ------
    TypeError, ValueError
        `net` must have rows that sum to one and lose nothing, `steps` hold integers ≥ 1.

    Examples
    --------
    >>> avg = hgp.Gossip(hgp.networks.OnePeerExponential(4), steps=2)
    >>> avg.apply(np.array([[0.0], [0.0], [0.0], [4.0]]), 0).ravel()
    array([1., 1., 1., 1.])
    """

    def __init__(self, net: Network, steps: int | Sequence[int], mode: str = "auto") -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps, self.mode = net.n, read_steps(steps), validation.choice("mode", mode, MODES)
        if not self.connect().conserves_mass:
            raise ValueError(
                f"net: {net!r} given, which loses or delays messages; needed others for Gossip, or PushSum or "
                "RobustPushSum: without weights nobody can tell how much of a sum is missing"
            )
        for s in range(1, (net.period or 1) + 1):
            indptr, _, shares = net.csr(s)
            check_balanced(np.add.reduceat(shares, indptr[:-1]), 1, f"{net!r} (step {s})")

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        return f"Gossip({self.net!r}, steps={self.steps})"


# ----------------------------------------------------------------------------------------------------
# The exact mean over clients: Θ itself.


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
        self.n, self.steps, self.net = validation.integer("n", n), 1, None

    def connect(self) -> AllToAll:
        return AllToAll(self.n)

    def __repr__(self) -> str:
        return f"ExactAverage({self.n})"


# ----------------------------------------------------------------------------------------------------
# The exact mean by way of a server, as in federated learning.


class ServerAverage(ExactAverage):
    """Θ = 11ᵀ/n ⊗ I through a server: n messages of one vector to it and n back, one round a call.

    Parameters
    ----------
    n : int
        Clients.

    Examples
    --------
    >>> import numpy as np
    >>> from hgp_ref.mixing import ServerAverage
    >>> avg = ServerAverage(5)
    >>> avg.apply(np.arange(10.0).reshape(5, 2))[0].tolist(), avg.traffic.messages
    ([4.0, 5.0], 10)
    """

    def connect(self) -> ParameterServer:
        return ParameterServer(self.n)

    def __repr__(self) -> str:
        return f"ServerAverage({self.n})"


# ----------------------------------------------------------------------------------------------------
# Robust Push-Sum: averaging over links that lose and delay messages, by running sums for every edge.


ROBUST_DEBIAS = ("reset", "conserve")


class RobustPushSum(PushSum):
    """Θ̂_m u = diag(P_m 1)⁻¹ P_m u, where P_m is what running sums make of the links of call m.

    Client j, which holds z_j and the weight ω_j, sends to i not its share of step t but the total of all shares so far,

        σ_ij ← σ_ij + W_ij(t) z_j,   and the receiver   z_i ← z_i + (σ_ij − ρ_ij),   ρ_ij ← σ_ij

    (weights alike), whenever a total newer than ρ_ij arrives. A message that is lost or late is made up for by the next
    along the same edge: no mass is lost, it only waits, and ū tends to the mean as S grows. P_m ≥ 0, so that Θ̂_m is
    non-negative with rows that sum to one, and bounds A and B hold with the realised matrices (`exact.push_sum_matrix`
    with `robust=True`, or `avg.connect().matrices`). For certificates C3 and C4 clients keep their averages since the
    oldest share that is still under way, see `channels.Lossy.interval_mean`. Methods that carry sums from call to call
    (`methods.Tracking`, "conserve") lose nothing either.

    A message carries d numbers and one weight, as in Push-Sum: totals of weights grow, and so tell old from new. Every
    client keeps a total for each client it has ever sent to and each it has ever heard in a call: on graphs that change
    at every step that is up to 2 (n − 1) totals. An edge that is seldom used is seldom made up for, and then by an old
    lump that disturbs the averages: over RandomOut(n, k) with S less than many times n/k, PushSum is nearer.

    Parameters
    ----------
    net : any network; over one that loses nothing this is PushSum.
    steps : S, or S_0, S_1, ... whose last entry repeats. Loss p and delay up to q take about (1 + q/2)/(1 − p) times as
        many steps as PushSum over reliable links.
    debias : "reset" begins every call with ω = 1 and nothing under way, as PushSum does. "conserve" carries weights and
        totals from call to call, and iterations go on from the sums, so that nothing is ever lost: what `sgp` uses.
    mode : as in PushSum.

    Raises
    ------
    TypeError, ValueError
        As PushSum; there is no "keep".

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.RandomDirected(n=4, seed=1), loss=0.1, delay=3, seed=1)
    >>> u = np.arange(8.0).reshape(4, 2)
    >>> bool(np.abs(hgp.RobustPushSum(net, steps=200).apply(u) - u.mean(axis=0)).max() < 1e-12)
    True
    """

    def __init__(self, net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> None:
        super().__init__(net, steps, validation.choice("debias", debias, ROBUST_DEBIAS), mode)

    def connect(self) -> Channel:
        channel = super().connect()
        channel.use_running_sums()
        return channel

    def __repr__(self) -> str:
        return "Robust" + super().__repr__()


def push_sum_for(net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> PushSum:
    """PushSum where links carry everything in time, RobustPushSum where they lose or delay messages.

    Parameters
    ----------
    net, steps, mode : as in PushSum.
    debias : "reset" or "conserve".

    Returns
    -------
    The averaging.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.FullyConnected(3)
    >>> hgp.mixing.push_sum_for(net, 4)
    PushSum(FullyConnected(n=3), steps=4)
    >>> type(hgp.mixing.push_sum_for(hgp.networks.Unreliable(net, loss=0.1), 4)).__name__
    'RobustPushSum'
    """
    robust = RobustPushSum(net, steps, debias, mode)
    return PushSum(net, steps, debias, mode) if robust.connect().conserves_mass else robust


# ----------------------------------------------------------------------------------------------------
# Steps that fall from call to call: as accurate as the first number throughout, at about half the rounds.


MOST = 10**7  # entries of the tuple
ROUNDED = 1e-9  # S_0 − m S_0/M is a whole number where M divides m S_0, up to rounding


def falling_steps(steps: int, iterations: int, slope: float | None = None) -> tuple[int, ...]:
    """S_m = max(1, ⌈S_0 − m·slope⌉) for the calls m = 0 … M−1, for `PushSum(net, steps=falling_steps(S_0, M))`.

    Why averages may get worse. In bound A (`hgp.bounds.contracting_clients`) the averaging error γ_m of call m counts
    with c_m = ρ^m (1 + ρ g_{M−1−m}): what is averaged has shrunk by then. With ρ̄ = ρ < 1 this is

        c_m = (ρ^m − ρ^M)/(1 − ρ).

    Let γ_m = C τ^{S_m} and ask for the fewest rounds Σ S_m at a given Σ γ_m c_m. Where the derivative of Σ S_m +
    μ Σ C τ^{S_m} c_m with respect to each S_m vanishes, 1 = μ log(1/τ) γ_m c_m: all γ_m c_m are equal, hence

        S_m = S_0 − m log(1/ρ)/log(1/τ) + log((1 − ρ^{M−m})/(1 − ρ^M))/log(1/τ),

    a straight line but for the last calls, where the third term asks for still fewer. Its slope is

        log(1/ρ)/log(1/τ).

    The sensible M is the one at which truncation has come down to the floor, ρ^M = τ^{S_0}; there S_0 = M·slope and the
    line ends at 0: half the rounds of S_0 throughout. That is the default, slope = S_0/M, which needs neither ρ nor τ.
    With that slope a longer series costs more rounds, S_0 (M + 1)/2 in all, and gains nothing below the floor.

    Parameters
    ----------
    steps : S_0 ≥ 1.
    iterations : M.
    slope : how much S falls from one call to the next; S_0/M by default, 0 keeps it.

    Returns
    -------
    tuple of M integers, each at least 1.

    Raises
    ------
    TypeError, ValueError
        `steps` and `iterations` must be integers ≥ 1, `slope` a number ≥ 0.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> hgp.falling_steps(4, 8)
    (4, 4, 3, 3, 2, 2, 1, 1)
    >>> hgp.falling_steps(4, 6, slope=1.5)
    (4, 3, 1, 1, 1, 1)
    """
    S_0 = validation.integer("steps", steps, 1, validation.LONGEST)
    M = validation.integer("iterations", iterations, 1, MOST)
    fall = S_0 / M if slope is None else validation.nonnegative("slope", slope)
    return tuple(math.ceil(max(1.0, S_0 - m * fall - ROUNDED)) for m in range(M))
