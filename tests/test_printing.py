"""`print` of a result writes a few lines, `repr` one line, and neither writes the entries of an array."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import LIBRARIES, open_library

import hgp_ref as hgp
from hgp_ref import results, validation
from hgp_ref.results import Result

MOST_LINES, WIDEST = 12, 320
NET = hgp.networks.RandomDirected(n=3, seed=1)


@dataclass(frozen=True)
class Listed(Result):
    value: Any
    more: Any = None


@dataclass(frozen=True)
class Told(Result):
    value: Any

    def _summary(self):
        return ["an own summary", "  and more"]


@dataclass(frozen=True)
class Spoken(Result):
    value: Any

    def __str__(self):
        return "spoken\nand more"


def estimate(**given):
    problem, x, lam = quadratic()
    return hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), **{"eta": 1.0, "iterations": 30, **given})


def estimate_twice():
    problem, x, lam = quadratic()
    return hgp.hypergradient(problem, x, lam, [hgp.PushSum(NET, 3)] * 2, eta=1.0, iterations=30)


def fit(**given):
    problem, _, lam = logistic()
    return hgp.sgp(problem, lam, NET, steps=40, lr=0.3, milestones=(0.6, 0.8), **given)


def path(**given):
    problem, _, lam = quadratic()
    settings = dict(outer_steps=3, train=hgp.training.SGP(20, 0.1), estimate=hgp.bilevel.Estimator(2, 5, eta=1.0))
    return hgp.bilevel.optimise(problem, lam, NET, **(settings | given))


def derivatives():
    return hgp.problems.check_derivatives(*quadratic())


def weights():
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 4, 2))
    y, y_val = (rng.integers(0, 2, a.shape[:2]) for a in (X, X_val))
    problem, ones = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=0.1), np.ones((3, 6))
    return problem, hgp.exact.inner_solution(problem, ones), ones


def measured():
    problem, x, lam = quadratic()
    return hgp.certificates.measured_residual(problem, x, lam, estimate())


def certificate():
    problem, x, lam = quadratic()
    return hgp.certify(problem, x, lam, estimate())


def plan():
    problem, x, lam = quadratic()
    return hgp.plan(problem, x, lam, NET, 1e-3)


def frozen():
    problem, x, lam = quadratic()
    return hgp.baselines.at_point(
        problem, x, lam, hgp.networks.StaticUndirected(3, seed=1), "dbo", iterations=4, step=0.1
    )


def personalized():
    seen = np.array([[0.5, 0.7], [0.8, 0.6]])
    sizes = {"validation": np.array([10, 10]), "test": np.array([30, 10])}
    made = hgp.personalization.Personalized
    return made("mine", np.array([1, 2]), seen, seen, sizes, np.zeros((2, 1)), None, hgp.Traffic(), notes=("a note",))


MADE = {
    "Estimate": estimate,
    "Estimate with runs": lambda: estimate_twice(),
    "Estimate with history": lambda: estimate(history=True),
    "Fit": fit,
    "MiniBatches": lambda: hgp.MiniBatches(3, seed=[1, 2], offset=4),
    "Fit with runs": lambda: fit(batches=hgp.MiniBatches(4, seed=[0, 1])),
    "Path": path,
    "Path with a measure": lambda: path(monitor=hgp.bilevel.Monitor(lambda x, lam: float(np.sum(x)))),
    "OuterStep": lambda: path().steps[0],
    "Traffic": lambda: estimate().traffic,
    "Traffic with runs": lambda: estimate_twice().traffic,
    "Certificate": certificate,
    "MeasuredResidual": measured,
    "Influence": lambda: hgp.influence(*weights(), hgp.ExactAverage(3), iterations=50),
    "Retraining": lambda: hgp.attribution.retrain(weights()[0], weights()[2], [(0, 1), (2, 3)]),
    "DerivativeCheck": derivatives,
    "Comparison": lambda: derivatives().rows[0],
    "Scores": lambda: hgp.attribution.scores(np.array([1.0, -2.0]), np.array([1.0, -2.5])),
    "Plan": plan,
    "Diagnostics": lambda: plan().diagnostics,
    "Outcome": lambda: plan().run(against="x"),
    "SpanningTree": lambda: hgp.mixing.find_tree(NET),
    "Stage": lambda: plan().run(against="x").stages[0],
    "FixedPointEstimate": frozen,
    "Personalized": personalized,
    "Clients": lambda: hgp.data.synthetic_mixture(3, 4, 4, 4, dim=3),
    "Images": lambda: hgp.data.Images(np.zeros((4, 8, 8)), np.array([0, 1, 2, 1]), n_classes=3),
    "MPITraffic": lambda: hgp.mpi.communicator.MPITraffic(1, 2, 3, 4),
}


def test_every_kind_of_result_is_here():
    inside = {"Adaptation", "Checkpoint", "Fingerprint"}  # parts of states and files, which users do not see
    inside |= {name for name in results._CLASSES if name.endswith("State")}  # states of methods
    shown = {name for name, kind in results._CLASSES.items() if kind.__module__ != "hgp_ref.results"}
    assert shown - inside <= set(MADE)


@pytest.mark.parametrize("kind", MADE)
def test_results_are_printed_in_a_few_lines_without_arrays(kind, tmp_path):
    result = MADE[kind]()
    loaded = hgp.load(result.save(tmp_path / "result.npz"))
    for one in (result, loaded):
        printed = str(one).splitlines()
        most = 1 + len(one.rows) if kind == "DerivativeCheck" else MOST_LINES  # a table
        assert 1 <= len(printed) <= most and max(map(len, printed)) <= WIDEST
        assert len(repr(one).splitlines()) == 1 and len(repr(one)) <= WIDEST and type(one).__name__ in repr(one)
        for text in (str(one), repr(one)):
            assert "array(" not in text and "tensor(" not in text and " at 0x" not in text
            assert not re.search(r"\[[^\]]*\d[^\]]*,[^\]]*,[^\]]*,", text), text  # four numbers in a row: an array
    assert repr(loaded) == repr(result) and str(loaded) == str(result)


def test_the_assumptions_of_a_certificate_fit_a_terminal():
    problem, x, lam = weights()
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), iterations=50)
    made = hgp.certify(problem, x, lam, est, hgp.PushSum(NET, 20))
    printed = str(made).splitlines()
    assert max(map(len, made.assumptions)) > 120 and max(map(len, printed)) <= 100
    assert sum("assumes: " in line for line in printed) == len(made.assumptions)
    told = " ".join(" ".join(printed).split())
    assert all(" ".join(assumption.split()) in told for assumption in made.assumptions)


@pytest.mark.parametrize("name", LIBRARIES)
def test_arrays_of_every_library_are_named_by_dtype_and_shape(name):
    lib = open_library(name)
    listed = Listed(lib.asarray(np.zeros((3, 200))), more=[lib.asarray(np.zeros(2))])
    assert repr(listed) == str(listed) == "Listed(value=<float64 (3, 200)>, more=<list of 1>)"


def test_a_result_prints_its_fields_or_a_description():
    assert repr(Listed(1.5, {"a": 1})) == "Listed(value=1.5, more={'a': 1})"
    assert repr(Listed(np.float64(0.25))) == "Listed(value=0.25, more=None)"
    assert repr(Listed((1, 2, 3, 4), (1, 2, 3, 4, 5))) == "Listed(value=(1, 2, 3, 4), more=<tuple of 5>)"
    assert repr(Listed({"a": np.zeros(3)}, [Listed(1)])) == "Listed(value=<dict of 1>, more=<list of 1>)"
    assert repr(Listed("x" * 100)) == "Listed(value='" + "x" * 58 + "…, more=None)"
    assert repr(Listed(object())) == "Listed(value=<object object>, more=None)"
    assert (
        str(Told(np.zeros(3))) == "an own summary\n  and more" and repr(Told(np.zeros(3))) == "<Told: an own summary>"
    )
    assert str(Spoken(0)) == "spoken\nand more" and repr(Spoken(0)) == "<Spoken: spoken>"


def test_an_estimate_prints_accuracy_stop_reason_and_traffic():
    est = estimate(iterations=300, tol=1e-4)
    lines = str(est).splitlines()
    assert lines[0] == f"hyper-gradient of 3 clients, 2 numbers each: {est.iterations} iterations of Neumann(eta=1)"
    rows = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[1:])
    assert rows["averaging"] == repr(est.averaging)
    assert rows["residual left"].startswith(f"{est.residual_ratio:.1e} of the first")
    assert rows["stopped"] == "tolerance (tol=0.0001 was met)"
    sent = est.traffic
    expected = f"{sent.messages:,} messages, {sent.floats:,} floats, {sent.bytes:,} bytes in {sent.rounds:,} rounds"
    assert rows["traffic"] == expected
    with pytest.warns(hgp.ConvergenceWarning):
        short = estimate(iterations=3, tol=1e-9)
    assert "stopped        iterations (tol=1e-09 was not met)" in str(short)


def test_several_runs_are_summed_up_by_the_largest():
    est = estimate_twice()
    assert "2 runs" in str(est) and f"{est.residual_ratio.max():.1e} (largest of 2 runs)" in str(est)
    many = hgp.hypergradient(*quadratic(), [hgp.PushSum(NET, S) for S in (2, 9)], iterations=5)
    assert many.residual_ratio[0] != many.residual_ratio[1]
    assert f"{many.residual_ratio.max():.1e} (largest of 2 runs)" in str(many)
    assert f"{many.traffic.floats.max():,} floats" in str(many) and "and 1 more" in str(many)
    assert many.traffic.floats[0] < many.traffic.floats[1]


def test_a_fit_prints_accuracy_stop_reason_and_traffic():
    made = fit()
    assert (
        str(made).splitlines()[0]
        == "parameters of 3 clients, 4 numbers each: 40 steps of SGP(steps=40, lr=0.3, milestones=(0.6, 0.8))"
    )
    assert f"mean gradient  {made.grad_norm:.1e}" in str(made) and f"consensus gap  {made.consensus_gap:.1e}" in str(
        made
    )
    assert "stopped        steps" in str(made) and f"{made.traffic.messages:,} messages" in str(made)
    problem, _, lam = logistic()
    rounds = hgp.train(
        problem,
        lam,
        hgp.ExactAverage(3),
        hgp.training.LocalRounds(rounds=4, epochs=2, milestones=(0.6, 0.8), batches=5),
    )
    assert (
        str(rounds)
        .splitlines()[0]
        .endswith("4 steps of LocalRounds(rounds=4, milestones=(0.6, 0.8), epochs=2, batches=MiniBatches(5, seed=0))")
    )
    met = hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=5000, lr=1.0, tol=1e-3)
    assert "stopped        tolerance (tol=0.001 was met)" in str(met)


def test_a_path_prints_accuracy_stop_reason_and_traffic():
    made = path(monitor=hgp.bilevel.Monitor(lambda x, lam: float(np.sum(x**2))))
    text = str(made)
    assert text.startswith("hyper-parameters of 3 clients, 2 numbers each: 3 outer steps of hgp\n")
    assert f"{made.outer_cost[0]:.4g} to {made.outer_cost[-1]:.4g}" in text
    assert f"lowest {made.measure.min():.4g} at step {made.best}" in text and "stopped     steps" in text
    assert f"norm {made.steps[-1].gradient_norm:.2e}" in text and f"{made.traffic.rounds:,} rounds" in text


def test_fields_that_are_added_later_are_listed():
    """The listing follows the fields of the class."""
    assert [f.name for f in fields(hgp.Traffic)] == re.findall(r"(\w+)=", repr(hgp.Traffic(1, 2, 3, 4)))


def test_of_several_runs_the_largest_number_is_printed():
    assert (
        validation.largest(np.array([2e-5, 1e-3, 5e-4])) == "1.0e-03 (largest of 3 runs)"
        and validation.largest(0.5) == "5.0e-01"
    )


def test_texts_are_cut_on_one_line():
    assert (
        validation.cut("a\n  b") == "a b"
        and validation.cut("x" * 61) == "x" * 59 + "…"
        and validation.cut("x" * 60) == "x" * 60
    )


def test_a_problem_prints_its_sizes():
    problem = hgp.problems.Quadratic.random(3, 4, 2)
    assert repr(problem) == "<Quadratic: n_clients=3, dim_x=4, dim_lam=2>"
    assert repr(hgp.problems.Damped(problem, 0.1)) == "<Damped: n_clients=3, dim_x=4, dim_lam=2>"
