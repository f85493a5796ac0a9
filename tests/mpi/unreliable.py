"""On several ranks, over links that lose and delay: everything equals the simulation's stepping mode bit for bit.

Without an argument all of it, with "few" a part.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import equality
import numpy as np
from equality import COMM, N, equal, near, problems, same
from support.examples import NETWORK_KINDS

import hgp_ref as hgp
from hgp_ref.bilevel import Estimator, optimise
from hgp_ref.mixing import WeightRule, connect

LINKS = {  # of Unreliable
    "loss": {"loss": 0.3, "delay": 0, "seed": 1},
    "delay": {"loss": 0.0, "delay": 3, "seed": 2},
    "both, and sleep": {"loss": 0.2, "delay": 2, "sleep": 0.2, "stretch": 4, "seed": 3},
    "naps": {"loss": 0.1, "delay": 1, "sleep": [(0, 2, 9), (3, 5, 6)], "seed": 4},
}


def over(kind, links, n=N):
    """An unreliable network, and the same over the ranks."""
    base = hgp.networks.Unreliable(NETWORK_KINDS[kind](n), **LINKS[links])
    return base, hgp.mpi.spread(base, COMM)


def channels(kinds, links):
    """Sums and averages with reset or carried weights, messages in flight, boxes, maxima, traffic and position."""
    rng = np.random.default_rng(0)
    for kind in kinds:
        for name in links:
            base, net = over(kind, name)
            for k, (dtype, shape) in enumerate((("float32", (N, 1)), ("float64", (N, 40)), ("float64", (2, N, 5)))):
                z = rng.standard_normal(shape).astype(dtype)
                for robust in (False, True):
                    whole, own = connect(base.after(k), "stepping"), connect(net.after(k))
                    if robust:
                        whole.use_running_sums(), own.use_running_sums()
                    channel_cases(f"{kind}, {name}, {dtype} {shape}, {robust}", whole, own, z, net.clients, robust)


def channel_cases(name, whole, own, z, clients, robust):
    rows = z[..., clients, :]
    whole.advance(1, WeightRule.CARRY, z), own.advance(1, WeightRule.CARRY, rows)
    same(f"{name}, weights before any call", whole.weights, own.weights, clients)
    for weights in (WeightRule.RESET, WeightRule.CARRY):
        for S in (3, 1, 4):
            same(name, whole.mix(z, S, weights), own.mix(rows, S, weights), clients)
            equal(f"{name}, in flight", whole.in_flight, own.in_flight)
            same(f"{name}, average", whole.average(z, S, weights), own.average(rows, S, weights), clients)
            same(f"{name}, weights", whole.weights, own.weights, clients)
            equal(f"{name}, omega", whole.omega, own.omega)
            equal(f"{name}, traffic", (whole.traffic, whole.step), (own.traffic, own.step))
    whole.mix(z, 1, WeightRule.CARRY), own.mix(rows, 1, WeightRule.CARRY)
    whole.advance(5, WeightRule.CARRY, z), own.advance(5, WeightRule.CARRY, rows)  # what is in flight is dropped
    same(f"{name}, weights after a skip", whole.weights, own.weights, clients)
    equal(f"{name}, after a skip", (whole.traffic, whole.step), (own.traffic, own.step))
    same(
        f"{name}, after a skip", whole.average(z, 2, WeightRule.CARRY), own.average(rows, 2, WeightRule.CARRY), clients
    )
    equal(f"{name}, masses", (whole.conserves_mass, whole.drops_mass), (own.conserves_mass, own.drops_mass))
    if robust:
        for one, other in zip(whole.interval_mean(z, 6), own.interval_mean(rows, 6), strict=True):
            same(f"{name}, box", one, other, clients)
        equal(f"{name}, traffic of boxes", (whole.traffic, whole.step), (own.traffic, own.step))
    v = np.random.default_rng(1).standard_normal((N, 2))
    equal(f"{name}, max_consensus", whole.max_consensus(v, z), own.max_consensus(v[clients], rows))
    equal(f"{name}, mean", whole.mean_over_clients(z), own.mean_over_clients(rows))
    equal(f"{name}, traffic of all", (whole.traffic, whole.step), (own.traffic, own.step))


def composed():
    """Calls as one matrix: as in the simulation, to rounding."""
    base, net = over("RandomDirected", "both, and sleep")
    z = np.random.default_rng(2).standard_normal((N, 9))
    averagings = [hgp.RobustPushSum(one, 6, mode="composed") for one in (base, net)]
    for call in range(3):
        near("composed", averagings[0].apply(z, call)[net.clients], averagings[1].apply(z[net.clients], call))
    equal("composed, traffic", averagings[0].traffic, averagings[1].traffic)


def whole_programs(kinds, links):
    """Training, methods, a certificate, the outer loop."""
    for kind in kinds:
        for name in links:
            base, net = over(kind, name)
            for problem_name, problem, x, lam in list(problems("float64"))[:2]:
                programs(f"{kind}, {name}, {problem_name}", base, net, problem, x, lam)


def programs(name, base, net, problem, x, lam):
    k, methods = net.clients, hgp.methods
    for options in ({}, {"batches": hgp.MiniBatches(3, seed=[1, 2])}):
        options = {"steps": 12, "lr": 0.1, **options}
        whole = hgp.train(problem, lam, base, hgp.training.SGP(mode="stepping", **options))
        own = hgp.train(problem.restrict(k), lam[k], net, hgp.training.SGP(**options))
        same(f"sgp, {name}", whole.x, own.x, k)
        equal(f"sgp, traffic, {name}", whole.traffic, own.traffic)
        equal(f"sgp, gradient left, {name}", whole.grad_norm, own.grad_norm)
    for method, debias in ((methods.Neumann(0.3), "reset"), (methods.Chebyshev(), "reset"),
                           (methods.Neumann(0.3), "conserve"), (methods.Tracking(0.1), "reset"),
                           (methods.PreconditionedTracking(), "reset")):  # fmt: skip
        averagings = [hgp.RobustPushSum(one, (5, 3), debias=debias, mode="stepping") for one in (base, net)]
        given = {"method": method, "iterations": 6}
        pair = [equality.outcome(problem, x, lam, averagings[0], **given),
                equality.outcome(problem.restrict(k), x[k], lam[k], averagings[1], **given)]  # fmt: skip
        if isinstance(pair[0], str):
            equal(f"{method!r}, why it stopped, {name}", *pair)
            continue
        same(f"{method!r}, {debias}, {name}", pair[0].value, pair[1].value, k)
        equal(f"{method!r}, {debias}, traffic, {name}", pair[0].traffic, pair[1].traffic)
    nu, x = problem.lipschitz(lam), hgp.exact.inner_solution(problem, lam)
    averagings = [hgp.RobustPushSum(one, 40, mode="stepping") for one in (base, net)]
    given = {"eta": 0.3, "iterations": 40}
    whole = hgp.certify(problem, x, lam, hgp.hypergradient(problem, x, lam, averagings[0], **given), averagings[0],
                        lipschitz=nu)  # fmt: skip
    own_est = hgp.hypergradient(problem.restrict(k), x[k], lam[k], averagings[1], **given)
    own = hgp.certify(problem.restrict(k), x[k], lam[k], own_est, averagings[1], lipschitz=nu)
    same(f"certify, {name}", whole.decentralised_bound, own.decentralised_bound, k, axis=-1)
    equal(f"certify, traffic, {name}", whole.traffic, own.traffic)
    error = np.linalg.norm(own_est.value - hgp.exact.hypergradient(problem, x, lam)[k], axis=-1)
    assert (error <= own.bound).all()
    options = {"outer_steps": 2, "estimate": Estimator(6, 5, eta=0.3, average=stepping)}
    train = hgp.training.SGP(15, 0.2, (0.6, 0.8))
    whole = optimise(problem, lam, base, train=replace(train, mode="stepping"), **options)
    own = optimise(problem.restrict(k), lam[k], net, train=train, **options)
    same(f"optimise, {name}", whole.lam, own.lam, k)
    equal(f"optimise, traffic, {name}", whole.traffic, own.traffic)


def stepping(net, steps):
    return hgp.RobustPushSum(net, steps, mode="stepping")


def main(*parts):
    warnings.simplefilter("error")
    for ignored in ("not converged|the certified error|.*strongly connected|debias|.*reach", "PushSum over .* loses",
                    "sgp: the links"):  # fmt: skip
        warnings.filterwarnings("ignore", ignored, RuntimeWarning)
    few = "few" in parts
    channels(("RandomDirected",) if few else ("RandomDirected", "Schedule", "RandomOut", "OnePeerExponential"), LINKS)
    whole_programs(("RandomDirected",), ("both, and sleep",) if few else LINKS)
    composed()
    if COMM.rank == 0:
        print(f"{equality.compared} comparisons agree on {COMM.size} ranks")


if __name__ == "__main__":
    main(*sys.argv[1:])
