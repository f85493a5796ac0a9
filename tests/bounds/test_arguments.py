"""Every public function of `hgp_ref.bounds` with bad arguments: an error that names the argument, or a reason."""

from __future__ import annotations

import dataclasses
import inspect
import math

import numpy as np
import pytest

from hgp_ref import bounds
from hgp_ref.problems import LogisticRegression

n, d, d_lam, M = 3, 2, 4, 5
rng = np.random.default_rng(0)
H = np.eye(d) + 0.1 * np.ones((n, d, d))
J, f_x = rng.normal(size=(n, d_lam, d)), rng.normal(size=(n, d))
K = np.full((M, n, n), 1 / n)
C = bounds.realised_constants(H, J, f_x, 0.5, K)
S = bounds.SampleConstants(0.1, 0.1, 0.05, 0.05, rho=0.6, alpha=0.9, beta=3.0)
NU = bounds.Lipschitz(0.1, 0.2, 0.3, 0.1)
H_samples = [np.stack([h, 1.1 * h]) for h in H]
J_samples = [np.stack([j, 0.9 * j]) for j in J]
X, y = rng.normal(size=(2, 3, 2)), np.ones((2, 3))
PROBLEM = LogisticRegression(X, y, X, y)

NUMBER = (math.nan, math.inf, -1.0, "1", None, 1j, True, [1.0], object())
SIZE = (0, -1, 2.5, math.nan, "2", None, True, [1])
FLAG = (0, "yes", None, math.nan)
NAME = ("other", None, 3, b"azuma")
OBJECT = (None, 3, "c", {})
# What is optional may be None; a failure or a rate of the wrong size has no number, but says so.
OPTIONAL_NUMBER, OPTIONAL_SIZE = (tuple(v for v in values if v is not None) for values in (NUMBER, SIZE))
ARRAY = (None, "x", 1.0, np.array([]), [[1.0], [2.0, 3.0]], np.array(["a"]), 1j * np.ones(2))


def arrays(right):
    """Arrays that are not `right`: NaN, infinity, another number of axes, another kind."""
    bad = (right * math.nan, right + math.inf, right[None], right.astype(complex), right.astype(str))
    return (*ARRAY, *bad)


SAMPLES = (None, 3, [], [1.0], H_samples[:2], [np.ones((2, 2))] * 3, [a * math.nan for a in H_samples])
PRINTED = {"iterations": (*OPTIONAL_SIZE, M + 1), "consensus": tuple(v for v in OPTIONAL_NUMBER if v != math.inf)}
CASES = {
    "best": ({}, {}),
    "contracting_clients": ({"c": C}, {"c": OBJECT, "iterations": PRINTED["iterations"]}),
    "convex_mean": ({"c": C}, {"c": OBJECT, "iterations": PRINTED["iterations"]}),
    "minibatch_tail": (
        {"c": C, "s": S, "size": 2, "failure": 0.1},
        {"c": OBJECT, "s": OBJECT, "size": SIZE, "failure": (*NUMBER, 0.0, 2.0), "form": NAME, "shared": FLAG,
         "iterations": PRINTED["iterations"]},
    ),
    "mean_square_error": (
        {"H_samples": H_samples, "J_samples": J_samples, "f_x": f_x, "eta": 0.5, "matrices": K, "size": 1},
        {"H_samples": SAMPLES, "J_samples": SAMPLES, "f_x": arrays(f_x), "eta": (*NUMBER, 0.0), "matrices": arrays(K),
         "size": SIZE, "replace": FLAG, "shared": FLAG},
    ),
    "chebyshev": (
        {"beta": np.ones(n), "w_norm": 1.0, "low": 0.5, "high": 2.0, "iterations": 3, "spectrum": (0.6, 1.9)},
        {"beta": (*ARRAY, -np.ones(n), np.ones(n) * math.nan), "w_norm": NUMBER, "low": NUMBER, "high": NUMBER,
         "iterations": (-1, 2.5, None, "3", True), "spectrum": (*ARRAY, (0.6,), (math.nan, 1.0), (0.6, 2.1))},
    ),
    "chebyshev_push_sum": (
        {"c": C, "low": 0.1, "high": 5.0},
        {"c": OBJECT, "low": NUMBER, "high": NUMBER, "iterations": PRINTED["iterations"]},
    ),
    "corollary1": ({"c": C}, {"c": OBJECT, **PRINTED}),
    "corollary1_repaired": ({"c": C}, {"c": OBJECT, **PRINTED}),
    "corollary2": (
        {"c": C, "s": S, "size": 2, "failure": 0.1},
        {"c": OBJECT, "s": OBJECT, "size": SIZE, "failure": (*NUMBER, 0.0, 2.0), "C": OPTIONAL_NUMBER, **PRINTED},
    ),
    "theorem1": (
        {"c": C, "s": S, "failure": 0.1},
        {"c": OBJECT, "s": OBJECT, "failure": (*NUMBER, 0.0, 1.0), "text": NAME, **PRINTED},
    ),
    "theorem2": (
        {"c": C, "nu_f": 0.1, "nu_g": 0.1, "distance": 0.1, "alpha": 0.9, "beta": 3.0},
        {"c": OBJECT, "nu_f": NUMBER, "nu_g": NUMBER, "distance": NUMBER, "samples": OBJECT[1:],
         "alpha": (*NUMBER, 0.0), "failure": NUMBER, "beta": NUMBER, **PRINTED},
    ),
    "distance_to_solution": (
        {"nu": NU, "gradient": 0.1, "alpha_bar_here": 1.0},
        {"nu": OBJECT, "gradient": NUMBER, "alpha_bar_here": (*NUMBER, 0.0)},
    ),
    "inexact": (
        {"nu": NU, "apart": np.ones(n), "w_norm": 1.0, "beta": np.ones(n), "alpha_bar": 1.0},
        {"nu": OBJECT, "apart": (*ARRAY, -np.ones(n)), "w_norm": NUMBER, "beta": (*ARRAY, -np.ones(n), np.ones(n + 1)),
         "alpha_bar": (*NUMBER, 0.0), "mean_apart": OPTIONAL_NUMBER},
    ),
    "inexact_total": (
        {"nu": NU, "distance": 0.1, "w_norm": 1.0, "beta": 1.0, "alpha_bar": 1.0},
        {"nu": OBJECT, "distance": NUMBER, "w_norm": NUMBER, "beta": NUMBER, "alpha_bar": (*NUMBER, 0.0)},
    ),
    "lemma2": ({"n": 3, "entry": 0.1}, {"n": SIZE, "entry": tuple(v for v in NUMBER if v != math.inf), "form": NAME}),
    "lemma2_realised": ({"K": K[0]}, {"K": arrays(K[0]), "form": NAME}),
    "lemma2_worst_case": (
        {"constants": bounds.worst_case(3), "steps": 2},
        {"constants": OBJECT, "steps": SIZE, "form": NAME},
    ),
    "worst_case": ({"n": 3}, {"n": SIZE, "window": SIZE}),
    "realised_constants": (
        {"H": H, "J": J, "f_x": f_x, "eta": 0.5, "matrices": K},
        {"H": (*arrays(H), H[:2], H[:, :1]), "J": (*ARRAY, J[:2], J * math.nan), "f_x": arrays(f_x),
         "eta": (*NUMBER, 0.0), "matrices": (*arrays(K), np.ones((M, 2, 2))), "steps": SIZE,
         "f_lam": (np.ones(3), np.ones((n, d_lam)) * math.nan)},
    ),
    "residual_bounds": (
        {"H": H, "J": J, "f_x": f_x, "w": f_x},
        {"H": (*arrays(H), -H), "J": (*ARRAY, J[:2], J * math.nan), "f_x": arrays(f_x), "w": (*arrays(f_x), f_x[:2])},
    ),
    "sample_constants": (
        {"H": H_samples, "J": J_samples, "eta": 0.5},
        {"H": SAMPLES, "J": SAMPLES[:4], "eta": (*NUMBER, 0.0)},
    ),
    "sample_derivatives": (
        {"problem": PROBLEM, "x": np.zeros((2, 2)), "lam": np.ones((2, 2))},
        {"problem": OBJECT, "x": (None, 3, np.zeros((3, 2))), "lam": (None, 3, np.zeros((3, 2)))},
    ),
}  # fmt: skip
ELSEWHERE = {"known_lipschitz"}
BAD = [(name, argument, k) for name, (_, bad) in CASES.items() for argument in bad for k in range(len(bad[argument]))]


def numbers(result):
    """All numbers in what a function returned."""
    if isinstance(result, bounds.Bound):
        assert result.applicable == (result.total is not None)
        if not result.applicable:
            assert result.why and result.per_client is None
            return []
        return [result.total, *result.terms.values(), *([] if result.per_client is None else result.per_client)]
    if dataclasses.is_dataclass(result):
        return [x for value in vars(result).values() if not isinstance(value, str) for x in np.ravel(value)]
    return (
        np.ravel(result).tolist() if not isinstance(result, tuple) else [x for part in result for x in np.ravel(part)]
    )


def test_every_public_function_is_tried():
    functions = {name for name in bounds.__all__ if inspect.isfunction(getattr(bounds, name))}
    assert functions == set(CASES) | ELSEWHERE


@pytest.mark.parametrize("name", [name for name in CASES if name != "best"])
def test_the_good_call_is_good(name):
    good, bad = CASES[name]
    result = getattr(bounds, name)(**good)
    assert set(bad) <= set(inspect.signature(getattr(bounds, name)).parameters)
    if name != "sample_derivatives":
        found = np.array(numbers(result), dtype=float)
        assert len(found) and np.isfinite(found).all()


@pytest.mark.parametrize(("name", "argument", "k"), BAD)
def test_nonsense_has_no_number(name, argument, k):
    good, bad = CASES[name]
    value = bad[argument][k]
    try:
        result = getattr(bounds, name)(**{**good, argument: value})
    except (TypeError, ValueError) as error:
        words = str(error)
        assert argument in words, words
        return
    assert isinstance(result, bounds.Bound), f"{argument}={value!r} was accepted: {result!r}"
    assert not result.applicable and result.why, f"{argument}={value!r} was accepted: {result!r}"


def test_best_needs_bounds_of_the_same_clients():
    bound = bounds.contracting_clients(C)
    for bad in ((), (3,), (None, bound)):
        with pytest.raises(TypeError, match="bounds"):
            bounds.best(*bad)
    with pytest.raises(ValueError, match="clients"):
        bounds.best(bound, dataclasses.replace(bound, per_client=np.ones(n + 1)))


@pytest.mark.parametrize(
    ("cls", "good", "fields"),
    [
        (bounds.SampleConstants, S, ("kappa_x", "sigma_lam", "rho", "alpha", "beta")),
        (
            bounds.Constants,
            C,
            ("eta", "rho", "rho_bar", "zeta", "G_inf", "a0", "alpha_bar", "f_lam", "n", "iterations"),
        ),
        (bounds.Lipschitz, NU, ("nu_flam", "nu_fx", "nu_J", "nu_H", "strong_convexity")),
    ],
)
def test_constants_are_numbers(cls, good, fields):
    for name in fields:
        for value in (math.nan, math.inf, "1", *(() if name == "alpha_bar" else (-1.0,))):
            with pytest.raises((TypeError, ValueError), match=name):
                dataclasses.replace(good, **{name: value})
    if cls is bounds.Constants:
        for name in ("gamma", "eps", "beta"):
            for value in (-np.ones(M), np.ones(2), np.full(M, math.nan)):
                with pytest.raises(ValueError, match=name):
                    dataclasses.replace(good, **{name: value})


def test_worst_case_methods():
    for bad in SIZE:
        for method in ("entry", "printed"):
            with pytest.raises((TypeError, ValueError), match="steps"):
                getattr(bounds.worst_case(3), method)(bad)
    for bad in (0.0, 1.0, math.nan, "0.1"):
        with pytest.raises((TypeError, ValueError), match="eta_alpha"):
            bounds.worst_case(3).steps_needed(bad)
    with pytest.raises(ValueError, match="factor"):
        bounds.worst_case(3).steps_needed(0.1, factor=-1.0)


def test_messages_of_bad_numbers():
    with pytest.raises(ValueError, match="consensus must be a finite number >= 0, got -1"):
        bounds.corollary1(C, consensus=-1.0)
    with pytest.raises(ValueError, match="alpha_bar must be a finite number > 0, got -1"):
        bounds.inexact_total(NU, 0.1, 1.0, 1.0, -1.0)
    with pytest.raises(ValueError, match=r"matrices must have shape .*, got \(5, 2, 2\)"):
        bounds.realised_constants(H, J, f_x, 0.5, np.full((5, 2, 2), 0.5))
