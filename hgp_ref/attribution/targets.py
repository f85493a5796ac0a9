"""What an influence is on: the loss of single instances or of groups of them, as outer costs that share one run.

With ℓ_jk the loss of validation instance k of client j, a group G has the outer cost

    f_G(x) = (1/|G|) Σ_{(j,k) ∈ G} ℓ_jk(x_j),

the mean over its instances, so that all validation instances of client j give its own cost f_j. Self-influence has one
outer cost for each training instance: its own loss, without its weight λ.

R outer costs differ in the right-hand side Σ_j ∂_x f_j of the linear system alone. The Hessians are the same, so R
systems are solved by one linearization, and one message carries the vectors of all R.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hgp_ref.attribution.retraining import Pair, Removal, read_removals
from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, to_host
from hgp_ref.problems.base import Problem, as_problem, optional
from hgp_ref.problems.transforms import Transformed
from hgp_ref.validation import check_memory

On = str | Iterable[Removal | Pair]
ON = ("total", "instances", "self")


class InstanceCosts(Transformed):
    """The problem `inner` with R outer costs: `outer_grad` has a leading axis for them."""

    trusted = True
    term_sizes = None

    def __init__(self, inner: Problem, groups: tuple[Removal, ...], counts: np.ndarray, training: bool) -> None:
        super().__init__(inner)
        self._groups, self._instances, self._training = groups, counts, training

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x f_G and 0 along λ for each group G.  # (R, n, d_x), (R, n, d_λ)"""
        n, R, xp = self.n_clients, len(self._groups), array_namespace(x)
        check_memory(f"{R} outer costs", R * n * (self.dim_x + self.dim_lam))
        zero = xp.zeros_like(x[:1, :])  # the row of a client without instances in the group
        gradients: dict[int, Array] = {}  # of instance k of every client
        costs = []
        for group in self._groups:
            share = np.bincount([i for i, _ in group], minlength=n) / len(group)
            if len(group) > 1:
                rows = self._gradient(x, lam, _batch(group, n))
            else:
                k = group[0][1]
                if k not in gradients:
                    gradients[k] = self._gradient(x, lam, np.where(k < self._instances[:, None], k, -1))
                rows = gradients[k]
            costs.append(
                xp.concat([float(share[i]) * rows[i : i + 1, :] if share[i] else zero for i in range(n)], axis=0)
            )
        return xp.stack(costs), xp.zeros((R, n, self.dim_lam), dtype=x.dtype, device=device(x))

    def _gradient(self, x: Array, lam: Array, batch: np.ndarray) -> Array:
        """∂_x of each client's mean loss on a mini-batch (n, b) of its instances.  # (n, d_x)

        The mini-batch cost of one training instance is λ_ik ℓ_ik plus terms without λ, which cancel in a difference.
        """
        if not self._training:
            return optional(self._inner, "validation_grad")(x, lam, batch=from_host(batch, like=x))
        xp = array_namespace(lam)
        prepared = self._inner.prepare_batches(batch[None, None], like=x)[0, 0]
        one, none = (self._inner.inner_grad(x, part, prepared) for part in (xp.ones_like(lam), xp.zeros_like(lam)))
        if np.all(batch == 0):  # the first instance of every client
            _check_batch(one, none, self._inner.inner_grad(x, _first_alone(lam), prepared))
        return one - none

    def _term_sizes(self, x: Array, lam: Array) -> Any:
        raise NotImplementedError("sizes of terms refer to one outer cost")


def _check_batch(one: Array, none: Array, alone: Array) -> None:
    """ValueError if the gradient on the first instance changes with the weights of others, as without `batch`.

    It has all weights 1 in `one`, all 0 in `none`, and only that of the instance 1 in `alone`.
    """
    eps, (first, zero, changed) = float(np.finfo(host_dtype(one)).eps), map(to_host, (one, none, alone))
    with np.errstate(invalid="ignore"):  # infinities: the run reports them
        off, loss = (float(np.max(np.nan_to_num(np.abs(first - other)))) for other in (changed, zero))
    if off > 1e-3 * loss + 1e3 * eps * float(np.max(np.abs(first))):
        raise ValueError(
            "problem.inner_grad(x, lam, batch) must depend on the weights of the instances in batch alone for "
            "on='self', got a value that changes with other weights; does the inner cost use batch?"
        )


def _first_alone(lam: Array) -> Array:
    """The weight 1 for the first instance of each client, 0 for the others."""
    weights = np.zeros(tuple(lam.shape), dtype=host_dtype(lam))
    weights[..., 0] = 1
    return from_host(weights, like=lam)


def _batch(group: Removal, n: int) -> np.ndarray:
    """The instances of a group as a mini-batch (n, b), -1 for padding."""
    rows = [[k for j, k in group if j == i] for i in range(n)]
    batch = np.full((n, max(map(len, rows))), -1)
    for i, row in enumerate(rows):
        batch[i, : len(row)] = row
    return batch


def read_on(problem: Problem, on: On, counts: np.ndarray) -> tuple[Problem, tuple[Removal, ...]]:
    """The problem with the outer costs of `on`, and the groups of instances; `counts` are the training instances."""
    if isinstance(on, str):
        if on not in ON:
            raise ValueError(f"on must be 'total', 'instances', 'self' or a list of groups of pairs, got {on!r}")
        if on == "total":
            return problem, ()
    training = isinstance(on, str) and on == "self"
    if not training:
        full = as_problem(problem)
        counts = optional(full, "validation_counts")
        if counts is None or optional(full, "validation_grad") is None:
            raise ValueError(
                f"on must be 'total' or 'self' for {type(problem).__name__}, which has no validation_counts "
                f"and validation_grad(x, lam, batch), got {on if isinstance(on, str) else 'groups'!r}"
            )
    if isinstance(on, str):
        groups: tuple[Removal, ...] = tuple(((i, k),) for i, N in enumerate(counts.tolist()) for k in range(N))
    else:
        groups = read_removals(on, counts, name="on")
        for r, group in enumerate(groups):
            if not group:
                raise ValueError(f"on[{r}] must have at least one pair (client, index), got none")
        if not groups:
            raise ValueError("on must have at least one group, got none")
    return InstanceCosts(problem, groups, counts, training), groups
