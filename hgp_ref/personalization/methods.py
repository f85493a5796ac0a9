"""Personalized federated learning: the baselines of the paper's table and a control, each with its settings.

A method is an object. `method.fit(task, net, trainer)` trains the clients' models and returns a `Personalized`. Below,
z is the common model, w_i the model of client i after its local steps, and N_i its number of training instances.

Some published programs differ from the published method; `as_published=True` does what the program does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from hgp_ref.backend import Array, array_namespace, host_float64
from hgp_ref.mixing import ExactAverage, Traffic
from hgp_ref.networks import Network, SelfLoops
from hgp_ref.personalization.task import Evaluator, Personalized, Task
from hgp_ref.personalization.trainers import AVERAGINGS, GradientPush, LocalSGD, Trainer
from hgp_ref.problems import NeuralInstanceWeights, PersonalBias, PersonalMixture, as_problem
from hgp_ref.problems.batches import Epochs
from hgp_ref.training.gradient_push import LocalGradient
from hgp_ref.training.rounds import LocalEpochs, open_weighted
from hgp_ref.validation import (
    Boolean,
    Count,
    Nonnegative,
    Optional,
    Positive,
    check_memory,
    checked,
    instance,
    wrong_type,
)


class PersonalizationMethod:
    """A method and its settings. Subclasses are dataclasses that implement `_fit`."""

    name: ClassVar[str]
    only_rounds: ClassVar[bool] = False  # whether the trainer must be LocalSGD

    def fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        """Train the models of all clients and evaluate them.

        Parameters
        ----------
        task : model, client data and evaluation interval.
        net : the network of the clients.
        trainer : `GradientPush(...)` or `LocalSGD(...)`. FedProx, pFedMe, FedEM and Clustered-FL need LocalSGD.

        Returns
        -------
        Accuracies of each client at each evaluation, and the traffic. DivergenceError if training diverges.
        """
        instance("task", task, Task)
        task.check_network(net)
        if not isinstance(trainer, LocalSGD if self.only_rounds else GradientPush | LocalSGD):
            expected = "LocalSGD(...)" if self.only_rounds else "GradientPush(...) or LocalSGD(...)"
            wrong_type("trainer", trainer, f"{expected} for {self.name}")
        return self._fit(task, net, trainer)

    def _fit(self, task: Task, net: Network, trainer: Any) -> Personalized:
        raise NotImplementedError

    def _common_model(self, task: Task, net: Network, trainer: Trainer, evaluator: Evaluator, lam: Array | None = None,
                      tune: Callable[[int, Array], Array] | None = None, traffic: Traffic | None = None
                      ) -> Personalized:  # fmt: skip
        """Train one model for all clients. It, or tune(k, x), is evaluated with λ = `lam`. `traffic` came before."""
        zeros = task.zeros()
        callback = evaluator.callback(zeros if lam is None else lam, tune)
        fit = trainer.fit(task.problem, zeros, net, x0=task.start(), seed=task.seed, callback=callback)
        total = fit.traffic if traffic is None else fit.traffic + traffic
        return evaluator.result(self.name, fit.x, lam, total, self._settings(net, trainer))

    def _settings(self, net: Network, trainer: Trainer) -> dict[str, Any]:
        settings: Any = self
        return {"net": net, "trainer": asdict(trainer), **asdict(settings)}


# One common model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FedAvg(PersonalizationMethod):
    """One model for all clients, min_x Σ_i g_i(x), by gradient push [1] or by FedAvg [2]. The reference to beat.

    [1] A. Nedić, A. Olshevsky. Stochastic gradient-push for strongly convex functions on time-varying directed graphs.
        IEEE TAC 2016.

    [2] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.FedAvg().fit(task, net, personal.LocalSGD(rounds=20, lr=0.1)).accuracy() > 0.8
    True
    """

    name = "SGP/FedAvg"

    def _fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        return self._common_model(task, net, trainer, Evaluator(task, task.problem, trainer.n_rounds))


@checked(mu=Nonnegative())
@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose local epochs stay near the common model [1]:  w_i ≈ argmin_w g_i(w) + (μ/2) ‖w − z‖².

    Local steps are proximal gradient steps without momentum, as in the published program.

    [1] T. Li et al. Federated optimization in heterogeneous networks. MLSys 2020.

    Parameters
    ----------
    mu : μ >= 0.
    """

    name = "FedProx"
    only_rounds = True
    mu: float = 0.01

    def _fit(self, task: Task, net: Network, trainer: LocalSGD) -> Personalized:  # type: ignore[override]
        return super()._fit(task, net, replace(trainer, momentum=0.0, prox=self.mu))


@dataclass(frozen=True)
class Local(FedAvg):
    """Every client trains alone, x_i = argmin g_i, with the trainer's steps and no message. `net` is not used."""

    name = "Local"

    def _fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        if isinstance(trainer, LocalSGD):
            trainer = replace(trainer, averaging="gossip", by_size=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*not jointly strongly connected", RuntimeWarning)
            return super()._fit(task, SelfLoops(task.n), trainer)


# One common model, adapted by each client -----------------------------------------------------------------------------


@checked(tuning_epochs=Count(1), tuning_lr=Optional(Positive()), as_published=Boolean())
@dataclass(frozen=True)
class FedAvgPlus(PersonalizationMethod):
    """One common model, which each client fine-tunes on its own data before use [1].

    Training continues from the common model z; only the evaluation sees the tuned copies. They have the learning rate
    of the round and fresh momentum. As published, they have the first round's learning rate, and their momentum
    carries over from one evaluation to the next.

    [1] Y. Jiang et al. Improving federated learning personalization via model agnostic meta learning. 2019.

    Parameters
    ----------
    tuning_epochs : local epochs of fine-tuning.
    tuning_lr : their learning rate, instead of the above.
    """

    name = "FedAvg+"
    tuning_epochs: int = 1
    tuning_lr: float | None = None
    as_published: bool = False

    def _fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        problem, lam, rates = as_problem(task.problem), task.zeros(), trainer.rates()
        if self.tuning_lr is not None or self.as_published:
            rates[:] = rates[0] if self.tuning_lr is None else self.tuning_lr
        batches = Epochs(problem, trainer.batch_size, task.seed, lam, first=2**40)  # orders that training does not use
        tuning = LocalEpochs(LocalGradient(problem, lam, trainer.momentum), rates, batches, self.tuning_epochs)

        def tune(k: int, z: Array) -> Array:
            if not self.as_published:
                tuning.last = None
            return z + tuning(k, z)

        evaluator = Evaluator(task, task.problem, trainer.n_rounds)
        return self._common_model(task, net, trainer, evaluator, tune=tune)


@dataclass(frozen=True)
class ClassPrior(PersonalizationMethod):
    """One common model whose logits each client shifts by its class frequencies. A control.

        prediction of client i:  z(x) + log p_i − log p̄,      p_i(c) = (N_ic + 1) / (N_i + C)

    This is Bayes' rule for a model that was trained on classes in the proportions p̄. p̄ is the mean of the p_i, weighted
    like the clients' costs in training. No gradient along λ is needed, so this shows what a personal layer could learn
    from class frequencies alone. Clients compute p̄ by one averaging of C numbers, plus one number with weights.
    """

    name = "class prior"
    averaging_steps = 20  # of the class frequencies

    def _fit(self, task: Task, net: Network, trainer: Trainer) -> Personalized:
        average = AVERAGINGS[trainer.averaging](net, self.averaging_steps)
        frequencies = task.as_array(class_frequencies(task.data.y, task.classes))  # (n, C)
        mixer = open_weighted(average, frequencies, 1, trainer.weights(as_problem(task.problem)))
        xp = array_namespace(frequencies)
        lam: Array = xp.log(frequencies) - xp.log(mixer.average(frequencies))
        mixer.mixer.record_traffic()
        shifted = task.to_backend(PersonalBias(task.model, *task.data.train, l2=task.l2))
        evaluator = Evaluator(task, shifted, trainer.n_rounds)
        return self._common_model(task, net, trainer, evaluator, lam, traffic=average.traffic)


def class_frequencies(labels: Iterable[np.ndarray], classes: int) -> np.ndarray:
    """p_i of every client, (n, C)."""
    counts = np.stack([np.bincount(y, minlength=classes) for y in labels]) + 1.0
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


# Moreau envelopes -----------------------------------------------------------------------------------------------------


@checked(mu=Positive(), inner_steps=Count(1), local_lr=Optional(Positive()), beta=Positive(), as_published=Boolean())
@dataclass(frozen=True)
class PFedMe(PersonalizationMethod):
    """pFedMe [1]: personal models θ_i are proximal points of a common w.

        min_w Σ_i F_i(w),    F_i(w) = min_θ g_i(θ) + (μ/2) ‖θ − w‖²,    ∂F_i(w) = μ (w − θ_i(w))

    In every round each client starts from w_i = w. For each mini-batch it takes `inner_steps` gradient steps on θ_i,
    then w_i ← w_i − ν μ (w_i − θ_i). The round ends with w ← (1 − β) w + β Σ_i (N_i/N) w_i. The θ_i are evaluated.

    The published program is another method. Each mini-batch is one step θ_i ← θ_i − a (∂g_i(θ_i) + μ (θ_i − w)), and
    the round ends with w = Σ_i (N_i/N) θ_i. The trainer's momentum is not used in either form.

    [1] C. T. Dinh, N. H. Tran, T. D. Nguyen. Personalized federated learning with Moreau envelopes. NeurIPS 2020.

    Parameters
    ----------
    mu : μ > 0.
    inner_steps : gradient steps on θ_i per mini-batch, with the trainer's learning rate.
    local_lr : ν; by default 1/μ, so that w_i ← θ_i.
    beta : β > 0.
    """

    name = "pFedMe"
    only_rounds = True
    mu: float = 15.0
    inner_steps: int = 5
    local_lr: float | None = None
    beta: float = 1.0
    as_published: bool = False

    def __post_init__(self) -> None:
        nu = 1 / self.mu if self.local_lr is None else self.local_lr
        object.__setattr__(self, "local_lr", nu)

    def _fit(self, task: Task, net: Network, trainer: LocalSGD) -> Personalized:
        problem, lam = as_problem(task.problem), task.zeros()
        evaluator = Evaluator(task, task.problem, trainer.n_rounds)
        gradient = LocalGradient(problem, lam, prox=self.mu)
        batches = Epochs(problem, trainer.batch_size, task.seed, lam)
        theta = w = task.start()
        mixer = open_weighted(trainer.average(net), w, trainer.n_rounds, trainer.weights(problem))
        with np.errstate(over="ignore", invalid="ignore"):  # the evaluator reports divergence
            for k, lr in enumerate(trainer.rates().tolist(), start=1):
                w_local = w
                for epoch in range((k - 1) * trainer.epochs, k * trainer.epochs):
                    for batch, active in batches.steps(epoch):
                        theta, w_local = self._step(gradient, batch, active, lr, theta, w_local)
                if self.as_published:
                    w = mixer.average(theta)
                else:
                    w = (1 - self.beta) * w + self.beta * mixer.average(w_local)
                if evaluator.scheduled(k):
                    evaluator.evaluate(k, theta, lam)
        settings = self._settings(net, replace(trainer, momentum=0.0))
        return evaluator.result(self.name, theta, None, mixer.mixer.record_traffic(), settings)

    def _step(
        self, gradient: LocalGradient, batch: Array | None, active: Array | None, lr: float, theta: Array, w: Array
    ) -> tuple[Array, Array]:
        """θ and w after one mini-batch of the clients that are still `active` in this epoch."""
        theta_new = theta
        for _ in range(1 if self.as_published else self.inner_steps):
            theta_new = theta_new - lr * gradient.direction(theta_new, batch, None, w)
        theta = _where(active, theta_new, theta)
        if self.as_published:
            return theta, w
        return theta, _where(active, w - self.local_lr * self.mu * (w - theta), w)  # type: ignore[operator]


def _where(active: Array | None, new: Array, old: Array) -> Array:
    return new if active is None else array_namespace(new).where(active, new, old)


# Mixtures -------------------------------------------------------------------------------------------------------------


@checked(components=Count(1))
@dataclass(frozen=True)
class FedEM(PersonalizationMethod):
    """FedEM [1]: each client's data come from a mixture of K common distributions, p_i = Σ_m π_im p_m.

    One round, for client i, instance k and component m with parameters θ_m:

        E    q_ik(m) ∝ π_im exp(−l(θ_m; x_ik, y_ik)),    π_im = (1/N_i) Σ_k q_ik(m)
        M    θ_im: local epochs on (1/N_i) Σ_k q_ik(m) l(θ_m; x_ik, y_ik) + (l2/2) ‖θ_m‖² from θ_m
             θ_m ← Σ_i (N_i/N) θ_im, or with the network's own weights (D-FedEM)

    A client predicts by Σ_m π_im softmax(z_m). Component m is initialised with seed + m.

    [1] O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. Federated multi-task learning under a mixture of
        distributions. NeurIPS 2021.

    Parameters
    ----------
    components : K.
    """

    name = "FedEM"
    only_rounds = True
    components: int = 3

    def _fit(self, task: Task, net: Network, trainer: LocalSGD) -> Personalized:
        K = self.components
        check_memory(f"components={K}", task.n * task.model.dim * K)
        mixture = task.to_backend(PersonalMixture(task.model, *task.data.train, components=K, l2=task.l2, outer_l2=0.0))
        weighted = as_problem(
            task.to_backend(NeuralInstanceWeights(task.model, *task.data.train, *task.data.train, task.l2))
        )
        evaluator = Evaluator(task, mixture, trainer.n_rounds)
        theta, log_pi = task.start(mixture.model), task.zeros(K)
        mixer = open_weighted(trainer.average(net), theta, trainer.n_rounds, trainer.weights(mixture))
        local = [_local_epochs(task, trainer, weighted, task.zeros(weighted.dim_lam)) for _ in range(K)]
        with np.errstate(over="ignore", invalid="ignore"):  # the evaluator reports divergence
            for k in range(1, trainer.n_rounds + 1):
                q, log_pi = expectation(mixture, theta, log_pi)
                theta = mixer.average(maximisation(local, k, mixture.model.split(theta), q))
                if evaluator.scheduled(k):
                    evaluator.evaluate(k, theta, log_pi)
        traffic = mixer.mixer.record_traffic()
        return evaluator.result(self.name, theta, log_pi, traffic, self._settings(net, trainer))


def expectation(mixture: PersonalMixture, theta: Array, log_pi: Array) -> tuple[Array, Array]:
    """q (n, N, K) and log π (n, K)."""
    xp = array_namespace(theta)
    q = mixture.responsibilities(theta, log_pi)
    pi = xp.sum(q, axis=1) / xp.sum(q, axis=(1, 2))[:, None]  # Σ_k Σ_m q = N_i: padding has q = 0
    return q, xp.log(xp.maximum(pi, xp.full_like(pi, xp.finfo(pi.dtype).smallest_normal)))


def maximisation(local: list[LocalEpochs], k: int, theta: list[Array], q: Array) -> Array:
    """θ_im of all components after the local epochs of round k, (n, K d)."""
    xp, trained = array_namespace(q), []
    for m, (epochs, start) in enumerate(zip(local, theta, strict=True)):
        epochs.gradient = replace(epochs.gradient, lam=xp.asarray(q[:, :, m], copy=True))
        trained.append(start + epochs(k, xp.asarray(start, copy=True)))
    return xp.concat(trained, axis=1)


def _local_epochs(task: Task, trainer: LocalSGD, problem: Any, lam: Array) -> LocalEpochs:
    """The local epochs of every round on `problem` at `lam`."""
    batches = Epochs(problem, trainer.batch_size, task.seed, lam)
    return LocalEpochs(LocalGradient(problem, lam, trainer.momentum), trainer.rates(), batches, trainer.epochs)


# Clusters of clients --------------------------------------------------------------------------------------------------

Clusters = list[np.ndarray]  # of client indices


@checked(tol_mean=Nonnegative(), tol_client=Nonnegative(), first_split=Count(1), as_published=Boolean())
@dataclass(frozen=True)
class ClusteredFL(PersonalizationMethod):
    """Clustered federated learning [1]: FedAvg inside clusters, which split if their clients' updates disagree.

    With Δ_i the update of client i in a round, a cluster c splits once its training has converged as a whole but not
    for its clients,

        ‖Σ_{i∈c} (N_i/N_c) Δ_i‖ < tol_mean      and      max_{i∈c} ‖Δ_i‖ > tol_client,

    into the two groups between which updates are least similar,

        c_1, c_2 = argmin_{c_1 ∪ c_2 = c} max_{i∈c_1, j∈c_2} α_ij,      α_ij = <Δ_i, Δ_j> / (‖Δ_i‖ ‖Δ_j‖).

    Single linkage solves this exactly: remove the weakest edge of the maximum spanning tree of α. Every bipartition
    cuts the tree at an edge at least as strong, and no edge between the two parts is stronger than the removed one.
    Clusters of one or two clients do not split. The trainer's averaging must be "exact", so all members of a cluster
    know its updates and each of them can take the decision of a server.

    The published program compares the largest coordinate of the updates with tol_client. It practically never exceeds
    it, so that no cluster splits. It also uses complete linkage.

    [1] F. Sattler, K.-R. Müller, W. Samek. Clustered federated learning: model-agnostic distributed multitask
        optimization under privacy constraints. IEEE TNNLS 2021.

    Parameters
    ----------
    tol_mean, tol_client : the defaults are the authors'.
    first_split : no cluster splits before this round.
    """

    name = "Clustered-FL"
    only_rounds = True
    tol_mean: float = 0.4
    tol_client: float = 1.6
    first_split: int = 20
    as_published: bool = False

    def _fit(self, task: Task, net: Network, trainer: LocalSGD) -> Personalized:
        if trainer.averaging != "exact":
            raise ValueError(f"trainer must have averaging='exact' for Clustered-FL, got {trainer.averaging!r}")
        trainer.average(net)  # raises unless the network is fully connected
        problem, lam = as_problem(task.problem), task.zeros()
        evaluator = Evaluator(task, task.problem, trainer.n_rounds)
        local = _local_epochs(task, trainer, problem, lam)
        z, clusters, notes, traffic = task.start(), [np.arange(task.n)], [], Traffic()
        with np.errstate(over="ignore", invalid="ignore"):  # the evaluator reports divergence
            for k in range(1, trainer.n_rounds + 1):
                updates = local(k, z)  # Δ
                means, sent = cluster_means(updates, clusters, trainer.weights(problem))
                traffic += sent
                z = z + means
                if k >= self.first_split:
                    clusters, splits = self.split(clusters, updates, means)
                    notes += [f"round {k}: {text}" for text in splits]
                if evaluator.scheduled(k):
                    evaluator.evaluate(k, z, lam)
        settings = {**self._settings(net, trainer), "clusters": [c.tolist() for c in clusters]}
        return evaluator.result(self.name, z, None, traffic, settings, tuple(notes))

    def split(self, clusters: Clusters, updates: Array, means: Array) -> tuple[Clusters, list[str]]:
        """The clusters after a round with these updates and cluster means, and a text for each split."""
        delta, mean, remaining, texts = host_float64(updates), host_float64(means), [], []
        for members in clusters:
            within = delta[members]
            largest = np.abs(within).max() if self.as_published else np.linalg.norm(within, axis=1).max()
            converged = np.linalg.norm(mean[members[0]]) < self.tol_mean
            if converged and largest > self.tol_client and len(members) > 2:
                pair = [members[side] for side in bipartition(within, "complete" if self.as_published else "single")]
                remaining += pair
                texts.append(" | ".join(str(side.tolist()) for side in pair))
            else:
                remaining.append(members)
        return remaining, texts


def cluster_means(u: Array, clusters: Clusters, weights: np.ndarray | None) -> tuple[Array, Traffic]:
    """For each client the mean of u over its cluster, (n, d), and the traffic inside the clusters."""
    xp, traffic, rows = array_namespace(u), Traffic(), dict[int, Array]()
    for members in clusters:
        within = xp.stack([u[int(i), :] for i in members])
        mixer = open_weighted(ExactAverage(len(members)), within, 1, None if weights is None else weights[members])
        mean = mixer.average(within)
        traffic += mixer.mixer.record_traffic()
        rows |= {int(i): mean[k, :] for k, i in enumerate(members)}
    return xp.stack([rows[i] for i in range(u.shape[0])]), traffic


def bipartition(updates: np.ndarray, method: str = "single") -> tuple[np.ndarray, np.ndarray]:
    """Two non-empty groups of rows: linkage with the distance 1 − cosine, its last merger undone."""
    unit = updates / np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), np.finfo(float).tiny)
    distance = np.clip(1.0 - unit @ unit.T, 0.0, 2.0)
    np.fill_diagonal(distance, 0.0)
    label = cut_tree(linkage(squareform(distance, checks=False), method), n_clusters=2)[:, 0]
    return np.flatnonzero(label == label[0]), np.flatnonzero(label != label[0])
