"""Bounds and certificates."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from fuzz import small
from fuzz.table import function, method
from hgp_ref import bounds

NU = bounds.Lipschitz(1.0, 1.0, 1.0, 1.0)
C = lambda: dict(c=small.constants(), iterations=4)  # noqa: E731
S = lambda: C() | dict(s=small.sample_constants())  # noqa: E731
for name in ("corollary1", "corollary1_repaired"):
    function(f"bounds.{name}", getattr(bounds, name), lambda: C() | dict(consensus=0.1))
function("bounds.corollary2", bounds.corollary2, lambda: S() | dict(size=2, failure=0.1, consensus=0.1, C=1.0))
function("bounds.theorem1", bounds.theorem1, lambda: S() | dict(failure=0.1, consensus=0.1, text="main"))
function(
    "bounds.theorem2",
    bounds.theorem2,
    lambda: C() | dict(nu_f=1.0, nu_g=1.0, distance=0.1, samples=None, failure=0.1, consensus=0.1, alpha=1.0, beta=1.0),
)
function(
    "bounds.mean_square_error",
    bounds.mean_square_error,
    lambda: (
        dict(zip(("H_samples", "J_samples"), small.samples(), strict=True))
        | dict(f_x=small.derivatives()["f_x"], eta=0.5, matrices=small.matrices(), size=2, replace=False, shared=False)
    ),
)
function("bounds.best", lambda bounds: hgp.bounds.best(bounds), lambda: dict(bounds=bounds.contracting_clients(**C())))
function(
    "bounds.chebyshev",
    bounds.chebyshev,
    lambda: dict(beta=np.ones(3), w_norm=1.0, low=0.1, high=1.0, iterations=5, spectrum=(0.2, 0.9)),
)
function(
    "bounds.inexact",
    bounds.inexact,
    lambda: dict(nu=NU, apart=np.full(3, 0.1), w_norm=1.0, beta=np.ones(3), alpha_bar=1.0, mean_apart=0.1),
)
function(
    "bounds.known_lipschitz",
    bounds.known_lipschitz,
    lambda: dict(problem=small.quadratic(), lam=small.point(small.quadratic())["lam"]),
)
function("bounds.lemma2", bounds.lemma2, lambda: dict(n=3, entry=0.1, form="corrected"), passes_nan=True)
function(
    "bounds.lemma2_realised",
    bounds.lemma2_realised,
    lambda: dict(K=np.full((3, 3), 1 / 3), form="corrected"),
    passes_nan=True,
)
function(
    "bounds.realised_constants",
    bounds.realised_constants,
    lambda: small.derivatives() | dict(eta=0.5, matrices=small.matrices(), f_lam=np.zeros((3, 2)), steps=1),
)
function("bounds.residual_bounds", bounds.residual_bounds, lambda: small.derivatives() | dict(w=np.ones((3, 4))))
function(
    "bounds.sample_constants",
    bounds.sample_constants,
    lambda: dict(zip("HJ", small.samples(), strict=True)) | dict(eta=0.5),
)
function(
    "bounds.sample_derivatives",
    bounds.sample_derivatives,
    lambda: dict(problem=small.logistic(), **small.point(small.logistic())),
)
method("bounds.WorstCase.entry", lambda: bounds.worst_case(3), lambda: dict(steps=5))
method("bounds.WorstCase.printed", lambda: bounds.worst_case(3), lambda: dict(steps=5))
method("bounds.WorstCase.steps_needed", lambda: bounds.worst_case(3), lambda: dict(eta_alpha=0.1, factor=1.0))

function(
    "certificates.certify",
    hgp.certify,
    lambda: (
        dict(problem=small.quadratic(), **small.point(small.quadratic()), est=small.estimate(), avg=small.avg())
        | dict(lipschitz=None, strong_convexity=None, first_call=None, max_rounds=None, matrix_free=False)
    ),
)
function(
    "certificates.certify (matrix-free)",
    hgp.certify,
    lambda: (
        dict(problem=small.quadratic(), **small.point(small.quadratic()), est=small.estimate(), avg=small.avg())
        | dict(lipschitz=None, strong_convexity=0.01, matrix_free=True)
    ),
)
function(
    "certificates.measured_residual",
    hgp.certificates.measured_residual,
    lambda: dict(problem=small.quadratic(), **small.point(small.quadratic()), est=small.estimate()),
)
function("certificates.Lanczos", hgp.certificates.Lanczos, lambda: dict(seed=3))
function(
    "exact.tracking_rate",
    hgp.exact.tracking_rate,
    lambda: dict(H=small.derivatives()["H"], net=hgp.networks.OnePeerExponential(3), step=0.1, steps=2),
)

# planning
function(
    "planning.plan",
    hgp.plan,
    lambda: (
        dict(problem=small.quadratic(), **small.point(small.quadratic()), net=small.net(), target=1e-3)
        | dict(relative=True, refine=None)
    ),
)
function(
    "planning.plan (budget)",
    hgp.plan,
    lambda: dict(problem=small.quadratic(), **small.point(small.quadratic()), net=small.net(), budget=1e5),
)
method(
    "planning.Plan.run",
    lambda: hgp.plan(small.quadratic(), **small.point(small.quadratic()), net=small.net(), target=1e-3),
    lambda: dict(certify=True, by_clients=False, against="x", strong_convexity=None),
)
method(
    "planning.Diagnostics.rounds_to",
    lambda: hgp.plan(small.quadratic(), **small.point(small.quadratic()), net=small.net(), target=1e-3).diagnostics,
    lambda: dict(share=0.1),
)
