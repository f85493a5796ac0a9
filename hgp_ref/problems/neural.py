"""Neural clients: costs that are means over instances k of functions of a network's outputs z and of λ_i,

    g_i(x, λ_i) = Σ_k mean_ik l(z_ik(x), λ_i) + (l2/2) |x|²
    f_i(x, λ_i) = Σ_k mean'_ik l'(z'_ik(x), λ_i) + (outer_l2/2) |λ_i|².

Networks are those of `hgp_ref.neural`; l and l' are `NeuralCost`s. With J the Jacobian of all outputs along x,
c = mean ∂l/∂z, ż = J u and ċ = mean (∂²l/∂z²) ż:

    ∂_x g = Jᵀ c + l2 x,     ∂²_x g u = (Jᵀ c)˙ + l2 u,     ∂²_{xλ} g u = Σ_k mean_k (∂²l_k/∂λ∂z) ż_k.

The last two share ż. `hvp` costs a tangent pass and a backward tangent pass, `cross` the tangent pass alone, and
`products` no more than `hvp`.

With curvature="gauss-newton", J is treated as constant: Jᵀ ċ + l2 u in place of ∂²_x g u. The Gauss–Newton matrix
Jᵀ mean (∂²l/∂z²) J + l2 I is positive semi-definite if l is convex in z, as cross-entropy is for weights λ ≥ 0, and it
is the Hessian where all slopes ∂l/∂z vanish. The mixture of `PersonalMixture` is not convex in z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import _numba, validation
from hgp_ref.backend import Array, array_namespace, device, host_dtype, is_numpy
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems.base import CURVATURES, check_argument, check_batch
from hgp_ref.problems.instances import InstanceProblem, Instances, PreparedBatch, View, digest, read_instances
from hgp_ref.problems.losses import SoftmaxLoss
from hgp_ref.problems.neural_costs import (
    CrossEntropy,
    MaskedCrossEntropy,
    MixedCrossEntropy,
    NeuralCost,
    ShiftedCrossEntropy,
    WeightedCrossEntropy,
    evaluate,
    weighted,
)
from hgp_ref.problems.neural_sizes import neural_sizes, sizes_known
from hgp_ref.problems.term_sizes import TermSizes

CHUNK_BYTES = 2**28  # activations of the clients that are computed at once
LINEARIZATION_BYTES = 2**31  # activations that a linearization stores

Model = Sequential | Ensemble


class NeuralProblem(InstanceProblem):
    """Clients that train `model` under a cost on its outputs.

    Parameters
    ----------
    model : a `Sequential` or `Ensemble` whose outputs are logits of C classes.
    cost : l, how λ acts on the loss.
    X, y : training data, (n, N, *model.input_shape) and classes 0 … C−1 (n, N), or lists of n arrays (N_i, ...).
    X_val, y_val : the data of f; by default the training data.
    outer : l'; by default `cost`.
    l2, outer_l2 : rates of the L2 terms on x and on λ.
    curvature : "hessian", or "gauss-newton" for products with the Gauss–Newton matrix in place of ∂²_x g_i.

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
                 outer: NeuralCost | None = None, l2: float = 0.0, outer_l2: float = 0.0,
                 curvature: str = "hessian") -> None:  # fmt: skip
        self.curvature = validation.choice("curvature", curvature, CURVATURES)
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
        train = read_images(model, X, y, cost.loss, ("X", "y"))
        val = train if X_val is None else read_images(model, X_val, y_val, cost.loss, ("X_val", "y_val"))
        super().__init__(train, val)
        self.dim_x, self.dim_lam = model.dim, cost.dim_lam

    def __repr__(self) -> str:
        sizes = f"n_clients={self.n_clients}, dim_x={self.dim_x}, dim_lam={self.dim_lam}"
        return f"<{type(self).__name__} of {self.model!r}: {sizes}>"

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i.  # (n,)"""
        parts = self._enter(x, lam, batch)
        return self._mean_cost(self.cost, parts, x, lam) + 0.5 * self.l2 * self._xp.vecdot(x, x)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i.  # (n,)"""
        self._enter(x, lam)
        total = self._mean_cost(self.outer, self._parts_of(self._val), x, lam)
        return total + 0.5 * self.outer_l2 * self._xp.vecdot(lam, lam)

    def _mean_cost(self, cost: NeuralCost, parts: Parts, x: Array, lam: Array) -> Array:
        def work(part: Part, out: Array | None) -> tuple[Array]:
            z = self.model.logits(x[part.clients, :], part.images)
            value = evaluate(cost, "value", z, lam[part.clients, :], part.view, xp=self._xp)
            return (self._xp.sum(part.view.mean * value, axis=-1),)

        return parts.map(work, x, (self.n_clients,))[0]

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """∂_x g_i.  # (n, d_x)"""
        return self._gradient(self.cost, self._enter(x, lam, batch), x, lam, self.l2)

    def _gradient(self, cost: NeuralCost, parts: Parts, x: Array, lam: Array, l2: float = 0.0) -> Array:
        """The gradient of the mean of `cost` along x, + l2 x.  # (n, d_x)"""

        def work(part: Part, out: Array | None) -> tuple[Array]:
            x_part = x[part.clients, :]
            tape = self.model.forward(x_part, part.images)
            c = self.weighted_slope(cost, tape.output, lam[part.clients, :], part.view)
            return (_add_scaled(tape.backward(c, out), l2, x_part),)

        return parts.map(work, x, x.shape)[0]

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_i and ∂_λ f_i.  # (n, d_x), (n, d_λ)"""
        self._enter(x, lam)

        def work(part: Part, out: Array | None, _: Array | None) -> tuple[Array, Array]:
            tape, lam_part = self.model.forward(x[part.clients, :], part.images), lam[part.clients, :]
            f_x = tape.backward(self.weighted_slope(self.outer, tape.output, lam_part, part.view), out)
            f_lam = evaluate(self.outer, "along_lam", tape.output, lam_part, part.view, xp=self._xp)
            return f_x, f_lam + self.outer_l2 * lam_part

        f_x, f_lam = self._parts_of(self._val).map(work, x, x.shape, lam.shape)
        return f_x, f_lam

    def validation_grad(self, x: Array, lam: Array, batch: Array) -> Array:
        """The gradient of the mean of l' on a mini-batch (n, b) of validation instances.  # (n, d_x)"""
        if batch is None:
            check_batch(batch, x, self.n_clients)
        return self._gradient(self.outer, self._enter(x, lam, batch, self._val), x, lam)

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> NeuralLinearization:
        """Second derivatives at (x, λ)."""
        return NeuralLinearization(self, x, lam, self._enter(x, lam, batch))

    @property
    def term_sizes(self) -> Callable[[Array, Array], TermSizes] | None:
        """The function (x, lam) ↦ `TermSizes`; None with a cost or a layer that is not from this package.

        None with Gauss–Newton products, too, whose rounding errors are not analysed.
        """
        known = self.curvature == "hessian" and sizes_known(self.model, self.cost, self.outer)
        return self._term_sizes if known else None

    def _term_sizes(self, x: Array, lam: Array, lam_roundings: int = 0) -> TermSizes:
        """`lam_roundings`: how many roundings λ itself has gone through, 0 if it is exact."""
        self._enter(x, lam)
        return neural_sizes(self, x, lam, lam_roundings)

    def accuracy(self, x: Array, lam: Array, X: Any = None, y: Any = None) -> Array:
        """The fraction of instances (by default those of f) whose class client i predicts with x_i, λ_i.  # (n,)"""
        self._enter(x, lam)
        if X is None and y is not None:
            raise ValueError("X and y must be passed together, got X=None")
        data = self._val if X is None else read_images(self.model, X, y, self.cost.loss, ("X", "y"))
        if len(data.counts) != self.n_clients:
            raise ValueError(f"X must have {self.n_clients} clients like the problem, got {len(data.counts)}")
        xp = self._xp

        def work(part: Part, out: Array | None) -> tuple[Array]:
            z = self.model.logits(x[part.clients, :], part.images)
            scores = evaluate(self.cost, "scores", z, lam[part.clients, :], part.view, xp=xp)
            truth = xp.argmax(xp.astype(part.view.targets, xp.int32), axis=-1)
            correct = xp.astype(xp.argmax(scores, axis=-1) == truth, x.dtype)  # (n, N)
            return (xp.sum(part.view.mean * correct, axis=-1),)

        return self._parts_of(data).map(work, x, (self.n_clients,))[0]

    def data_digest(self) -> str:
        """SHA-256 of the repr of the model, the costs, the data and the settings, which checkpoints compare."""
        costs = [digest(cost) for cost in (self.cost, self.outer)]
        return digest(self, repr(self.model), *costs, self._train, self._val)

    def weighted_slope(self, cost: NeuralCost, z: Array, lam: Array, view: View) -> Array:
        """c = mean ∂l/∂z.  # like z"""
        return weighted(view.mean, evaluate(cost, "slope", z, lam, view, xp=self._xp))

    def _parts_of(self, instances: Instances) -> Parts:
        """All clients with all their `instances`, part by part."""
        return Parts(self.model, instances, instances.all)

    def _enter(self, x: Array, lam: Array, batch: Array | None = None, instances: Instances | None = None) -> Parts:
        """The clients on `batch` of `instances`, training ones by default, after a check of the arguments."""
        instances = self._train if instances is None else instances
        like, n = self._like(), self.n_clients
        leads = {
            "x": check_argument("x", x, like, (n, self.dim_x), "n_clients, dim_x"),
            "lam": check_argument("lam", lam, like, (n, self.dim_lam), "n_clients, dim_lam"),
        }
        if batch is not None:
            leads["batch"] = batch.shape[:-2] if isinstance(batch, PreparedBatch) else check_batch(batch, like, n)
        for name, lead in leads.items():
            self._refuse_run_axes(name, lead)
        return Parts(self.model, instances, instances.select(batch, xp=self._xp))


class NeuralLinearization:
    """Second derivatives at a point. Tapes are made at the first product, and stored if they fit (`Parts.fit`)."""

    def __init__(self, problem: NeuralProblem, x: Array, lam: Array, parts: Parts) -> None:
        xp = problem._xp
        self.problem, self._parts = problem, parts
        self.x, self.lam = xp.asarray(x, copy=True), xp.asarray(lam, copy=True)  # the caller may modify x and lam later
        self._stored: dict[int, PartAtPoint] | None = {} if parts.fit() else None

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (n, d_x)"""
        return self._products(u, ("hvp",))[0]

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (n, d_λ)"""
        return self._products(u, ("cross",))[0]

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u) from one tangent pass."""
        Hu, Ju = self._products(u, ("hvp", "cross"))
        return Hu, Ju

    def _products(self, u: Array, names: tuple[str, ...]) -> list[Array]:
        self.problem._refuse_run_axes("u", check_argument("u", u, self.x, tuple(self.x.shape), "n_clients, dim_x"))

        def work(part: Part, *out: Array | None) -> list[Array]:
            point, u_part = self._at(part), u[part.clients, :]
            tangent = point.tape.tangent(u_part)
            return [
                point.hvp(u_part, tangent, buffer) if name == "hvp" else point.cross(tangent)
                for name, buffer in zip(names, out, strict=True)
            ]

        shapes = {"hvp": self.x.shape, "cross": self.lam.shape}
        return self._parts.map(work, u, *(shapes[name] for name in names))

    def _at(self, part: Part) -> PartAtPoint:
        if self._stored is None:
            return PartAtPoint(self, part)
        if part.clients.start not in self._stored:
            self._stored[part.clients.start] = PartAtPoint(self, part)
        return self._stored[part.clients.start]


class PartAtPoint:
    """Some clients with their tape, and its adjoint from the first use on."""

    def __init__(self, linearization: NeuralLinearization, part: Part) -> None:
        self._problem, self._view = linearization.problem, part.view
        self.tape = self._problem.model.forward(linearization.x[part.clients, :], part.images)
        self._lam = linearization.lam[part.clients, :]
        self._adjoint: Any = None

    def hvp(self, u: Array, tangent: Any, out: Array | None) -> Array:
        """(Jᵀ c)˙ + l2 u, or Jᵀ ċ + l2 u.  # (n, d_x)"""
        problem, z, view = self._problem, self.tape.output, self._view
        c_dot = evaluate(problem.cost, "curvature", z, self._lam, view, tangent.output, xp=problem._xp)
        c_dot = weighted(view.mean, c_dot)
        if problem.curvature == "gauss-newton":
            return _add_scaled(self.tape.backward(c_dot, out), problem.l2, u)
        if self._adjoint is None:
            self._adjoint = self.tape.adjoint(problem.weighted_slope(problem.cost, z, self._lam, view))
        return _add_scaled(self._adjoint.tangent(tangent, c_dot, out), problem.l2, u)

    def cross(self, tangent: Any) -> Array:
        """Σ_k mean_k (∂²l_k/∂λ∂z) ż_k.  # (n, d_λ)"""
        problem = self._problem
        return evaluate(problem.cost, "cross", self.tape.output, self._lam, self._view, tangent.output, xp=problem._xp)


def _add_scaled(total: Array, factor: float, x: Array) -> Array:
    """total + factor x; on NumPy in place."""
    if factor == 0:
        return total
    if is_numpy(total):
        total += factor * x
        return total
    return total + factor * x


# ------------------------------------------------------------------------------------------------- particular problems


class PersonalProblem(NeuralProblem):
    """Clients train one network together, and each has a personal λ_i of its outputs.

    Parameters are those of `NeuralProblem`. f_i is the mean loss on training instances (or on X_val, y_val), plus the
    L2 term (outer_l2/2)|λ_i|².
    """

    weighs_instances = False


class PersonalBias(PersonalProblem):
    """Each client adds λ_i to the logits of the common network.

    With the class frequencies p_i at the client and p̄ at all, λ_i = log p_i − log p̄ is Bayes' rule for changed class
    frequencies. Parameters are those of `NeuralProblem`.

    Examples
    --------
    >>> from hgp_ref.neural import Linear, Sequential
    >>> model, X, y = Sequential((2,), Linear(2, 3)), np.ones((1, 4, 2)), np.array([[0, 1, 2, 1]])
    >>> problem = hgp.problems.PersonalBias(model, X, y)
    >>> problem.accuracy(np.zeros((1, 9)), np.log([[0.2, 0.5, 0.3]]))
    array([0.5])
    """

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, l2: float = 1e-3,
                 outer_l2: float = 1e-3, curvature: str = "hessian") -> None:  # fmt: skip
        classes = classes_of(model)
        options: dict[str, Any] = {"l2": l2, "outer_l2": outer_l2, "curvature": curvature}
        super().__init__(model, ShiftedCrossEntropy(classes, classes), X, y, X_val, y_val, **options)


class PersonalMask(PersonalProblem):
    """HGP-PL: each client multiplies the logits of the common network by s softmax(λ_i).

    Parameters
    ----------
    scale : s. By default the number of classes, as in the authors' code, so that λ = 0 changes nothing; their text has
        s = 1. Other parameters as of `NeuralProblem`.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.PersonalMask(model, X, y).dim_lam
    3
    """

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, l2: float = 1e-3,
                 outer_l2: float = 1e-3, scale: float | None = None,
                 curvature: str = "hessian") -> None:  # fmt: skip
        classes = classes_of(model)
        self.scale = float(classes) if scale is None else validation.positive("scale", scale)
        cost = MaskedCrossEntropy(classes, self.scale)
        super().__init__(model, cost, X, y, X_val, y_val, l2=l2, outer_l2=outer_l2, curvature=curvature)


class PersonalMixture(PersonalProblem):
    """HGP-MTL: clients train `components` networks like `model`; each mixes their probabilities by softmax(λ_i).

    x holds the parameters of the components one after the other; `problem.model.init(n, seed)` initialises component k
    with seed + k. Other parameters as of `NeuralProblem`.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.PersonalMixture(model, X, y, components=2).dim_x
    30
    """

    cost: MixedCrossEntropy

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, components: int = 3,
                 l2: float = 1e-3, outer_l2: float = 1e-2) -> None:  # fmt: skip
        ensemble = Ensemble(model, components)
        cost = MixedCrossEntropy(classes_of(model), ensemble.components)
        super().__init__(ensemble, cost, X, y, X_val, y_val, l2=l2, outer_l2=outer_l2)

    def responsibilities(self, x: Array, lam: Array) -> Array:
        """r of every training instance, 0 for padding: the E step of a mixture.  # (n, N, K)"""
        xp, longest = self._xp, int(self.counts.max())

        def work(part: Part, out: Array | None) -> tuple[Array]:
            z = self.model.logits(x[part.clients, :], part.images)
            r = self.cost.responsibility(z, lam[part.clients, :], part.view, xp)
            padding = xp.zeros((r.shape[0], longest - r.shape[1], r.shape[2]), dtype=r.dtype, device=device(r))
            return (xp.concat([r, padding], axis=1),)

        return self._enter(x, lam).map(work, x, (self.n_clients, longest, lam.shape[1]))[0]


class NeuralInstanceWeights(NeuralProblem):
    """Influence of training instances on a network: g_i = (1/N_i) Σ_k λ_ik CE_ik + (l2/2)|x|², f_i the validation loss.

    λ is (n, N_max); at λ = 1 the inner cost is the usual mean. Columns beyond N_i are padding with zero derivative. A
    mini-batch cost is the mean over the batch of λ_ik CE_ik, plus the L2 term. Parameters are those of `NeuralProblem`.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    >>> hgp.problems.NeuralInstanceWeights(model, X, y, X, y).dim_lam
    5
    """

    weighs_instances = True

    def __init__(self, model: Sequential, X: Any, y: Any, X_val: Any, y_val: Any, l2: float = 1e-3, *,
                 curvature: str = "hessian") -> None:  # fmt: skip
        classes, longest = classes_of(model), _longest_of("X", X)
        cost, outer = WeightedCrossEntropy(classes, longest), CrossEntropy(classes, longest)
        super().__init__(model, cost, X, y, X_val, y_val, outer=outer, l2=l2, curvature=curvature)


# ---------------------------------------------------------------------------------- clients in parts that fit in memory
#
# Activations of all clients at once may be far larger than their parameters. Every pass therefore handles neighbouring
# clients whose activations take at most CHUNK_BYTES (at least one client). A linearization stores activations between
# products only if those of all clients take at most LINEARIZATION_BYTES; otherwise it computes them for each product.
# On NumPy several parts are processed at once by threads, and share CHUNK_BYTES.
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
        parallel = is_numpy(view.features) and numbers >= 2 * _numba.GRAIN
        self._threads = _numba.limit() if parallel else 1

    def __iter__(self) -> Iterator[Part]:
        start, n = 0, len(self._widths)
        instance = self._model.floats_per_instance(temporary=True) * self._itemsize
        while start < n:
            width = int(self._widths[start])
            most = max(1, CHUNK_BYTES // (instance * width * self._threads))
            stop = start + 1
            while stop < min(n, start + most) and self._widths[stop] == width:
                stop += 1
            yield self._part(slice(start, stop), width)
            start = stop

    def map(self, work: Callable[..., Any], like: Array, *shapes: Any) -> list[Array]:
        """Arrays of `shapes`, all (n, ...), whose rows for the clients of each part are work(part, *out).

        On NumPy several parts are computed at once, and `work` may write its results into the arrays `out`, the rows of
        this part; elsewhere these are None.
        """
        if is_numpy(like):
            whole = [np.empty(tuple(shape), dtype=like.dtype) for shape in shapes]

            def fill(part: Part) -> None:
                rows = [a[part.clients] for a in whole]
                for target, result in zip(rows, work(part, *rows), strict=True):
                    if not np.may_share_memory(target, result):
                        target[...] = result

            if self._threads == 1:
                for part in self:
                    fill(part)
            else:
                _numba.each(fill, self)
            return whole
        results = [work(part, *[None] * len(shapes)) for part in self]
        return [rows[0] if len(rows) == 1 else self._xp.concat(rows, axis=0) for rows in zip(*results, strict=True)]

    def fit(self) -> bool:
        """Whether the tapes and adjoints of all parts fit LINEARIZATION_BYTES."""
        numbers = int(self._widths.sum()) * self._model.floats_per_instance()
        return numbers * self._itemsize <= LINEARIZATION_BYTES

    def _part(self, clients: slice, width: int) -> Part:
        whole = self._view
        view = View(
            whole.features[clients, :width, :], whole.targets[clients, :width, :], whole.mean[clients, :width], None
        )
        view.index = None if whole.index is None else whole.index[clients, :width]
        n = clients.stop - clients.start
        return Part(clients, view, self._xp.reshape(view.features, (n, width, *self._model.input_shape)))


def _widths(instances: Instances, view: View) -> np.ndarray:
    """The number of leading instances of each client that include all valid ones."""
    n, longest = view.features.shape[:2]
    if view.index is None:
        return instances.counts
    if not is_numpy(view.mean):
        return np.full(n, longest)
    used = view.mean != 0  # NaN, of an index out of range, counts
    return np.where(used.any(axis=1), longest - np.argmax(used[:, ::-1], axis=1), 1)


# ------------------------------------------------------------------------------------------------------ data of clients


def read_images(model: Model, X: Any, y: Any, loss: SoftmaxLoss, names: tuple[str, str]) -> Instances:
    """Instances as flat rows with encoded labels, after a check against the input shape of the model."""
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
    if hasattr(a, "shape"):
        validation.array(name, a)
    if not _is_array(a) or tuple(a.shape[leading:]) != shape or a.ndim != leading + len(shape):
        received = f"shape {tuple(a.shape)}" if _is_array(a) else type(a).__name__
        letters = ("n, N" if leading == 2 else "N_i") + ", " + ", ".join(map(str, shape))
        raise ValueError(f"{name} must have shape ({letters}) as the model's input, got {received}")
    return array_namespace(a).reshape(a, (*a.shape[:leading], math.prod(shape)))


def classes_of(model: Sequential) -> int:
    """C, for a model whose outputs are logits of C >= 2 classes."""
    if not isinstance(model, Sequential):
        raise TypeError(f"model must be a hgp_ref.neural.Sequential, got {type(model).__name__}")
    if len(model.output_shape) != 1 or model.output_shape[0] < 2:
        raise ValueError(f"model must have outputs (C,), logits of C >= 2 classes, got {model.output_shape}")
    return model.output_shape[0]


def _longest_of(name: str, X: Any) -> int:
    """The largest number of instances of a client."""
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
