"""Arguments that a user's problem must leave as they are.

`u *= h; return u` in an hvp changes a vector that the caller goes on to use, and the result is wrong without any sign
of it. NumPy arrays are passed as read-only views, so that writing to them raises an error at that line. JAX arrays
cannot be changed. Arrays of other libraries are compared with a copy at the first call of each method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat as compat
import numpy as np

from hgp_ref.backend import Array, array_namespace, is_numpy, to_host


def read_only(a: Array) -> Array:
    """A read-only view of a NumPy array; arrays of other libraries as they are."""
    if not is_numpy(a):
        return a
    view = a.view()
    view.flags.writeable = False
    return view


class Unchanged:
    """Calls methods of a user's problem and sees to it that they leave their arguments alone."""

    def __init__(self) -> None:
        self._seen: set[str] = set()  # methods that were compared with a copy

    def __call__(self, name: str, call: Callable[[], Any], *given: Array) -> Any:
        """call(), which is the method `name` of arguments among `given`; ValueError if it changes one of them."""
        arrays = [a for a in given if not (is_numpy(a) or compat.is_jax_array(a))]
        copies = [] if name in self._seen else [array_namespace(a).asarray(a, copy=True) for a in arrays]
        try:
            answer = call()
        except ValueError as error:
            if "read-only" in str(error) and not all(map(_writeable, given)):
                raise ValueError(_message(name)) from error
            raise
        for a, copy in zip(arrays, copies, strict=False):
            if not bool(to_host(array_namespace(a).all((a == copy) | (a != a)))):
                raise ValueError(_message(name))
        self._seen.add(name)
        return answer


def _writeable(a: Array) -> bool:
    return not isinstance(a, np.ndarray) or a.flags.writeable


def _message(name: str) -> str:
    return f"problem: {name} changes its argument in place; it must leave arguments alone and return another array"
