"""The core gives the numbers of NumPy in float64 on every array library, and leaves arrays where they were.

The judge is NumPy in float64: 1e-12 of the largest entry in float64, 1000 eps of float32. Whether NumPy itself is right
is asked elsewhere, against explicit matrices.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.four_clients import AVERAGINGS, NET, PROBLEMS, N, labelled, point
from support.libraries import LIBRARIES, assert_same, identity_rtol, need_factorisations, open_library

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev, ConjugateGradient, DirectSolve, Refined, Tracking
from hgp_ref.networks import RandomDirected
from hgp_ref.problems import (
    HyperCleaning,
    InstanceWeights,
    LogisticRegression,
    LogRates,
    SoftmaxRegression,
    sample_batches,
)

# JAX compiles every operation for every shape: it is left to `make test-all`, where float32 has one test of its own.
PAIRS = [(lib, dtype) for lib in LIBRARIES if lib != "jax" for dtype in ("float64", "float32")]
PAIRS += [pytest.param(("jax", "float64"), marks=pytest.mark.slow)]
TOLERANCE = {"float64": 1e-12, "float32": identity_rtol("float32")}


SAMPLED = [name for name in PROBLEMS if name != "quadratic"]  # those with instances
CASES = [(name, "full") for name in PROBLEMS] + [(name, "batch") for name in SAMPLED]


def agree(actual, expected: np.ndarray, lib, dtype: str) -> None:
    assert_same(actual, np.asarray(expected, dtype=dtype), lib, rtol=TOLERANCE[dtype])


@pytest.fixture(params=PAIRS, ids="-".join, scope="module")
def pair(request):
    return open_library(request.param[0]), request.param[1]


@pytest.fixture
def xp(pair):
    return pair[0]


@pytest.fixture
def dtype(pair):
    return pair[1]


# Problems


@pytest.mark.parametrize("runs", [(), (2, 1)], ids=["one run", "run axes"])
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_problems(xp, dtype, case, runs):
    host, batched = PROBLEMS[case[0]](), case[1] == "batch"
    there = host.to(xp.backend, dtype=dtype, device=xp.device)
    (x, lam), u = point(host, runs), point(host, runs, seed=4)[0]
    batch = sample_batches(host.counts, 6, seed=0, first=2, count=1)[0] if batched else None
    x_there, lam_there, u_there = (xp.asarray(a, dtype=dtype) for a in (x, lam, u))
    extra, extra_there = ({"batch": batch}, {"batch": xp.asarray(batch)}) if batched else ({}, {})

    for method in ("inner_cost", "inner_grad", "hessian", "jacobian"):
        expected = getattr(host, method)(x, lam, **extra)
        agree(getattr(there, method)(x_there, lam_there, **extra_there), expected, xp, dtype)
    linear, linear_there = host.linearize(x, lam, **extra), there.linearize(x_there, lam_there, **extra_there)
    agree(linear_there.hvp(u_there), linear.hvp(u), xp, dtype)
    agree(linear_there.cross(u_there), linear.cross(u), xp, dtype)
    agree(there.outer_cost(x_there, lam_there), host.outer_cost(x, lam), xp, dtype)
    for found, expected in zip(there.outer_grad(x_there, lam_there), host.outer_grad(x, lam), strict=True):
        agree(found, expected, xp, dtype)


@pytest.mark.parametrize("name", SAMPLED)
def test_problems_made_of_arrays_of_the_library(xp, dtype, name):
    host = PROBLEMS[name]()
    data = labelled(3 if "softmax" in name or name == "hyper-cleaning" else 2)
    data = [[xp.asarray(part, dtype=dtype) for part in group] for group in data]
    kinds = {"logistic": LogisticRegression, "softmax": SoftmaxRegression, "weights": InstanceWeights}
    kinds |= {"hyper-cleaning": lambda *data: HyperCleaning(*data, 0.3, n_classes=3)}
    kinds |= {"log rates": lambda *data: LogRates(LogisticRegression(*data))}
    make = kinds[name.split(",")[0]]
    options = {"regularization": "client"} if "a rate per" in name else {}
    if make is InstanceWeights:
        options = {"l2": 0.3} | ({"loss": "softmax", "n_classes": 3} if "softmax" in name else {})
    x, lam = point(host)
    made = make(*data, **options)
    agree(made.inner_grad(*(xp.asarray(a, dtype=dtype) for a in (x, lam))), host.inner_grad(x, lam), xp, dtype)


# Averaging


@pytest.mark.parametrize("shape", [(N, 6), (2, 3, N, 1)], ids=str)
@pytest.mark.parametrize("name", AVERAGINGS)
def test_averaging(xp, dtype, name, shape):
    u = np.random.default_rng(0).standard_normal(shape)
    here, there = AVERAGINGS[name](), AVERAGINGS[name]()
    for call in (0, 3):
        agree(there.apply(xp.asarray(u, dtype=dtype), call=call), here.apply(u, call=call), xp, dtype)
    itemsize = np.dtype(dtype).itemsize
    assert there.traffic == dataclasses.replace(here.traffic, bytes=here.traffic.floats * itemsize)


def test_averaging_with_weights_carried_over(xp, dtype):
    u = np.random.default_rng(0).standard_normal((N, 6))
    with pytest.warns(RuntimeWarning, match="keep"):
        here, there = (hgp.PushSum(NET, 2, debias="keep") for _ in range(2))
    agree(there.apply(xp.asarray(u, dtype=dtype), call=3), here.apply(u, call=3), xp, dtype)


# Algorithm 2

RUNS = {
    "full": {},
    "history": {"history": True},
    "mini-batch": {"batches": hgp.MiniBatches(3, seed=7), "history": True},
    "mini-batch, shared, replaced": {"batches": hgp.MiniBatches(3, seed=7, share=True, replace=True)},
    "seeds": {"batches": hgp.MiniBatches(3, seed=[1, 2]), "history": True},
}


def compare(problem_name, avg, xp, dtype, iterations=13, **options):
    """The estimate there and on the host, compared in all they say."""
    host = PROBLEMS[problem_name]()
    there = host.to(xp.backend, dtype=dtype, device=xp.device)
    x, lam = point(host)
    options = options if "method" in options else {"eta": 0.4, **options}
    expected = hgp.hypergradient(host, x, lam, avg(), iterations=iterations, **options)
    x, lam = (xp.asarray(a, dtype=dtype) for a in (x, lam))
    found = hgp.hypergradient(there, x, lam, avg(), iterations=iterations, **options)
    agree(found.value, expected.value, xp, dtype)
    agree(found.w, expected.w, xp, dtype)
    assert (found.history is None) == (expected.history is None) == (not options.get("history"))
    if found.history is not None:
        agree(found.history, expected.history, xp, dtype)
    np.testing.assert_array_equal(found.traffic.messages, expected.traffic.messages)
    np.testing.assert_array_equal(found.traffic.rounds, expected.traffic.rounds)
    np.testing.assert_array_equal(found.traffic.bytes, found.traffic.floats * np.dtype(dtype).itemsize)
    np.testing.assert_allclose(found.residual_ratio, expected.residual_ratio, rtol=TOLERANCE[dtype])
    assert (found.iterations, found.stopped) == (expected.iterations, expected.stopped)


@pytest.mark.parametrize("options", RUNS)
@pytest.mark.parametrize("problem", ["logistic", "weights"])
def test_hypergradient(xp, dtype, problem, options):
    compare(problem, AVERAGINGS["push-sum composed"], xp, dtype, **RUNS[options])


METHODS = {
    "Chebyshev": lambda: Chebyshev(0.1, 1.2),
    "Tracking": lambda: Tracking(0.2),
    "Refined": lambda: Refined(Chebyshev(0.1, 1.2), cycles=2, steps=9),
    "Refined, tracked": lambda: Refined(Tracking(0.2), cycles=3, steps=9),
}


@pytest.mark.parametrize("options", ["history", "mini-batch", "seeds"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method(xp, dtype, method, options):
    compare("logistic", AVERAGINGS["push-sum composed"], xp, dtype, method=METHODS[method](), **RUNS[options])


@pytest.mark.parametrize("precondition", [True, False])
def test_conjugate_gradients(xp, dtype, precondition):
    if precondition:
        need_factorisations(xp)
    compare("logistic", AVERAGINGS["tree"], xp, dtype, 2, method=ConjugateGradient(precondition), history=True)


def test_direct_solve(xp, dtype):
    need_factorisations(xp)
    host = PROBLEMS["logistic"]()
    x, lam = point(host)
    expected = hgp.hypergradient(host, x, lam, AVERAGINGS["tree"](), DirectSolve(), iterations=1)
    there = host.to(xp.backend, dtype=dtype, device=xp.device)
    x, lam = (xp.asarray(a, dtype=dtype) for a in (x, lam))
    agree(hgp.hypergradient(there, x, lam, AVERAGINGS["tree"](), DirectSolve(), iterations=1).w, expected.w, xp, dtype)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_tracking_with_every_kind_of_weights_at_once(xp, dtype, mode):
    def averagings():
        return [hgp.PushSum(NET, 3, mode=mode), hgp.ExactAverage(N), hgp.PushSum(NET, (2, 1), mode=mode)]

    compare("quadratic", averagings, xp, dtype, method=Tracking(0.2), history=True)


@pytest.mark.parametrize("problem", ["quadratic", "softmax", "weights, softmax", "logistic, a rate per client"])
def test_hypergradient_of_the_other_problems(xp, dtype, problem):
    compare(problem, AVERAGINGS["push-sum composed"], xp, dtype, history=True)


@pytest.mark.parametrize("averaging", [name for name in AVERAGINGS if name != "push-sum composed"])
def test_hypergradient_with_every_averaging(xp, dtype, averaging):
    compare("logistic", AVERAGINGS[averaging], xp, dtype, history=True)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_hypergradient_with_weights_carried_over(xp, dtype, mode):
    with pytest.warns(RuntimeWarning, match="keep"):
        compare("logistic", lambda: hgp.PushSum(NET, 2, debias="keep", mode=mode), xp, dtype, iterations=4)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_hypergradient_of_many_averagings_at_once(xp, dtype, mode):
    def averagings():
        return [hgp.PushSum(RandomDirected(N, seed=s), S, mode=mode) for s, S in ((1, 2), (2, 3))] + [
            hgp.PushSum(NET, 2, debias="conserve", mode=mode),
            hgp.ExactAverage(N),
        ]

    compare("logistic", averagings, xp, dtype, batches=3, history=True)
    compare("quadratic", averagings, xp, dtype)


@pytest.mark.slow
def test_jax_in_float32():
    jax = open_library("jax")
    compare("logistic", AVERAGINGS["push-sum composed"], jax, "float32", batches=3, history=True)


def test_a_callback_sees_arrays_of_the_library_and_stops(xp, dtype):
    problem = PROBLEMS["logistic"]().to(xp.backend, dtype=dtype, device=xp.device)
    x, lam = (xp.asarray(a, dtype=dtype) for a in point(problem))
    seen = []
    est = hgp.hypergradient(
        problem, x, lam, hgp.ExactAverage(N), eta=0.4, iterations=20, callback=lambda m, v: seen.append(v) or m == 5
    )
    assert (est.iterations, est.stopped, len(seen)) == (5, "callback", 5)
    agree(seen[-1], xp.to_numpy(est.value), xp, dtype)


# Training


@pytest.mark.parametrize("variant", ["assran", "nedic"])
@pytest.mark.parametrize("options", [{}, {"batches": hgp.MiniBatches(3, seed=2)}], ids=["full", "mini-batch"])
def test_training(xp, dtype, variant, options):
    host = PROBLEMS["logistic"]()
    _, lam = point(host)
    options = {"steps": 20, "lr": 0.4, "milestones": (9, 14), "variant": variant, **options}
    method = hgp.training.SGP(**options)
    expected = hgp.train(host, lam, NET, method)
    found = hgp.train(host.to(xp.backend, dtype=dtype, device=xp.device), xp.asarray(lam, dtype=dtype), NET, method)
    agree(found.x, expected.x, xp, dtype)
    scale = np.max(np.abs(expected.x))
    np.testing.assert_allclose(found.consensus_gap, expected.consensus_gap, rtol=0, atol=TOLERANCE[dtype] * scale)
    np.testing.assert_allclose(found.grad_norm, expected.grad_norm, rtol=0, atol=TOLERANCE[dtype] * scale)
    assert found.traffic.messages == expected.traffic.messages


def test_training_of_several_lam_from_a_given_start(xp, dtype):
    host = PROBLEMS["softmax"]()
    x0, lam = point(host)[0], point(host, (3,))[1]
    expected = hgp.sgp(host, lam, NET, steps=10, lr=0.3, x0=x0)
    there = host.to(xp.backend, dtype=dtype, device=xp.device)
    x0, lam = (xp.asarray(a, dtype=dtype) for a in (x0, lam))
    agree(hgp.sgp(there, lam, NET, steps=10, lr=0.3, x0=x0).x, expected.x, xp, dtype)
