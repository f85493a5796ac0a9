"""On two ranks or more: a mismatch raises the same error on every rank, after which all can continue."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import tempfile
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from support.examples import logistic

import hgp_ref as hgp
from hgp_ref.mixing import WeightRule, connect

COMM = MPI.COMM_WORLD
N = 6
LAST = COMM.rank == COMM.size - 1  # the rank that is told something else
refused = 0


def differ(usual, other):
    """`other` on the last rank."""
    return other if LAST else usual


def refuses(message, call, kind=ValueError):
    """`call` raises everywhere."""
    global refused
    refused += 1
    with pytest.raises(kind, match=message):
        call()
    COMM.Barrier()


class OwnLinks(hgp.networks.RandomOut):
    """A network whose messages go another way than the simulation's."""


@connect.register
def _(net: OwnLinks, mode="auto"):
    return hgp.mixing.Simulated(net, mode)


def networks():
    out = hgp.networks.RandomOut
    spread = hgp.mpi.spread
    last = COMM.size - 1
    refuses(f"net: RandomOut.*seed=0.* on rank.*seed=7.* on rank {last}", lambda: spread(out(N, 2, seed=differ(0, 7))))
    refuses("ranks disagree: net", lambda: spread(differ(out(N, 2), hgp.networks.FullyConnected(N))))
    refuses("ranks disagree: net.*sizes: ", lambda: spread(out(differ(N, N + 1), 2)))
    matrices = np.stack([np.eye(30)] * 2)
    matrices[1, :2, 0] = differ(0.5, 0.25), differ(0.5, 0.75)
    refuses("first graphs: ", lambda: spread(hgp.networks.Schedule(matrices)))
    refuses(rf"comm must have at most .*, got {COMM.size} ranks for {COMM.size - 1} clients",
            lambda: spread(hgp.networks.FullyConnected(COMM.size - 1)))  # fmt: skip
    refuses(r"sizes must be .*, got \[1, 2\]", lambda: spread(out(N, 2), COMM, sizes=[1, 2]))
    refuses("patience", lambda: spread(out(N, 2), COMM, patience=0))
    refuses("direct", lambda: spread(out(N, 2), COMM, direct="yes"), TypeError)
    refuses("net must be a network", lambda: spread("ring"), TypeError)
    refuses("net must be a network that is not distributed yet", lambda: spread(spread(out(N, 2))), TypeError)
    refuses(
        "net must use a channel of hgp_ref.mixing, but OwnLinks has a channel of its own",
        lambda: spread(OwnLinks(N, 2)),
        TypeError,
    )
    lossy = hgp.networks.Unreliable
    refuses("net: Unreliable.*loss=0.1.* loss=0.2", lambda: spread(lossy(out(N, 2), loss=differ(0.1, 0.2))))
    refuses("make it Unreliable first, then spread that", lambda: lossy(spread(out(N, 2)), loss=0.1))
    refuses("comm must be an intracommunicator of mpi4py.*, got 3", lambda: spread(out(N, 2), 3), TypeError)
    refuses(
        "comm must be a communicator that this process belongs to, got COMM_NULL",
        lambda: spread(out(N, 2), MPI.COMM_NULL),
    )
    refuses("mode", lambda: connect(spread(out(N, 2)), "compose"))
    twice = spread(out(N, 2), COMM, patience=50.0)
    spread(out(N, 2), COMM)
    assert twice.ranks.patience == 50.0 and copy.deepcopy(twice) is twice
    refuses("cannot be pickled: .* spread it again", lambda: pickle.dumps(twice), TypeError)
    own = hgp.__version__
    hgp.__version__ = differ(own, "0.0.1")
    refuses("hgp_ref: .* 0.0.1 on rank", lambda: spread(out(N, 2)))
    hgp.__version__ = own


def settings():
    """Seeds, shapes, dtypes, numbers of steps, methods: in training, in an estimate, in a single average."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1))
    k = net.clients
    problem, x, lam = logistic(n=N, d=3)
    wide, wide_x, wide_lam = logistic(n=N, d=4)

    def train(problem=problem, lam=lam, net=net, **options):
        given = {"steps": 3, "lr": 0.1, "milestones": (0.6, 0.8), "batches": 2, **options}
        callback = given.pop("callback", None)
        return hgp.train(problem.restrict(k), lam[k], net, hgp.training.SGP(**given), callback=callback)

    def estimate(problem=problem, x=x, lam=lam, steps=2, **options):
        given = {"iterations": 3, "batches": 2, **options}
        return hgp.hypergradient(problem.restrict(k), x[k], lam[k], hgp.PushSum(net, steps), **given)

    seeds = hgp.MiniBatches(2, seed=3), hgp.MiniBatches(2, seed=4)
    words = {"batches": (2, 3), "steps": (3, 5), "lr": (0.1, 0.2), "variant": ("assran", "nedic"),
             "callback": (None, lambda s, z: False)}  # fmt: skip
    for name, pair in [*words.items(), ("batches", seeds)]:
        said = {"steps": "calls", "callback": "callback"}.get(name, "method")
        refuses(f"ranks disagree: .*{said}", lambda name=name, pair=pair: train(**{name: differ(*pair)}))
    refuses("columns: 3 .*, 4 on rank", lambda: train(*differ((problem, lam), (wide, wide_lam))))
    double, single = (problem, lam), (problem.to("numpy", dtype="float32"), lam.astype("float32"))
    refuses("dtype: float64 .*, float32 on rank", lambda: train(*differ(double, single)))
    words = {"batches": seeds, "iterations": (3, 4), "steps": (2, 3), "tol": (None, 0.1), "history": (True, False),
             "method": (hgp.methods.Neumann(0.5), hgp.methods.Neumann(0.4))}  # fmt: skip
    for name, pair in words.items():
        refuses("ranks disagree: ", lambda name=name, pair=pair: estimate(**{name: differ(*pair)}))
    refuses("columns: ", lambda: estimate(*differ((problem, x, lam), (wide, wide_x, wide_lam))))
    average = hgp.PushSum(net, 2)
    rows = k.stop - k.start
    refuses("columns: ", lambda: average.apply(np.ones((rows, differ(3, 5)))))
    refuses("graphs used: ", lambda: average.apply(np.ones((rows, 3)), call=differ(0, 1)))
    refuses("call: .*hgp.mpi.gather", lambda: differ(train, lambda: hgp.mpi.gather(np.ones(rows), net))())
    other = hgp.mpi.spread(hgp.networks.FullyConnected(N))
    refuses("net: RandomOut.*FullyConnected", lambda: train(net=differ(net, other)))
    refuses("a must have . rows along axis", lambda: hgp.mpi.gather(np.ones(N + 1), net))
    others = np.arange(N)[k][::-1] if rows > 1 else np.array([k.start - 1])
    refuses(
        "problem must hold the clients of its rank",
        lambda: average_of(problem.restrict(differ(k, others)), x, lam, net),
    )
    refuses(
        "problem must hold the clients of its rank",
        lambda: hgp.training.local_rounds(problem.restrict(differ(k, others)), lam[k], hgp.PushSum(net, 2), rounds=2),
    )
    first = slice(0, rows)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        average_of(problem.restrict(first), x, lam, net)
    assert any("numbered from 0" in str(w.message) for w in said) == (k.start > 0)
    own = train()
    np.testing.assert_array_equal(
        own.x,
        hgp.train(
            problem, lam, net.net, hgp.training.SGP(mode="stepping", steps=3, lr=0.1, milestones=(0.6, 0.8), batches=2)
        ).x[k],
    )  # after all this, ranks are in step


def local_solves():
    """What one client's Hessian shows is an error on every rank, and the client is named on its own."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1))
    k, rng = net.clients, np.random.default_rng(1)
    f_x, hessians = rng.normal(size=(N, 3)), {name: np.stack([np.eye(3)] * N) for name in ("skew", "low", "nan")}
    hessians["skew"][-1, 0, 1], hessians["low"][-1, 0, 0], hessians["nan"][-1, 0, 0] = 0.1, -0.5, np.nan

    def own(H):
        """The clients of this rank, without what the package checks of its own problems."""
        product = lambda u: np.einsum("nij,nj->ni", H[k], u)  # noqa: E731
        linear = SimpleNamespace(hvp=product, cross=lambda u: u[:, :2])
        return SimpleNamespace(n_clients=k.stop - k.start, dim_x=3, dim_lam=2, linearize=lambda x, lam, b=None: linear,
                               inner_grad=lambda x, lam, b=None: product(x) - f_x[k],
                               outer_grad=lambda x, lam: (f_x[k] + 0 * x, lam + 0.0))  # fmt: skip

    x, lam = np.ones((N, 3))[k], np.zeros((N, 2))[k]
    words = {
        "skew": ("the Hessian of client 5 must be symmetric", None, ValueError),
        "low": ("shift must be above .* for client 5, whose", 0.1, ValueError),
        "nan": ("finite", None, ArithmeticError),
    }
    for (name, (said, shift, kind)), degree in itertools.product(words.items(), (None, 4)):
        local = said if LAST or name == "nan" else "a client of another rank has a Hessian that is refused"
        method = hgp.methods.PreconditionedTracking(shift, degree=degree)
        run = lambda method=method, name=name: hgp.hypergradient(  # noqa: E731
            own(hessians[name]), x, lam, hgp.PushSum(net, 1), method, iterations=3
        )
        train = lambda shift=shift, degree=degree, name=name: hgp.train(  # noqa: E731
            own(hessians[name]), lam, net, hgp.training.NewtonTracking(3, shift, degree=degree)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # clients are numbered from 0
            refuses(local, run, kind)
            refuses(local, train, kind)
    problem, _, lam = logistic(n=N, d=3)
    newton = lambda problem=problem, rows=k, **more: hgp.train(  # noqa: E731
        problem.restrict(rows), lam[k], net, hgp.training.NewtonTracking(3, **more)
    )
    refuses("ranks disagree: .*method", lambda: newton(step=differ(0.5, 0.6)))
    others = np.arange(N)[k][::-1] if k.stop - k.start > 1 else np.array([k.start - 1])
    refuses("problem must hold the clients of its rank", lambda: newton(rows=differ(k, others)))


def calls():
    """What was refused once is refused again; other shapes while messages are under way, even with as many columns."""
    late = hgp.networks.Unreliable(hgp.networks.FullyConnected(N), loss=0.0, delay=3, seed=1)
    for net in (hgp.mpi.spread(hgp.networks.RandomOut(N, 2)), hgp.mpi.spread(late)):
        channel, z = connect(net), np.ones((net.clients.stop - net.clients.start, 4))
        for _ in range(2):
            refuses("steps: 2 on rank.*, 3 on rank", lambda channel=channel, z=z: channel.mix(z, differ(2, 3)))
    refuses("in place of Gossip", lambda: channel.mix(z, 2, WeightRule.NONE))
    channel.mix(z, 2, WeightRule.CARRY)
    for shape in ((len(z), 5), (2, len(z), 2)):
        words = rf"z must have run axes () and 4 columns, .* got shape {shape}".replace("(", r"\(").replace(")", r"\)")
        refuses(words, lambda shape=shape: channel.mix(np.ones(shape), 2, WeightRule.CARRY))
    whole = connect(late, "stepping")
    whole.advance(channel.step - 2, WeightRule.NONE, np.ones((N, 4)))
    whole.mix(np.ones((N, 4)), 2, WeightRule.CARRY)
    np.testing.assert_array_equal(
        channel.mix(z, 3, WeightRule.CARRY), whole.mix(np.ones((N, 4)), 3, WeightRule.CARRY)[net.clients]
    )


def average_of(problem, x, lam, net):
    return hgp.hypergradient(problem, x[net.clients], lam[net.clients], hgp.PushSum(net, 2), eta=0.3, iterations=3)


def single_losses():
    """Influence on single losses needs all clients in one process."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3, 2)), rng.integers(0, 2, (N, 3))
    problem, net = hgp.problems.InstanceWeights(X, y, X, y, l2=0.1), hgp.mpi.spread(hgp.networks.RandomOut(N, 2), COMM)
    mine, rows = problem.restrict(net.clients), net.clients.stop - net.clients.start
    x, ones, avg = np.ones((rows, 2)), np.ones((rows, 3)), hgp.PushSum(net, 2)
    for on in ("instances", "self", [(0, 0)]):
        refuses("^on must be 'total' if", lambda on=on: hgp.influence(mine, x, ones, avg, eta=0.1, on=on))


def everywhere():
    """What one client shows is said on all ranks: training and estimates that diverge, clients that are cut off."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1))
    k = net.clients
    problem, x, lam = logistic(n=N, d=3)
    train = lambda: hgp.sgp(problem.restrict(k), 50 + lam[k], net, steps=300, lr=9.0)  # noqa: E731
    refuses("training diverged", train, hgp.DivergenceError)

    def estimate():
        return hgp.hypergradient(problem.restrict(k), x[k], 50 * lam[k], hgp.PushSum(net, 4), eta=1.0, iterations=200)

    refuses("diverged", estimate, hgp.DivergenceError)
    cut = hgp.mpi.spread(hgp.networks.SelfLoops(N))
    refuses(rf"does not reach {N - 1} of {N} clients \(the first: \[0, 1, 2, 3, 4\]",
            lambda: connect(cut).max_consensus(np.arange(N, dtype=float)[k, None], x[k]))  # fmt: skip


def resuming():
    """An estimate of another point on one rank is refused on all; the rows of a fingerprint are those of clients."""
    net = hgp.mpi.spread(hgp.networks.RandomOut(N, 2, seed=1))
    k = net.clients
    problem, x, lam = logistic(n=N, d=3)
    for options in ({}, {"batches": 2}):
        given = dict(method=hgp.methods.Neumann(0.3), iterations=4, **options)

        def estimate(x=x, given=given, **more):
            avg = hgp.PushSum(net, 3)
            return hgp.hypergradient(problem.restrict(k), x[k], lam[k], avg, **given, **more)

        est = estimate()
        whole = hgp.hypergradient(problem, x, lam, hgp.PushSum(net.net, 3), **given)
        np.testing.assert_array_equal(est.fingerprint.values, whole.fingerprint.values[:, k])
        np.testing.assert_array_equal(est.fingerprint.digest, whole.fingerprint.digest[k])
        estimate(resume=est)
        with tempfile.TemporaryDirectory() as folder:
            loaded = hgp.load(est.save(f"{folder}/{COMM.rank}.npz"))
        np.testing.assert_array_equal(estimate(resume=loaded).value, estimate(resume=est).value)
        refuses("resume must be an estimate at the same problem",
                lambda estimate=estimate, est=est: estimate(x + differ(0.0, 1e-3), resume=est))  # fmt: skip
        without = dataclasses.replace(est, fingerprint=differ(est.fingerprint, None))
        refuses("resume must be an estimate with a fingerprint",
                lambda estimate=estimate, without=without: estimate(resume=without))  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("error")
    networks(), settings(), local_solves(), calls(), single_losses(), everywhere(), resuming()
    if COMM.rank == 0:
        print(f"{refused} refused on {COMM.size} ranks")
