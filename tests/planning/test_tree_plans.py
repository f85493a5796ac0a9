"""Plans along a spanning tree, and the choice of methods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import ConjugateGradient, DirectSolve, PreconditionedTracking, Tracking
from hgp_ref.mixing import Traffic
from hgp_ref.networks import FullyConnected, RandomDirected, Schedule, StaticUndirected, Thinned, Unreliable
from hgp_ref.planning import planner
from hgp_ref.planning.execution import Segment, gentler
from hgp_ref.planning.probe import Diagnostics

PUSH_SUM = ("Neumann", "Chebyshev", "Tracking")
METHODS = ("DirectSolve", "ConjugateGradient", *PUSH_SUM)
NETS = {
    "directed": lambda n: RandomDirected(n, 0.2, 0.5, seed=2),
    "undirected": lambda n: StaticUndirected(n, 0.5, seed=1),
    "ring": lambda n: Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n),
}


def conditioned(n, d, condition, seed=0):
    problem = hgp.problems.Quadratic.random(n=n, dim_x=d, dim_lam=2, seed=seed, condition=condition)
    return problem, np.ones((n, d)), np.zeros((n, 2))


@pytest.mark.parametrize("by_clients", [False, True])
@pytest.mark.parametrize("methods", [METHODS, None], ids=["all", "default"])
@pytest.mark.parametrize("kind", NETS)
def test_targets_are_met_with_far_fewer_floats(kind, methods, by_clients):
    problem, x, lam = conditioned(6, 8, 100.0)
    net = NETS[kind](6)
    truth = exact.hypergradient(problem, x, lam)
    plan = hgp.plan(problem, x, lam, net, target=1e-6, methods=methods)
    out = plan.run(against="x", by_clients=by_clients)
    assert out.met and np.linalg.norm(out.value - truth) <= out.bound * np.linalg.norm(truth)
    assert isinstance(plan.method, ConjugateGradient if methods is None else DirectSolve)
    assert plan.diagnostics.tau == 0 and plan.tree is not None and plan.averaging.tree is plan.tree
    today = hgp.plan(problem, x, lam, net, target=1e-6, methods=PUSH_SUM).run(against="x")
    assert 10 * out.traffic.floats < today.traffic.floats


def test_expected_floats_of_a_direct_solve_are_those_sent():
    for n, d in ((3, 5), (6, 20)):
        problem, x, lam = conditioned(n, d, 30.0)
        plan = hgp.plan(problem, x, lam, NETS["directed"](n), target=1e-6, methods=METHODS)
        out = plan.run(against="x")
        assert out.traffic.floats == plan.traffic.floats == plan.first.floats and out.continued == 0
        scalars = 2 * (n - 1) * (2 + 1)  # two means and a maximum
        assert plan.diagnostics.traffic.floats == plan.tree.traffic.floats + scalars
        assert out.traffic.messages == plan.traffic.messages


def test_expected_floats_of_conjugate_gradients_are_close_to_those_sent():
    """In the median within a factor of 1.5, also of runs that continue."""
    ratios = []
    for seed in range(5):
        for condition, target in ((10.0, 1e-4), (100.0, 1e-6), (1000.0, 1e-3)):
            problem, x, lam = conditioned(6, 20, condition, seed)
            plan = hgp.plan(problem, x, lam, NETS["directed"](6), target=target, methods=["ConjugateGradient"])
            out = plan.run(against="x")
            assert out.met
            ratios.append(out.traffic.floats / plan.traffic.floats)
    assert 1 / 1.5 < np.median(ratios) < 1.5


def test_few_iterations_are_cheaper_than_matrices():
    """Alike clients and a loose target: conjugate gradients send less than d(d + 1)/2 numbers per link."""
    problem, x, lam = conditioned(4, 60, 3.0)
    plan = hgp.plan(problem, x, lam, FullyConnected(4), target=1e-2, methods=METHODS)
    assert isinstance(plan.method, ConjugateGradient) and [name for name, _ in plan.compared] == [
        "ConjugateGradient", "DirectSolve"]  # fmt: skip
    assert hgp.plan(problem, x, lam, FullyConnected(4), target=1e-2, methods=["DirectSolve"]).iterations == 1
    assert plan.run(against="x").met


def test_budgets_along_a_tree():
    problem, x, lam = conditioned(4, 100, 100.0)
    net = NETS["directed"](4)
    whole = hgp.plan(problem, x, lam, net, target=1e-6, methods=METHODS)
    small = hgp.plan(problem, x, lam, net, budget=whole.traffic.floats / 2, methods=METHODS)
    assert isinstance(small.method, ConjugateGradient) and small.error > 1e-6
    out = small.run(against="x", certify=False)
    assert out.traffic.floats <= whole.traffic.floats / 2
    assert isinstance(
        hgp.plan(problem, x, lam, net, budget=2 * whole.traffic.floats, methods=METHODS).method, DirectSolve
    )


def test_preconditioned_tracking_where_there_is_no_tree():
    problem, x, lam = conditioned(6, 10, 1000.0)
    truth = exact.hypergradient(problem, x, lam)
    choice = (*PUSH_SUM, "PreconditionedTracking")
    net = NETS["directed"](6)
    plan = hgp.plan(problem, x, lam, net, target=1e-5, methods=choice)
    assert isinstance(plan.method, PreconditionedTracking) and plan.receivers == 1 and plan.tree is None
    assert isinstance(plan.averaging.net.net, Thinned)
    out = plan.run(against="x")
    assert out.met and np.linalg.norm(out.value - truth) <= 1e-5 * np.linalg.norm(truth)
    today = hgp.plan(problem, x, lam, net, target=1e-5, methods=PUSH_SUM).run(against="x")
    assert 2 * out.traffic.floats < today.traffic.floats
    lossy = hgp.plan(problem, x, lam, Unreliable(net, 0.1, 1, seed=1), target=1e-5)
    assert lossy.tree is None and lossy.receivers is None and lossy.run(against="x").met


def test_clients_that_are_indefinite_alone_are_measured_together_along_a_tree():
    """diag(3, −1) and diag(−1, 3), mean I: the least eigenvalues average to −1, so the mean Hessian is measured."""
    rng, n = np.random.default_rng(0), 4
    A = np.stack([np.diag([3.0, -1.0]) if i % 2 else np.diag([-1.0, 3.0]) for i in range(n)])
    b, C, target = (rng.standard_normal(shape) for shape in ((n, 2), (n, 2, 2), (n, 2)))
    problem, x, lam = hgp.problems.Quadratic(A, b, C, target), np.ones((n, 2)), np.zeros((n, 2))
    plan = hgp.plan(problem, x, lam, NETS["directed"](n), target=1e-6)
    assert plan.tree is not None and plan.diagnostics.products > 0
    out, truth = plan.run(against="x"), exact.hypergradient(problem, x, lam)
    assert out.met and np.linalg.norm(out.value - truth) <= 1e-6 * np.linalg.norm(truth)


def test_the_spectrum_is_not_refined_for_preconditioned_tracking():
    """Its cost does not depend on the condition number; that of series and tracking does."""
    problem, x, lam = conditioned(6, 10, 1000.0)
    plans = [
        hgp.plan(problem, x, lam, NETS["directed"](6), target=1e-4, methods=methods)
        for methods in (PUSH_SUM, (*PUSH_SUM, "PreconditionedTracking"))
    ]
    assert plans[0].diagnostics.products > 0 and plans[1].diagnostics.products == 0


def test_the_model_of_preconditioned_tracking():
    """Iterations by how much clients differ, one receiver per step on reliable links, two vectors per message."""
    d, goal = 7, 1e-4
    for zeta, per_e in ((0.1, 2.5), (0.11, 5.5)):
        for tau, S in ((0.8, 1), (0.9, 7)):
            known = Diagnostics(0.1, 1.0, 1.0, zeta, tau, None, 0, Traffic(), 0.1)
            M, more = math.ceil(per_e * math.log(2 / goal)), math.log(10) / math.log(2 / goal)
            more = math.ceil(M * more)
            for net, edges, longer in ((FullyConnected(4), 4, 1), (Unreliable(FullyConnected(4), 0.1), 12, 3)):
                option = planner._preconditioned_option(known, goal, d, 4, net)
                expected = [
                    Traffic(S * m * edges, S * m * edges * 15, 4 * S * m * edges * 15, S * m)
                    for m in (longer * M, M, more)
                ]
                assert [option.traffic, option.first, option.continuation] == expected
                assert (option.steps, option.iterations, option.floats) == (S, M, expected[0].floats)
                assert option.receivers == (1 if longer == 1 else None)


def test_preconditioned_tracking_is_planned_where_hessians_are_factorised(monkeypatch):
    problem, x, lam = conditioned(4, 6, 50.0)
    for net in (NETS["directed"](4), Unreliable(NETS["directed"](4), 0.1, seed=1)):
        plan = hgp.plan(problem, x, lam, net, target=1e-3, methods=["PreconditionedTracking"])
        assert plan.receivers == (1 if net.is_reliable else None) and plan.traffic.floats >= plan.first.floats
    for most, planned in ((6, True), (5, False)):
        monkeypatch.setattr(planner, "FACTORISED", most)
        names = [name for name, _ in hgp.plan(problem, x, lam, NETS["directed"](4), target=1e-3,
                                              methods=(*PUSH_SUM, "PreconditionedTracking")).compared]  # fmt: skip
        assert ("PreconditionedTracking" in names) == planned


def test_segments_and_milder_methods_of_local_curvature():
    problem, x, lam = conditioned(4, 6, 50.0)
    plan = hgp.plan(problem, x, lam, FullyConnected(4), target=1e-3, methods=["PreconditionedTracking"])
    assert Segment(PreconditionedTracking(), 2, 5).floats(plan) == 10 * 4 * 13  # one receiver for each of 4 clients
    tree = hgp.plan(problem, x, lam, FullyConnected(4), target=1e-3, methods=["DirectSolve"])
    assert Segment(DirectSolve(), 1, 1).floats(tree) == 3 * (6 * 7 // 2 + 2 * 13)
    assert Segment(DirectSolve(), 1, 1, None, {"resume": None}).floats(tree) == 3 * 2 * 13
    milder = gentler(PreconditionedTracking(0.1))
    assert isinstance(milder, Tracking) and milder.step_size is None


def test_rounds_along_a_tree_of_a_graph_that_stays():
    """The probe's passes take as long as those of the run; the search for the tree does not count as one."""
    problem, x, lam = conditioned(6, 5, 30.0)
    plan = hgp.plan(problem, x, lam, NETS["undirected"](6), target=1e-6, methods=["DirectSolve"])
    assert plan.tree.traffic.rounds > 0 and plan.run(against="x").traffic.rounds == plan.traffic.rounds


def test_conjugate_gradients_take_no_more_iterations_than_dimensions():
    known = Diagnostics(1e-9, 1.0, 1.0, 0.1, 0.0, None, 0, Traffic(), 1e-9)
    assert [planner.cg_iterations(known, 1e-8, d) for d in (1, 9, 100)] == [2, 7, 71]
    q, known = (2 - 1) / (2 + 1), Diagnostics(0.25, 1.0, 1.0, 0.1, 0.0, None, 0, Traffic(), 0.25)
    assert planner.cg_iterations(known, 1e-4, 1000) == math.ceil(0.7 * math.log(4e4) / -math.log(q))


def test_the_choice_of_methods():
    problem, x, lam = logistic(n=6)
    net = NETS["directed"](6)
    with pytest.raises(ValueError, match=r"methods must be some of DirectSolve, .*, got \['Newton'\]"):
        hgp.plan(problem, x, lam, net, methods=["Newton"])
    with pytest.raises(TypeError, match="methods must be a sequence of names, got 'Tracking'"):
        hgp.plan(problem, x, lam, net, methods="Tracking")
    with pytest.raises(ValueError, match="methods must include others than DirectSolve, which need reliable links"):
        hgp.plan(problem, x, lam, Unreliable(net), methods=["DirectSolve"])
    for name in PUSH_SUM:
        plan = hgp.plan(problem, x, lam, net, methods=[name])
        assert {label.split(" ")[0] for label, _ in plan.compared} == {name}


@pytest.mark.parametrize(("name", "limit"), [("DirectSolve", "DENSE"), ("PreconditionedTracking", "FACTORISED")])
def test_dimensions_too_large_for_a_method_are_named(name, limit, monkeypatch):
    problem, x, lam = conditioned(4, 6, 20.0)
    net = NETS["directed"](4)
    monkeypatch.setattr(planner, limit, 5)
    with pytest.raises(ValueError, match=f"methods must include others than {name} for d_x > 5, got d_x = 6"):
        hgp.plan(problem, x, lam, net, methods=[name])
    plan = hgp.plan(problem, x, lam, net, methods=[name, "Tracking"])
    assert isinstance(plan.method, Tracking) and plan.tree is None
    monkeypatch.setattr(planner, limit, 6)
    assert type(hgp.plan(problem, x, lam, net, methods=[name]).method).__name__ == name


def test_a_plan_along_a_tree_is_printed_and_saved(tmp_path):
    problem, x, lam = quadratic(n=6)
    plan = hgp.plan(problem, x, lam, NETS["directed"](6), target=1e-5)
    assert "ConjugateGradient()" in str(plan) and "means along a spanning tree of 6 clients are exact" in str(plan)
    plan.save(tmp_path / "plan.npz")
    assert str(hgp.load(tmp_path / "plan.npz")) == str(plan)
