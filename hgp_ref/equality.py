"""Equality of results by value: what `==` means for dataclasses that hold arrays.

Arrays are equal if dtype, shape and entries are, whatever their library and device; NaN equals NaN. Numbers are equal
by value (True is not 1), sequences and dictionaries item by item, dataclasses of one class field by field, and
averagings, networks and other objects if their reprs are equal, because that is how a file keeps them
(`results.Described`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import array_api_compat as compat
import numpy as np

from hgp_ref.backend import Array, array_namespace, device, to_host


def same(a: Any, b: Any) -> bool:
    """Whether `a` equals `b`; arrays inside them raise no error."""
    if is_array(a) or is_array(b):
        return is_array(a) and is_array(b) and _same_array(a, b)
    if _is_number(a) and _is_number(b):
        a, b = _number(a), _number(b)
        return isinstance(a, bool) == isinstance(b, bool) and bool(a == b or (a != a and b != b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if is_dataclass(a) and type(a) is type(b):
        return same(field_values(a), field_values(b))
    if is_plain(a) or is_plain(b):
        return type(a) is type(b) and bool(a == b)
    return a is b or repr(a) == repr(b)


def key(value: Any) -> Hashable:
    """A hashable that is equal for equal values; the entries of an array do not count."""
    if is_array(value):
        return dtype_name(value), tuple(value.shape)
    if isinstance(value, dict):
        return frozenset((name, key(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(key, value))
    if _is_number(value):
        return None if value != value else _number(value)
    if is_plain(value):
        return value if isinstance(value, str) else type(value).__name__
    return None  # it may equal what a file describes by its repr


def field_values(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass's instance by name."""
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def is_array(value: Any) -> bool:
    """Whether `value` is an array of any library; NumPy's scalars are none."""
    return compat.is_array_api_obj(value) and not isinstance(value, np.generic)


def is_plain(value: Any) -> bool:
    """Whether `value` is of a type of Python or NumPy itself."""
    return type(value).__module__ in ("builtins", "numpy")


def dtype_name(x: Array) -> str:
    """The name of the dtype of `x`, the same for all libraries."""
    return str(x.dtype).rsplit(".", 1)[-1]


def _is_number(value: Any) -> bool:
    return isinstance(value, Number | np.number | np.bool_)


def _number(value: Any) -> Any:
    """Python's number of the same value: NumPy rounds 0.1 to float32 before it compares, and overflows."""
    return value.item() if isinstance(value, np.generic) else value


def _same_array(a: Array, b: Array) -> bool:
    name = dtype_name(a)
    if dtype_name(b) != name or tuple(a.shape) != tuple(b.shape):
        return False
    if compat.array_namespace(a) is not compat.array_namespace(b) or str(device(a)) != str(device(b)):
        if name not in np.sctypeDict:  # bfloat16 of two libraries: there is no third in which to compare
            return False
        a, b = to_host(a), to_host(b)
    if name == "object":
        return all(map(same, a.ravel().tolist(), b.ravel().tolist()))
    xp = array_namespace(a)
    return bool(to_host(xp.all((a == b) | ((a != a) & (b != b)))))
