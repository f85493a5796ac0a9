"""One part of the personalization experiment (a network, a row of the table, a seed), and an estimate of its cost."""

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
from hgp_ref.personalization import GradientPush, LocalSGD, OuterLoop, PersonalizationMethod, Personalized, Task
from reporting.store import Arrays

Settings = Mapping[str, Any]
Whole = tuple[Settings, Sequence[str]]  # settings of all groups together, and all parts
Rates = Mapping[str, Mapping[str, float]]
OTHER_RATES = ("paper", "chosen")  # a row whose name ends with one of these has that rate instead of its method's


def run_part(settings: Settings, part: str, finished: Mapping[str, Arrays]) -> Arrays:
    """Accuracies of every client at each evaluation, and the traffic."""
    network, row, seed = part.split(".")
    result = run(settings, network, row, int(seed))
    traffic, notes = result.traffic, result.notes
    return {
        "turns": result.evaluated_at,
        "validation": result.validation,
        "test": result.test,
        "validation_sizes": result.sizes["validation"],
        "test_sizes": result.sizes["test"],
        "traffic": np.array([traffic.messages, traffic.floats, traffic.rounds], dtype=np.int64),
        "refused": np.array(sum("refused" in note for note in notes)),  # outer steps with a refusal
        "growing": np.array(sum("not converged" in note for note in notes)),
        "splits": np.array(sum("|" in note for note in notes)),
    }


def run(settings: Settings, network: str, row: str, seed: int) -> Personalized:
    """The result of `row`, a key of `settings.ROWS`."""
    group = group_of(network)
    task, net = make_task(settings, seed, group), make_network(settings, network, seed)
    if row.startswith("wrong_"):
        return run_with_wrong_labels(settings, task, net, row.removeprefix("wrong_"))
    trainer = make_trainer(settings, network, rate_of(settings, network, row))
    return make_method(settings, split(row)[0], group, trainer.averaging).fit(task, net, trainer)


def make_method(settings: Settings, row: str, group: str, averaging: str) -> PersonalizationMethod:
    """The method of a row with its settings."""
    base = base_of(row)
    if base in ("hgp_pl", "hgp_mtl"):
        outer = OuterLoop(
            outer_steps=settings["outer_steps"],
            lr=settings["outer_rate"][group][base],
            outer_l2=settings["outer_l2"][group][base],
            iterations=0 if row.endswith("_m0") else settings["iterations"],
            averaging_steps=1 if row.endswith("_s1") or averaging == "exact" else settings["consensus_steps"],
            eta=settings["eta"][group],
            batch_size=settings["batch"],
            averaging=averaging,
            outer_data="validation" if "_validation" in row else "train",
            as_published=not settings.get("of_what_is_trained", True),
        )
        if base == "hgp_pl":
            return personal.HGPPersonalLayer(outer)
        return personal.HGPMultiTask(outer, components=settings["components"])
    options, published = settings.get(row, settings.get(base, {})), row.endswith("_published")
    match row.removesuffix("_published"):
        case "local":
            return personal.Local()
        case "fedavg":
            return personal.FedAvg()
        case "fedprox":
            return personal.FedProx(**options)
        case "fedavg_plus":
            return personal.FedAvgPlus(as_published=published)
        case "fine_tuned":
            return fine_tuning(settings)
        case "class_prior":
            return personal.ClassPrior()
        case "clustered_fl":
            return personal.ClusteredFL(as_published=published, **options)
        case "pfedme":
            return personal.PFedMe(as_published=published, **options)
        case "fedem":
            return personal.FedEM(settings["components"])
    raise KeyError(row)


def fine_tuning(settings: Settings) -> PersonalizationMethod:
    """FedAvg+ with the epochs and the rate of the control."""
    return personal.FedAvgPlus(settings["fine_tuned"]["epochs"], settings["fine_tuned"]["tuning_rate"])


def base_of(row: str) -> str:
    """The method that a row is a variant of, or that trains its common model."""
    row = split(row)[0]
    for ending in ("_published", "_s1", "_m0", "_validation"):
        row = row.removesuffix(ending)
    return "fedavg" if row in ("class_prior", "fine_tuned") or row.startswith("wrong_") else row


def rate_of(settings: Settings, network: str, row: str) -> str:
    """The name of a row's rate: one of OTHER_RATES, its own name, or that of the method it is a variant of."""
    plain, other = split(row)
    return other or (plain if plain in settings["rates"][group_of(network)] else base_of(plain))


def split(row: str) -> tuple[str, str]:
    """A row's name without one of OTHER_RATES at its end, and that rate, or ""."""
    plain, _, last = row.rpartition("_")
    return (plain, last) if last in OTHER_RATES else (row, "")


def has_rate(network: str, row: str, rates: Rates | None) -> bool:
    """Whether a size with these rates has the row: not if its name ends with a rate that is not among them."""
    other = split(row)[1]
    return rates is None or not other or other in rates[group_of(network)]


def run_with_wrong_labels(settings: Settings, task: Task, net: Any, row: str) -> Personalized:
    """A method on training data with wrong labels; `known` trains on the instances whose labels are right."""
    data, wrong = relabelled(task.data, settings["wrong"]["share"], task.seed)
    if row == "known":
        data = replace(data, X=[X[~bad] for X, bad in zip(data.X, wrong, strict=True)],
                       y=[y[~bad] for y, bad in zip(data.y, wrong, strict=True)])  # fmt: skip
    method: PersonalizationMethod
    if row == "fine_tuned":
        method = fine_tuning(settings)
    elif row == "class_prior":
        method = personal.ClassPrior()
    elif row in ("fedavg", "known"):
        method = personal.FedAvg()
    else:
        outer = OuterLoop(
            outer_steps=settings["outer_steps"],
            lr=settings["wrong"]["rate"],
            iterations=0 if row.endswith("_m0") else settings["iterations"],
            averaging_steps=settings["consensus_steps"],
            eta=settings["eta"]["push"],
            batch_size=None,
            outer_data="validation",
        )
        method = personal.HGPInstanceWeights(outer)
    return method.fit(replace(task, data=data), net, make_trainer(settings, "RandD", "fedavg"))


def relabelled(data: Clients, share: float, seed: int) -> tuple[Clients, list[np.ndarray]]:
    """The data with a share of the training labels replaced by another class, and a mask of these."""
    rng = np.random.default_rng([seed, 7])
    wrong = [rng.random(len(y)) < share for y in data.y]
    shift = [rng.integers(1, data.n_classes, len(y)) for y in data.y]
    y = [np.where(bad, (old + by) % data.n_classes, old).astype(old.dtype)
         for old, bad, by in zip(data.y, wrong, shift, strict=True)]  # fmt: skip
    return replace(data, y=y), wrong


def group_of(network: str) -> str:
    """ "push" for gradient push over time-varying graphs, "rounds" for local SGD."""
    return "push" if network in ("RandU", "RandD") else "rounds"


def make_trainer(settings: Settings, network: str, rate_name: str) -> GradientPush | LocalSGD:
    """The trainer over a network, with the learning rate called `rate_name`."""
    group = group_of(network)
    rate, batch = settings["rates"][group][rate_name], settings["batch"]
    if group == "push":
        return GradientPush(settings["steps"], rate, tuple(settings["push_milestones"]), batch_size=batch)
    exact = network == "FC"
    return LocalSGD(settings["rounds"], rate, tuple(settings["milestones"]), batch_size=batch, by_size=exact,
                  averaging="exact" if exact else "gossip")  # fmt: skip


def make_network(settings: Settings, network: str, seed: int) -> Any:
    """The network called `network`."""
    n = settings["n"]
    if network == "FC":
        return hgp.networks.FullyConnected(n)
    if network == "FixU":
        return hgp.networks.StaticUndirected(n, settings["p"], seed=seed, weights=settings["weights"])
    kind = {"RandU": hgp.networks.RandomUndirected, "RandD": hgp.networks.RandomDirected}[network]
    return kind(n, settings["low"], settings["high"], seed=seed)


def make_task(settings: Settings, seed: int, group: str = "push") -> Task:
    """Model and data of a seed, on the backend of the settings."""
    names = ("data", "images", "side", "n", "alpha", "dtype")
    shares = tuple(settings.get("held", (0.2, 0.2)))  # of validation and test data
    data = _clients(*(settings[name] for name in names), json.dumps(settings["clusters"]), seed, shares)
    like = None
    if settings["backend"] != "numpy":
        like = get_backend(settings["backend"]).asarray(np.zeros(1), dtype=settings["dtype"])
    model = make_model(settings["side"], data.n_classes)
    return Task(model, data, settings["l2"], seed, settings["look"][group], like)


@lru_cache(maxsize=2)
def _clients(kind: str, number: int, side: int, n: int, alpha: float, dtype: str, clusters: str, seed: int,
             shares: tuple[float, float]) -> Any:  # fmt: skip
    images = hgp.data.digit_images() if kind == "digits" else hgp.data.emnist_byclass()
    images = images.sample(number, seed=seed)
    if images.images.shape[1] != side:
        images = images.shrunk(side)
    means, stds = hgp.data.draw_clusters(3, seed=seed) if clusters == "null" else json.loads(clusters)
    clients = images.clients(n, alpha, seed=seed, dtype=dtype, validation=shares[0], test=shares[1])
    return clients.clustered(means, stds, seed=seed)


def make_model(side: int, classes: int) -> Sequential:
    """The paper's network at 28 × 28, smaller ones of its kind below."""
    if side == 28:
        return personalization_cnn(classes)
    if side == 14:
        return Sequential((1, 14, 14), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3), ReLU(), MaxPool2d(2),
                          Flatten(), Linear(64, 128), ReLU(), Linear(128, classes))  # fmt: skip
    return Sequential((1, 8, 8), Conv2d(1, 8, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(72, classes))


def cost_text(settings: Settings, parts: Sequence[str], whole: Whole | None = None) -> str:
    """The CPU seconds that `parts` will take, as a text. A step of SGP and an iteration of HGP are timed for it."""
    seed = int(parts[0].split(".")[2])
    task, net = make_task(settings, seed), make_network(settings, "RandD", seed)
    price = timed(settings, task, net)
    total = sum(_cost(settings, part, price) for part in parts)
    hours = sum(_cost(whole[0], part, price) for part in whole[1]) / 3600 if whole else 0.0
    all_groups = f" ({len(whole[1])} parts, {hours:.1f} h, with all groups)" if whole else ""
    return (
        f"{task.data.counts.sum()} training images, {task.model.dim} parameters: a step of all clients takes "
        f"{price.step:.2g} CPU seconds, an iteration of HGP {price.iteration:.2g}; {len(parts)} parts to compute, "
        f"about {total:.0f} CPU seconds = {total / 3600:.1f} h{all_groups}; each part is stored when done"
    )


@dataclass(frozen=True)
class Price:
    """CPU seconds of a step of SGP, an epoch, an iteration of HGP, and the start of an estimate."""

    step: float
    epoch: float
    iteration: float
    setup: float


Mark = Callable[[int, object], None]
FEW, MANY = 3, 21  # iterations that are timed; many if they are fast
COMPILING = 2.0  # seconds; anything faster is timed twice, because the first time may include compilation


class _Enough(Exception):
    """Ends a run after the iterations that are timed.

    A complete run would end with full-batch gradients, or with the spectrum if its terms have not shrunk.
    """


def _seconds_per_iteration(work: Callable[[int, Mark], object]) -> tuple[float, float]:
    """CPU seconds of an iteration, and of the setup before the first."""

    def measure(iterations: int) -> tuple[float, float]:
        times = [time.process_time()]

        def mark(_: int, __: object) -> None:
            times.append(time.process_time())
            if len(times) > iterations:
                raise _Enough

        with suppress(_Enough):
            work(iterations, mark)
        iteration = (times[-1] - times[1]) / (iterations - 1)
        return iteration, max(times[1] - times[0] - iteration, 0.0)

    iteration, setup = measure(FEW)
    return measure(MANY) if FEW * iteration + setup < COMPILING else (iteration, setup)


def timed(settings: Settings, task: Task, net: Any) -> Price:
    """The times of a step, an epoch and an iteration, measured at the size of the experiment."""
    lam, x, batch = task.zeros(task.classes), task.start(), settings["batch"]
    problem = task.to_backend(hgp.problems.PersonalMask(task.model, *task.data.train, l2=task.l2))
    batches = hgp.MiniBatches(batch, share=True)
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
        return hgp.hypergradient(problem, x, lam, avg, eta=1e-6, iterations=terms, batches=batches, callback=mark)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing converges here
        (step, _), (iteration, setup) = _seconds_per_iteration(train), _seconds_per_iteration(estimate)
    epoch = step * task.data.counts.sum() / (batch * task.n)
    return Price(step, epoch, iteration, setup)


def _cost(settings: Settings, part: str, price: Price) -> float:
    """CPU seconds of one part: its trainings and its hyper-gradients."""
    network, row, _ = part.split(".")
    row = split(row)[0]
    training = settings["steps"] * price.step if group_of(network) == "push" else settings["rounds"] * price.epoch
    networks = settings["components"] if row in ("hgp_mtl", "fedem") else 1
    training *= networks * (5 if row == "pfedme" else 1)
    if not row.startswith(("hgp", "wrong_weights")):
        return training
    iterations, outer_steps = 0 if row.endswith("_m0") else settings["iterations"], settings["outer_steps"]
    estimate = networks * (price.setup + iterations * price.iteration)
    return (outer_steps + 1) * training + outer_steps * estimate
