"""Neural clients: costs that are means over instances k of functions of a network's outputs z and of λ_i,

    g_i(x, λ_i) = Σ_k mean_ik l(z_ik(x), λ_i) + (l2/2) |x|²
    f_i(x, λ_i) = Σ_k mean'_ik l'(z'_ik(x), λ_i) + (outer_l2/2) |λ_i|².

Networks are those of `hgp_ref.neural`; l and l' are `NeuralCost`s. With J the Jacobian of all outputs along x,
c = mean ∂l/∂z, ż = J u and ċ = mean (∂²l/∂z²) ż:

    ∂_x g = Jᵀ c + l2 x,     ∂²_x g u = (Jᵀ c)˙ + l2 u,     ∂²_{xλ} g u = Σ_k mean_k (∂²l_k/∂λ∂z) ż_k.

The last two share ż: `products(u)` computes it once. f uses the instances X_val, y_val, by default those of training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import _numba, validation
from hgp_ref.backend import Array, Namespace, array_namespace, device, host_dtype, is_numpy
from hgp_ref.neural import AvgPool2d, Conv2d, Ensemble, Flatten, Linear, MaxPool2d, ReLU, Sequential, Softplus, Tanh
from hgp_ref.neural.models import EnsembleTape, Tape
from hgp_ref.problems.base import Portable, array_mover, check_argument, check_batch, client_indices, take_rows
from hgp_ref.problems.instances import Instances, View, digest, read_instances
from hgp_ref.problems.losses import SoftmaxLoss
from hgp_ref.problems.neural_costs import NeuralCost, ask, ask_scores
from hgp_ref.problems.running_errors import Sized, SizedNamespace, Unit
from hgp_ref.problems.term_sizes import TermSizes

CHUNK_BYTES = 2**28  # activations of the clients that are worked on at once
KEEP_BYTES = 2**31  # activations that a linearization keeps

Model = Sequential | Ensemble


class NeuralProblem(Portable):
    """Clients that train `model` under `cost`.

    model: a `Sequential` (or `Ensemble`) whose outputs are logits of C classes. cost, outer: l and l' (the same if
    None). X: (n, N, *model.input_shape) or a list of n arrays (N_i, ...); y: classes 0 .. C-1, (n, N) or a list.
    `broadcasts` is False: many runs are many calls.

    Parameters
    ----------
    model : Sequential or Ensemble
        Whose outputs are logits.
    cost : NeuralCost
        How λ acts on the loss.
    X, y, X_val, y_val : arrays or lists
        Data of the clients.
    outer : NeuralCost, optional
        The same for f_i; `cost` by default.
    l2, outer_l2 : float
        Rates of the L2 terms on x and on λ.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> problem = hgp.problems.PersonalMask(model, X, y)
    >>> isinstance(problem, hgp.problems.NeuralProblem), problem.dim_x
    (True, 15)
    """

    broadcasts = False

    def __init__(self, model: Model, cost: NeuralCost, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *,
                 outer: NeuralCost | None = None, l2: float = 0.0, outer_l2: float = 0.0) -> None:  # fmt: skip
        if (X_val is None) != (y_val is None):
            raise ValueError(
                f"X_val and y_val must be passed together, got {'X_val' if X_val is None else 'y_val'}=None"
            )
        if not isinstance(model, Sequential | Ensemble):
            raise TypeError(f"model must be a Sequential or an Ensemble, got {type(model).__name__}")
        validation.instance("cost", cost, NeuralCost)
        if outer is not None:
            validation.instance("outer", outer, NeuralCost)
        self.model, self.cost, self.outer = model, cost, cost if outer is None else outer
        self.l2, self.outer_l2 = validation.nonnegative("l2", l2), validation.nonnegative("outer_l2", outer_l2)
        self._train = read_images(model, X, y, cost.loss, ("X", "y"))
        self._val = self._train if X_val is None else read_images(model, X_val, y_val, cost.loss, ("X_val", "y_val"))
        train, val = self._train.all.features, self._val.all.features
        self._xp = validation.same_kind(X=train, X_val=val)
        if train.shape[0] != val.shape[0]:
            raise ValueError(f"X_val must have {train.shape[0]} clients as X, got {val.shape[0]}")
        self.n_clients, self.dim_x, self.dim_lam = int(train.shape[0]), model.dim, cost.dim_lam
        self.clients = np.arange(self.n_clients)  # their numbers in the problem that this one is a restriction of

    def __repr__(self) -> str:
        sizes = f"n_clients={self.n_clients}, dim_x={self.dim_x}, dim_lam={self.dim_lam}"
        return f"<{type(self).__name__} of {self.model!r}: {sizes}>"

    def _like(self) -> Array:
        return self._train.all.features

    @property
    def counts(self) -> np.ndarray:
        """Training instances of each client, on the host.  # (n,)"""
        return self._train.counts.copy()

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        parts = self._enter(x, lam, batch)
        return self._mean_cost(self.cost, parts, x, lam) + 0.5 * self.l2 * self._xp.vecdot(x, x)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        self._enter(x, lam)
        total = self._mean_cost(self.outer, self._outer_parts(), x, lam)
        return total + 0.5 * self.outer_l2 * self._xp.vecdot(lam, lam)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        parts = self._enter(x, lam, batch)
        rows = Rows(tuple(x.shape), x)

        def work(k: int, part: Part) -> None:
            own, out = x[part.clients, :], rows.out(part.clients)
            tape = self.model.forward(own, part.images)
            grad = tape.backward(self.weighted_slope(self.cost, tape.output, lam[part.clients, :], part.view), out)
            rows.put(part.clients, add_scaled(grad, self.l2, own))

        parts.each(work)
        return rows.array(self._xp)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        self._enter(x, lam)
        along_x, along_lam = Rows(tuple(x.shape), x), Rows(tuple(lam.shape), lam)

        def work(k: int, part: Part) -> None:
            at = part.clients
            tape, own = self.model.forward(x[at, :], part.images), lam[at, :]
            slope = self.weighted_slope(self.outer, tape.output, own, part.view)
            along_x.put(at, tape.backward(slope, along_x.out(at)))
            own_slope = ask(self.outer, "along_lam", tape.output, own, part.view, xp=self._xp)
            along_lam.put(at, own_slope + self.outer_l2 * own)

        self._outer_parts().each(work)
        return along_x.array(self._xp), along_lam.array(self._xp)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> NeuralLinearization:
        """Second derivatives at (x, lam), with activations kept as far as `neural_parts` says."""
        return NeuralLinearization(self, x, lam, self._enter(x, lam, batch))

    @property
    def term_sizes(self) -> Callable[[Array, Array], TermSizes] | None:
        """Term sizes, see `problems.term_sizes`; None with a cost or a layer that is not of this package."""
        return self._term_sizes if known(self.model, self.cost, self.outer) else None

    def _term_sizes(self, x: Array, lam: Array, lam_roundings: int = 0) -> TermSizes:
        """`lam_roundings`: how often λ itself was rounded, entry by entry, 0 for a λ that is exact."""
        self._enter(x, lam)
        return term_sizes(self, x, lam, lam_roundings)

    def accuracy(self, x: Array, lam: Array, X: Any = None, y: Any = None) -> Array:
        """Share of instances whose class client i predicts with x_i and λ_i; of X, y or the outer cost's.  # (n,)"""
        self._enter(x, lam)
        if X is None and y is not None:
            raise ValueError("X and y must be passed together, got X=None")
        data = self._val if X is None else read_images(self.model, X, y, self.cost.loss, ("X", "y"))
        if len(data.counts) != self.n_clients:
            raise ValueError(f"X must have {self.n_clients} clients as the problem, got {len(data.counts)}")
        xp, rows, classes = self._xp, Rows((self.n_clients,), x), int(data.all.targets.shape[-1])

        def work(k: int, part: Part) -> None:
            z = self.model.logits(x[part.clients, :], part.images)
            guess = xp.argmax(ask_scores(self.cost, z, lam[part.clients, :], classes, xp), axis=-1)  # (n, N)
            truth = xp.argmax(xp.astype(part.view.targets, xp.int32), axis=-1)
            rows.put(part.clients, xp.sum(part.view.mean * xp.astype(guess == truth, x.dtype), axis=-1))

        Parts(self.model, data, data.all).each(work)
        return rows.array(xp)

    def data_digest(self) -> str:
        """SHA-256 of the model's text, the costs, the data and the settings, which checkpoints compare."""
        costs = [digest(cost) for cost in (self.cost, self.outer)]
        return digest(self, repr(self.model), *costs, self._train, self._val)

    def restrict(self, clients: Any) -> NeuralProblem:
        """The same problem with some of its clients: a slice, or a sequence of indices."""
        which, some = client_indices(clients, self.n_clients), copy.copy(self)
        some._train = self._train.restrict(which, take_rows(which))
        some._val = some._train if self._val is self._train else self._val.restrict(which, take_rows(which))
        some.clients = self.clients[which]
        some.n_clients = len(some.clients)
        return some

    def to(self, target: Any, dtype: Any = None) -> NeuralProblem:
        """The same problem in another library (its name, or an array to be beside) and, if given, another dtype."""
        move, moved = array_mover(target, dtype), copy.copy(self)
        moved._train = self._train.to(move)
        moved._val = moved._train if self._val is self._train else self._val.to(move)
        moved._xp = array_namespace(moved._train.all.features)
        return moved

    # Shared by costs, gradients and products.

    def weighted_slope(self, cost: NeuralCost, z: Array, lam: Array, view: View) -> Array:
        """mean ∂l/∂z: what goes into a backward pass.  # like z"""
        return weighted(view.mean, ask(cost, "slope", z, lam, view, xp=self._xp))

    def _mean_cost(self, cost: NeuralCost, parts: Parts, x: Array, lam: Array) -> Array:
        xp, rows = self._xp, Rows((self.n_clients,), x)

        def work(k: int, part: Part) -> None:
            z = self.model.logits(x[part.clients, :], part.images)
            value = ask(cost, "value", z, lam[part.clients, :], part.view, xp=xp)
            rows.put(part.clients, xp.sum(part.view.mean * value, axis=-1))

        parts.each(work)
        return rows.array(xp)

    def _outer_parts(self) -> Parts:
        return Parts(self.model, self._val, self._val.all)

    def _enter(self, x: Array, lam: Array, batch: Array | None = None) -> Parts:
        like, n = self._like(), self.n_clients
        leads = {
            "x": check_argument("x", x, like, (n, self.dim_x), "n_clients, dim_x"),
            "lam": check_argument("lam", lam, like, (n, self.dim_lam), "n_clients, dim_lam"),
        }
        if batch is not None:
            leads["batch"] = check_batch(batch, like, n)
        for name, lead in leads.items():
            if lead:
                raise ValueError(f"{name} must have no leading run axes, got {lead}; call once for each run")
        return Parts(self.model, self._train, self._train.select(batch, xp=self._xp))


# ----------------------------------------------------------------------------------------------------
# Second derivatives of a neural problem at a fixed point, part by part.
#
#     z, c at the point;   ż = J u;   ċ = mean (∂²l/∂z²) ż
#     hvp(u) = (J^T c)˙ + l2 u,       cross(u) = Σ_k mean_k (∂²l_k/∂λ∂z) ż_k
#
# `hvp` costs a tangent pass and a backward tangent pass, `cross` the tangent pass alone, `products` no more than `hvp`.


class NeuralLinearization:
    """hvp, cross, and both at once. Tapes are made at the first product and kept if they fit (`Parts.fit`)."""

    def __init__(self, problem: NeuralProblem, x: Array, lam: Array, parts: Parts) -> None:
        xp = problem._xp
        self._problem = problem
        self._x, self._lam = xp.asarray(x, copy=True), xp.asarray(lam, copy=True)  # a caller may go on to change them
        self._parts = parts
        self._kept: dict[int, _NeuralLinearizationOpened] | None = {} if parts.fit() else None

    def hvp(self, u: Array) -> Array:
        """∂²_x g_i u_i.  # (n, d_x)"""
        return self._pass(u, True, False)[0]

    def cross(self, u: Array) -> Array:
        """∂²_{xλ} g_i u_i.  # (n, d_λ)"""
        return self._pass(u, False, True)[1]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) from one tangent pass.  # (n, d_x), (n, d_λ)"""
        return self._pass(u, True, True)

    def _pass(self, u: Array, bend: bool, cross: bool) -> tuple[Any, Any]:
        problem = self._problem
        lead = check_argument("u", u, self._x, tuple(self._x.shape), "n_clients, dim_x")
        if lead:
            raise ValueError(f"u must have no leading run axes, got {lead}; call once for each run")
        xp, Hu, Ju = problem._xp, Rows(tuple(u.shape), u), Rows(tuple(self._lam.shape), u)

        def work(k: int, part: Part) -> None:
            at, opened = part.clients, self._open(k, part)
            moved = opened.tape.tangent(u[at, :])
            if cross:
                Ju.put(at, ask(problem.cost, "cross", opened.z, opened.lam, part.view, moved.output, xp=xp))
            if bend:
                Hu.put(at, opened.bend(u[at, :], moved, Hu.out(at)))

        self._parts.each(work)
        return Hu.array(xp) if bend else None, Ju.array(xp) if cross else None

    def _open(self, k: int, part: Part) -> _NeuralLinearizationOpened:
        if self._kept is None:
            return _NeuralLinearizationOpened(self, part)
        if k not in self._kept:
            self._kept[k] = _NeuralLinearizationOpened(self, part)
        return self._kept[k]


class _NeuralLinearizationOpened:
    """A part with its tape, and the adjoint from the first use on."""

    def __init__(self, lin: NeuralLinearization, part: Part) -> None:
        self._problem, self._part = lin._problem, part
        self.tape = self._problem.model.forward(lin._x[part.clients, :], part.images)
        self.z, self.lam = self.tape.output, lin._lam[part.clients, :]
        self._adjoint: Any = None

    def bend(self, u: Array, moved: Any, out: Array | None) -> Array:
        """(J^T c)˙ + l2 u.  # (n, d_x)"""
        problem, view = self._problem, self._part.view
        if self._adjoint is None:
            self._adjoint = self.tape.adjoint(problem.weighted_slope(problem.cost, self.z, self.lam, view))
        c_dot = weighted(view.mean, ask(problem.cost, "bend", self.z, self.lam, view, moved.output, xp=problem._xp))
        return add_scaled(self._adjoint.tangent(moved, c_dot, out), problem.l2, u)


# ---------------------------------------------------------------------------------- clients in parts that fit in memory
#
# Activations of all clients at once may be far larger than their parameters. Every pass therefore handles neighbouring
# clients whose activations take at most CHUNK_BYTES (at least one client). A linearization keeps activations between
# products only if those of all clients take at most KEEP_BYTES; otherwise it computes them again for each product. On
# NumPy several parts are processed at once by threads, and share CHUNK_BYTES.
#
# The clients of a part have equally many instances without padding, so that the numbers of a client do not depend on
# how many instances others have. On NumPy the same holds for a mini-batch whose padding comes last; elsewhere, where
# reading a batch would stop the device, padding is computed with weight zero.


@dataclass(frozen=True)
class Part:
    """Neighbouring clients with equally many instances."""

    clients: slice
    view: View  # of these clients, without padding
    images: Array  # (n, N, *input_shape)


class Parts:
    """All clients of a view, part by part."""

    def __init__(self, model: Model, instances: Instances, view: View) -> None:
        self._model, self._view, self._xp = model, view, array_namespace(view.features)
        self._widths = _widths(instances, view)  # (n,) instances of each client
        self._itemsize = host_dtype(view.features).itemsize
        numbers = int(self._widths.sum()) * model.floats_per_instance(temporary=True)
        worth = is_numpy(view.features) and numbers >= 2 * _numba.GRAIN
        self._at_once = _numba.limit() if worth else 1  # parts that are worked on at the same time

    def __iter__(self) -> Iterator[Part]:
        start, n = 0, len(self._widths)
        one = self._model.floats_per_instance(temporary=True) * self._itemsize
        while start < n:
            width = int(self._widths[start])
            most = max(1, CHUNK_BYTES // (one * width * self._at_once))
            stop = start + 1
            while stop < min(n, start + most) and self._widths[stop] == width:
                stop += 1
            yield self._part(slice(start, stop), width)
            start = stop

    def each(self, work: Callable[[int, Part], object]) -> None:
        """work(k, part) for every part, on NumPy several at once: what `work` writes is the part's own."""
        if self._at_once == 1:
            for k, part in enumerate(self):
                work(k, part)
        else:
            _numba.each(lambda numbered: work(*numbered), enumerate(self))

    def fit(self) -> bool:
        """Whether what tapes and adjoints of all parts keep fits KEEP_BYTES."""
        return int(self._widths.sum()) * self._model.floats_per_instance() * self._itemsize <= KEEP_BYTES

    def _part(self, clients: slice, width: int) -> Part:
        view = self._view
        index = None if view.index is None else view.index[clients, :width]
        own = View(
            view.features[clients, :width, :], view.targets[clients, :width, :], view.mean[clients, :width], None
        )
        own.index = index
        n = clients.stop - clients.start
        images = self._xp.reshape(own.features, (n, width, *self._model.input_shape))
        return Part(clients, own, images)


def _widths(instances: Instances, view: View) -> np.ndarray:
    """How many leading instances of each client count."""
    n, longest = view.features.shape[:2]
    if view.index is None:
        return instances.counts
    if not is_numpy(view.mean):
        return np.full(n, longest)
    used = view.mean != 0  # NaN, of an index out of range, counts
    return np.where(used.any(axis=1), longest - np.argmax(used[:, ::-1], axis=1), 1)


class Rows:
    """An array (n, ...) put together from the rows of parts; on NumPy it is made first and filled in place."""

    def __init__(self, shape: tuple[int, ...], like: Array) -> None:
        self._whole = np.empty(shape, dtype=like.dtype) if is_numpy(like) else None
        self._parts: list[Array] = []

    def out(self, clients: slice) -> Array | None:
        """Where the rows of these clients may be written; None where arrays cannot be."""
        return None if self._whole is None else self._whole[clients]

    def put(self, clients: slice, rows: Array) -> None:
        """The rows of these clients, which follow those put before."""
        if self._whole is None:
            self._parts.append(rows)
        elif not np.may_share_memory(rows, self._whole):
            self._whole[clients] = rows

    def array(self, xp: Namespace) -> Array:
        """All rows."""
        if self._whole is not None:
            return self._whole
        return self._parts[0] if len(self._parts) == 1 else xp.concat(self._parts, axis=0)


def weighted(mean: Array, each: Array) -> Array:
    """mean_ik each_ik.  # like each"""
    return mean[(...,) + (None,) * (each.ndim - 2)] * each


def add_scaled(total: Array, factor: float, x: Array) -> Array:
    """total + factor x, for a `total` that nobody else holds."""
    if factor == 0:
        return total
    if is_numpy(total):
        total += factor * x
        return total
    return total + factor * x


# ----------------------------------------------------------------------------------------------------
# Images (or other instances) of n clients as flat rows with encoded labels, in the form that linear models use.


def read_images(model: Model, X: Any, y: Any, loss: SoftmaxLoss, names: tuple[str, str]) -> Instances:
    """Check shapes against the model's input, flatten, pad clients to equal length, encode labels."""
    shape = model.input_shape
    if not _is_array(X) and not isinstance(X, list | tuple):
        raise TypeError(f"{names[0]} must be an array (n, N, ...) or a list of n arrays, got {type(X).__name__}")
    flat = _flat(names[0], X, shape, 2) if _is_array(X) else [
        _flat(f"{names[0]}[{i}]", part, shape, 1) for i, part in enumerate(X)
    ]  # fmt: skip
    return read_instances(flat, y, loss, names)


def _is_array(X: Any) -> bool:
    return hasattr(X, "shape") and hasattr(X, "ndim") and not callable(X.shape)


def _flat(name: str, a: Array, shape: tuple[int, ...], leading: int) -> Array:
    if not _is_array(a) or tuple(a.shape[leading:]) != shape or a.ndim != leading + len(shape):
        found = f"shape {tuple(a.shape)}" if _is_array(a) else type(a).__name__
        letters = ("n, N" if leading == 2 else "N_i") + ", " + ", ".join(map(str, shape))
        raise ValueError(f"{name} must have shape ({letters}) as the model's input, got {found}")
    return array_namespace(a).reshape(a, (*a.shape[:leading], math.prod(shape)))


def classes_of(model: Sequential) -> int:
    """C, for a model whose outputs are logits of C >= 2 classes."""
    if not isinstance(model, Sequential):
        raise TypeError(f"model must be a hgp_ref.neural.Sequential, got {type(model).__name__}")
    if len(model.output_shape) != 1 or model.output_shape[0] < 2:
        raise ValueError(f"model must have outputs (C,), logits of C >= 2 classes, got {model.output_shape}")
    return model.output_shape[0]


def longest_of(name: str, X: Any) -> int:
    """Instances of the client that has most."""
    if _is_array(X):
        lengths = list(X.shape[1:2])
    elif not isinstance(X, list | tuple):
        raise TypeError(f"{name} must be an array (n, N, ...) or a list of n arrays, got {type(X).__name__}")
    else:
        lengths = [part.shape[0] for part in X if getattr(part, "ndim", 0)]
    if not lengths or max(lengths) < 1:
        raise ValueError(
            f"{name} must be an array (n, N, ...) or a list of n arrays, got {type(X).__name__} without instances"
        )
    return int(max(lengths))


# ----------------------------------------------------------------------------------------------------
# Term sizes of neural problems: the passes of a problem once more, with numbers that carry their errors.
#
# The text of layers, losses and costs is evaluated on `Sized` arrays (`running_errors`), layer by layer as it stands in
# `linear`, `conv`, `activations` and `pooling`. Sizes hold for the compiled steps of NumPy too, which make the same
# sums in other orders. K times a size is at least the value itself, which every result rounds at least once.
#
# What counts as exact: the data, x, λ and u. 1/N_i, rates and scales are rounded. Where rounding may have decided
# whether a ReLU is active, or which pixel a MaxPool takes, sizes hold the whole jump of the derivative there.
#
# Cost: about four times that of a pass in array-API text. Instances go in blocks of `BLOCK_BYTES`.


BLOCK_BYTES = 2**27  # arrays of one block of instances
KEPT_BYTES = 2**28  # passes that are kept for further products
COPIES = 8  # arrays of the size of an activation that live at once
LAYERS = (AvgPool2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Softplus, Tanh)


def known(model: Model, *costs: NeuralCost) -> bool:
    """Whether the text of all layers and costs is this package's: a subclass may compute anything."""
    one = model.model if isinstance(model, Ensemble) else model
    layers = type(one) is Sequential and all(type(layer) in LAYERS for layer in one.layers)
    return layers and all("sizes_known" in vars(type(cost)) for cost in costs)


def term_sizes(problem: NeuralProblem, x: Array, lam: Array, lam_roundings: int = 0) -> TermSizes:
    """Sizes of everything that `problem` evaluates at (x, λ) on full batches; λ may have been rounded itself."""
    unit = Unit(x, _chain(problem.model))
    inner = _Pass(problem, problem.cost, problem._train, unit, x, lam, lam_roundings)
    outer = _Pass(problem, problem.outer, problem._val, unit, x, lam, lam_roundings)
    xp, point, lams = inner.xp, inner.xp.exact(x), inner.xp.rounded(lam, lam_roundings)
    g, g_x = inner.summed(lambda o: o.cost()), inner.summed(lambda o: o.gradient())
    f, f_x, f_lam = (outer.summed(get) for get in (lambda o: o.cost(), lambda o: o.gradient(), lambda o: o.along_lam()))

    def hvp(u: Array) -> Array:
        check_argument("u", u, x, tuple(x.shape), "n_clients, dim_x")
        return final(inner.summed(lambda o: o.hvp(u)) + problem.l2 * xp.direction(u))

    def cross(u: Array) -> Array:
        check_argument("u", u, x, tuple(x.shape), "n_clients, dim_x")
        return final(inner.summed(lambda o: o.cross(u)))

    def final(a: Sized) -> Array:
        return unit.safe(a).error + a.size / unit.K

    return TermSizes(
        roundings=unit.K,
        inner_cost=final(g + 0.5 * problem.l2 * xp.sum(point * point, axis=-1)),
        inner_grad=final(g_x + problem.l2 * point),
        outer_cost=final(f + 0.5 * problem.outer_l2 * xp.sum(lams * lams, axis=-1)),
        outer_grad=(final(f_x), final(f_lam + problem.outer_l2 * lams)),
        hvp=hvp,
        cross=cross,
    )


def _pixels(model: Model) -> set[int]:
    """Rows that an instance has in the products with weights, layer by layer."""
    one = model.model if isinstance(model, Ensemble) else model
    return {math.prod(shape[1:]) for shape in one.shapes}


def _chain(model: Model) -> int:
    """The longest chain of additions: windows that are put back on an image, one after the other."""
    one = model.model if isinstance(model, Ensemble) else model
    return max([math.prod(layer.kernel) for layer in one.layers if hasattr(layer, "kernel")], default=1) + 4


@dataclass(frozen=True)
class _View:
    """What a cost sees of some instances."""

    targets: Array
    mean: Sized
    index: Array


class _NeuralSizesOpened:
    """A block of instances of some clients, with what the passes share."""

    def __init__(self, owner: _Pass, part: Part, at: slice, blocks: int) -> None:
        self.owner, self.clients, self._blocks, xp = owner, part.clients, blocks, owner.xp
        self.lam = xp.rounded(owner.lam[part.clients, :], owner.lam_roundings)
        n, count, array = part.images.shape[0], at.stop - at.start, owner.array
        numbers = array.arange(at.start, at.stop, device=device(part.images))
        self.view: Any = _View(
            part.view.targets[:, at, :], xp.rounded(part.view.mean[:, at], 2), array.broadcast_to(numbers, (n, count))
        )
        self._lengths = frozenset(count * pixels for pixels in _pixels(owner.problem.model))
        self._rounded = 0.0
        self._enter()
        self.tape = _tape(
            owner.problem.model, xp.exact(owner.x[part.clients, :]), xp.exact(part.images[:, at, ...]), xp
        )
        self._rounded = owner.unit.rounded
        self._adjoint: Any = None

    def _enter(self) -> None:
        unit = self.owner.unit
        unit.blocks, unit.lengths, unit.rounded = self._blocks, self._lengths, self._rounded

    def ask(self, get: Callable[[_NeuralSizesOpened], Sized]) -> Sized:
        """What `get` says of this block."""
        self._enter()
        return self.owner.unit.safe(get(self))

    def cost(self) -> Sized:
        value = self.owner.cost.value(self.tape.output, self.lam, self.view, self.owner.xp)
        return self.owner.xp.sum(self.view.mean * value, axis=-1)

    def gradient(self) -> Sized:
        return self.tape.backward(self._slope())

    def along_lam(self) -> Sized:
        return self.owner.cost.along_lam(self.tape.output, self.lam, self.view, self.owner.xp)

    def hvp(self, u: Array) -> Sized:
        if self._adjoint is None:
            self._adjoint = self.tape.adjoint(self._slope())
            self._rounded = self.owner.unit.rounded
        moved = self._tangent(u)
        Hu = self.owner.cost.bend(self.tape.output, self.lam, self.view, moved.output, self.owner.xp)
        return self._adjoint.tangent(moved, weighted(self.view.mean, Hu))

    def cross(self, u: Array) -> Sized:
        moved = self._tangent(u).output
        return self.owner.cost.cross(self.tape.output, self.lam, self.view, moved, self.owner.xp)

    def _slope(self) -> Sized:
        slope = self.owner.cost.slope(self.tape.output, self.lam, self.view, self.owner.xp)
        return weighted(self.view.mean, slope)

    def _tangent(self, u: Array) -> Any:
        return self.tape.tangent(self.owner.xp.direction(u[self.clients, :]))


class _Pass:
    """All instances of one of the two costs, block by block."""

    def __init__(
        self, problem: NeuralProblem, cost: NeuralCost, instances: Instances, unit: Unit, x: Array, lam: Array,
        lam_roundings: int,
    ) -> None:  # fmt: skip
        self.problem, self.instances, self.unit, self.array = problem, instances, unit, problem._xp
        self.cost: Any = cost
        self.lam_roundings = lam_roundings
        self.x, self.lam = self.array.asarray(x, copy=True), self.array.asarray(lam, copy=True)
        self.xp: Any = SizedNamespace(unit, problem._xp)
        numbers = problem.model.floats_per_instance(temporary=True) * host_dtype(x).itemsize * COPIES
        self._block = max(1, BLOCK_BYTES // numbers)
        self._kept: list[_NeuralSizesOpened] | None = (
            [] if numbers * int(instances.counts.sum()) <= KEPT_BYTES else None
        )

    def summed(self, get: Callable[[_NeuralSizesOpened], Sized]) -> Sized:
        """Σ over blocks of what `get` says of each, for all clients one below the other."""
        rows: list[Sized] = []
        last: slice | None = None
        for opened in self._opened():
            one = opened.ask(get)
            if opened.clients == last:  # the rounding of this addition is in the shares of the blocks
                before = rows.pop()
                one = one.like(before.v + one.v, before.error + one.error)
            rows.append(one)
            last = opened.clients
        self.unit.blocks, self.unit.rounded = 1, 0.0
        return self.xp.concat(rows, axis=0)

    def _opened(self) -> Iterator[_NeuralSizesOpened]:
        if self._kept:
            yield from self._kept
            return
        kept: list[_NeuralSizesOpened] = []
        for part in Parts(self.problem.model, self.instances, self.instances.all):
            N = part.images.shape[1]
            width = max(1, self._block // part.images.shape[0])
            for start in range(0, N, width):
                opened = _NeuralSizesOpened(self, part, slice(start, min(start + width, N)), math.ceil(N / width))
                if self._kept is not None:
                    kept.append(opened)
                yield opened
        self._kept = None if self._kept is None else kept


def _tape(model: Model, x: Sized, X: Sized, xp: Any) -> Any:
    if isinstance(model, Ensemble):
        return EnsembleTape([Tape(model.model.layers, part, X, xp) for part in model.split(x)], model, xp)
    return Tape(model.layers, x, X, xp)
