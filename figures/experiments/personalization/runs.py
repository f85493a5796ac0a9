"""One part of the personalization experiment: a network, a method, a seed; and what parts cost."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import personalization as personal
from hgp_ref.backend import get_backend
from hgp_ref.data import Clients
from hgp_ref.neural import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, personalization_cnn
from hgp_ref.personalization import Outer, Personalized, Push, Rounds, Task
from reporting.store import Arrays

Settings = Mapping[str, Any]
Whole = tuple[Settings, Sequence[str]]  # settings of all groups together, and all parts
Rates = Mapping[str, Mapping[str, float]]
OTHER_RATES = ("paper", "chosen")  # rows whose names end so have the rate of that name, not the method's


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
    """The method called `method`, a key of `settings.ROWS`."""
    group = group_of(network)
    task, net = make_task(settings, seed, group), make_network(settings, network, seed)
    if method.startswith("wrong_"):
        return with_wrong_labels(settings, task, net, method.removeprefix("wrong_"))
    tuned, method = rate_of(settings, network, method), split(method)[0]
    base = base_of(method)
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


def base_of(method: str) -> str:
    """The method whose name in `personalization`, and whose settings, a row has."""
    method = split(method)[0]
    for ending in ("_published", "_s1", "_m0", "_validation"):
        method = method.removesuffix(ending)
    shared = ("class_prior", "fine_tuned")
    return "fedavg" if method in shared or method.startswith("wrong_") else method


def rate_of(settings: Settings, network: str, method: str) -> str:
    """Whose rate a row has: one of OTHER_RATES where its name ends so, else its own where there is one."""
    plain, other = split(method)
    return other or (plain if plain in settings["rates"][group_of(network)] else base_of(plain))


def split(method: str) -> tuple[str, str]:
    """A row's name without the rate it ends with, and that rate, "" where it has the method's."""
    plain, _, last = method.rpartition("_")
    return (plain, last) if last in OTHER_RATES else (method, "")


def has_rate(network: str, method: str, rates: Rates | None) -> bool:
    """Whether a size with these rates has a row: not where it ends with one of OTHER_RATES that is not among them."""
    other = split(method)[1]
    return rates is None or not other or other in rates[group_of(network)]


def with_wrong_labels(settings: Settings, task: Task, net: Any, method: str) -> Personalized:
    """A method on training data some of whose labels are wrong; `known`: on those whose labels are right."""
    data, wrong = relabelled(task.data, settings["wrong"]["share"], task.seed)
    recipe = make_recipe(settings, "RandD", "fedavg")
    if method == "known":
        data = replace(data, X=[X[~bad] for X, bad in zip(data.X, wrong, strict=True)],
                       y=[y[~bad] for y, bad in zip(data.y, wrong, strict=True)])  # fmt: skip
    task = replace(task, data=data)
    if method == "fine_tuned":
        return personal.fedavg_plus(task, net, recipe, **settings["fine_tuned"])
    if method in ("class_prior", "fedavg", "known"):
        return (personal.class_prior if method == "class_prior" else personal.fedavg)(task, net, recipe)
    outer = Outer(
        outer_steps=settings["outer_steps"],
        rate=settings["wrong"]["rate"],
        iterations=0 if method.endswith("_m0") else settings["iterations"],
        steps=settings["consensus_steps"],
        eta=settings["eta"]["push"],
        batch_size=None,
        outer_on="validation",
    )
    return personal.hgp_weights(task, net, recipe, outer)


def relabelled(data: Clients, share: float, seed: int) -> tuple[Clients, list[np.ndarray]]:
    """A share of the training labels replaced by another class, and which ones."""
    rng = np.random.default_rng([seed, 7])
    wrong = [rng.random(len(y)) < share for y in data.y]
    shift = [rng.integers(1, data.n_classes, len(y)) for y in data.y]
    y = [np.where(bad, (old + by) % data.n_classes, old).astype(old.dtype)
         for old, bad, by in zip(data.y, wrong, shift, strict=True)]  # fmt: skip
    return replace(data, y=y), wrong


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
        as_published=not settings.get("of_what_is_trained", True),
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
    held = tuple(settings.get("held", (0.2, 0.2)))  # shares for validation and tests
    data = _clients(*(settings[name] for name in names), json.dumps(settings["clusters"]), seed, held)
    like = None
    if settings["backend"] != "numpy":
        like = get_backend(settings["backend"]).asarray(np.zeros(1), dtype=settings["dtype"])
    model = make_model(settings["side"], data.n_classes)
    return Task(model, data, settings["l2"], seed, settings["look"][group], like)


@lru_cache(maxsize=2)
def _clients(kind: str, number: int, side: int, n: int, alpha: float, dtype: str, clusters: str, seed: int,
             held: tuple[float, float]) -> Any:  # fmt: skip
    images = hgp.data.digit_images() if kind == "digits" else hgp.data.emnist_byclass()
    images = images.sample(number, seed=seed)
    if images.images.shape[1] != side:
        images = images.shrunk(side)
    given = hgp.data.draw_clusters(3, seed=seed) if clusters == "null" else json.loads(clusters)
    parts = images.clients(n, alpha, seed=seed, dtype=dtype, validation=held[0], test=held[1])
    return parts.clustered(*given, seed=seed)


def make_model(side: int, classes: int) -> Sequential:
    """The paper's network at 28 × 28, smaller ones of its kind below."""
    if side == 28:
        return personalization_cnn(classes)
    if side == 14:
        return Sequential((1, 14, 14), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3), ReLU(), MaxPool2d(2),
                          Flatten(), Linear(64, 128), ReLU(), Linear(128, classes))  # fmt: skip
    return Sequential((1, 8, 8), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(72, classes))


def cost_in_words(settings: Settings, parts: Sequence[str], whole: Whole | None = None) -> str:
    """CPU seconds that `parts` will take, from a step of SGP and an iteration of HGP that are timed now."""
    seed = int(parts[0].split(".")[2])
    task, net = make_task(settings, seed), make_network(settings, "RandD", seed)
    price = timed(settings, task, net)
    total = sum(_cost(settings, part, price) for part in parts)
    hours = sum(_cost(whole[0], part, price) for part in whole[1]) / 3600 if whole else 0.0
    besides = f" ({len(whole[1])} parts, {hours:.1f} h, with all groups)" if whole else ""
    return (
        f"{task.data.counts.sum()} training images, {task.model.dim} parameters: a step of all clients takes "
        f"{price.step:.2g} CPU seconds, an iteration of HGP {price.iteration:.2g}; {len(parts)} parts to compute, "
        f"about {total:.0f} CPU seconds = {total / 3600:.1f} h{besides}; each part is kept when done"
    )


@dataclass(frozen=True)
class Price:
    """CPU seconds of a step of SGP, of an epoch, of an iteration of HGP, and of what an estimate takes besides."""

    step: float
    epoch: float
    iteration: float
    besides: float


Mark = Callable[[int, object], None]
FEW, MANY = 3, 21  # turns that are timed together, and where one takes no time
COMPILING = 2.0  # seconds: what takes less is done twice, since compiling may be a part of it


class _Enough(Exception):
    """Leaves a training or an estimate after the turns that are timed.

    Their ends take gradients on all data, or look at the spectrum where terms have not shrunk: no part of a turn.
    """


def _each(work: Callable[[int, Mark], object]) -> tuple[float, float]:
    """CPU seconds of a turn, and of what comes before the first."""

    def seconds(turns: int) -> tuple[float, float]:
        times = [time.process_time()]

        def mark(_: int, __: object) -> None:
            times.append(time.process_time())
            if len(times) > turns:
                raise _Enough

        with suppress(_Enough):
            work(turns, mark)
        turn = (times[-1] - times[1]) / (turns - 1)
        return turn, max(times[1] - times[0] - turn, 0.0)

    turn, before = seconds(FEW)
    return seconds(MANY) if FEW * turn + before < COMPILING else (turn, before)


def timed(settings: Settings, task: Task, net: Any) -> Price:
    """What one of each takes, at the size of the experiment."""
    lam, x, batch = task.zeros(task.classes), task.start(), settings["batch"]
    problem = task.moved(hgp.problems.PersonalMask(task.model, *task.data.train, l2=task.l2))
    asked = {"eta": 1e-6, "batches": hgp.MiniBatches(batch, share=True)}
    avg = hgp.PushSum(net, settings["consensus_steps"])

    def train(steps: int, mark: Mark) -> object:
        return hgp.train(
            problem,
            lam,
            net,
            hgp.training.SGP(steps=steps, lr=1e-6, variant="nedic", milestones=(0.6, 0.8), batches=batch),
            x0=x,
            callback=mark,
        )

    def estimate(terms: int, mark: Mark) -> object:
        return hgp.hypergradient(problem, x, lam, avg, iterations=terms, callback=mark, **asked)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is to converge
        (step, _), (iteration, besides) = _each(train), _each(estimate)
    epoch = step * task.data.counts.sum() / (batch * task.n)
    return Price(step, epoch, iteration, besides)


def _cost(settings: Settings, part: str, price: Price) -> float:
    """CPU seconds of one part: trainings, and hyper-gradients where there are any."""
    network, method, _ = part.split(".")
    method = split(method)[0]
    once = settings["steps"] * price.step if group_of(network) == "push" else settings["rounds"] * price.epoch
    many = settings["components"] if method in ("hgp_mtl", "fedem") else 1
    once *= many * (5 if method == "pfedme" else 1)
    if not method.startswith(("hgp", "wrong_weights")):
        return once
    terms = 0 if method.endswith("_m0") else settings["iterations"]
    return (settings["outer_steps"] + 1) * once + settings["outer_steps"] * many * (
        price.besides + terms * price.iteration
    )
