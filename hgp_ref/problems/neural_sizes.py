"""Term sizes of neural problems: the passes of a problem once more, with numbers that carry their errors.

The text of layers, losses and costs is evaluated on `Sized` arrays (`running_errors`), layer by layer as it stands in
`linear`, `conv`, `activations` and `pooling`. Sizes hold for the compiled steps of NumPy too, which make the same sums
in other orders. K times a size is at least the value itself, which every result rounds at least once.

What counts as exact: the data, x, λ and u. 1/N_i, rates and scales are rounded. Where rounding may have decided whether
a ReLU is active, or which pixel a MaxPool takes, sizes hold the whole jump of the derivative there.

Cost: about four times that of a pass in array-API text. Instances go in blocks of `BLOCK_BYTES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgp_ref.backend import Array, device, host_dtype
from hgp_ref.neural import AvgPool2d, Conv2d, Ensemble, Flatten, Linear, MaxPool2d, ReLU, Sequential, Softplus, Tanh
from hgp_ref.neural.ensemble import EnsembleTape
from hgp_ref.neural.tape import Tape
from hgp_ref.problems.arrays import check_argument
from hgp_ref.problems.instances import Instances
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_parts import Model, Part, Parts, weighted
from hgp_ref.problems.running_errors import Sized, Unit
from hgp_ref.problems.sized_namespace import SizedNamespace
from hgp_ref.problems.term_sizes import TermSizes

if TYPE_CHECKING:
    from hgp_ref.problems.neural import NeuralProblem

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


class _Opened:
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

    def ask(self, get: Callable[[_Opened], Sized]) -> Sized:
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
        bent = self.owner.cost.bend(self.tape.output, self.lam, self.view, moved.output, self.owner.xp)
        return self._adjoint.tangent(moved, weighted(self.view.mean, bent))

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
        numbers = problem.model.numbers(kept=False) * host_dtype(x).itemsize * COPIES
        self._block = max(1, BLOCK_BYTES // numbers)
        self._kept: list[_Opened] | None = [] if numbers * int(instances.counts.sum()) <= KEPT_BYTES else None

    def summed(self, get: Callable[[_Opened], Sized]) -> Sized:
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

    def _opened(self) -> Iterator[_Opened]:
        if self._kept:
            yield from self._kept
            return
        kept: list[_Opened] = []
        for part in Parts(self.problem.model, self.instances, self.instances.all):
            N = part.images.shape[1]
            width = max(1, self._block // part.images.shape[0])
            for start in range(0, N, width):
                opened = _Opened(self, part, slice(start, min(start + width, N)), math.ceil(N / width))
                if self._kept is not None:
                    kept.append(opened)
                yield opened
        self._kept = None if self._kept is None else kept


def _tape(model: Model, x: Sized, X: Sized, xp: Any) -> Any:
    if isinstance(model, Ensemble):
        return EnsembleTape([Tape(model.model.layers, part, X, xp) for part in model.split(x)], model, xp)
    return Tape(model.layers, x, X, xp)
