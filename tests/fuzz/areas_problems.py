"""Problems: constructors and members, adapters, mini-batches; the exact reference; attribution."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from fuzz import small
from fuzz.table import function, method
from hgp_ref import attribution, exact, problems, training

g = small.rng()
QUADRATIC = dict(
    A=np.tile(np.eye(4), (3, 1, 1)), b=g.normal(size=(3, 4)), C=g.normal(size=(3, 2, 4)), target=g.normal(size=(3, 4))
)
OPTIONS = dict(outer_hessian=None, coupling=None, outer_reg=0.1)
function("problems.Quadratic", problems.Quadratic, lambda: QUADRATIC | OPTIONS)
function(
    "problems.Quadratic.random",
    problems.Quadratic.random,
    lambda: dict(n=3, dim_x=4, dim_lam=2, seed=0, condition=10.0, heterogeneity=0.5),
)
function(
    "problems.InstanceWeights",
    problems.InstanceWeights,
    lambda: small.data() | dict(loss="binary", n_classes=None, l2=0.1),
)
function(
    "problems.LeastSquares",
    problems.LeastSquares,
    lambda: small.data() | dict(regularization="coordinate"),
)
function(
    "problems.LogisticRegression",
    problems.LogisticRegression,
    lambda: small.data() | dict(regularization="coordinate"),
)
function(
    "problems.SoftmaxRegression",
    problems.SoftmaxRegression,
    lambda: small.data(classes=3) | dict(n_classes=3, regularization="coordinate"),
)
function("problems.HyperCleaning", problems.HyperCleaning, lambda: small.data(classes=3) | dict(l2=0.1, n_classes=3))
function("problems.LogRates", problems.LogRates, lambda: dict(inner=small.logistic()))
method("problems.HyperCleaning.weights", small.cleaning, lambda: dict(lam=small.point(small.cleaning())["lam"]),
       passes_nan=True)  # fmt: skip
NEURAL = dict(l2=0.001, outer_l2=0.001)
function(
    "problems.NeuralInstanceWeights",
    problems.NeuralInstanceWeights,
    lambda: dict(model=small.model(), **small.data(), l2=0.1),
)
function(
    "problems.PersonalMask",
    problems.PersonalMask,
    lambda: dict(model=small.model(), **small.data(), scale=None, **NEURAL),
)
function("problems.PersonalBias", problems.PersonalBias, lambda: dict(model=small.model(), **small.data(), **NEURAL))
function(
    "problems.PersonalMixture",
    problems.PersonalMixture,
    lambda: dict(model=small.model(), **small.data(), components=2, **NEURAL),
)
function(
    "problems.NeuralProblem",
    problems.NeuralProblem,
    lambda: dict(model=small.model(), cost=small.neural_weights().cost, **small.data(), outer=None, **NEURAL),
)

BATCH = np.zeros((3, 2), dtype=np.int64)
PROBLEMS = {
    "Quadratic": small.quadratic,
    "LeastSquares": small.squares,
    "LogisticRegression": small.logistic,
    "SoftmaxRegression": small.softmax,
    "InstanceWeights": small.weights,
    "HyperCleaning": small.cleaning,
    "LogRates": lambda: problems.LogRates(small.logistic()),
    "Damped": lambda: problems.Damped(small.weights(), 0.3),
    "NeuralInstanceWeights": small.neural_weights,
    "PersonalMask": small.mask,
    "PersonalBias": lambda: problems.PersonalBias(small.model(), **small.data()),
    "PersonalMixture": small.mixture,
}
for kind, make in PROBLEMS.items():
    at = lambda make=make: small.point(make())  # noqa: E731
    batch = None if kind == "Quadratic" else BATCH
    for member in ("inner_cost", "inner_grad", "linearize", "hessian", "jacobian"):
        if hasattr(getattr(problems, kind), member):
            good = lambda at=at, batch=batch: at() | dict(batch=batch)  # noqa: E731
            method(f"problems.{kind}.{member}", make, good, passes_nan=True)
    for member in ("outer_cost", "outer_grad", "jacobian_norms", "accuracy", "term_sizes"):
        if getattr(make(), member, None) is not None:  # a property that is None: there is no closed form
            method(f"problems.{kind}.{member}", make, at, passes_nan=True)
    method(f"problems.{kind}.restrict", make, lambda: dict(clients=[0, 2]))
    method(f"problems.{kind}.to", make, lambda: dict(target="numpy", dtype="float32"))
    if getattr(make(), "lipschitz", None) is not None:
        method(f"problems.{kind}.lipschitz", make, lambda at=at: dict(lam=at()["lam"]), passes_nan=True)
    for member in ("hvp", "cross"):
        method(
            f"problems.{kind}.linearize().{member}",
            lambda make=make, at=at: make().linearize(**at()),
            lambda at=at: dict(u=at()["x"]),
            passes_nan=True,
        )
for kind in ("InstanceWeights", "NeuralProblem", "Damped"):
    make = small.neural_weights if kind == "NeuralProblem" else PROBLEMS[kind]
    good = lambda make=make: small.point(make()) | dict(batch=BATCH)  # noqa: E731
    method(f"problems.{kind}.validation_grad", make, good, passes_nan=True)
function("problems.Damped", problems.Damped, lambda: dict(inner=small.quadratic(), mu=0.3))
method(
    "problems.PersonalMixture.responsibilities", small.mixture, lambda: small.point(small.mixture()), passes_nan=True
)
function(
    "problems.check_derivatives",
    problems.check_derivatives,
    lambda: dict(problem=small.quadratic(), **small.point(small.quadratic()), directions=1, seed=0),
    passes_nan=True,  # it reports costs that overflow
)
function("problems.as_problem", problems.as_problem, lambda: dict(problem=small.quadratic(), needs=("inner_grad",)))
SAMPLE = dict(counts=[6, 6, 6], size=2, seed=0, first=0, count=3, stream=0, replace=False)
function("problems.sample_batches", problems.sample_batches, lambda: SAMPLE | dict(clients=None))
function(
    "problems.sample_epochs",
    problems.sample_epochs,
    lambda: dict(counts=[6, 6, 6], seed=0, first=0, count=3, clients=None),
)


def _cost(x, lam, *rest):
    return (x**2).sum(-1) * (lam**2).sum(-1)


function("problems.Composite", problems.Composite, lambda: dict(outputs=_cost, loss=_cost, penalty=None))
for name in ("from_torch", "from_jax"):
    function(
        f"problems.{name}",
        getattr(problems, name),
        lambda: dict(inner_cost=_cost, outer_cost=_cost, n_clients=3, dim_x=4, dim_lam=2, counts=None),
    )


# the exact reference
def _with_error(**given):
    """The hyper-gradient. The bound on its error may be infinite, which is documented, and is otherwise a number."""
    found = exact.hypergradient(**given)
    if not isinstance(found, tuple):
        return found
    value, error = found
    return value, np.where(np.isposinf(error), 0.0, error)


for kind, make in {"": small.quadratic, " (logistic)": small.logistic}.items():
    good = lambda make=make: dict(problem=make(), **small.point(make()))  # noqa: E731
    for name in ("hessians", "jacobians"):
        function(f"exact.{name}{kind}", getattr(exact, name), lambda good=good: good() | dict(batch=None))
    for name in ("outer_gradients", "shared_hypergradient", "local_hypergradient"):
        function(f"exact.{name}{kind}", getattr(exact, name), good)
    function(
        f"exact.client_hypergradient{kind}", exact.client_hypergradient, lambda good=good: good() | dict(shared=True)
    )
    function(
        f"exact.hypergradient{kind}",
        _with_error,
        lambda good=good: good() | dict(method="reduced", eta=0.5, return_error=True),
    )
    function(
        f"exact.inner_solution{kind}",
        exact.inner_solution,
        lambda make=make: dict(problem=make(), lam=small.point(make())["lam"], x0=np.zeros(4), max_iterations=50),
        speaks_of=("x",),  # made like lam
        raises=RuntimeError,
    )
    function(
        f"exact.estimate{kind}",
        exact.estimate,
        lambda good=good: (
            good() | dict(matrices=small.matrices(), eta=0.5, batches_v=None, batches_u=None, weights=None)
        ),
    )
function("exact.mixing_product", exact.mixing_product, lambda: dict(net=small.net(), steps=2, call=1, robust=False))
PUSH_SUM = dict(steps=2, debias="reset", robust=False)
function("exact.push_sum_matrix", exact.push_sum_matrix, lambda: dict(net=small.net(), call=1) | PUSH_SUM)
function("exact.push_sum_matrices", exact.push_sum_matrices, lambda: dict(net=small.net(), calls=2) | PUSH_SUM)
function("exact.push_sum_weights", exact.push_sum_weights, lambda: dict(net=small.net(), steps=2, call=1))

# attribution
function(
    "attribution.influence",
    hgp.influence,
    lambda: (
        dict(problem=small.weights(), **small.point(small.weights()), avg=small.avg(), iterations=8)
        | dict(batches=None, tol=1e-9, method=None, eta=None, resume=None, callback=None, on=[(0, 1), ((1, 2), (2, 0))])
    ),
)
LAM = lambda: small.point(small.weights())["lam"]  # noqa: E731
function(
    "attribution.retrain",
    attribution.retrain,
    lambda: dict(problem=small.weights(), lam=LAM(), removals=[(0, 1), ((1, 2), (2, 3))], x0=np.zeros(4)),
    speaks_of=("x",),  # made like lam
)
function(
    "attribution.retrain_over_network",
    attribution.retrain_over_network,
    lambda: (
        dict(problem=small.weights(), lam=LAM(), net=small.net(), method=training.SGP(8, lr=0.3), removals=[(0, 1)])
        | dict(x0=None, tol=None)
    ),
    speaks_of=("x",),  # made like lam
)
function(
    "attribution.retrain_from",
    attribution.retrain_from,
    lambda: (
        dict(problem=small.weights(), **small.point(small.weights()), removals=[(0, 1)], eta=0.3, steps=8)
        | dict(fraction=0.5, batches=3, subtract_gradient_at_x=True)
    ),
)
function("attribution.client_removals", attribution.client_removals, lambda: dict(problem=small.weights()))
function(
    "attribution.random_removals",
    attribution.random_removals,
    lambda: dict(problem=small.weights(), number=2, fraction=0.5, seed=1),
)
for name in ("f1_negative", "lds", "r2_score", "scores", "spearman"):  # a score that the data leave undefined is NaN
    scored = lambda: dict(actual=np.array([1.0, -2.0, 3.0]), predicted=np.array([1.0, -1.0, 2.0]))  # noqa: E731
    function(f"attribution.{name}", getattr(attribution, name), scored, passes_nan=True)
for name in ("most_influential", "most_harmful", "most_helpful"):
    method(f"attribution.Influence.{name}", small.influence, lambda: dict(count=2))
method("attribution.Influence.plot", small.influence, lambda: dict(count=2, ax=None))
method("attribution.Influence.of", small.group_influence, lambda: dict(group=0))
method("attribution.Influence.predict", small.influence, lambda: dict(removals=[(0, 1), ((1, 2), (2, 3))]))
