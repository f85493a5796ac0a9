"""Settings of training, and the errors when training diverges."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import open_library

import hgp_ref as hgp

SETTINGS = {"momentum": 0.25, "weight_decay": 0.125, "prox": 0.5}  # the same number in every type


@pytest.mark.parametrize("library", ["numpy", "array_api_strict"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, Fraction])
@pytest.mark.parametrize("train", ["sgp", "local_rounds"])
def test_momentum_decay_and_prox_of_any_real_type_keep_float32(train, kind, library):
    lib = open_library(library)
    problem, _, lam = logistic(n=3)
    there = problem.to(lib.backend, dtype="float32")
    lam = lib.asarray(lam, "float32")
    given = dict(SETTINGS)
    if train == "sgp":
        del given["prox"]

    def run(settings):
        if train == "sgp":
            return hgp.train(there, lam, hgp.networks.FullyConnected(3), hgp.training.SGP(5, 0.1, **settings))
        return hgp.train(there, lam, hgp.ExactAverage(3), hgp.training.LocalRounds(3, 0.1, epochs=2, **settings))

    fit, expected = run({name: kind(value) for name, value in given.items()}), run(given)
    assert fit.x.dtype == lam.dtype
    np.testing.assert_array_equal(hgp.backend.to_host(fit.x), hgp.backend.to_host(expected.x))
    for name, value in given.items():
        assert type(getattr(fit.method, name)) is float and getattr(fit.method, name) == value


@pytest.mark.parametrize("kind", [np.float64, Fraction])
@pytest.mark.parametrize("value", [-1, 1, 2])
def test_momentum_outside_its_range_is_refused_in_any_type(kind, value):
    problem, _, lam = quadratic()
    with pytest.raises(ValueError, match="momentum"):
        hgp.train(
            problem,
            lam,
            hgp.networks.FullyConnected(3),
            hgp.training.SGP(steps=5, momentum=kind(value), lr=2.0, milestones=(0.6, 0.8)),
        )


def diverging(**given):
    problem, _, lam = quadratic()
    with pytest.raises(hgp.DivergenceError) as raised:
        hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), **given)
    return str(raised.value)


@pytest.mark.parametrize("steps", [100, 400])
def test_divergence_reports_the_rate_before_the_milestones(steps):
    """Parameters are looked at after 1, 256, 512, ... and the last step, by which time the rate may have fallen."""
    assert "learning rate 50" in diverging(steps=steps, lr=50.0, milestones=(60, 80))


def test_the_largest_rate_of_a_function_is_reported():
    assert "learning rate 70" in diverging(steps=100, lr=lambda s: 70.0 if s == 40 else 50.0 if s > 30 else 0.01)


def test_divergence_at_the_end_reports_the_rate():
    """Growth that stays below the limit of a look is refused at the end; a rate that was not reached is not named."""
    message = diverging(
        steps=20, lr=lambda s: 40.0 if s < 4 else 0.001 if s < 10 else 41.0, callback=lambda s, z: s == 8
    )
    assert "at its end" in message and "learning rate 40" in message
