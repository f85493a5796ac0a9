"""Bad values by name, each made from the good value that it replaces; `Unfit` where that is impossible."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

import hgp_ref as hgp


class Unfit(Exception):
    """This bad value cannot be made of that good one."""


class _Anything:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None


class _NoLists(hgp.networks.Network):
    """A network whose lists are whatever it was given."""

    def __init__(self, lists: Any, n: int = 3) -> None:
        super().__init__(n)
        self._lists = lists

    expected_edges = 3.0

    def out_adjacency(self, s: int) -> Any:
        return self._lists


class _NoChannel(hgp.mixing.Averaging):
    n, steps, net = 3, 2, None

    def connect(self) -> Any:
        return None


def _fixed(value: Any) -> Callable[[Any], Any]:
    return lambda good: value


def _array(change: Callable[[np.ndarray], Any]) -> Callable[[Any], Any]:
    def make(good: Any) -> Any:
        if not isinstance(good, np.ndarray) or good.ndim == 0:
            raise Unfit
        return change(good)

    return make


def _with(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(good: np.ndarray) -> np.ndarray:
        if good.dtype.kind != "f":
            raise Unfit
        spoiled = good.copy()
        spoiled.reshape(-1)[-1] = value
        return spoiled

    return change


def _read_only(good: np.ndarray) -> np.ndarray:
    kept = good.copy()
    kept.setflags(write=False)
    return kept


def _strided(good: np.ndarray) -> np.ndarray:
    return np.repeat(good, 2, axis=-1)[..., ::2]


def _of_library(name: str) -> Callable[[np.ndarray], Any]:
    def change(good: np.ndarray) -> Any:
        try:
            return hgp.backend.get_backend(name).asarray(good)
        except ImportError as error:
            raise Unfit from error

    return change


def _problem(member: str, answer: Any) -> Callable[[Any], Any]:
    """A user's problem, which is the good one but for one member that is or returns nonsense."""

    def make(good: Any) -> Any:
        if not hasattr(good, "linearize"):
            raise Unfit
        members = {name: getattr(good, name) for name in dir(good) if name[0] != "_" and name != "trusted"}
        members = {name: staticmethod(value) if callable(value) else value for name, value in members.items()}
        if member in ("hvp", "cross"):

            def linearize(x: Any, lam: Any, batch: Any = None) -> Any:
                at = good.linearize(x, lam, batch)
                return SimpleNamespace(**{"hvp": at.hvp, "cross": at.cross, member: lambda u: answer})

            members["linearize"] = staticmethod(linearize)
        elif member in ("n_clients", "dim_x", "dim_lam"):
            members[member] = answer
        else:
            members[member] = staticmethod(lambda *args, **options: answer)
        return type("Spoiled", (), members)()

    return make


NAN34 = np.full((3, 4), np.nan)

SCALARS: dict[str, Any] = {
    "None": None,
    "True": True,
    "''": "",
    "'x'": "x",
    "b'x'": b"x",
    "-1": -1,
    "0": 0,
    "1": 1,
    "1.5": 1.5,
    "-0.5": -0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "1e308": 1e308,
    "1e-320": 1e-320,
    "10**30": 10**30,
    "-10**30": -(10**30),
    "2**63": 2**63,
    "10**12": 10**12,
    "10**9": 10**9,
    "1j": 1j,
    "Fraction": Fraction(1, 3),
    "float32 nan": np.float32("nan"),
    "int8 -1": np.int8(-1),
    "[]": [],
    "()": (),
    "{}": {},
    "set": {1, 2},
    "[None]": [None],
    "[nan]": [float("nan")],
    "['x']": ["x"],
    "[[1], [2, 3]]": [[1], [2, 3]],
    "[(0, 99)]": [(0, 99)],
    "range": range(3),
    "object": object(),
    "type": int,
    "lambda": lambda *args: None,
    "module": np,
    "0-d": np.array(1.0),
    "empty": np.empty(0),
    "(0, 3)": np.empty((0, 3)),
    "(3, 0)": np.empty((3, 0)),
    "strings": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "structured": np.zeros(3, dtype=[("a", float)]),
    "objects": np.array([None, "x", 1.0], dtype=object),
    "anything": _Anything(),
    "network": hgp.networks.RandomDirected(3),
    "network of 2": hgp.networks.RandomDirected(2),
    "averaging": hgp.ExactAverage(3),
    "averaging of 2": hgp.ExactAverage(2),
    "averaging without channel": _NoChannel(),
    "network: None": _NoLists(None),
    "network: beyond": _NoLists((np.array([0, 9, 9, 9]), np.zeros(3, np.int32))),
    "network: far": _NoLists((np.array([0, 1, 2, 3]), np.array([7, 8, 9], np.int32))),
    "network: floats": _NoLists((np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]))),
}

BAD: dict[str, Callable[[Any], Any]] = {
    **{name: _fixed(value) for name, value in SCALARS.items()},
    "generator": lambda good: (i for i in range(3)),
    "array float16": _array(lambda a: a.astype(np.float16)),
    "array float32": _array(lambda a: a.astype(np.float32)),
    "array longdouble": _array(lambda a: a.astype(np.longdouble)),
    "array int": _array(lambda a: a.astype(np.int64)),
    "array bool": _array(lambda a: a.astype(bool)),
    "array complex": _array(lambda a: a.astype(complex)),
    "array object": _array(lambda a: a.astype(object)),
    "array big-endian": _array(lambda a: a.astype(a.dtype.newbyteorder(">"))),
    "array with nan": _array(_with(np.nan)),
    "array with inf": _array(_with(np.inf)),
    "array with 1e308": _array(_with(1e308)),
    "array negated": _array(lambda a: -a),
    "array read-only": _array(_read_only),
    "array Fortran": _array(np.asfortranarray),
    "array strided": _array(_strided),
    "array reversed": _array(lambda a: a[::-1]),
    "array short": _array(lambda a: a[:-1]),
    "array narrow": _array(lambda a: a[..., :-1]),
    "array with an axis": _array(lambda a: a[None]),
    "array with a last axis": _array(lambda a: a[..., None]),
    "array without an axis": _array(lambda a: a[0]),
    "array flat": _array(lambda a: a.reshape(-1)),
    "array masked": _array(np.ma.masked_invalid),
    "array as list": _array(lambda a: a.tolist()),
    "array as tuple of rows": _array(tuple),
    "array torch": _array(_of_library("torch")),
    "array strict": _array(_of_library("array_api_strict")),
    **{
        f"problem {member} = {word}": _problem(member, answer)
        for member in ("inner_cost", "inner_grad", "outer_cost", "outer_grad", "linearize", "hvp", "cross")
        for word, answer in {"None": None, "'x'": "x", "1.0": 1.0, "nan": NAN34, "flat": np.zeros(3)}.items()
    },
    **{
        f"problem {member} = {answer!r}": _problem(member, answer)
        for member in ("n_clients", "dim_x", "dim_lam")
        for answer in (None, -1, 0, 2.0, "x", 10**12)
    },
}
