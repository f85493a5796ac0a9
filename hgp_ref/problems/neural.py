"""Neural clients, whose costs are means over instances k of functions of a network's outputs z and of λ_i:

    g_i(x, λ_i) = Σ_k mean_ik l(z_ik(x), λ_i) + (l2/2) |x|²
    f_i(x, λ_i) = Σ_k mean'_ik l'(z'_ik(x), λ_i) + (outer_l2/2) |λ_i|²

Networks are those of `hgp_ref.neural`, l and l' are written in `neural_cost`. With J the Jacobian of all
outputs along x, c = mean ∂l/∂z, ż = J u and ċ = mean (∂²l/∂z²) ż:

    ∂_x g = J^T c + l2 x,     ∂²_x g u = (J^T c)˙ + l2 u,     ∂²_{xλ} g u = Σ_k mean_k (∂²l_k/∂λ∂z) ż_k

The last two share ż: `products(u)` makes it once. f uses the instances X_val, y_val, or those
of training where they are not given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems.arrays import Portable, check_argument, check_batch, chosen, mover, taker
from hgp_ref.problems.digests import digest
from hgp_ref.problems.instances import View
from hgp_ref.problems.neural_answers import ask, ask_scores
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_data import read_images
from hgp_ref.problems.neural_linearization import NeuralLinearization
from hgp_ref.problems.neural_parts import Model, Part, Parts, Rows, add_scaled, weighted
from hgp_ref.problems.neural_sizes import known, term_sizes
from hgp_ref.problems.term_sizes import TermSizes


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

    Raises
    ------
    TypeError, ValueError
        `model` must be a Sequential or an Ensemble, images fit its input, labels its classes, rates be ≥ 0.

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
                f"{'X_val' if X_val is None else 'y_val'}: None given, needed both X_val and y_val or none"
            )
        if not isinstance(model, Sequential | Ensemble):
            raise TypeError(f"model: {type(model).__name__} given, needed a Sequential or an Ensemble")
        arguments.kind("cost", cost, NeuralCost)
        if outer is not None:
            arguments.kind("outer", outer, NeuralCost)
        self.model, self.cost, self.outer = model, cost, cost if outer is None else outer
        self.l2, self.outer_l2 = arguments.nonnegative("l2", l2), arguments.nonnegative("outer_l2", outer_l2)
        self._train = read_images(model, X, y, cost.loss, ("X", "y"))
        self._val = self._train if X_val is None else read_images(model, X_val, y_val, cost.loss, ("X_val", "y_val"))
        train, val = self._train.all.features, self._val.all.features
        self._xp = arguments.same_kind(X=train, X_val=val)
        if train.shape[0] != val.shape[0]:
            raise ValueError(f"X_val: {val.shape[0]} clients given, needed {train.shape[0]} as in X")
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
        """Share of instances whose class client i predicts with x_i and λ_i; of X, y or the outer cost's.  # (n,)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        X : (n, N, *input_shape) or a list; by default the data of the outer cost.
        y : their labels.

        Returns
        -------
        (n,).
        """
        self._enter(x, lam)
        if X is None and y is not None:
            raise ValueError("X: None given with y, needed both X and y or none")
        given = self._val if X is None else read_images(self.model, X, y, self.cost.loss, ("X", "y"))
        if len(given.counts) != self.n_clients:
            raise ValueError(f"X: {len(given.counts)} clients given, needed {self.n_clients} as the problem has")
        xp, rows, classes = self._xp, Rows((self.n_clients,), x), int(given.all.targets.shape[-1])

        def work(k: int, part: Part) -> None:
            z = self.model.logits(x[part.clients, :], part.images)
            guess = xp.argmax(ask_scores(self.cost, z, lam[part.clients, :], classes, xp), axis=-1)  # (n, N)
            truth = xp.argmax(xp.astype(part.view.targets, xp.int32), axis=-1)
            rows.put(part.clients, xp.sum(part.view.mean * xp.astype(guess == truth, x.dtype), axis=-1))

        Parts(self.model, given, given.all).each(work)
        return rows.array(xp)

    def data_digest(self) -> str:
        """SHA-256 of the model's text, the costs, the data and the settings, which checkpoints compare.

        Returns
        -------
        str.
        """
        costs = [digest(cost) for cost in (self.cost, self.outer)]
        return digest(self, repr(self.model), *costs, self._train, self._val)

    def restrict(self, clients: Any) -> NeuralProblem:
        """The same problem with some of its clients: a slice, or a sequence of indices.

        Parameters
        ----------
        clients : a slice or a sequence of indices.

        Returns
        -------
        NeuralProblem.
        """
        which, some = chosen(clients, self.n_clients), copy.copy(self)
        some._train = self._train.restrict(which, taker(which))
        some._val = some._train if self._val is self._train else self._val.restrict(which, taker(which))
        some.clients = self.clients[which]
        some.n_clients = len(some.clients)
        return some

    def to(self, target: Any, dtype: Any = None) -> NeuralProblem:
        """The same problem in another library (its name, or an array to be beside) and, if given, another dtype.

        Parameters
        ----------
        target : name of a library, or an array to be beside.
        dtype : such as "float32"; None keeps it.

        Returns
        -------
        NeuralProblem.
        """
        move, moved = mover(target, dtype), copy.copy(self)
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
                raise ValueError(f"{name}: leading run axes {lead} given, needed none; call once for each run")
        return Parts(self.model, self._train, self._train.select(batch, xp=self._xp))
