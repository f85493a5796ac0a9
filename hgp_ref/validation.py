"""One vocabulary of argument checks: every message names the argument, what was given and what is needed.

A value of the wrong kind is a TypeError, one of the right kind outside its range a ValueError. Each function returns
the argument in the form that the rest of the package computes with.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import re
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

import array_api_compat as compat
import numpy as np

from hgp_ref.backend import Array, Namespace, all_finite, device

LONGEST = 10**9  # iterations, steps and calls of one run, and entries along one axis, at most


def integer(name: str, value: object, low: int = 1, high: int | None = None) -> int:
    """A whole number from `low` to `high` (no upper end if None) as an int; booleans and floats are no integers."""
    if type(value) is int and low <= value and (high is None or value <= high):  # asked several times for every graph
        return value
    open_end = high is None or (high == LONGEST and not (isinstance(value, int) and value > high))
    needed = f"an integer >= {low}" if open_end else f"an integer from {low} to {high}"
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed {needed}")
    try:
        whole = operator.index(value)
    except TypeError as error:  # arrays with several entries have __index__ too
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed {needed}") from error
    if whole < low or (high is not None and whole > high):
        raise ValueError(f"{name}={whole} given, needed {needed}")
    return whole


def number(name: str, value: object, needed: str = "a finite number") -> float:
    """A finite real number as a float; `needed` says in the message what it is to be."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number) or isinstance(value, complex):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed {needed}")
    try:
        real = float(value)
    except OverflowError as error:
        raise ValueError(f"{name}={value!r} given, needed {needed}") from error
    if not math.isfinite(real):
        raise ValueError(f"{name}={value!r} given, needed {needed}")
    return real


def positive(name: str, value: object) -> float:
    """A finite number > 0 as a float."""
    real = number(name, value, "a finite number > 0")
    if not real > 0:
        raise ValueError(f"{name}={value!r} given, needed a finite number > 0")
    return real


def positives(**given: Any) -> tuple[float, ...]:
    """Every given number, positive and finite; errors name the first that is not."""
    return tuple(positive(name, value) for name, value in given.items())


def nonnegative(name: str, value: object) -> float:
    """A finite number >= 0 as a float."""
    real = number(name, value, "a finite number >= 0")
    if not real >= 0:
        raise ValueError(f"{name}={value!r} given, needed a finite number >= 0")
    return real


def between(name: str, value: object, low: float, high: float) -> float:
    """A number in [low, high] as a float."""
    real = number(name, value, f"a number in [{low:g}, {high:g}]")
    if not low <= real <= high:
        raise ValueError(f"{name}={value!r} given, needed a number in [{low:g}, {high:g}]")
    return real


def probability(name: str, value: object) -> float:
    """A number in [0, 1] as a float."""
    return between(name, value, 0.0, 1.0)


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """One of the strings `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name}={value!r} given, needed one of {', '.join(options)}")
    return value


def boolean(name: str, value: object) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed True or False")
    return bool(value)


def function(name: str, value: Any) -> None:
    """TypeError unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed a function")


def truth(name: str, told: Any) -> bool:
    """What the function `name` returned as True or False; TypeError for an array of several entries."""
    shape = getattr(told, "shape", ())
    try:
        if math.prod(shape) == 1:
            return bool(told)
    except (TypeError, ValueError, RuntimeError) as error:  # what libraries raise for objects without a truth value
        raise TypeError(f"{name}: returned {type(told).__name__}, needed something true or false") from error
    raise TypeError(f"{name}: returned {type(told).__name__} of shape {tuple(shape)}, needed something true or false")


def plain_numbers(name: str, value: object, kinds: str = "biuf") -> None:
    """TypeError unless `value` is a plain NumPy array with an axis, its dtype of one of NumPy's `kinds`."""
    needed = "a plain NumPy array of " + ("integers" if set(kinds) <= set("iu") else "real numbers")
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"{name}: {type(value).__module__}.{type(value).__name__} given, needed {needed}")
    if value.dtype.kind not in kinds or value.ndim == 0:
        raise TypeError(f"{name}: {value.dtype} of shape {value.shape} given, needed {needed}")


def path(name: str, value: Any) -> Path:
    """A path in the file system, given as text or as a path."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed a path")
    return Path(value)


def host_array(name: str, value: Any) -> np.ndarray:
    """`value`, a host array or sequence, as NumPy makes an array of it."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array given, whose mask would be lost; needed a plain array")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name}: {type(value).__name__} with rows of unequal lengths given, needed an array"
        ) from error
    except (TypeError, RuntimeError, OverflowError) as error:  # arrays that live on a device refuse in their own way
        raise TypeError(f"{name}: {type(value).__name__} given, needed an array on the host: {error}") from error


def real_floating(name: str, dtype: Any) -> np.dtype:
    """float32 or float64, given as a dtype or by its name."""
    try:
        read = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(f"{name}={dtype!r} given ({type(dtype).__name__}), needed float32 or float64") from error
    if read not in (np.float32, np.float64) or not read.isnative:
        raise TypeError(f"{name}={read} given, needed float32 or float64")
    return read


def array(name: str, a: Any) -> None:
    """TypeError unless `a` is an array of some library, plain and no scalar."""
    if not compat.is_array_api_obj(a) or isinstance(a, np.generic):
        given = "None" if a is None else f"{type(a).__module__}.{type(a).__name__}"
        raise TypeError(f"{name}: needed an array, got {given}")
    if isinstance(a, np.ma.MaskedArray | np.matrix):  # their products and sums are not those of arrays
        raise TypeError(f"{name}: needed a plain array, got {type(a).__module__}.{type(a).__name__}")
    dense(name, a)


def dense(name: str, a: Any) -> None:
    """TypeError for tensors of PyTorch that hold no values, or not all of them: meta, sparse and nested ones."""
    if getattr(a, "is_meta", False) is True:
        raise TypeError(f"{name}: needed an array with values, got a tensor on the device 'meta', which has none")
    layout = str(getattr(a, "layout", ""))
    if layout.startswith("torch.") and (layout != "torch.strided" or a.is_nested):
        kind = "a nested tensor" if a.is_nested else f"a tensor of layout {layout}"
        raise TypeError(f"{name}: needed a dense array, got {kind}; to_dense() or padding makes one")


def same_kind(**arrays: Array) -> Namespace:
    """The namespace of the named `arrays`: float32 or float64 in native byte order, one library, device and dtype."""
    for name, a in arrays.items():
        array(name, a)
    libraries = {name: compat.array_namespace(a) for name, a in arrays.items()}
    if len({id(xp) for xp in libraries.values()}) > 1:
        raise TypeError("mixed array libraries: " + _listing({k: v.__name__ for k, v in libraries.items()}))
    xp = next(iter(libraries.values()))
    dtypes = {name: a.dtype for name, a in arrays.items()}
    for name, dtype in dtypes.items():
        if not xp.isdtype(dtype, "real floating"):
            raise TypeError(f"{name}: needed real floating-point numbers, got {dtype}")
        if dtype not in (xp.float32, xp.float64) or not getattr(dtype, "isnative", True):
            raise TypeError(f"{name}: needed float32 or float64 in native byte order, got {dtype}")
    if len(set(dtypes.values())) > 1:
        raise TypeError("mixed dtypes: " + _listing(dtypes))
    devices = {name: device(a) for name, a in arrays.items()}
    if len({str(d) for d in devices.values()}) > 1:
        raise TypeError("mixed devices: " + _listing(devices))
    return xp


def _listing(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in values.items())


def shape(name: str, x: Array, needed: tuple[int, ...], meaning: str, run_axes: bool = True) -> None:
    """ValueError unless the trailing axes of `x` are `needed`; leading (run) axes are free where allowed."""
    if not run_axes and tuple(x.shape) != needed:
        raise ValueError(f"{name}: shape {tuple(x.shape)} given, needed {needed} = {meaning}")
    if tuple(x.shape[-len(needed) :]) != needed:
        raise ValueError(
            f"{name}: shape {tuple(x.shape)} given, needed (..., {', '.join(map(str, needed))}) = {meaning}"
        )


def answer(
    method: str, given: Array, needed: tuple[int, ...], like: Array | None = None, owner: str = "problem"
) -> Array:
    """What a `method` of `owner` returned; an error unless it is an array of the shape that the protocol asks for.

    With `like` it must also be of that array's library, device and dtype. An (n,) array would be broadcast against
    (n, 1) without a word, a float64 one would turn a float32 run into a float64 one.
    """
    if not hasattr(given, "shape"):
        raise TypeError(f"{owner}: {method} returned {type(given).__name__}, needed an array of shape {tuple(needed)}")
    if tuple(given.shape) != tuple(needed):
        raise ValueError(f"{owner}: {method} returned shape {tuple(given.shape)}, needed {tuple(needed)}")
    if like is not None:
        if type(given) is not type(like) and _library(given) is not _library(like):
            raise TypeError(f"{owner}: {method} returned {_kind(given)}, needed {_kind(like)} as x is")
        if given.dtype != like.dtype:
            raise TypeError(f"{owner}: {method} returned {given.dtype} numbers, needed {like.dtype} as in x")
        if device(given) != device(like):
            raise TypeError(f"{owner}: {method} returned an array on {device(given)}, needed {device(like)} as x is")
    return given


def _library(a: Array) -> Namespace | None:
    return compat.array_namespace(a) if compat.is_array_api_obj(a) and not isinstance(a, np.generic) else None


def _kind(a: Array) -> str:
    return f"{type(a).__module__}.{type(a).__name__}"


def finite(name: str, x: Array) -> None:
    """ValueError if `x` holds NaN or infinity (one scalar goes to the host)."""
    if not all_finite(x):
        raise ValueError(f"{name}: holds NaN or infinite values, needed finite numbers")


def kind(name: str, value: object, needed: type) -> None:
    """TypeError unless `value` is a `needed`, such as the Constants that another function of the package returns."""
    if not isinstance(value, needed):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed {needed.__name__}")


def real_array(
    name: str, value: object, axes: tuple[int | None, ...], meaning: str, low: float | None = None
) -> np.ndarray:
    """A host array of finite numbers as float64, its axes as given (None: any length), no entry below `low`."""
    needed = f"finite numbers of shape {meaning}" + ("" if low is None else f", each >= {low:g}")
    given = host_array(name, value)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"{name}: {given.dtype} given ({type(value).__name__}), needed {needed}")
    if given.ndim != len(axes) or any(n is not None and n != m for n, m in zip(axes, given.shape, strict=True)):
        raise ValueError(f"{name}: shape {given.shape} given, needed {needed}")
    if given.size == 0:
        raise ValueError(f"{name}: an empty array of shape {given.shape} given, needed {needed}")
    converted = given.astype(np.float64)
    if not np.isfinite(converted).all():
        raise ValueError(f"{name}: holds NaN or infinite values, needed {needed}")
    if low is not None and converted.min() < low:
        raise ValueError(f"{name}: holds {converted.min():.3g}, needed {needed}")
    return converted


# ----------------------------------------------------------------------------------------------------
# How much memory there is, and a refusal in words of what cannot fit into it.


GIB = 2**30


@functools.cache
def memory() -> int | None:
    """Bytes that this process may have: the machine's memory or its own limit; None where the system does not tell.

    An array larger than that is refused: Linux may promise it and end the process when it is written to.
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


def room(what: str, numbers: int) -> None:
    """MemoryError unless `numbers` numbers of 8 bytes fit; `what` names the arguments that ask for them."""
    there = memory()
    if there is not None and 8 * numbers > there:
        raise MemoryError(
            f"{what} given, for which {numbers:,} numbers are needed, {8 * numbers / GIB:,.1f} GiB; "
            f"this process may have {there / GIB:.1f} GiB"
        )


# ----------------------------------------------------------------------------------------------------
# Texts of objects: the same in every process, and short.


WIDEST = 60  # characters of one value
FEW = 4  # items of a sequence or a dictionary that are written out


def without_addresses(text: str) -> str:
    """`text` without the places in memory (" at 0x7f…") that Python writes for objects with no words of their own."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def cut(text: str, widest: int = WIDEST) -> str:
    """`text` on one line of at most `widest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= widest else line[: widest - 1] + "…"


def short(value: Any) -> str:
    """`value` in a few words: an array by dtype and shape, a long sequence by its length, anything else by its repr."""
    if compat.is_array_api_obj(value) and not isinstance(value, np.generic):
        dtype = str(value.dtype).rpartition(".")[2]  # torch.float64
        return f"<{dtype} {tuple(value.shape)}>"
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, dict | list | tuple) and (len(value) > FEW or any(map(_is_large, _items(value)))):
        return f"<{type(value).__name__} of {len(value)}>"
    return cut(without_addresses(repr(value)))


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _is_large(item: Any) -> bool:
    """Whether an item of a sequence is an array, or holds other items."""
    return isinstance(item, dict | list | tuple) or hasattr(item, "shape") or hasattr(item, "__dataclass_fields__")


def table(head: str, **rows: str) -> list[str]:
    """Lines of a summary: `head`, and below it every row that is not empty, with its name in front."""
    told = {name.replace("_", " "): text for name, text in rows.items() if text}
    width = max(map(len, told), default=0) + 2
    return [head, *(f"  {name:{width}}{text}" for name, text in told.items())]


def largest(values: Any) -> str:
    """A number as 1.2e-03; of several runs the largest."""
    host = np.asarray(values, dtype=np.float64)
    return f"{host.max():.1e}" + (f" (largest of {host.size} runs)" if host.ndim else "")


def ending(stopped: str, tol: float | None = None, met: bool | None = None) -> str:
    """Why a run stopped, and whether its tolerance was met where that is known."""
    if tol is None:
        return stopped
    verdict = {True: " was met", False: " was not met", None: " was asked for"}[met]
    return f"{stopped} (tol={tol:g}{verdict})"
