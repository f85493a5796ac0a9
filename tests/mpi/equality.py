"""On several ranks: everything equals the simulation's stepping mode bit for bit, traffic included.

Every rank computes the simulation of all clients and compares the rows of its own. With the argument "few" a small
part, with "some" every fifth combination of networks, dtypes, problems and settings, with "all" all of them.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from mpi4py import MPI
from support.examples import DOUBLY_STOCHASTIC, NETWORK_KINDS

import hgp_ref as hgp
from hgp_ref.bilevel import CertifiedDescent, Estimator, optimise
from hgp_ref.mixing import WeightRule, connect
from hgp_ref.networks.base import ShiftedNetwork

COMM = MPI.COMM_WORLD
SIZES = [3, 9, 5, 12, 4, 9, 7]  # instances of each client
N = len(SIZES)
DTYPES = ("float32", "float64")
compared = 0
asked, stride = 0, 1  # of the combinations, every stride-th is run


def same(name, whole, own, clients, axis=-2):
    """The rows of `clients` of the simulation's array are the rows here."""
    global compared
    compared += 1
    rows = np.moveaxis(np.moveaxis(whole, axis, 0)[clients], 0, axis)
    np.testing.assert_array_equal(own, rows, err_msg=f"{name} on rank {COMM.rank}", strict=True)


def equal(name, whole, own):
    global compared
    compared += 1
    assert np.array_equal(whole, own, equal_nan=True) if isinstance(whole, np.ndarray) else whole == own, (
        f"{name} on rank {COMM.rank}: {own} here, {whole} in the simulation"
    )


def chosen():
    """Whether this combination is run."""
    global asked
    asked += 1
    return asked % stride == 0


def channels(kinds, sizes):
    """Raw mixing and averages with every kind of weights, maxima, means, traffic, clock."""
    rng = np.random.default_rng(0)
    for n in sizes:
        for kind in kinds:
            base = NETWORK_KINDS[kind](n)
            net = hgp.mpi.spread(base, COMM)
            shapes = (("float32", (n, 1)), ("float64", (n, 40)), ("float64", (2, n, 5)), ("float32", (n, 421)))
            for k, (dtype, shape) in enumerate(shapes):
                z, name = rng.standard_normal(shape).astype(dtype), f"{kind}, {n} clients, {dtype} {shape}"
                over = base.after(k), net.after(k)
                channel_cases(name, connect(over[0], "stepping"), connect(over[1]), z, net.clients)


def channel_cases(name, whole, own, z, clients):
    rows = z[..., clients, :]
    if z.ndim == 3:  # memory in another order than its axes
        rows = np.asfortranarray(rows)
    for weights in (WeightRule.RESET, WeightRule.CARRY):
        for S in (3, 1, 2):
            same(name, whole.mix(z, S, weights), own.mix(rows, S, weights), clients)
            same(f"{name}, average", whole.average(z, S, weights), own.average(rows, S, weights), clients)
            same(f"{name}, weights", whole.weights, own.weights, clients)
            equal(f"{name}, omega", whole.omega, own.omega)
            equal(f"{name}, traffic", (whole.traffic, whole.step), (own.traffic, own.step))
    whole.advance(5, WeightRule.CARRY, z), own.advance(5, WeightRule.CARRY, rows)
    same(
        f"{name}, after a skip", whole.average(z, 1, WeightRule.CARRY), own.average(rows, 1, WeightRule.CARRY), clients
    )
    equal(f"{name}, max_consensus", whole.max_consensus(z[..., 0].reshape(-1, z.shape[-2]).T, z),
          own.max_consensus(rows[..., 0].reshape(-1, rows.shape[-2]).T, rows))  # fmt: skip
    equal(f"{name}, mean", whole.mean_over_clients(z), own.mean_over_clients(rows))
    equal(f"{name}, max", whole.max_over_clients(z[..., 0]), own.max_over_clients(rows[..., 0]))
    equal(f"{name}, traffic of all", (whole.traffic, whole.step), (own.traffic, own.step))


def exchanges():
    """A call is two exchanges with every other rank, whatever its number of steps; columns are divided evenly."""
    n, S, others = 12, 5, COMM.size - 1
    for base in (hgp.networks.FullyConnected(n), hgp.networks.SelfLoops(n)):
        net = hgp.mpi.spread(base, COMM)
        rows, d, before = net.clients.stop - net.clients.start, 1000, net.mpi_traffic
        connect(net).mix(np.ones((rows, d)), S)
        equal(f"messages, {base!r}", 2 * others, net.mpi_traffic.messages - before.messages)
        share = 2 * 8 * rows * d * others / COMM.size
        assert abs(net.mpi_traffic.bytes - before.bytes - share) <= 2 * 8 * 8 * n * COMM.size  # cut at 8 columns


def composed():
    """Graphs that are multiplied first: as in the simulation, to rounding; traffic and weights the same."""
    rng = np.random.default_rng(4)
    for n, kind in ((N, "RandomDirected"), (COMM.size, "OnePeerExponential"), (40, "RandomOut")):
        base = NETWORK_KINDS[kind](n)
        net = hgp.mpi.spread(base, COMM)
        for shape, dtype in (((n, 6), "float64"), ((2, n, 3), "float32")):
            z, clients = rng.standard_normal(shape).astype(dtype), net.clients
            whole, own = connect(base, "composed"), connect(net, "composed")
            for S, weights in (
                (3, WeightRule.RESET),
                (2, WeightRule.RESET),
                (2, WeightRule.CARRY),
                (1, WeightRule.CARRY),
            ):
                pair = [(channel.average(z[..., k, :], S, weights), channel.mix(z[..., k, :], 1, weights))
                        for channel, k in ((whole, slice(None)), (own, clients))]  # fmt: skip
                for one, other in zip(*pair, strict=True):
                    near(f"composed, {kind}, {shape}", one[..., clients, :], other)
                same(f"composed, weights, {kind}", whole.weights, own.weights, clients)
                equal(f"composed, {kind}", (whole.traffic, whole.step), (own.traffic, own.step))
            v = rng.standard_normal((n, 2))
            equal(
                "composed, max_consensus", whole.max_consensus(v, z), own.max_consensus(v[clients], z[..., clients, :])
            )
            equal("composed, traffic", (whole.traffic, whole.step), (own.traffic, own.step))
    _, problem, x, lam = next(problems("float64"))
    base = NETWORK_KINDS["RandomDirected"](N)
    net = hgp.mpi.spread(base, COMM)
    for seed in (1, [1, 2]):
        given = {"method": hgp.methods.Chebyshev(), "iterations": 6, "batches": hgp.MiniBatches(3, seed=seed)}
        whole = hgp.hypergradient(problem, x, lam, hgp.PushSum(base, 4, mode="composed"), **given)
        own = hgp.hypergradient(
            problem.restrict(net.clients),
            x[net.clients],
            lam[net.clients],
            hgp.PushSum(net, 4, mode="composed"),
            **given,
        )
        near("composed, hypergradient", whole.value[..., net.clients, :], own.value)
        equal("composed, hypergradient, traffic", whole.traffic, own.traffic)


def near(name, whole, own):
    global compared
    compared += 1
    scale, eps = np.abs(whole).max(), np.finfo(whole.dtype).eps
    assert own.dtype == whole.dtype and np.abs(own - whole).max() <= 1000 * eps * scale, f"{name} on rank {COMM.rank}"


def gossip():
    """Averages without weights."""
    z = np.random.default_rng(1).standard_normal((8, 3))
    for kind in DOUBLY_STOCHASTIC:
        base = NETWORK_KINDS[kind](8)
        net = hgp.mpi.spread(base, COMM)
        whole, own = hgp.Gossip(base, 2, mode="stepping"), hgp.Gossip(net, 2)
        same(f"Gossip, {kind}", whole.apply(z, call=3), own.apply(z[net.clients], call=3), net.clients)
        equal(f"Gossip, {kind}, traffic", whole.traffic, own.traffic)
        whole, own = connect(base, "stepping"), connect(net)
        same("mix", whole.mix(z, 2, WeightRule.NONE), own.mix(z[net.clients], 2, WeightRule.NONE), net.clients)


def problems(dtype):
    """(name, problem, x, lam, eta) of small problems with clients of unequal size."""
    rng = np.random.default_rng(2)
    X, X_val = ([rng.normal(size=(k, 5)).astype(dtype) for k in SIZES] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k).astype(dtype) for k in SIZES] for _ in range(2))
    convex = {
        "logistic": hgp.problems.LogisticRegression(X, y, X_val, y_val),
        "weights": hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.1),
    }
    for name, problem in convex.items():
        lam = rng.uniform(0.1, 0.4, (N, problem.dim_lam)).astype(dtype)
        yield name, problem, (rng.normal(size=(N, problem.dim_x)) / 3).astype(dtype), lam
    image = [rng.normal(size=(k, 1, 6, 6)).astype(dtype) for k in SIZES]
    model = hgp.neural.Sequential((1, 6, 6), hgp.neural.Conv2d(1, 2, 3), hgp.neural.Tanh(), hgp.neural.Flatten(),
                                  hgp.neural.Linear(32, 2))  # fmt: skip
    network = hgp.problems.NeuralInstanceWeights(model, image, y, image, y_val, l2=0.1)
    x = (rng.normal(size=(N, network.dim_x)) / 8).astype(dtype)
    yield "network", network, x, np.ones((N, network.dim_lam), dtype=dtype)


def training(kinds, dtypes=DTYPES):
    for kind in kinds:
        base = NETWORK_KINDS[kind](N)
        net = hgp.mpi.spread(base, COMM)
        for dtype in dtypes:
            for problem_name, problem, _, lam in problems(dtype):
                for options in (
                    {"variant": "nedic"},
                    {"batches": hgp.MiniBatches(3, seed=4)},
                    {"batches": hgp.MiniBatches(4, seed=[1, 2])},
                ):
                    if not chosen():
                        continue
                    name = f"sgp, {kind}, {problem_name}, {dtype}, {options}"
                    options = {"steps": 8, "lr": 0.1, "milestones": (0.6, 0.8), **options}
                    whole = hgp.train(problem, lam, base, hgp.training.SGP(mode="stepping", **options))
                    own = hgp.train(problem.restrict(net.clients), lam[net.clients], net, hgp.training.SGP(**options))
                    same(name, whole.x, own.x, net.clients)
                    equal(name, whole.consensus_gap, own.consensus_gap)
                    equal(name, whole.grad_norm, own.grad_norm)
                    equal(name, whole.traffic, own.traffic)


def newton(kinds, dtypes=DTYPES):
    """Local solves; the run axis of lam."""
    for kind in kinds:
        base = NETWORK_KINDS[kind](N)
        net = hgp.mpi.spread(base, COMM)
        k = net.clients
        for dtype in dtypes:
            for name, problem, _, lam in list(problems(dtype))[:2]:
                for options in ({}, {"averaging_steps": 2, "degree": 4}):
                    several = np.stack([lam, lam / 2])
                    whole = hgp.train(
                        problem, several, base, hgp.training.NewtonTracking(6, mode="stepping", **options)
                    )
                    own = hgp.train(
                        problem.restrict(k),
                        several[:, k],
                        net,
                        hgp.training.NewtonTracking(6, mode="stepping", **options),
                    )
                    same(f"newton, {kind}, {name}, {dtype}, {options}", whole.x, own.x, k)
                    for field in ("consensus_gap", "grad_norm", "traffic"):
                        equal(f"newton, {field}", getattr(whole, field), getattr(own, field))


def resumed():
    """A run that continues another one has its weights."""
    _, problem, x, lam = next(problems("float64"))
    base = NETWORK_KINDS["RandomDirected"](N)
    net = hgp.mpi.spread(base, COMM)
    k, method = net.clients, hgp.methods.PreconditionedTracking()
    whole = hgp.hypergradient(problem, x, lam, hgp.PushSum(base, 2, mode="stepping"), method, iterations=9)
    first = hgp.hypergradient(problem.restrict(k), x[k], lam[k], hgp.PushSum(net, 2), method, iterations=4)
    own = hgp.hypergradient(
        problem.restrict(k), x[k], lam[k], hgp.PushSum(net.after(8), 2), method, iterations=5, resume=first
    )
    same("resumed", whole.value, own.value, k)


def estimates(kinds, dtypes=DTYPES):
    method = hgp.methods
    for kind in kinds:
        base = NETWORK_KINDS[kind](N)
        net = hgp.mpi.spread(base, COMM)
        for dtype in dtypes:
            for problem_name, problem, x, lam in problems(dtype):
                eta = 0.05 if problem_name == "network" else 0.4
                spectrum = (0.1, 9.0) if problem_name == "network" else ()
                for options in (
                    {"method": method.Neumann(eta)},
                    {"method": method.Neumann(eta), "batches": hgp.MiniBatches(3, seed=4), "debias": "conserve"},
                    {"method": method.Chebyshev(*spectrum), "w0": True, "history": True},
                    {"method": method.Chebyshev(*spectrum), "batches": hgp.MiniBatches(3, seed=[3, 5]), "tol": 1e-3},
                    {"method": method.Tracking(), "w0": True},
                    {"method": method.PreconditionedTracking(), "w0": True},
                    {"method": method.PreconditionedTracking(degree=4), "batches": hgp.MiniBatches(3, seed=[3, 5])},
                    {"method": method.Tracking(eta / 4), "batches": hgp.MiniBatches(3, seed=[3, 5])},
                    {"method": method.Refined(method.Neumann(eta), cycles=2, steps=(5, 7)), "batches": 4},
                ):
                    if chosen():
                        estimate(f"{kind}, {problem_name}, {dtype}, {options}", base, net, problem, x, lam, options)


def estimate(name, base, net, problem, x, lam, options):
    clients, options = net.clients, {"iterations": 6, **options}
    debias = options.pop("debias", "reset")
    w0 = np.cos(x) if options.pop("w0", False) else None
    averagings = [hgp.PushSum(one, (3, 2), debias=debias, mode="stepping") for one in (base, net)]
    whole = outcome(problem, x, lam, averagings[0], w0=w0, **options)
    own = outcome(problem.restrict(clients), x[clients], lam[clients], averagings[1],
                  w0=None if w0 is None else w0[clients], **options)  # fmt: skip
    if isinstance(whole, str):
        equal(f"why it diverged, {name}", whole, own)
        return
    same(f"hypergradient, {name}", whole.value, own.value, clients)
    same(f"w, {name}", whole.w, own.w, clients)
    if whole.history is not None:
        same(f"history, {name}", whole.history, own.history, clients)
    for field in ("traffic", "residual_norms", "checkpoints", "residual_ratio", "iterations", "stopped"):
        equal(f"{field}, {name}", getattr(whole, field), getattr(own, field))
    equal(f"traffic, {name}", averagings[0].traffic, averagings[1].traffic)


def outcome(*arguments, **options):
    """An estimate, or what was said of a run that diverged."""
    try:
        return hgp.hypergradient(*arguments, **options)
    except hgp.DivergenceError as error:
        return str(error)


def certificates():
    """What clients compute themselves, over the same graphs: with matrices, without, and for several runs."""
    _, problem, x, lam = next(problems("float64"))
    base = NETWORK_KINDS["RandomDirected"](N)
    net = hgp.mpi.spread(base, COMM)
    k, nu = net.clients, problem.lipschitz(lam)
    for options in ({"lipschitz": nu}, {"matrix_free": True, "strong_convexity": 0.05, "lipschitz": nu}, {"runs": 2}):
        averagings = [hgp.PushSum(one, 4, mode="stepping") for one in (base, net)]
        given = {"eta": 0.4, "iterations": 60}
        used = [[average] * options["runs"] if "runs" in options else average for average in averagings]
        options = {key: value for key, value in options.items() if key != "runs"}
        x = hgp.exact.inner_solution(problem, lam)
        whole_est = hgp.hypergradient(problem, x, lam, used[0], **given)
        own_est = hgp.hypergradient(problem.restrict(k), x[k], lam[k], used[1], **given)
        whole = hgp.certify(problem, x, lam, whole_est, used[0], **options)
        own = hgp.certify(problem.restrict(k), x[k], lam[k], own_est, used[1], **options)
        if options:  # constants that everybody was told
            for field in ("decentralised", "c3", "c4", "decentralised_inexact", "consistency"):
                if getattr(whole, field) is not None:
                    same(f"certify, {field}", getattr(whole, field), getattr(own, field), k, axis=-1)
            same("certify, bound", whole.decentralised_bound, own.decentralised_bound, k, axis=-1)
        else:  # those of each process together: valid for all, not the same numbers
            assert (own.decentralised_bound >= whole.decentralised_bound[..., k] * (1 - 1e-12)).all()
            assert (own.decentralised_bound <= whole.decentralised_bound[..., k] * 2).all(), "and not by much"
        equal("certify, traffic", whole.traffic, own.traffic)
        equal("certify, against", whole.against, own.against)
        equal("certify, traffic", averagings[0].traffic, averagings[1].traffic)
        if COMM.size > 1:
            equal("nobody sees all clients", (own.centralised, own.c1, own.residual), (None, None, None))
            np.testing.assert_array_equal(own.bound, own.decentralised_bound, strict=True)
        error = np.linalg.norm(own_est.value - hgp.exact.hypergradient(problem, x, lam)[k], axis=-1)
        assert (error <= own.bound).all() and str(own)


def drawn(size):
    return hgp.MiniBatches(size, seed=3)


def outer_loop(kinds, dtypes=DTYPES):
    for kind in kinds:
        base = NETWORK_KINDS[kind](N)
        net = hgp.mpi.spread(base, COMM)
        k = net.clients
        for dtype in dtypes:
            for name, problem, _, lam in list(problems(dtype))[:2]:
                for train, estimate in (({}, {"average": conserving}), ({"batches": drawn(3)}, {"batches": drawn(4)})):
                    if not chosen():
                        continue
                    options = {
                        "outer_steps": 3, "train": hgp.training.SGP(20, 0.2, (0.6, 0.8), **train),
                        "estimate": Estimator(3, 5, eta=0.3, **estimate),
                        "project": lambda lam: np.clip(lam, 0.05, 1.0),
                    }  # fmt: skip
                    whole = optimise(problem, lam, Stepping(base), **options)
                    own = optimise(problem.restrict(k), lam[k], net, **options)
                    same(f"optimise, {kind}, {name}, {dtype}", whole.lam, own.lam, k)
                    same(f"optimise, x, {kind}, {name}, {dtype}", whole.x, own.x, k)
                    for field in ("outer_cost", "traffic", "floats", "rounds", "stopped", "steps"):
                        equal(f"optimise, {field}", getattr(whole, field), getattr(own, field))


def certified_loop():
    """Each rank knows the constants of its own clients; steps are certified with those of all."""
    base, problem, lam = (
        NETWORK_KINDS["RandomDirected"](N),
        hgp.problems.Quadratic.random(N, 4, 2, seed=1),
        np.zeros((N, 2)),
    )
    net = hgp.mpi.spread(base, COMM)
    k, train = net.clients, hgp.training.SGP(20, 0.3, (0.6, 0.8))
    given = dict(outer_steps=2, train=train, estimate=Estimator(3, 20, eta=1.0), update=CertifiedDescent(0.1))
    own = optimise(problem.restrict(k), lam[k], net, **given)
    assert own.stopped == "steps" and (np.diff(own.outer_cost) < 0).all()
    for step, there in zip(own.steps, own.lam[1:], strict=True):
        whole = np.concatenate(COMM.allgather(there))
        true = problem.outer_cost(hgp.exact.inner_solution(problem, whole), whole).sum()
        assert step.interval[0] <= true <= step.interval[1]
    given |= {"update": CertifiedDescent(0.1, lipschitz=problem.lipschitz(lam))}
    whole = optimise(problem, lam, Stepping(base), **given)
    own = optimise(problem.restrict(k), lam[k], net, **given)
    for field in ("outer_cost", "traffic", "steps"):  # constants that were given are those of all clients
        equal(f"certified steps, {field}", getattr(whole, field), getattr(own, field))


def plans():
    """What clients find out, choose, and certify themselves; on several ranks they do in any case."""
    rng = np.random.default_rng(7)
    problem = hgp.problems.Quadratic.random(N, 4, 2, seed=1)
    x, lam = rng.normal(size=(N, 4)), np.zeros((N, 2))
    base = NETWORK_KINDS["RandomDirected"](N)
    net = hgp.mpi.spread(base, COMM)
    k = net.clients
    PUSH_SUM = ("Neumann", "Chebyshev", "Tracking")  # over ranks there are no trees
    for relative, target in ((True, 1e-4), (False, 5e-3)):
        whole = hgp.plan(problem, x, lam, Stepping(base), target=target, relative=relative, methods=PUSH_SUM).run(
            by_clients=True, against="x"
        )
        own = hgp.plan(problem.restrict(k), x[k], lam[k], net, target=target, relative=relative, methods=PUSH_SUM).run(
            by_clients=COMM.size < 2, against="x"
        )
        same(f"plan, relative={relative}", whole.value, own.value, k)
        for field in ("bound", "met", "continued", "iterations", "traffic"):
            equal(f"plan, {field}", getattr(whole, field), getattr(own, field))
    if COMM.size > 1:
        try:
            hgp.certify(problem.restrict(k), x[k], lam[k], own)
        except ValueError as error:
            equal("certify without avg", True, "no process sees all clients" in str(error))
        else:
            raise AssertionError("a certificate of a rank's own clients is none")


class Stepping(ShiftedNetwork):
    """The simulation that always steps."""

    def __init__(self, net, t=0):
        super().__init__(net, t)

    def after(self, t):
        return Stepping(self.net, self._offset + t)


@connect.register
def _(net: Stepping, mode="auto"):
    return connect.dispatch(hgp.networks.Network)(net, "stepping")


def conserving(net, steps):
    return hgp.PushSum(net, steps, debias="conserve")


def rounds():
    """Local epochs and averages by turns, weighted by the number of instances."""
    base = NETWORK_KINDS["RandomOut"](N)
    net = hgp.mpi.spread(base, COMM)
    k = net.clients
    for name, problem, _, lam in problems("float64"):
        settings = {"lr": 0.1, "epochs": 2, "batches": hgp.MiniBatches(3, seed=2), "momentum": 0.5, "prox": 0.1}
        sizes, method = np.array(SIZES), hgp.training.LocalRounds
        average = hgp.PushSum(base, 2, mode="stepping")
        whole = hgp.train(problem, lam, average, method(rounds=4, weights=sizes, **settings))
        own = hgp.train(
            problem.restrict(k), lam[k], hgp.PushSum(net, 2), method(rounds=4, weights=sizes[k], **settings)
        )
        same(f"rounds, {name}", whole.x, own.x, k)
        for field in ("traffic", "consensus_gap", "grad_norm"):
            equal(f"rounds, {field}, {name}", getattr(whole, field), getattr(own, field))


def influence():
    name, problem, x, lam = list(problems("float64"))[1]
    base = NETWORK_KINDS["RandomOut"](N)
    net = hgp.mpi.spread(base, COMM)
    k, options = net.clients, {"method": hgp.methods.Neumann(0.4), "iterations": 8}
    whole = hgp.influence(problem, x, lam, hgp.PushSum(base, 3, mode="stepping"), **options)
    own = hgp.influence(problem.restrict(k), x[k], lam[k], hgp.PushSum(net, 3), **options)
    same(f"influence, {name}", whole.per_instance, own.per_instance, k)
    every = hgp.mpi.gather(own.per_instance, net)
    equal("influence, gathered", whole.per_instance, every)


def layouts():
    """One client a rank, given sizes, a part of the ranks, two networks at once, arrays in any memory order."""
    n = COMM.size + 2
    z = np.random.default_rng(3).standard_normal((n, 12))[:, ::2]
    sizes = [3, *[1] * (COMM.size - 1)] if COMM.size > 1 else [3]
    base = NETWORK_KINDS["SparseErdosRenyi"](n)
    net = hgp.mpi.spread(base, COMM, sizes=sizes)
    equal("sizes", net.clients.stop - net.clients.start, sizes[COMM.rank])
    other = hgp.mpi.spread(NETWORK_KINDS["OnePeerExponential"](COMM.size), COMM)
    one = np.arange(COMM.size, dtype=float)[:, None] ** 2
    first, second = connect(net), connect(other)
    simulated = connect(base, "stepping"), connect(other.net, "stepping")
    for S in (2, 1, 3):  # by turns
        same("strided", simulated[0].mix(z, S), first.mix(z[net.clients], S), net.clients)
        same("one each", simulated[1].mix(one, S), second.mix(one[other.clients], S), other.clients)
    half = COMM.Split(COMM.rank % 2, COMM.rank)
    part = hgp.mpi.spread(base, half)
    same("part of the ranks", connect(base, "stepping").average(z, 4), connect(part).average(z[part.clients], 4),
         part.clients)  # fmt: skip
    equal("gathered", hgp.mpi.gather(z[part.clients], part), z)
    equal("gathered along another axis", hgp.mpi.gather(z.T[:, part.clients], part, axis=1), z.T)
    half.Free()


def stopped_everywhere():
    """A callback that has had enough on one rank stops the run on all of them."""
    _, problem, x, lam = next(problems("float64"))
    net = hgp.mpi.spread(NETWORK_KINDS["RandomOut"](N), COMM)
    k, last = net.clients, COMM.size - 1
    fit = hgp.sgp(
        problem.restrict(k),
        lam[k],
        net,
        steps=9,
        lr=0.1,
        callback=lambda s, z: COMM.rank == last and s == 3,
        milestones=(0.6, 0.8),
    )
    equal("sgp", (3, "callback"), (fit.steps, fit.stopped))
    est = hgp.hypergradient(
        problem.restrict(k),
        x[k],
        lam[k],
        hgp.PushSum(net, 2),
        eta=0.4,
        iterations=9,
        callback=lambda m, v: COMM.rank == last and m == 4,
    )
    equal("hypergradient", (4, "callback"), (est.iterations, est.stopped))


def main(parts):
    warnings.simplefilter("error")
    warnings.filterwarnings(
        "ignore", "not converged|the certified error|.*strongly connected|debias|.*reach", RuntimeWarning
    )
    # a flag that OpenBLAS raises over finite float32 products of five columns: tests/problems/test_spurious_flags.py
    warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
    some = ("RandomDirected", "RandomOut", "Schedule", "OnePeerExponential")
    if "few" in parts:
        channels(NETWORK_KINDS, (5,))
        training(("RandomOut",), DTYPES[:1])
        estimates(("RandomDirected",), DTYPES[1:])
        newton(("RandomOut",), DTYPES[1:])
        outer_loop(("RandomOut",), DTYPES[:1])
    else:
        global stride
        stride = 1 if "all" in parts else 5
        channels(NETWORK_KINDS, (4, 7, 12) if "all" in parts else (7,))
        training(some), newton(some), estimates(NETWORK_KINDS), outer_loop(some)
    (
        exchanges(),
        resumed(),
        certified_loop(),
        plans(),
        certificates(),
        rounds(),
        composed(),
        gossip(),
        influence(),
        layouts(),
        stopped_everywhere(),
    )
    if COMM.rank == 0:
        print(f"{compared} comparisons agree on {COMM.size} ranks")


if __name__ == "__main__":
    main(sys.argv[1:])
