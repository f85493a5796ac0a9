"""How many operations the host launches: on a GPU each costs microseconds, whatever the size of its arrays.

What only looks at memory differently (a slice, a transpose, a reshape that moves nothing) launches nothing, nor does
room that is left empty. Every other function, method or operator counts as one, though CuPy may need several kernels.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

EMPTY = {"empty", "empty_like"}


class Operations:
    """A count of launches by the name of the function."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    @property
    def number(self) -> int:
        return self.names.total()

    def reset(self) -> None:
        self.names.clear()

    def launch(self, name: str) -> None:
        self.names[name] += 1

    def after(self, name: str, inputs: object, results: object) -> None:
        """Count a call of `name` if one of its results is new memory."""
        given = list(_arrays(inputs))
        new = (not any(np.may_share_memory(made, a) for a in given) for made in _arrays(results))
        if name not in EMPTY and any(new):
            self.launch(name)


def _arrays(x: object):
    """The NumPy arrays and scalars in nested lists, tuples and the values of dictionaries."""
    if isinstance(x, (np.ndarray, np.generic)):
        yield x
    elif isinstance(x, (list, tuple, dict)):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _arrays(part)


operations = Operations()
