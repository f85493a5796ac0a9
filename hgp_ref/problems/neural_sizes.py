"""Term sizes of neural problems: the passes of a problem, evaluated on numbers that carry their rounding errors.

The code of layers, losses and costs runs on `Sized` arrays (`running_errors`) instead of arrays of a library. Each
operation bounds its own rounding error and propagates those of its arguments. The bounds hold for sums in any order,
so they also hold for the compiled layers of NumPy, which add in another order.

Data, x, λ and u count as exact; 1/N_i, rates and scales are rounded. Where rounding may have decided whether a ReLU is
active, or which pixel a MaxPool takes, the size includes the whole jump of the derivative. A size times γ is at least
the rounding of the value itself, which every result has.

The cost is about four times that of a pass of the array-API layers. Instances are processed in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgp_ref.backend import Array, device, host_dtype
from hgp_ref.neural import AvgPool2d, Conv2d, Ensemble, Flatten, Linear, MaxPool2d, ReLU, Sequential, Softplus, Tanh
from hgp_ref.neural.models import EnsembleTape, Tape
from hgp_ref.problems.base import check_argument
from hgp_ref.problems.instances import Instances
from hgp_ref.problems.neural_costs import NeuralCost, weighted
from hgp_ref.problems.running_errors import Sized, SizedNamespace, Unit
from hgp_ref.problems.term_sizes import TermSizes

if TYPE_CHECKING:
    from hgp_ref.problems.neural import NeuralProblem, Part

BLOCK_BYTES = 2**27  # arrays of one block of instances
STORED_BYTES = 2**28  # tapes that are stored for further products
COPIES = 8  # arrays of the size of an activation that exist at once
LAYERS = (AvgPool2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Softplus, Tanh)


def sizes_known(model: Sequential | Ensemble, *costs: NeuralCost) -> bool:
    """Whether all layers and costs are those of this package. A subclass may compute anything."""
    network = _network(model)
    layers = type(network) is Sequential and all(type(layer) in LAYERS for layer in network.layers)
    return layers and all("sizes_known" in vars(type(cost)) for cost in costs)


def neural_sizes(problem: NeuralProblem, x: Array, lam: Array, lam_roundings: int = 0) -> TermSizes:
    """The sizes at (x, λ) on full batches; λ itself may have been rounded `lam_roundings` times."""
    kernels = [math.prod(layer.kernel) for layer in _network(problem.model).layers if hasattr(layer, "kernel")]
    unit = Unit(x, max(kernels, default=1) + 4)  # the longest chain of additions: windows are added one by one
    inner = SizedCost(problem, problem.cost, problem._train, unit, x, lam, lam_roundings)
    outer = SizedCost(problem, problem.outer, problem._val, unit, x, lam, lam_roundings)
    xp, x_sized, lam_sized = inner.xp, inner.xp.exact(x), inner.xp.rounded(lam, lam_roundings)
    g, g_x = inner.total(SizedBlock.cost), inner.total(SizedBlock.gradient)
    f, f_x, f_lam = outer.total(SizedBlock.cost), outer.total(SizedBlock.gradient), outer.total(SizedBlock.along_lam)

    def hvp(u: Array) -> Array:
        check_argument("u", u, x, tuple(x.shape), "n_clients, dim_x")
        return final(inner.total(lambda block: block.hvp(u)) + problem.l2 * xp.direction(u))

    def cross(u: Array) -> Array:
        check_argument("u", u, x, tuple(x.shape), "n_clients, dim_x")
        return final(inner.total(lambda block: block.cross(u)))

    def final(a: Sized) -> Array:
        return unit.safe(a).error + a.size / unit.K

    return TermSizes(
        roundings=unit.K,
        inner_cost=final(g + 0.5 * problem.l2 * xp.sum(x_sized * x_sized, axis=-1)),
        inner_grad=final(g_x + problem.l2 * x_sized),
        outer_cost=final(f + 0.5 * problem.outer_l2 * xp.sum(lam_sized * lam_sized, axis=-1)),
        outer_grad=(final(f_x), final(f_lam + problem.outer_l2 * lam_sized)),
        hvp=hvp,
        cross=cross,
    )


def _network(model: Sequential | Ensemble) -> Sequential:
    return model.model if isinstance(model, Ensemble) else model


class SizedCost:
    """One of the two costs at (x, λ), block by block of its instances."""

    def __init__(
        self, problem: NeuralProblem, cost: NeuralCost, instances: Instances, unit: Unit, x: Array, lam: Array,
        lam_roundings: int,
    ) -> None:  # fmt: skip
        array = problem._xp
        self.problem, self.unit, self._instances = problem, unit, instances
        self.cost: Any = cost
        self.xp: Any = SizedNamespace(unit, array)
        self.x, self.lam = array.asarray(x, copy=True), array.asarray(lam, copy=True)
        self.lam_roundings = lam_roundings
        instance = problem.model.floats_per_instance(temporary=True) * host_dtype(x).itemsize * COPIES
        self._block_size = max(1, BLOCK_BYTES // instance)
        self._store = instance * int(instances.counts.sum()) <= STORED_BYTES
        self._stored: list[SizedBlock] = []

    def total(self, quantity: Callable[[SizedBlock], Sized]) -> Sized:
        """The sum over blocks of `quantity`, for all clients."""
        rows: list[Sized] = []
        last: slice | None = None
        for block in self._blocks():
            part = block.evaluate(quantity)
            if block.clients == last:  # the rounding of this addition is counted in the blocks
                previous = rows.pop()
                part = part.like(previous.v + part.v, previous.error + part.error)
            rows.append(part)
            last = block.clients
        self.unit.blocks, self.unit.rounded = 1, 0.0
        return self.xp.concat(rows, axis=0)

    def _blocks(self) -> Iterator[SizedBlock]:
        if self._stored:
            yield from self._stored
            return
        blocks = []
        for part in self.problem._parts_of(self._instances):
            n, N = part.images.shape[:2]
            width = max(1, self._block_size // n)
            for start in range(0, N, width):
                block = SizedBlock(self, part, slice(start, min(start + width, N)), math.ceil(N / width))
                if self._store:
                    blocks.append(block)
                yield block
        self._stored = blocks


@dataclass(frozen=True)
class SizedView:
    """The view of some instances that a cost sees."""

    targets: Array
    mean: Sized
    index: Array


class SizedBlock:
    """A block of instances of some clients with their tape; one of `count` blocks of these clients."""

    def __init__(self, owner: SizedCost, part: Part, instances: slice, count: int) -> None:
        self._owner, self.clients, self._count, xp = owner, part.clients, count, owner.xp
        model, array = owner.problem.model, owner.problem._xp
        n, N = part.images.shape[0], instances.stop - instances.start
        numbers = array.arange(instances.start, instances.stop, device=device(part.images))
        self._lam = xp.rounded(owner.lam[part.clients, :], owner.lam_roundings)
        self._view: Any = SizedView(
            part.view.targets[:, instances, :],
            xp.rounded(part.view.mean[:, instances], 2),
            array.broadcast_to(numbers, (n, N)),
        )
        pixels = {math.prod(shape[1:]) for shape in _network(model).shapes}  # rows of an instance in matrix products
        self._lengths = frozenset(N * k for k in pixels)
        self._rounded = 0.0  # relative error of the sizes of tape and adjoint
        self._set_unit()
        x, X = xp.exact(owner.x[part.clients, :]), xp.exact(part.images[:, instances, ...])
        self._tape: Any
        if isinstance(model, Ensemble):
            self._tape = EnsembleTape([Tape(model.model.layers, p, X, xp) for p in model.split(x)], model, xp)
        else:
            self._tape = Tape(model.layers, x, X, xp)
        self._rounded = owner.unit.rounded
        self._adjoint: Any = None

    def _set_unit(self) -> None:
        """Sums over the instances of this block continue over all its blocks."""
        unit = self._owner.unit
        unit.blocks, unit.lengths, unit.rounded = self._count, self._lengths, self._rounded

    def evaluate(self, quantity: Callable[[SizedBlock], Sized]) -> Sized:
        """`quantity` of this block."""
        self._set_unit()
        return self._owner.unit.safe(quantity(self))

    def cost(self) -> Sized:
        value = self._owner.cost.value(self._tape.output, self._lam, self._view, self._owner.xp)
        return self._owner.xp.sum(self._view.mean * value, axis=-1)

    def gradient(self) -> Sized:
        return self._tape.backward(self._weighted_slope())

    def along_lam(self) -> Sized:
        return self._owner.cost.along_lam(self._tape.output, self._lam, self._view, self._owner.xp)

    def hvp(self, u: Array) -> Sized:
        if self._adjoint is None:
            self._adjoint = self._tape.adjoint(self._weighted_slope())
            self._rounded = self._owner.unit.rounded
        tangent = self._tangent(u)
        cost, xp = self._owner.cost, self._owner.xp
        curvature = cost.curvature(self._tape.output, self._lam, self._view, tangent.output, xp)
        return self._adjoint.tangent(tangent, weighted(self._view.mean, curvature))

    def cross(self, u: Array) -> Sized:
        z_dot = self._tangent(u).output
        return self._owner.cost.cross(self._tape.output, self._lam, self._view, z_dot, self._owner.xp)

    def _weighted_slope(self) -> Sized:
        slope = self._owner.cost.slope(self._tape.output, self._lam, self._view, self._owner.xp)
        return weighted(self._view.mean, slope)

    def _tangent(self, u: Array) -> Any:
        return self._tape.tangent(self._owner.xp.direction(u[self.clients, :]))
