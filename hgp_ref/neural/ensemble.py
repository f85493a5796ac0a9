"""K networks of one architecture side by side: x holds their parameters one after the other, z (K, ...) their outputs.

Every derivative is that of each network by itself, so a tape is K tapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace, array_namespace
from hgp_ref.neural.sequential import Sequential
from hgp_ref.neural.tape import Adjoint, Tangent, Tape
from hgp_ref.philox import check_seed


class Ensemble:
    """`components` networks like `model`; used as a `Sequential` is.

    Parameters
    ----------
    model : Sequential
        The architecture of every component.
    components : int
        How many; their parameters stand one after the other in x.

    Raises
    ------
    TypeError, ValueError
        `model` must be a Sequential, `components` an integer ≥ 1.

    Examples
    --------
    >>> hgp.neural.Ensemble(hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3)), 2).dim
    30
    """

    def __init__(self, model: Sequential, components: int) -> None:
        arguments.kind("model", model, Sequential)
        self.model, self.components = model, arguments.integer("components", components, 1, arguments.LONGEST)
        self.input_shape, self.output_shape = model.input_shape, (self.components, *model.output_shape)
        self.dim = self.components * model.dim

    def __repr__(self) -> str:
        return f"Ensemble({self.model!r}, {self.components})"

    def forward(self, x: Array, X: Array) -> EnsembleTape:
        """As `Sequential.forward`; outputs are (n, N, K, *model.output_shape).

        Parameters
        ----------
        x : (n, d).
        X : (n, N, *input_shape).

        Returns
        -------
        EnsembleTape.
        """
        arguments.same_kind(x=x, X=X)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"x: shape {tuple(x.shape)} given, needed (n, {self.dim}) = (n, components * model.dim)")
        return EnsembleTape([self.model.forward(part, X) for part in self.split(x)], self, array_namespace(x))

    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance.  # (n, N, K, *model.output_shape)

        Parameters
        ----------
        x : (n, d).
        X : (n, N, *input_shape).

        Returns
        -------
        (n, N, K, *model.output_shape).
        """
        return self.forward(x, X).output

    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """As `Sequential.init`, component k with seed + k.  # (n, d)

        Parameters
        ----------
        n : clients.
        seed : of component 0.
        like : an array in whose library and on whose device.
        dtype : such as "float32".
        same_for_all : whether clients begin alike.

        Returns
        -------
        (n, d).
        """
        seed = check_seed(seed)
        options: dict[str, Any] = {"like": like, "dtype": dtype, "same_for_all": same_for_all}
        parts = [self.model.init(n, seed + k, **options) for k in range(self.components)]
        return array_namespace(parts[0]).concat(parts, axis=1)

    def numbers(self, kept: bool = True) -> int:
        """As `Sequential.numbers`.

        Parameters
        ----------
        kept : whether those that are kept are meant.

        Returns
        -------
        int.
        """
        return self.components * self.model.numbers(kept)

    def places(self, out: Array | None) -> list[Array | None]:
        """Where each component's gradient goes in `out`, if there is one.

        Parameters
        ----------
        out : (n, d) or None.

        Returns
        -------
        K views of it, or Nones.
        """
        return [None] * self.components if out is None else list(self.split(out))

    def split(self, x: Array) -> list[Array]:
        """The parameters of each component.  # K arrays (n, model.dim)

        Parameters
        ----------
        x : (n, d).

        Returns
        -------
        K arrays (n, model.dim).
        """
        d = self.model.dim
        return [x[:, k * d : (k + 1) * d] for k in range(self.components)]


@dataclass(frozen=True)
class EnsembleTangent:
    """Tangents of all components."""

    output: Array  # (n, N, K, *shape)
    each: list[Tangent]


class EnsembleTape:
    """Tapes of all components, with the members of one `Tape`."""

    def __init__(self, tapes: list[Tape], ensemble: Ensemble, xp: Namespace) -> None:
        self._tapes, self._ensemble, self._xp = tapes, ensemble, xp
        self.output = xp.stack([tape.output for tape in tapes], axis=2)

    def backward(self, c: Array, out: Array | None = None) -> Array:
        """As `Tape.backward`.  # (n, d)"""
        places = self._ensemble.places(out)
        parts = [tape.backward(c[:, :, k, ...], places[k]) for k, tape in enumerate(self._tapes)]
        return self._xp.concat(parts, axis=1) if out is None else out

    def adjoint(self, c: Array) -> EnsembleAdjoint:
        """As `Tape.adjoint`."""
        each = [tape.adjoint(c[:, :, k, ...]) for k, tape in enumerate(self._tapes)]
        return EnsembleAdjoint(each, self._ensemble, self._xp)

    def tangent(self, u: Array) -> EnsembleTangent:
        """As `Tape.tangent`."""
        parts = self._ensemble.split(u)
        each = [tape.tangent(part) for tape, part in zip(self._tapes, parts, strict=True)]
        return EnsembleTangent(self._xp.stack([moved.output for moved in each], axis=2), each)


class EnsembleAdjoint:
    """Adjoints of all components, with the members of one `Adjoint`."""

    def __init__(self, each: list[Adjoint], ensemble: Ensemble, xp: Namespace) -> None:
        self._each, self._ensemble, self._xp = each, ensemble, xp

    def tangent(self, moved: EnsembleTangent, c_dot: Array, out: Array | None = None) -> Array:
        """As `Adjoint.tangent`.  # (n, d)"""
        places = self._ensemble.places(out)
        parts = [adjoint.tangent(moved.each[k], c_dot[:, :, k, ...], places[k]) for k, adjoint in enumerate(self._each)]
        return self._xp.concat(parts, axis=1) if out is None else out
