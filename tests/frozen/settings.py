"""Small runs of every public function, whose numbers are stored in numbers.json.

    python tests/frozen/settings.py            compare bit for bit, and list what differs
    python tests/frozen/settings.py --write    store the numbers of this commit

Each setting returns a dict of numbers and arrays. Of a long array eight entries and the norm are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp

STORE = Path(__file__).with_name("numbers.json")
SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {}


def setting(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    SETTINGS[function.__name__] = function
    return function


def kept(value: Any) -> list[str]:
    """Up to eight entries spread over the array, and its norm, as exact hexadecimal numbers."""
    a = np.asarray(value, dtype=np.float64).ravel()
    chosen = a[np.unique(np.linspace(0, a.size - 1, 8).astype(int))] if a.size > 8 else a
    return [float(v).hex() for v in (*chosen, np.sqrt(np.sum(a * a)))]


def numbers(name: str) -> dict[str, list[str]]:
    return {key: kept(value) for key, value in SETTINGS[name]().items()}


# ---- problems, points


def quadratic(n: int = 4, dim_x: int = 5, **options: Any) -> Any:
    return hgp.problems.Quadratic.random(n, dim_x, 2, seed=3, **options)


def data(n: int = 3, features: int = 4, classes: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    X, X_val = rng.standard_normal((2, n, 12, features)) / 2
    y, y_val = rng.integers(0, classes, (2, n, 12)).astype(float)
    return {"X": X, "y": y, "X_val": X_val, "y_val": y_val}


def logistic() -> Any:
    return hgp.problems.LogisticRegression(**data())


def instance_weights() -> Any:
    return hgp.problems.InstanceWeights(**data(), l2=0.3)


def model() -> Any:
    return hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Tanh(), hgp.neural.Linear(3, 2))


def point(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((problem.n_clients, problem.dim_x)) / 2
    return x, rng.uniform(0.2, 0.6, (problem.n_clients, problem.dim_lam))


def solved(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    lam = point(problem)[1]
    return hgp.exact.inner_solution(problem, lam), lam


def network(n: int = 4) -> Any:
    return hgp.networks.RandomDirected(n, seed=1)


def of_estimate(est: Any) -> dict[str, Any]:
    return {"value": est.value, "w": est.w, "iterations": est.iterations, **of_traffic(est.traffic)}


def of_traffic(traffic: Any) -> dict[str, Any]:
    return {"messages": traffic.messages, "floats": traffic.floats}


def estimated(problem: Any, averaging: Any, **options: Any) -> dict[str, Any]:
    x, lam = solved(problem)
    return of_estimate(hgp.hypergradient(problem, x, lam, averaging, **options))


# ---- hyper-gradients


@setting
def neumann_quadratic() -> dict[str, Any]:
    return estimated(quadratic(), hgp.PushSum(network(), steps=10), eta=0.5, iterations=60)


@setting
def neumann_stepping() -> dict[str, Any]:
    return estimated(quadratic(), hgp.PushSum(network(), steps=3, mode="stepping"), eta=0.5, iterations=25)


@setting
def neumann_logistic_tolerance() -> dict[str, Any]:
    return estimated(logistic(), hgp.PushSum(network(3), steps=40), eta=1.0, iterations=500, tol=1e-4)


@setting
def neumann_found_step() -> dict[str, Any]:
    return estimated(quadratic(), hgp.PushSum(network(), steps=10), eta=1.0, iterations=20)


@setting
def neumann_mini_batches() -> dict[str, Any]:
    return estimated(
        logistic(), hgp.PushSum(network(3), steps=5), eta=0.5, iterations=30, batches=hgp.MiniBatches(4, seed=2)
    )


@setting
def neumann_shared_full_jacobian() -> dict[str, Any]:
    options = dict(batches=hgp.MiniBatches(4, seed=2, share=True, full_jacobian=True, replace=True))
    return estimated(logistic(), hgp.PushSum(network(3), steps=5), eta=0.5, iterations=30, **options)


@setting
def neumann_runs() -> dict[str, Any]:
    return estimated(
        logistic(), hgp.PushSum(network(3), steps=5), eta=0.5, iterations=10, batches=hgp.MiniBatches(4, seed=[1, 2, 3])
    )


@setting
def neumann_history_and_resume() -> dict[str, Any]:
    problem = quadratic()
    x, lam = solved(problem)
    first = hgp.hypergradient(problem, x, lam, hgp.PushSum(network(), steps=4), eta=0.5, iterations=10, history=True)
    rest = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(network().after(40), steps=4), eta=0.5, iterations=10, resume=first
    )
    return {"history": first.history, **of_estimate(rest)}


@setting
def chebyshev() -> dict[str, Any]:
    method = hgp.methods.Chebyshev(0.05, 1.5)
    return estimated(quadratic(), hgp.PushSum(network(), steps=12), method=method, iterations=40)


@setting
def tracking() -> dict[str, Any]:
    return estimated(quadratic(), hgp.PushSum(network(), steps=2), method=hgp.methods.Tracking(0.2), iterations=80)


@setting
def tracking_found_step() -> dict[str, Any]:
    return estimated(quadratic(), hgp.PushSum(network(), steps=2), method=hgp.methods.Tracking(), iterations=30)


@setting
def refined() -> dict[str, Any]:
    method = hgp.methods.Refined(hgp.methods.Chebyshev(0.05, 1.5), 3, 40)
    return estimated(quadratic(), hgp.PushSum(network(), steps=5), method=method, iterations=45)


@setting
def gossip_fixed_graph() -> dict[str, Any]:
    net = hgp.networks.StaticUndirected(5, seed=2)
    return estimated(quadratic(5), hgp.Gossip(net, steps=8), eta=0.5, iterations=30)


@setting
def exact_average() -> dict[str, Any]:
    return estimated(quadratic(), hgp.ExactAverage(4), eta=0.5, iterations=30)


@setting
def robust_push_sum() -> dict[str, Any]:
    net = hgp.networks.Unreliable(network(), loss=0.2, delay=2, seed=4)
    return estimated(quadratic(), hgp.RobustPushSum(net, steps=15), eta=0.3, iterations=20)


@setting
def large_sparse_network() -> dict[str, Any]:
    net = hgp.networks.RandomOut(40, 3, seed=6)
    return estimated(quadratic(40), hgp.PushSum(net, steps=6), eta=0.5, iterations=12)


@setting
def hyper_cleaning() -> dict[str, Any]:
    problem = hgp.problems.HyperCleaning(**data(classes=3), l2=0.3, n_classes=3)
    return estimated(problem, hgp.PushSum(network(3), steps=10), eta=0.5, iterations=30)


@setting
def softmax() -> dict[str, Any]:
    problem = hgp.problems.SoftmaxRegression(**data(classes=3), n_classes=3)
    return estimated(problem, hgp.PushSum(network(3), steps=10), eta=0.5, iterations=30)


@setting
def log_rates() -> dict[str, Any]:
    problem = hgp.problems.LogRates(logistic())
    x, lam = point(problem)
    return of_estimate(hgp.hypergradient(problem, x, lam, hgp.PushSum(network(3), steps=10), eta=0.5, iterations=20))


def at_random_point(problem: Any) -> dict[str, Any]:
    x, lam = point(problem)
    averaging = hgp.PushSum(network(3), steps=10)
    return of_estimate(hgp.hypergradient(problem, x, lam, averaging, eta=0.05, iterations=12))


@setting
def neural_mask() -> dict[str, Any]:
    return at_random_point(hgp.problems.PersonalMask(model(), **data(), l2=0.5))


@setting
def neural_mixture() -> dict[str, Any]:
    return at_random_point(hgp.problems.PersonalMixture(model(), **data(), components=2, l2=0.5))


@setting
def neural_weights() -> dict[str, Any]:
    return at_random_point(hgp.problems.NeuralInstanceWeights(model(), **data(), l2=0.5))


@setting
def float32() -> dict[str, Any]:
    problem = quadratic()
    x, lam = solved(problem)
    small = problem.to("numpy", dtype="float32")
    averaging = hgp.PushSum(network(), steps=10)
    return of_estimate(
        hgp.hypergradient(small, x.astype(np.float32), lam.astype(np.float32), averaging, eta=0.5, iterations=20)
    )


# ---- training, averaging


def of_fit(fit: Any) -> dict[str, Any]:
    return {"x": fit.x, **of_traffic(fit.traffic)}


@setting
def sgp() -> dict[str, Any]:
    lam = point(logistic())[1]
    return of_fit(hgp.sgp(logistic(), lam, network(3), steps=120, lr=0.8, milestones=(60, 90)))


@setting
def sgp_mini_batches() -> dict[str, Any]:
    lam = point(logistic())[1]
    return of_fit(
        hgp.train(
            logistic(),
            lam,
            network(3),
            hgp.training.SGP(
                steps=50,
                lr=0.3,
                momentum=0.5,
                weight_decay=0.01,
                milestones=(0.6, 0.8),
                batches=hgp.MiniBatches(4, seed=3),
            ),
        )
    )


@setting
def sgp_nedic() -> dict[str, Any]:
    lam = point(quadratic())[1]
    return of_fit(
        hgp.train(
            quadratic(),
            lam,
            network(),
            hgp.training.SGP(steps=80, lr=0.3, variant="nedic", milestones=(0.6, 0.8)),
            tol=0.1,
        )
    )


@setting
def local_rounds() -> dict[str, Any]:
    lam = point(logistic())[1]
    return of_fit(
        hgp.train(
            logistic(),
            lam,
            hgp.PushSum(network(3), steps=10),
            hgp.training.LocalRounds(
                rounds=8, lr=0.3, epochs=2, milestones=(0.6, 0.8), batches=hgp.MiniBatches(4, seed=1)
            ),
        )
    )


@setting
def averages() -> dict[str, Any]:
    u = np.random.default_rng(0).standard_normal((4, 3))
    lossy = hgp.networks.Unreliable(network(), loss=0.3, seed=1)
    return {
        "push_sum": hgp.PushSum(network(), steps=7).apply(u, 3),
        "robust": hgp.RobustPushSum(lossy, steps=7).apply(u, 3),
        "exact": hgp.ExactAverage(4).apply(u, 0),
        "matrix": network().mixing_matrix(5),
        "sparse": hgp.networks.RandomOut(9, 2, seed=3).mixing_matrix(4),
        "one_peer": hgp.networks.OnePeerExponential(8).mixing_matrix(2),
    }


# ---- exact, bounds, certificates, planning


@setting
def exact_reference() -> dict[str, Any]:
    problem = logistic()
    x, lam = solved(problem)
    matrices = hgp.exact.push_sum_matrices(network(3), 5, 4)[0]
    return {"x": x, "hypergradient": hgp.exact.hypergradient(problem, x, lam), "matrices": np.stack(matrices)}


@setting
def bounds() -> dict[str, Any]:
    problem = quadratic()
    x, lam = solved(problem)
    H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    f_x = hgp.exact.outer_gradients(problem, x, lam)[0]
    matrices = hgp.exact.push_sum_matrices(network(), 30, 20)[0]
    constants = hgp.bounds.realised_constants(H, J, f_x, 0.5, matrices)
    a, b = hgp.bounds.contracting_clients(constants, 20), hgp.bounds.convex_mean(constants, 20)
    c = hgp.bounds.residual_bounds(H, J, f_x, np.zeros_like(f_x))
    return {"A": a.per_client, "B": b.per_client, "c1": c.c1, "c3": c.c3, "c4": c.c4}


def of_certificate(certificate: Any) -> dict[str, Any]:
    out = {"bound": certificate.bound, "c1": certificate.c1, "alpha": certificate.alpha_bar}
    if certificate.decentralised_bound is not None:
        out |= {"decentralised": certificate.decentralised_bound, **of_traffic(certificate.traffic)}
    return out


@setting
def certificate_quadratic() -> dict[str, Any]:
    problem = quadratic()
    x, lam = solved(problem)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(network(), steps=10), eta=0.5, iterations=30)
    return of_certificate(hgp.certify(problem, x, lam, est, hgp.PushSum(network(), steps=20)))


@setting
def certificate_logistic() -> dict[str, Any]:
    problem = logistic()
    x, lam = solved(problem)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(network(3), steps=10), eta=0.5, iterations=30)
    return of_certificate(hgp.certify(problem, x, lam, est, hgp.PushSum(network(3), steps=20)))


@setting
def certificate_matrix_free() -> dict[str, Any]:
    problem = logistic()
    x, lam = solved(problem)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(network(3), steps=10), eta=0.5, iterations=30)
    return of_certificate(hgp.certify(problem, x, lam, est, matrix_free=True))


@setting
def plan() -> dict[str, Any]:
    problem = logistic()
    x, lam = solved(problem)
    outcome = hgp.plan(problem, x, lam, network(3), target=1e-4, methods=["Neumann", "Chebyshev", "Tracking"]).run()
    return {"value": outcome.value, "bound": outcome.bound, **of_traffic(outcome.traffic)}


@setting
def influence() -> dict[str, Any]:
    problem = instance_weights()
    ones = np.ones((problem.n_clients, problem.dim_lam))
    x = hgp.exact.inner_solution(problem, ones)
    result = hgp.influence(
        problem, x, ones, hgp.PushSum(network(3), steps=20), method=hgp.methods.Neumann(1.0), iterations=60
    )
    top = result.most_influential(5)
    retrained = hgp.attribution.retrain(problem, ones, top).actual
    return {"per_instance": result.per_instance, "top": np.array(top), "retrained": retrained}


# ---- outer loop, baselines


def of_path(path: Any) -> dict[str, Any]:
    return {"lam": path.lam, "outer_cost": path.outer_cost, **of_traffic(path.traffic)}


@setting
def outer_loop() -> dict[str, Any]:
    lam = point(logistic())[1]
    path = hgp.bilevel.optimise(
        logistic(),
        lam,
        network(3),
        outer_steps=3,
        train=hgp.training.SGP(40, 0.5, (0.6, 0.8)),
        estimate=hgp.bilevel.Estimator(5, 20, eta=0.5),
        update=hgp.bilevel.Adam(0.1, log=True),
    )
    return of_path(path)


@setting
def outer_loop_projected() -> dict[str, Any]:
    lam = point(logistic())[1]
    path = hgp.bilevel.optimise(
        logistic(), lam, network(3), outer_steps=3, train=hgp.training.SGP(40, 0.5, (0.6, 0.8)),
        estimate=hgp.bilevel.Estimator(5, 20, eta=0.5), update=hgp.bilevel.GradientDescent(0.5),
        project=hgp.bilevel.Box(0.01, 1.0),
    )  # fmt: skip
    return of_path(path)


def baseline(name: str, net: Any = None, **options: Any) -> dict[str, Any]:
    problem = quadratic()
    lam = point(problem)[1]
    net = net or hgp.networks.StaticUndirected(4, seed=1)
    path = getattr(hgp.baselines, name)(problem, lam, net, 6, **options)
    return {"lam": path.lam, **of_traffic(path.traffic)}


@setting
def dsoba() -> dict[str, Any]:
    return baseline("dsoba", lr=0.05, inner_lr=0.3, aux_lr=0.3)


@setting
def sparkle() -> dict[str, Any]:
    return baseline("sparkle", lr=0.05, inner_lr=0.3, aux_lr=0.3)


@setting
def fednest() -> dict[str, Any]:
    return baseline("fednest", hgp.networks.FullyConnected(4), lr=0.05, inner_lr=0.3, ell=1.5)


@setting
def other_baselines() -> dict[str, Any]:
    settings = {
        "ma_dsbo": dict(lr=0.05, inner_lr=0.3, higp_lr=0.3),
        "gbdsbo": dict(lr=0.05, inner_lr=0.3, mixing=0.5, ell=1.5),
        "dbo": dict(lr=0.05, inner_lr=0.3, jhip_lr=0.3),
        "mdbo": dict(lr=0.05, inner_lr=0.3, ell=1.5),
        "vrdbo": dict(lr=0.05, inner_lr=0.3, ell=1.5),
        "fab": dict(lr=0.05, inner_lr=0.3, penalty=5.0),
    }
    return {name: baseline(name, **options)["lam"] for name, options in settings.items()}


def main(arguments: list[str]) -> int:
    found = {name: numbers(name) for name in SETTINGS}
    if "--write" in arguments:
        STORE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    stored = json.loads(STORE.read_text())
    different = [f"{name}.{key}" for name, now in found.items() for key in now if now[key] != stored[name].get(key)]
    print("\n".join(different) or f"all numbers of {len(found)} settings are the same, bit for bit")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
