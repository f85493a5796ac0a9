"""Checks of arguments. Every message has the form "steps must be an integer >= 1, got 0".

A value of the wrong type raises TypeError, one of the right type but out of range ValueError. Each function returns the
argument in the form that the package computes with.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import array_api_compat as compat
import numpy as np

from hgp_ref.backend import Array, Namespace, all_finite, class_name, computes_on_device, device, is_array

T = TypeVar("T")

LONGEST = 10**9  # iterations, steps and calls of one run, and entries along one axis, at most


def wrong_type(name: str, value: object, expected: str) -> NoReturn:
    """Raise TypeError: "name must be expected, got value (type)"."""
    raise TypeError(f"{name} must be {expected}, got {short(value)} ({type(value).__name__})")


def wrong_value(name: str, value: object, expected: str) -> NoReturn:
    """Raise ValueError: "name must be expected, got value"."""
    raise ValueError(f"{name} must be {expected}, got {short(value)}")


def integer(name: str, value: object, low: int = 1, high: int | None = None) -> int:
    """An integer from `low` to `high` as an int; booleans and floats are refused."""
    if type(value) is int and low <= value and (high is None or value <= high):  # several times for every graph
        return value
    unbounded = high is None or (high == LONGEST and not (isinstance(value, int) and value > high))
    expected = f"an integer >= {low}" if unbounded else f"an integer from {low} to {high}"
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        wrong_type(name, value, expected)
    try:
        index = operator.index(value)
    except TypeError:  # arrays with several entries have __index__ too
        wrong_type(name, value, expected)
    if index < low or (high is not None and index > high):
        wrong_value(name, index, expected)
    return index


def number(name: str, value: object, expected: str = "a finite number") -> float:
    """A finite real number as a float; `expected` describes it in the message."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number) or isinstance(value, complex):
        wrong_type(name, value, expected)
    try:
        real = float(value)
    except OverflowError:
        wrong_value(name, value, expected)
    if not math.isfinite(real):
        wrong_value(name, value, expected)
    return real


def positive(name: str, value: object) -> float:
    """A finite number > 0 as a float."""
    real = number(name, value, "a finite number > 0")
    if not real > 0:
        wrong_value(name, value, "a finite number > 0")
    return real


def nonnegative(name: str, value: object) -> float:
    """A finite number >= 0 as a float."""
    real = number(name, value, "a finite number >= 0")
    if not real >= 0:
        wrong_value(name, value, "a finite number >= 0")
    return real


def between(name: str, value: object, low: float, high: float) -> float:
    """A number in [low, high] as a float."""
    expected = f"a number in [{low:g}, {high:g}]"
    real = number(name, value, expected)
    if not low <= real <= high:
        wrong_value(name, value, expected)
    return real


def probability(name: str, value: object) -> float:
    """A number in [0, 1] as a float."""
    return between(name, value, 0.0, 1.0)


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """One of the strings `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        wrong_value(name, value, f"one of {', '.join(map(repr, options))}")
    return value


def boolean(name: str, value: object) -> bool:
    """True or False; 0, 1 and other values that only count as one are refused."""
    if not isinstance(value, bool | np.bool_):
        wrong_type(name, value, "True or False")
    return bool(value)


def function(name: str, value: Any) -> Any:
    """Anything that can be called."""
    if not callable(value):
        wrong_type(name, value, "a function")
    return value


def check_signature(name: str, value: Any, *arguments: str, **keywords: str) -> None:
    """TypeError unless the function `value` can be called with these arguments and keywords."""
    function(name, value)
    call = f"{name}({', '.join([*arguments, *(f'{key}=' for key in keywords)])})"
    try:
        inspect.signature(value).bind(*arguments, **keywords)
    except (TypeError, ValueError) as error:  # ValueError: a built-in function without a signature
        raise TypeError(f"{name} must be a function that can be called as {call}, got {value!r}: {error}") from error


def instance(name: str, value: object, cls: type) -> None:
    """TypeError unless `value` is an instance of `cls`."""
    if not isinstance(value, cls):
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        wrong_type(name, value, f"{article} {cls.__name__}")


def path(name: str, value: Any) -> Path:
    """A path in the file system, as text or as a path; empty text is refused."""
    if not isinstance(value, str | os.PathLike):
        wrong_type(name, value, "a path")
    if value == "":
        wrong_value(name, value, "a path that is not empty")
    return Path(value)


def returned_bool(name: str, value: Any) -> bool:
    """What the function `name` returned, as True or False; TypeError for an array of several entries."""
    shape = getattr(value, "shape", ())
    try:
        if math.prod(shape) == 1:
            return bool(value)
    except (TypeError, ValueError, RuntimeError) as error:  # what libraries raise for objects without a truth value
        raise TypeError(f"{name} must return True or False, got {type(value).__name__}") from error
    raise TypeError(f"{name} must return True or False, got {type(value).__name__} of shape {tuple(shape)}")


# Arrays ---------------------------------------------------------------------------------------------------------------


def plain_numbers(name: str, value: object, kinds: str = "biuf") -> None:
    """TypeError unless `value` is a plain NumPy array with an axis, its dtype of one of NumPy's `kinds`."""
    expected = "a plain NumPy array of " + ("integers" if set(kinds) <= set("iu") else "real numbers")
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"{name} must be {expected}, got {class_name(value)}")
    if value.dtype.kind not in kinds or value.ndim == 0:
        raise TypeError(f"{name} must be {expected}, got {value.dtype} of shape {value.shape}")


def host_array(name: str, value: Any) -> np.ndarray:
    """An array on the host or a sequence as a NumPy array."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked array, whose mask would be lost")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, got {type(value).__name__} with rows of unequal lengths") from error
    except (TypeError, RuntimeError, OverflowError) as error:  # arrays on a device raise errors of their own
        why = "; move it with hgp.backend.to_host" if is_array(value) else f": {error}"
        raise TypeError(f"{name} must be an array on the host, got {class_name(value)}{why}") from error


def real_floating(name: str, dtype: Any) -> np.dtype:
    """float32 or float64, as a dtype or by name."""
    try:
        converted = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        wrong_type(name, dtype, "float32 or float64")
    if converted not in (np.float32, np.float64) or not converted.isnative:
        raise TypeError(f"{name} must be float32 or float64, got {converted}")
    return converted


def array(name: str, a: Any) -> None:
    """TypeError unless `a` is an array of some library, plain and no scalar."""
    if not is_array(a):
        raise TypeError(f"{name} must be an array, got {'None' if a is None else class_name(a)}")
    if isinstance(a, np.ma.MaskedArray | np.matrix):  # their products and sums are not those of arrays
        raise TypeError(f"{name} must be a plain array, got {class_name(a)}")
    dense(name, a)


def dense(name: str, a: Any) -> None:
    """TypeError for tensors of PyTorch that do not store every entry: meta, sparse and nested ones."""
    if getattr(a, "is_meta", False) is True:
        raise TypeError(f"{name} must be an array with values, got a tensor on the device 'meta', which has none")
    layout = str(getattr(a, "layout", ""))
    if layout.startswith("torch.") and (layout != "torch.strided" or a.is_nested):
        kind = "a nested tensor" if a.is_nested else f"a tensor of layout {layout}"
        raise TypeError(f"{name} must be a dense array, got {kind}; convert it by to_dense() or padding")


def same_kind(**arrays: Array) -> Namespace:
    """The namespace of `arrays`: float32 or float64 in native byte order, all of one library, device and dtype."""
    for name, a in arrays.items():
        array(name, a)
    libraries = {name: compat.array_namespace(a) for name, a in arrays.items()}
    if len({id(xp) for xp in libraries.values()}) > 1:
        listing = _listing({name: library.__name__ for name, library in libraries.items()})
        raise TypeError(
            f"mixed array libraries: {listing}; move one with hgp.backend.from_host(a, like=other) or to_host"
        )
    xp = next(iter(libraries.values()))
    dtypes = {name: a.dtype for name, a in arrays.items()}
    for name, dtype in dtypes.items():
        if not xp.isdtype(dtype, "real floating"):
            raise TypeError(f"{name} must hold real floating-point numbers, got {dtype}")
        if dtype not in (xp.float32, xp.float64) or not getattr(dtype, "isnative", True):
            raise TypeError(f"{name} must hold float32 or float64 in native byte order, got {dtype}")
    if len(set(dtypes.values())) > 1:
        raise TypeError("mixed dtypes: " + _listing(dtypes))
    devices = {name: device(a) for name, a in arrays.items()}
    if len({str(d) for d in devices.values()}) > 1:
        raise TypeError("mixed devices: " + _listing(devices))
    return xp


def _listing(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in values.items())


def shape(name: str, x: Array, expected: tuple[int, ...], meaning: str, run_axes: bool = True) -> None:
    """ValueError unless the trailing axes of `x` are `expected`; leading (run) axes are free where allowed."""
    if not run_axes and tuple(x.shape) != expected:
        raise ValueError(f"{name} must have shape {expected} = {meaning}, got {tuple(x.shape)}")
    if tuple(x.shape[-len(expected) :]) != expected:
        axes = ", ".join(map(str, expected))
        raise ValueError(f"{name} must have shape (..., {axes}) = {meaning}, got {tuple(x.shape)}")


def finite(name: str, x: Array) -> None:
    """ValueError if `x` contains NaN or infinity (one scalar goes to the host)."""
    if not all_finite(x):
        raise ValueError(f"{name} must not contain NaN or infinite values")


def returned_array(
    method: str, value: Array, expected: tuple[int, ...], like: Array | None = None, owner: str = "problem"
) -> Array:
    """What `owner.method` returned: an array of shape `expected`, with the library, device and dtype of `like`.

    An (n,) array would be broadcast silently against (n, 1); a float64 one would turn a float32 run into float64.
    """
    if not hasattr(value, "shape"):
        raise TypeError(f"{owner}.{method} must return an array of shape {tuple(expected)}, got {type(value).__name__}")
    if tuple(value.shape) != tuple(expected):
        raise ValueError(f"{owner}.{method} must return shape {tuple(expected)}, got {tuple(value.shape)}")
    if like is not None:
        if type(value) is not type(like) and _library(value) is not _library(like):
            raise TypeError(f"{owner}.{method} must return {class_name(like)} like x, got {class_name(value)}")
        if value.dtype != like.dtype:
            raise TypeError(f"{owner}.{method} must return {like.dtype} like x, got {value.dtype}")
        if device(value) != device(like):
            raise TypeError(f"{owner}.{method} must return an array on {device(like)} like x, got {device(value)}")
    return value


def _library(a: Array) -> Namespace | None:
    return compat.array_namespace(a) if is_array(a) else None


def real_array(
    name: str, value: object, axes: tuple[int | None, ...], meaning: str, low: float | None = None
) -> np.ndarray:
    """A host array of finite numbers >= `low` as float64, with axes of the given lengths (None: any)."""
    a = host_array(name, value)
    if a.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be an array of numbers, shape {meaning}, got {a.dtype} ({type(value).__name__})")
    if a.ndim != len(axes) or any(n is not None and n != m for n, m in zip(axes, a.shape, strict=True)):
        raise ValueError(f"{name} must have shape {meaning}, got {a.shape}")
    if a.size == 0:
        raise ValueError(f"{name} must have shape {meaning} and not be empty, got {a.shape}")
    converted = a.astype(np.float64)
    if not np.isfinite(converted).all():
        raise ValueError(f"{name} must not contain NaN or infinite values")
    if low is not None and converted.min() < low:
        raise ValueError(f"{name} must not contain numbers below {low:g}, got {converted.min():.3g}")
    return converted


# Declarations ---------------------------------------------------------------------------------------------------------
#
#     @checked(steps=Integer(1), slope=Nonnegative(), variant=Choice("paper", "published"), seed=Optional(Seed()))
#     def f(x, steps, slope=0.0, variant="paper", seed=None): ...
#
# checks and converts these arguments at every call of f, before its body runs. In front of a class it does so for the
# arguments of the constructor. Tests derive good and bad values from the same declarations (tests/fuzz).


class Rule:
    """What an argument may be: `check` converts or refuses a value, `accepted` and `refused` are examples for tests."""

    accepted: tuple[Any, ...] = ()
    refused: tuple[Any, ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """The value as the function computes with it; TypeError or ValueError if it is not allowed."""
        raise NotImplementedError


class Integer(Rule):
    """An integer from `low` to `high`."""

    def __init__(self, low: int = 1, high: int | None = None) -> None:
        self.low, self.high = low, high
        self.accepted = (low, np.int64(low)) if high is None else (low, high)
        self.refused = (low - 1, low + 0.5, float(low), True, "x", None, [low], -(10**30), float("nan"))
        self.refused += () if high is None else (high + 1, 10**30)

    def check(self, name: str, value: Any) -> int:
        return integer(name, value, self.low, self.high)


class Count(Integer):
    """A number of steps, iterations or rounds: an integer from `low` to 10⁹."""

    def __init__(self, low: int = 1) -> None:
        super().__init__(low, LONGEST)


class Seed(Integer):
    """A seed of the random numbers: an integer from 0 to 2⁶⁴ − 1."""

    def __init__(self) -> None:
        super().__init__(0, 2**64 - 1)


class Number(Rule):
    """A finite number."""

    accepted: tuple[Any, ...] = (1.0, 1, np.float32(0.5))
    refused: tuple[Any, ...] = (float("nan"), float("inf"), 1j, True, "x", None, [1.0], 10**400)

    def check(self, name: str, value: Any) -> float:
        return number(name, value)


class Positive(Number):
    """A finite number > 0."""

    refused = (*Number.refused, 0, 0.0, -1.0)

    check = staticmethod(positive)


class Nonnegative(Number):
    """A finite number >= 0."""

    accepted = (*Number.accepted, 0)
    refused = (*Number.refused, -1e-300, -1)

    check = staticmethod(nonnegative)


class Between(Number):
    """A number in [low, high], or in (low, high]."""

    def __init__(self, low: float, high: float, exclude_low: bool = False) -> None:
        self.low, self.high, self.exclude_low = low, high, exclude_low
        self.accepted = (high, (low + high) / 2) if exclude_low else (low, high, (low + high) / 2)
        self.refused = (*Number.refused, low - 1, high + 1, math.nextafter(high, math.inf))
        self.refused += (low,) if exclude_low else ()

    def check(self, name: str, value: Any) -> float:
        real = between(name, value, self.low, self.high)
        if self.exclude_low and real == self.low:
            wrong_value(name, value, f"a number in ({self.low:g}, {self.high:g}]")
        return real


class Probability(Between):
    """A number in [0, 1]."""

    def __init__(self) -> None:
        super().__init__(0.0, 1.0)


class Choice(Rule):
    """One of the strings `options`."""

    def __init__(self, *options: str) -> None:
        self.accepted, self.refused = options, ("", options[0] + "x", None, 0, True, list(options), b"x")

    def check(self, name: str, value: Any) -> str:
        return choice(name, value, self.accepted)


class Boolean(Rule):
    """True or False."""

    accepted = (True, False, np.True_)
    refused = (0, 1, None, "x", 1.0, [])

    check = staticmethod(boolean)


class Function(Rule):
    """A function that can be called with these arguments; without any, anything that can be called."""

    accepted = (lambda *arguments: None,)
    refused = (None, 1, "x", [], np.ones(2))

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def check(self, name: str, value: Any) -> Any:
        if self.arguments:
            check_signature(name, value, *self.arguments)
        return function(name, value)


class FilePath(Rule):
    """A path in the file system, as text or as a path."""

    accepted = (Path("x"),)
    refused = ("", None, 1, b"x", ["x"], True)

    check = staticmethod(path)


class Instance(Rule):
    """An instance of the class `cls`."""

    refused = (None, 1, 0.5, "x", [], {}, object(), int)

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def check(self, name: str, value: Any) -> Any:
        instance(name, value, self.cls)
        return value


class Optional(Rule):
    """None, or what `rule` allows."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.accepted = (None, *rule.accepted)
        self.refused = tuple(value for value in rule.refused if value is not None)

    def check(self, name: str, value: Any) -> Any:
        return None if value is None else self.rule.check(name, value)


def checked(**rules: Rule) -> Callable[[T], T]:
    """Check and convert the named arguments at every call, in the order in which they are declared.

    If an argument is a CuPy array, the call runs with the device of the first one as CuPy's current device.
    """

    def decorate(target: Any) -> Any:
        if isinstance(target, type):
            target.__init__ = decorate(target.__init__)  # type: ignore[misc]
            return target
        names = list(inspect.signature(target).parameters)
        places = [(name, names.index(name), rule) for name, rule in rules.items()]
        compute = computes_on_device(target)

        @functools.wraps(target)
        def call(*args: Any, **options: Any) -> Any:
            values = list(args)
            for name, place, rule in places:
                if name in options:
                    options[name] = rule.check(name, options[name])
                elif place < len(values):
                    values[place] = rule.check(name, values[place])
            return compute(*values, **options)

        call.rules = rules  # type: ignore[attr-defined]
        return call

    return decorate


def declared(target: Any) -> dict[str, Rule]:
    """The declarations of a function, or of the constructor of a class; empty without any."""
    function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    return getattr(function, "rules", {})


# Memory ---------------------------------------------------------------------------------------------------------------

GIB = 2**30


@functools.cache
def memory() -> int | None:
    """Bytes that this process may use: the machine's memory or the process's limit; None if the system does not tell.

    Larger arrays are refused, because Linux may grant them and kill the process when they are written to.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no sysconf, or not these names
        return None
    try:
        import resource
    except ImportError:  # not on Windows
        return machine
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def check_memory(arguments: str, numbers: int) -> None:
    """MemoryError unless `numbers` numbers of 8 bytes fit; `arguments` names what asks for them."""
    available = memory()
    if available is not None and 8 * numbers > available:
        raise MemoryError(
            f"{arguments} would need {8 * numbers / GIB:,.1f} GiB for {numbers:,} numbers, "
            f"but this process may use {available / GIB:.1f} GiB"
        )


# Plots ----------------------------------------------------------------------------------------------------------------


def pyplot() -> Any:
    """matplotlib.pyplot; ImportError with the extra that installs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    return plt


def axes(ax: Any) -> Any:
    """Axes of matplotlib."""
    if not isinstance(ax, pyplot().Axes):
        raise TypeError(f"ax must be axes of matplotlib or None, got {type(ax).__name__}")
    return ax


# Text -----------------------------------------------------------------------------------------------------------------


def without_addresses(text: str) -> str:
    """`text` without memory addresses (" at 0x7f…"), so that it is the same in every process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def cut(text: str, width: int = 60) -> str:
    """`text` on one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def short(value: Any) -> str:
    """A short text for `value`: dtype and shape of an array, length of a long sequence, repr of anything else."""
    if is_array(value):
        dtype = str(value.dtype).rpartition(".")[2]  # torch.float64
        return f"<{dtype} {tuple(value.shape)}>"
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, dict | list | tuple):
        items = value.values() if isinstance(value, dict) else value
        if len(value) > 4 or any(map(_is_nested, items)):
            return f"<{type(value).__name__} of {len(value)}>"
    return cut(without_addresses(repr(value)))


def _is_nested(item: Any) -> bool:
    return isinstance(item, dict | list | tuple) or hasattr(item, "shape") or hasattr(item, "__dataclass_fields__")


def table(head: str, **rows: str) -> list[str]:
    """Lines of a summary: `head`, and below it every row that is not empty, with its name in front."""
    filled = {name.replace("_", " "): text for name, text in rows.items() if text}
    width = max(map(len, filled), default=0) + 2
    return [head, *(f"  {name:{width}}{text}" for name, text in filled.items())]


def largest(values: Any) -> str:
    """A number as 1.2e-03; of several runs the largest."""
    host = np.asarray(values, dtype=np.float64)
    return f"{host.max():.1e}" + (f" (largest of {host.size} runs)" if host.ndim else "")


def stop_reason(stopped: str, tol: float | None = None, met: bool | None = None) -> str:
    """Why a run stopped, and whether its tolerance was met where that is known."""
    if tol is None:
        return stopped
    verdict = {True: " was met", False: " was not met", None: " was asked for"}[met]
    return f"{stopped} (tol={tol:g}{verdict})"
