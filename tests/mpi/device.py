"""On several ranks: arrays of every library against the simulation on the same library, bit for bit where both step.

Arrays of CuPy go to MPI through the host, counted, or directly, without a transfer. On the rig of tests/cupy_on_cpu the
direct way needs RIG_STRICT=0, since MPI reads device memory from the host.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import numpy as np
import pytest
from mpi4py import MPI
from support.device_counters import DeviceCounters
from support.examples import NETWORK_KINDS, logistic
from support.libraries import USES_CUPY, open_library

import hgp_ref as hgp
from hgp_ref.backend import addressable
from hgp_ref.mixing import WeightRule, connect

COMM = MPI.COMM_WORLD
N = 5
compared = 0


def same(name, lib, whole, own, clients):
    global compared
    compared += 1
    assert type(own) is type(whole), name
    if str(lib) == "jax":  # XLA fuses products and sums in an order that depends on the shape
        eps = np.finfo(lib.to_numpy(own).dtype).eps
        np.testing.assert_allclose(lib.to_numpy(own), lib.to_numpy(whole)[..., clients, :], rtol=8 * eps, atol=eps)
        return
    np.testing.assert_array_equal(lib.to_numpy(own), lib.to_numpy(whole)[..., clients, :], err_msg=name, strict=True)


def mixing(lib, direct):
    for kind in ("RandomOut", "RandomDirected", "OnePeerExponential"):
        base = NETWORK_KINDS[kind](N)
        net = hgp.mpi.spread(base, COMM, direct=direct)
        for shape in ((N, 3), (2, N, 4)):
            z = np.random.default_rng(0).standard_normal(shape).astype("float32")
            whole, own = connect(base, "stepping"), connect(net)
            there, here = lib.asarray(z), lib.asarray(np.ascontiguousarray(z[..., net.clients, :]))
            for weights in (WeightRule.RESET, WeightRule.CARRY):
                name = f"{lib}, direct={direct}, {kind}, {shape}, {weights}"
                same(name, lib, whole.average(there, 3, weights), own.average(here, 3, weights), net.clients)
                same(name, lib, whole.mix(there, 2, weights), own.mix(here, 2, weights), net.clients)
                same(name, lib, whole.weights, own.weights, net.clients)
            assert whole.traffic == own.traffic
            mean, expected = own.mean_over_clients(here), whole.mean_over_clients(there)
            np.testing.assert_allclose(lib.to_numpy(mean), lib.to_numpy(expected), rtol=1e-6)
    z = np.ones((N, 2))
    hgp.Gossip(net.after(2), 2).apply(lib.asarray(z[net.clients]))
    own.mix(lib.asarray(z[net.clients]), 3, WeightRule.NONE)


def runs(lib, direct):
    """Training and an estimate: the simulation's on the same library, composed, hence to rounding."""
    problem, x, lam = logistic(n=N, d=3)
    base = NETWORK_KINDS["RandomOut"](N)
    net = hgp.mpi.spread(base, COMM, direct=direct)
    k, there = net.clients, problem.to(lib.backend, device=lib.device)
    own = problem.restrict(k).to(lib.backend, device=lib.device)
    fit = hgp.sgp(own, lib.asarray(lam[k]), net, steps=6, lr=0.2, milestones=(0.6, 0.8), batches=3)
    whole = hgp.sgp(there, lib.asarray(lam), base, steps=6, lr=0.2, milestones=(0.6, 0.8), batches=3)
    np.testing.assert_allclose(lib.to_numpy(hgp.mpi.gather(fit.x, net)), lib.to_numpy(whole.x), rtol=1e-12)
    method = hgp.methods.Chebyshev()
    given = {"method": method, "iterations": 5}
    est = hgp.hypergradient(own, lib.asarray(x[k]), lib.asarray(lam[k]), hgp.PushSum(net, 2), **given)
    whole = hgp.hypergradient(there, lib.asarray(x), lib.asarray(lam), hgp.PushSum(base, 2), **given)
    np.testing.assert_allclose(lib.to_numpy(hgp.mpi.gather(est.value, net)), lib.to_numpy(whole.value), rtol=1e-12)
    assert est.traffic == whole.traffic


def unreliable(lib):
    """Links that lose and delay, with running sums and boxes."""
    base = hgp.networks.Unreliable(NETWORK_KINDS["RandomDirected"](N), loss=0.2, delay=2, seed=1)
    net = hgp.mpi.spread(base, COMM)
    k = net.clients
    whole, own = connect(base, "stepping"), connect(net)
    whole.use_running_sums(), own.use_running_sums()
    z = np.random.default_rng(0).standard_normal((N, 3))
    there, here = lib.asarray(z), lib.asarray(z[k])
    pairs = [(whole.average(there, 6, w), own.average(here, 6, w)) for w in (WeightRule.RESET, WeightRule.CARRY)]
    for one, other in (*pairs, *zip(whole.interval_mean(there, 5), own.interval_mean(here, 5), strict=True)):
        same("unreliable", lib, one, other, k)
    assert (whole.traffic, whole.step) == (own.traffic, own.step)


def transfers(lib, counted):
    """Through the host a call moves its rows down and its columns up, and back; directly only graphs go up."""
    net = hgp.networks.OnePeerExponential(8)
    for direct in (False, True):
        spread = hgp.mpi.spread(net, COMM, direct=direct)
        rows = spread.clients.stop - spread.clients.start
        z, channel = lib.asarray(np.ones((rows, 1000))), connect(spread)
        before = spread.mpi_traffic
        counted.reset()
        channel.mix(z, 3, WeightRule.RESET)
        assert spread.mpi_traffic.bytes - before.bytes > 0
        size = rows * 1000 * 8
        assert abs(counted.to_host_bytes - (0 if direct else 2 * size)) <= 8 * 8 * 8, counted  # columns cut at 8
        assert counted.to_device_bytes < 2000 if direct else counted.to_device_bytes > 2 * size - 8 * 8 * 8


def main():
    others = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]
    names = [*(["cupy"] if USES_CUPY else []), "array_api_strict", *others]
    for name in names if "all" in sys.argv else names[:1]:
        lib = open_library(name)
        for direct in (False, True) if name in ("cupy", "torch") else (False,):
            mixing(lib, direct)
            runs(lib, direct)
        unreliable(lib)
        if not addressable(lib.asarray(np.ones(2))):
            with pytest.raises(TypeError, match="direct=True needs arrays that MPI can write into"):
                mixing(lib, True)
    if USES_CUPY and importlib.util.find_spec("cupy_on_cpu"):
        transfers(open_library("cupy"), DeviceCounters(importlib.import_module("cupy_on_cpu")))
    if COMM.rank == 0:
        print(f"{compared} comparisons of {', '.join(names)} agree on {COMM.size} ranks")


if __name__ == "__main__":
    main()
