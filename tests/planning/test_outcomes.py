"""Outcomes of plans: the meaning of `met`, the counted traffic, and the printed text."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.certificates.result import AT_POINT, AT_SOLUTION
from hgp_ref.methods import Chebyshev, Refined, Tracking
from hgp_ref.planning import execution as running
from hgp_ref.planning.execution import Assessment

push_sum_plan = functools.partial(hgp.plan, methods=("Neumann", "Chebyshev", "Tracking"))  # without trees

NET = hgp.networks.RandomDirected(6, seed=2)


def trained(steps):
    """A logistic problem, x after so many steps of SGP, and the network."""
    problem, _, lam = logistic(n=6)
    fit = hgp.sgp(problem, lam, NET, steps=steps, lr=0.3, milestones=(0.6, 0.8))
    return problem, fit.x, lam


def relative(value, truth):
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


def planned(condition=1000.0, target=1e-6, seed=0):
    problem = hgp.problems.Quadratic.random(6, 12, 3, seed=seed, condition=condition, heterogeneity=0.4)
    lam = np.zeros((6, 3))
    x = exact.inner_solution(problem, lam)
    return problem, x, lam, push_sum_plan(problem, x, lam, NET, target=target)


@pytest.mark.parametrize("by_clients", [False, True])
def test_a_target_is_not_met_where_x_is_too_far_from_the_solution(by_clients):
    problem, x, lam = trained(steps=50)
    truth = exact.hypergradient(problem, exact.inner_solution(problem, lam), lam)
    plan = hgp.plan(problem, x, lam, NET, target=1e-4)
    with pytest.warns(
        RuntimeWarning, match=r"certified error .* exceeds .* against .* formula at the given x, the rest is what x"
    ):
        out = plan.run(by_clients=by_clients)
    error = relative(out.value, truth)
    assert error > 1e-4 and out.met is False and out.against == AT_SOLUTION
    assert out.bound_at_x <= 1e-4 < error <= out.bound
    assert out.continued <= 3, "x is to blame: nothing more is sent for the run"
    alone = plan.run(by_clients=by_clients, against="x")
    assert alone.met and alone.against == AT_POINT and alone.bound == alone.bound_at_x <= 1e-4
    assert_close(alone.value, out.value, 0.0)


def test_a_target_that_leaves_room_for_x_is_met_with_x_included():
    problem, _, lam = logistic(n=6)
    solution = exact.inner_solution(problem, lam)
    truth, shares = exact.hypergradient(problem, solution, lam), []
    for off in (0.0, 1e-8, 1e-7, 3e-7):
        out = push_sum_plan(problem, solution + off, lam, NET, target=1e-4).run()
        shares.append(1 - out.bound_at_x / out.bound)
        assert out.met and out.against == AT_SOLUTION and relative(out.value, truth) <= out.bound <= 1e-4
        assert out.bound_at_x <= out.bound
    assert shares[0] < 1e-6 and 0.1 < shares[-1] < 1, "the last one leaves little room for the run"


@pytest.mark.parametrize("lossy", [False, True])
def test_clients_average_longer_where_that_shows_x_to_be_good_enough(lossy):
    problem, _, lam = logistic(n=6)
    x = exact.inner_solution(problem, lam)
    net = hgp.networks.Unreliable(NET, loss=0.1, delay=1, seed=1) if lossy else NET
    out = hgp.plan(problem, x, lam, net, target=1e-3).run(by_clients=True)
    assert out.met and out.against == AT_SOLUTION and relative(out.value, exact.hypergradient(problem, x, lam)) <= 1e-3
    assert out.bound == pytest.approx(
        running._in_units(hgp.plan(problem, x, lam, net, target=1e-3), out.certificate.decentralised_bound, out)
    )


def test_problems_without_constants_are_assessed_at_x():
    problem, x, lam = trained(steps=50)

    class Silent:
        def __getattr__(self, name):
            if name == "lipschitz":
                raise AttributeError(name)
            return getattr(problem, name)

    out = hgp.plan(Silent(), x, lam, NET, target=1e-4).run()
    assert out.met and out.against == AT_POINT and out.bound == out.bound_at_x
    assert f"against {AT_POINT}" in str(out)


def test_clients_that_cannot_bound_what_x_adds_do_not_claim_it():
    problem, _, lam = logistic(n=6)
    x = exact.inner_solution(problem, lam)
    plan = hgp.plan(problem, x, lam, NET, target=1e-3)
    out = plan.run(by_clients=True)
    blind = replace(out.certificate, decentralised_inexact=None)
    assessment = running.assess(plan, blind, out, by_clients=True, at_solution=True)
    assert assessment.bound == math.inf and assessment.at_x <= 1e-3 and not assessment.bound <= plan.target
    assert running.assess(plan, blind, out, by_clients=True, at_solution=False).bound == assessment.at_x
    assert running.assess(plan, blind, out, by_clients=False, at_solution=True).bound < 1e-3


@pytest.mark.parametrize(
    ("assessment", "done", "share"),
    [
        (Assessment(2e-4, 2e-4, 0.0, ""), False, 0.25),
        (Assessment(1e-4, 1e-4, 0.0, ""), True, 0.5),
        (Assessment(3e-4, 1e-4, 2e-4, ""), True, 0.5),  # x alone exceeds the target: the run has done its part
        (Assessment(5e-4, 3e-4, 2e-4, ""), False, 0.5 / 3),
        (Assessment(1.5e-4, 1e-4, 5e-5, ""), False, 0.25),  # there is room for half of it
        (Assessment(1.9e-4, 1e-4, 0.9e-4, ""), False, 0.05),
        (Assessment(1.92e-4, 1e-4, 0.92e-4, ""), True, 0.5),  # too little room
    ],
)
def test_when_a_run_continues_and_its_aim(assessment, done, share):
    assert assessment.done(1e-4) is done
    assert assessment.left_to_gain(1e-4) == pytest.approx(share)


def test_an_outcome_counts_all_its_stages():
    plan = planned()[-1]
    out = plan.run()
    assert out.continued == len(out.stages) - 1 >= 1
    assert out.iterations == sum(s.iterations for s in out.stages) > plan.iterations
    sent = plan.diagnostics.traffic
    for stage in out.stages:
        sent = sent + stage.traffic
    assert sent == out.traffic and not any(s.diverged for s in out.stages)
    assert out.stages[0].method == repr(plan.method) and out.stages[-1].method == repr(out.method)
    assert plan.run(certify=False).iterations == out.stages[0].iterations == plan.iterations


def test_stages_that_diverge_are_reported():
    problem, x, lam = quadratic(n=6, d=5)
    x = exact.inner_solution(problem, lam)
    plan = push_sum_plan(problem, x, lam, NET, target=1e-5)
    out = replace(plan, method=Tracking(6.0), steps=1, iterations=60).run()
    assert out.met and out.stages[0].diverged and 0 < out.stages[0].iterations <= 120
    assert out.stages[0].traffic.floats > 0 and not out.stages[-1].diverged
    assert "Tracking(step=6.0)" in str(out) and ", diverged" in str(out)


def test_outcomes_and_plans_are_printed_in_a_few_lines(tmp_path):
    problem, x, lam, plan = planned()
    out = plan.run()
    text = str(out)
    assert (
        "array" not in text
        and "[" not in text
        and len(text.splitlines()) <= 10
        and max(map(len, text.splitlines())) < 160
    )
    assert f"after {out.iterations} iterations and {out.continued} continuation" in text
    assert f"relative error <= {out.bound:.2e} against {AT_SOLUTION}" in text and "target 1.00e-06: met" in text
    assert f"the run accounts for {out.bound_at_x:.2e}" in text
    assert f"{out.traffic.floats:.3g} floats sent in {out.traffic.rounds} rounds" in text
    assert "not certified" in str(plan.run(certify=False))
    many = replace(out, stages=out.stages[:1] * 9)
    assert "… 5 more" in str(many) and len(str(many).splitlines()) <= 10
    assert str(hgp.load(out.save(tmp_path / "out.npz"))) == text
    absolute = hgp.plan(problem, x, lam, NET, target=1e-3, relative=False).run()
    assert "absolute error <=" in str(absolute)
    words = str(plan)
    assert (
        f"about {plan.traffic.floats:.3g} floats, of which {plan.diagnostics.traffic.floats:.3g} are already sent"
        in words
    )
    assert f"{plan.first.floats:.3g} if the first run suffices, and {plan.continuation.floats:.3g} more" in words


def test_a_plan_and_its_alternatives_are_counted_alike():
    for condition in (2.0, 1000.0):
        plan = planned(condition)[-1]
        floats = [f for _, f in plan.compared]
        assert floats[0] == pytest.approx(plan.traffic.floats, rel=1e-3) and floats == sorted(floats)
        assert min(floats) > plan.diagnostics.traffic.floats
        assert plan.diagnostics.traffic.floats < plan.first.floats <= plan.traffic.floats
        assert plan.first.rounds <= plan.traffic.rounds


def test_expected_floats_hold_where_a_run_continues():
    """Given how often a run went on, what it sent is what was expected, in the median and within a factor of two."""
    ratios, whole = [], []
    for seed in range(8):
        for condition in (30.0, 1000.0):
            plan = planned(condition, target=10.0 ** -(3 + seed % 4), seed=seed)[-1]
            out = plan.run()
            expected = plan.first.floats + out.continued * plan.continuation.floats
            whole.append(out.traffic.floats / plan.traffic.floats)
            ratios.append((out.continued, out.traffic.floats / expected))
    again = [ratio for continued, ratio in ratios if continued]
    once = [ratio for continued, ratio in ratios if not continued]
    assert len(again) >= 5 and 0.8 < np.median(again) < 1.25 and 0.5 < min(again) and max(again) < 2
    assert not once or (0.9 < min(once) and max(once) < 1.1)
    assert 0.7 < np.median(whole) < 1.4


def test_expected_floats_over_unreliable_links():
    """Runs over such links continue more often than not; what is expected includes that, in the median."""
    ratios = []
    for seed in range(970000, 970012):
        problem = hgp.problems.Quadratic.random(5, 8, 2, seed=seed, condition=10.0 ** (1 + seed % 3))
        lam, base = np.zeros((5, 2)), hgp.networks.RandomDirected(5, seed=seed)
        net = hgp.networks.Unreliable(base, loss=0.1, delay=seed % 2, seed=seed)
        x = exact.inner_solution(problem, lam)
        plan = hgp.plan(problem, x, lam, net, target=10.0 ** -(3 + seed % 5))
        out = plan.run()
        assert out.met and relative(out.value, exact.hypergradient(problem, x, lam)) <= plan.target
        ratios.append(plan.traffic.floats / out.traffic.floats)
    assert 1 / 1.5 < np.median(ratios) < 1.5, np.median(ratios)


class Scaled:
    """Outer gradients times a factor, as far down as numbers go."""

    def __init__(self, problem, scale):
        self.problem, self.scale = problem, scale

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def outer_grad(self, x, lam):
        return tuple(self.scale * a for a in self.problem.outer_grad(x, lam))


@pytest.mark.parametrize("scale", [1e-306, 1e-309, 1e-312, 1e-316, 1e-320])
@pytest.mark.parametrize("by_clients", [False, True])
def test_relative_targets_among_subnormal_numbers(scale, by_clients):
    """One number for each client: d_i = f_λ − j_i Σ f_x / Σ h, by fractions from what the problem returns."""
    rng = np.random.default_rng(5)
    h, b, j, t = (
        rng.uniform(0.5, 2, (3, 1, 1)),
        rng.normal(size=(3, 1)),
        rng.normal(size=(3, 1, 1)),
        rng.normal(size=(3, 1)),
    )
    problem = Scaled(hgp.problems.Quadratic(h, b, j, t), scale)
    x, lam = rng.normal(size=(3, 1)), rng.normal(size=(3, 1))
    f_x, f_lam = problem.outer_grad(x, lam)
    net = hgp.networks.FullyConnected(3)
    w = sum(Fraction(float(a)) for a in f_x[:, 0]) / sum(Fraction(float(a)) for a in h[:, 0, 0])
    cross = problem.linearize(x, lam).cross(np.ones((3, 1)))
    truth = [Fraction(float(f_lam[i, 0])) - Fraction(float(cross[i, 0])) * w for i in range(3)]
    norm = sum(d * d for d in truth)
    met = 0
    for target in (0.3, 1e-2, 1e-4):
        plan = hgp.plan(problem, x, lam, net, target=target)
        est = plan.run(certify=False)
        out = plan.run(by_clients=by_clients, against="x") if scale == 1e-306 else None
        certificate = hgp.certify(problem, x, lam, est, hgp.PushSum(net, 1))
        assessment = running.assess(plan, certificate, est, by_clients, at_solution=False)
        error = sum((Fraction(float(est.value[i, 0])) - truth[i]) ** 2 for i in range(3))
        assert error <= Fraction(min(assessment.bound, 1e300)) ** 2 * norm
        met += assessment.bound <= target
        assert out is None or out.met
    assert met >= (3 if scale > 1e-310 else 1 if scale > 1e-318 else 0), "no bound that says nothing"


def test_a_zero_hyper_gradient_has_no_relative_error():
    problem = hgp.problems.Quadratic(np.stack([np.eye(2)] * 3), np.ones((3, 2)), np.ones((3, 1, 2)), np.ones((3, 2)))
    x, lam = np.ones((3, 2)), np.zeros((3, 1))  # ∂_x f = 0
    plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(3, seed=1), target=1e-6)
    out = plan.run(against="x")  # rounding of A x − b leaves x, and so the hyper-gradient at the solution, in doubt
    assert out.met and not out.value.any()
    assert "0 to working precision" in str(out) and "  relative error" not in str(out)
    assert running._in_units(replace(plan, relative=False), np.array([3.0, 4.0, 0.0]), out) > 5 * (1 + 5e-14)
    tiny = np.finfo(np.float64).smallest_normal
    for bound, expected in ((4.0 * tiny / 2, True), (40 * tiny, False)):
        assert math.isfinite(running._in_units(plan, np.full(3, bound), out)) is expected
    almost = replace(out, value=np.full((3, 1), 1e-310))
    assert running._in_units(plan, np.full(3, 1e-314), almost) == pytest.approx(1e-4, rel=1e-2)
    assert running._in_units(plan, np.full(3, 2e-310), almost) == math.inf


def test_runs_that_do_not_gain_end(monkeypatch):
    """A continuation that leaves more than 0.7 of the bound has not gained; three of them in a row end a run."""
    plan = planned(condition=20.0, target=1e-9)[-1]
    ratios = iter([None, 0.699, 0.701, 0.701, 0.699, 0.701, 0.701, 0.701, 0.1, 0.1])
    seen = []

    def scripted(*args):
        ratio = next(ratios)
        seen.append(1e-2 if ratio is None else ratio * seen[-1])
        return Assessment(seen[-1], seen[-1], 0.0, AT_POINT)

    monkeypatch.setattr(running, "assess", scripted)
    plan = replace(plan, method=Chebyshev(plan.diagnostics.low, plan.diagnostics.high), steps=3, iterations=5)
    with pytest.warns(RuntimeWarning, match=r"after 7 continuations$"):
        out = plan.run(against="x")
    assert out.continued == 7 and len(seen) == 8 and out.bound == seen[-1]
    widths = [eval(s.method, {"Chebyshev": Chebyshev}) for s in out.stages]
    wider = [m.high / plan.diagnostics.high for m in widths]
    # 0: the plan; 1 and 2 follow a gain, 3 and 4 a stall each, 5 a gain, 6 and 7 a stall each
    assert wider == pytest.approx([1, 1, 1, 1.5, 1.5**2, 1.5**2, 1.5**3, 1.5**4])


def test_another_method_continues_from_w(monkeypatch):
    """Preconditioned tracking that does not gain gives way to cycles of Chebyshev's iteration.

    Tracking that starts from w has the residuals of the clients, far above the mean one: a tolerance that is relative
    to them is met at once, without any gain.
    """
    plan = planned(condition=20.0, target=1e-9)[-1]
    ratios = iter([1.0, 0.9, 0.9, 0.9])
    monkeypatch.setattr(running, "assess", lambda *args: Assessment(next(ratios), 1.0, 0.0, AT_POINT))
    plan = replace(plan, method=hgp.methods.PreconditionedTracking(), steps=2, iterations=5)
    with pytest.warns(RuntimeWarning, match=r"after 3 continuations$"):
        out = plan.run(against="x")
    assert [s.method.split("(")[0] for s in out.stages] == [*2 * ["PreconditionedTracking"], *2 * ["Chebyshev"]]
    assert min(s.iterations for s in out.stages[2:]) > 1


def test_a_continuation_beyond_the_budget_is_not_run(monkeypatch):
    plan = planned(condition=20.0, target=1e-9)[-1]
    low, high, sent = plan.diagnostics.low, plan.diagnostics.high, plan.diagnostics.traffic.floats
    monkeypatch.setattr(running, "assess", lambda *args: Assessment(1e-2, 1e-2, 0.0, AT_POINT))
    plan = replace(plan, method=Chebyshev(low, high), steps=3, iterations=5, budget=sent + 2000.0)
    with pytest.warns(RuntimeWarning, match="within the budget, after 0 continuations"):
        assert plan.run(against="x").continued == 0


@pytest.mark.parametrize(("ratio", "cycle"), [(1e-8, False), (0.999, True)])
def test_slow_preconditioned_tracking_continues_by_a_cycle(ratio, cycle):
    """The cheaper of both continuations: clients may be too unlike for local solves."""
    problem, x, lam, _ = planned(condition=20.0)
    plan = hgp.plan(problem, x, lam, NET, target=1e-6, methods=["PreconditionedTracking"])
    method = hgp.methods.PreconditionedTracking()
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 1), method, iterations=30)
    execution = running.Execution(plan, False, False, {})
    segment = execution.continuation(replace(est, residual_ratio=ratio), method, Assessment(1e-5, 1e-5, 0.0, AT_POINT))
    assert isinstance(segment.method, Chebyshev if cycle else hgp.methods.PreconditionedTracking)
    assert set(segment.start) == ({"w0"} if cycle else {"resume"})


def test_every_stage_uses_the_graphs_after_those_before_it(monkeypatch):
    plan = planned(condition=20.0, target=1e-9)[-1]
    bounds, seen = iter([1e-3, 1e-4, 1e-10]), []
    averaging = running.Plan._averaging_after

    def recorded(self, graphs, *arguments):
        seen.append(graphs)
        return averaging(self, graphs, *arguments)

    def scripted(*arguments):
        bound = next(bounds)
        return Assessment(bound, bound, 0.0, AT_POINT)

    monkeypatch.setattr(running, "assess", scripted)
    monkeypatch.setattr(running.Plan, "_averaging_after", recorded)
    out = plan.run(against="x")
    rounds = [plan.diagnostics.graphs, *(int(stage.traffic.rounds) for stage in out.stages)]
    assert len(out.stages) == 3 and seen == np.cumsum(rounds)[:-1].tolist()
    assert out.traffic.rounds == sum(rounds)


def test_the_best_of_all_that_was_certified_is_returned(monkeypatch):
    plan = planned(condition=20.0, target=1e-9)[-1]
    bounds = iter([1e-3, 1e-4, 2e-4, 3e-4, 4e-4])
    seen = []

    def scripted(plan, certificate, est, *rest):
        seen.append((next(bounds), est))
        return Assessment(seen[-1][0], seen[-1][0], 0.0, AT_POINT)

    monkeypatch.setattr(running, "assess", scripted)
    with pytest.warns(RuntimeWarning, match="certified error 1.00e-04 exceeds"):
        out = plan.run(against="x")
    assert out.bound == 1e-4 and out.continued == 4 == len(seen) - 1
    assert_close(out.value, seen[1][1].value, 0.0)


def test_bad_against_is_named():
    plan = planned(condition=20.0, target=1e-2)[-1]
    with pytest.raises(ValueError, match="against must be one of 'solution', 'x', got 'point'"):
        plan.run(against="point")


def test_clients_certify_the_smallest_targets_without_internal_errors():
    problem, x, lam = quadratic()
    net = hgp.networks.RandomDirected(3, seed=1)
    for kind in ({"target": 5e-324}, {"target": 1e-300, "relative": False}):
        with pytest.warns(RuntimeWarning, match="that was requested"):
            assert hgp.plan(problem, x, lam, net, **kind).run(by_clients=True, against="x").met is False


def test_floats_of_a_segment_are_predicted():
    """Over a complete network every kind of continuation sends what was reckoned with."""
    problem = hgp.problems.Quadratic.random(4, 5, 2, seed=1, condition=50.0, heterogeneity=0.4)
    x, lam, net = np.ones((4, 5)), np.zeros((4, 2)), hgp.networks.FullyConnected(4)
    plan = push_sum_plan(problem, x, lam, net, target=1e-6, refine=False)
    refined = Refined(Chebyshev(plan.diagnostics.low, plan.diagnostics.high), cycles=3, steps=(7, 9))
    plan = replace(plan, method=refined, steps=(5, 4, 3), iterations=12)
    est, _ = running.Execution(plan, False, False, {}).first_run()
    missed = Assessment(1e-3, 1e-3, 0.0, AT_POINT)
    tracking = Tracking(0.3)
    tracked = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), method=tracking, iterations=5)
    execution, one_step = (running.Execution(p, False, False, {}) for p in (plan, replace(plan, steps=1)))
    ways = {
        "again": (execution.longer_calls(), 2 * (5 + 4 + 3 * 8) + 2 * 2 * (7 + 9), 1),
        "cycle": (execution.continuation(est, plan.method, missed), None, 1),
        "tracking": (one_step.continuation(tracked, tracking, missed), None, 2),
    }
    for name, (further, rounds, vectors) in ways.items():
        further = replace(further, tol=None)
        execution = running.Execution(plan, False, False, {})
        _, method = execution.continue_run(est, further)
        more = execution.traffic - plan.diagnostics.traffic
        assert more.floats == further.floats(plan) == more.rounds * 12 * (vectors * 5 + 1), name
        assert rounds is None or more.rounds == rounds
        assert execution.stages[0].traffic == more and execution.stages[0].iterations == further.iterations
        assert method is further.method


def test_a_continuation_that_diverges_leaves_what_was_there():
    plan = planned(condition=20.0, target=1e-6)[-1]
    execution = running.Execution(plan, False, False, {})
    est, _ = execution.first_run()
    before = execution.traffic
    same, method = execution.continue_run(est, running.Segment(Tracking(60.0), 1, 400, None, {}))
    more, stage = execution.traffic - before, execution.stages[1]
    assert same is est and method.step_size == 30.0 and more.floats > 0
    assert stage.diverged and 0 < stage.iterations < 400 and stage.traffic == more


def test_sizes_among_the_smallest_numbers_are_on_the_safe_side():
    plan = hgp.plan(*quadratic(), hgp.networks.RandomDirected(3, seed=1), target=1e-3)
    est, least = plan.run(certify=False), Fraction(5e-324)
    for each in ((2, 1, 0), (1, 1, 1), (7, 3, 5), (1000, 1, 1)):
        bound = running._in_units(replace(plan, relative=False), np.array(each) * 5e-324, est)
        assert Fraction(bound) ** 2 >= sum(a * a for a in each) * least**2
        for size in (50, 3000):
            value = np.array([[size, 0.0], [0.0, -size], [0.0, 1.0]]) * 5e-324
            share = running._in_units(plan, np.array(each) * 5e-324, replace(est, value=value))
            e2, v2 = sum(a * a for a in each), 2 * size * size + 1
            if math.isfinite(share):  # e ≤ share (v − e), squared where both sides are positive
                assert v2 > e2 and e2 * (1 + Fraction(share)) ** 2 <= Fraction(share) ** 2 * v2
            assert math.isfinite(share) or size == 50 or e2 > 10**5
