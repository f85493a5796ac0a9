"""One part of the personalization experiment: a network, a method, a seed; and what parts cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import personalization as personal
from hgp_ref.backend import get_backend
from hgp_ref.neural import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, personalization_cnn
from hgp_ref.personalization import Outer, Personalized, Push, Rounds, Task
from reporting.store import Arrays

Settings = Mapping[str, Any]


def run_part(settings: Settings, part: str, finished: Mapping[str, Arrays]) -> Arrays:
    """Accuracies of every client at every look, and what the method sent."""
    network, method, seed = part.split(".")
    result = run(settings, network, method, int(seed))
    refused = sum("refused" in note for note in result.notes)
    return {
        "turns": result.turns,
        "validation": result.validation,
        "test": result.test,
        "validation_sizes": result.sizes["validation"],
        "test_sizes": result.sizes["test"],
        "traffic": np.array([result.traffic.messages, result.traffic.floats, result.traffic.rounds], dtype=np.int64),
        "refused": np.array(refused),  # outer steps at which something was
        "growing": np.array(sum("not converged" in note for note in result.notes)),
        "splits": np.array(sum("|" in note for note in result.notes)),
    }


def run(settings: Settings, network: str, method: str, seed: int) -> Personalized:
    """The method called `method`, a key of `figures.personal`."""
    group = group_of(network)
    task, net = make_task(settings, seed, group), make_network(settings, network, seed)
    base = method.removesuffix("_published").removesuffix("_s1").removesuffix("_m0").removesuffix("_validation")
    base = {"class_prior": "fedavg", "fine_tuned": "fedavg"}.get(base, base)
    tuned = method if method in settings["rates"][group] else base
    recipe, given = make_recipe(settings, network, tuned), dict(settings.get(method, settings.get(base, {})))
    if method.endswith("_published"):
        given |= {"as_published": True}
    if base in ("hgp_pl", "hgp_mtl"):
        return _hyper(settings, task, net, recipe, method, base, group)
    if method == "fedem":
        given["components"] = settings["components"]
    functions: dict[str, Callable[..., Personalized]] = {
        "fine_tuned": personal.fedavg_plus,
        "class_prior": personal.class_prior,
    }
    return functions.get(method, getattr(personal, base))(task, net, recipe, **given)


def _hyper(settings: Settings, task: Task, net: Any, recipe: Any, method: str, base: str, group: str) -> Personalized:
    averaging = "push_sum" if group == "push" else recipe.averaging
    outer = Outer(
        outer_steps=settings["outer_steps"],
        rate=settings["outer_rate"][group][base],
        outer_l2=settings["outer_l2"][group][base],
        iterations=0 if method.endswith("_m0") else settings["iterations"],
        steps=1 if method.endswith("_s1") or averaging == "exact" else settings["consensus_steps"],
        eta=settings["eta"][group],
        batch_size=settings["batch"],
        averaging=averaging,
        outer_on="validation" if "_validation" in method else "train",
    )
    if base == "hgp_pl":
        return personal.hgp_pl(task, net, recipe, outer)
    return personal.hgp_mtl(task, net, recipe, outer, components=settings["components"])


def group_of(network: str) -> str:
    """Whether clients push gradients over changing graphs or go by rounds."""
    return "push" if network in ("RandU", "RandD") else "rounds"


def make_recipe(settings: Settings, network: str, method: str) -> Any:
    """How clients train over a network."""
    group = group_of(network)
    rate, batch = settings["rates"][group][method], settings["batch"]
    if group == "push":
        return Push(settings["steps"], rate, tuple(settings["push_milestones"]), batch_size=batch)
    exact = network == "FC"
    return Rounds(settings["rounds"], rate, tuple(settings["milestones"]), batch_size=batch, by_size=exact,
                  averaging="exact" if exact else "gossip")  # fmt: skip


def make_network(settings: Settings, network: str, seed: int) -> Any:
    """Who hears whom."""
    n = settings["n"]
    if network == "FC":
        return hgp.networks.FullyConnected(n)
    if network == "FixU":
        return hgp.networks.StaticUndirected(n, settings["p"], seed=seed, weights=settings["weights"])
    kind = {"RandU": hgp.networks.RandomUndirected, "RandD": hgp.networks.RandomDirected}[network]
    return kind(n, settings["low"], settings["high"], seed=seed)


def make_task(settings: Settings, seed: int, group: str = "push") -> Task:
    """Model and data of a seed, in the library that computes."""
    names = ("data", "images", "side", "n", "alpha", "dtype")
    data = _clients(*(settings[name] for name in names), json.dumps(settings["clusters"]), seed)
    like = None
    if settings["backend"] != "numpy":
        like = get_backend(settings["backend"]).asarray(np.zeros(1), dtype=settings["dtype"])
    model = make_model(settings["side"], data.n_classes)
    return Task(model, data, settings["l2"], seed, settings["look"][group], like)


@lru_cache(maxsize=2)
def _clients(kind: str, number: int, side: int, n: int, alpha: float, dtype: str, clusters: str, seed: int) -> Any:
    images = hgp.data.digit_images() if kind == "digits" else hgp.data.emnist_byclass()
    images = images.sample(number, seed=seed)
    if images.images.shape[1] != side:
        images = images.shrunk(side)
    given = hgp.data.draw_clusters(3, seed=seed) if clusters == "null" else json.loads(clusters)
    return images.clients(n, alpha, seed=seed, dtype=dtype).clustered(*given, seed=seed)


def make_model(side: int, classes: int) -> Sequential:
    """The paper's network at 28 × 28, smaller ones of its kind below."""
    if side == 28:
        return personalization_cnn(classes)
    if side == 14:
        return Sequential((1, 14, 14), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3), ReLU(), MaxPool2d(2),
                          Flatten(), Linear(64, 128), ReLU(), Linear(128, classes))  # fmt: skip
    return Sequential((1, 8, 8), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(72, classes))


def cost_in_words(settings: Settings, parts: Sequence[str]) -> str:
    """CPU seconds that `parts` will take, from a few timed gradients."""
    task = make_task(settings, int(parts[0].split(".")[2]))
    step, epoch = _seconds(task, settings["batch"])
    total = sum(_cost(settings, part, step, epoch) for part in parts)
    return (
        f"{task.data.counts.sum()} training images, {task.model.dim} parameters: a step of all clients takes "
        f"{step:.2g} s, an epoch {epoch:.2g} s; {len(parts)} parts to compute, about {total:.0f} CPU seconds "
        f"= {total / 3600:.1f} h; each part is kept when done"
    )


def _cost(settings: Settings, part: str, step: float, epoch: float) -> float:
    """CPU seconds of one part: trainings, and for HGP products of about two gradients."""
    network, method, _ = part.split(".")
    once = settings["steps"] * step if group_of(network) == "push" else settings["rounds"] * epoch
    once *= settings["components"] if method in ("hgp_mtl", "fedem") else 1
    once *= 5 if method == "pfedme" else 1
    if not method.startswith("hgp"):
        return once
    return (settings["outer_steps"] + 1) * once + settings["outer_steps"] * settings["iterations"] * 2 * step


def _seconds(task: Task, batch: int) -> tuple[float, float]:
    """CPU seconds of a step of all clients on `batch` instances, and of an epoch."""
    from hgp_ref.problems import as_problem, sample_batches
    from hgp_ref.problems.epochs import Epochs

    problem, x, lam = as_problem(task.plain), task.start(), task.zeros()
    one = problem.prepare_batches(sample_batches(problem.counts, batch, 0, 0, 1)[:, None], like=lam)[0, 0]
    problem.inner_grad(x, lam, batch=one)
    start = time.process_time()
    problem.inner_grad(x, lam, batch=one)
    middle = time.process_time()
    for each, _ in Epochs(problem, batch, 0, lam).steps(0):
        problem.inner_grad(x, lam, batch=each)
    return middle - start, time.process_time() - middle
