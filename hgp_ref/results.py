"""What the library returns: frozen dataclasses that can be compared, kept in a file and read again.

    @dataclass(frozen=True)
    class Estimate(Result):
        value: Array
        traffic: Traffic  # a Result too

`a == b` compares class and fields by value, arrays by dtype, shape and entries whatever their library, with NaN equal
to NaN. `a.save(path)` writes one .npz of host arrays and a JSON entry for everything else; `load(path)` makes the
result again. No pickle, and no name in a file is ever imported: only subclasses of `Result` inside this package are
made. Averagings, networks and other objects are kept as their repr and come back as a `Described`.

`print(result)` writes a few lines, which a class gives in `_summary`, and `repr(result)` the first of them; a class
without a summary lists its fields. Arrays appear as dtype and shape, never as numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import array_namespace, to_host
from hgp_ref.equality import field_values, is_array, is_plain, key, same
from hgp_ref.files import Archive, npz_bytes, opened, write_whole
from hgp_ref.texts import short

FORMAT = "hgp_ref result"
VERSION = 1  # of the file format; raise it when files of before cannot be read any more
ENTRY = "result.json"
_KINDS: dict[str, type[Result]] = {}  # the classes that may be made of a file


class Result:
    """Base of the frozen dataclasses that the library returns: `==` by value, `save`, and `load` of this module."""

    def __init_subclass__(cls) -> None:
        # In the class's own namespace, where @dataclass respects them; inherited ones it would replace.
        for method in (Result.__eq__, Result.__hash__, Result.__repr__):
            if method.__name__ not in vars(cls):
                setattr(cls, method.__name__, method)
        if cls.__module__.split(".")[0] != "hgp_ref":
            return
        other = _KINDS.get(cls.__name__, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two results called {cls.__name__}: in {other.__module__} and in {cls.__module__}")
        _KINDS[cls.__name__] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and same(self, other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, key(field_values(self))))

    def __repr__(self) -> str:
        if type(self).__str__ is Result.__str__ and type(self)._summary is Result._summary:
            return self._summary()[0]
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def __str__(self) -> str:
        return "\n".join(self._summary())

    def _summary(self) -> list[str]:
        """What was computed, then how accurately, why it stopped and what it sent, a line each; here all fields."""
        told = (f"{name}={short(value)}" for name, value in field_values(self).items())
        return [f"{type(self).__name__}({', '.join(told)})"]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write this result to `path` (usually *.npz), whole or not at all; `hgp_ref.load(path)` reads it.

        Arrays of other libraries are stored as host arrays and come back as NumPy's.
        """
        place, arrays = arguments.path("path", path), dict[str, np.ndarray]()
        record = {"format": FORMAT, "version": VERSION, **_pack(self, "", arrays)}
        text = json.dumps(record, indent=1, allow_nan=False)
        write_whole(place, npz_bytes(arrays, {ENTRY: text}))
        return place


@dataclass(frozen=True)
class Described:
    """An object that a file only describes: its repr, such as "PushSum(RandomDirected(n=3, …), steps=10)".

    Attributes
    ----------
    text : the repr.
    kind : module and name of its class, "" in files of earlier versions.
    """

    text: str
    kind: str = ""

    def __repr__(self) -> str:
        return self.text


def load(path: str | os.PathLike[str]) -> Any:
    """The result in `path`, as `save` wrote it.

    Only what `save` writes is read: entries that the result does not name are left alone, and sizes in headers are
    checked before data is read. Fields that have been added since, with a default, take that default.

    Parameters
    ----------
    path : path
        A file that `save` wrote.

    Returns
    -------
    Result
        Equal to the one that was saved.

    Raises
    ------
    ValueError
        The file is cut short, damaged, foreign, of a later format, has a class or fields that this version does not
        know, or is no regular file. The message begins with the path.
    OSError
        The file is not there, may not be read, or its disk fails.

    Examples
    --------
    >>> fit = hgp.attribution.Scores(r2=1.0, f1=1.0, spearman=1.0)
    >>> fit.save("scores.npz")
    PosixPath('scores.npz')
    >>> hgp.load("scores.npz") == fit
    True
    """
    with opened(arguments.path("path", path)) as archive:
        record = _record(archive)
        if record.get("format") != FORMAT:
            raise ValueError(f"not a result saved by hgp_ref: format {record.get('format')!r}, needed {FORMAT!r}")
        if record.get("version") != VERSION:
            raise ValueError(f"it has format version {record.get('version')!r}, this hgp_ref reads version {VERSION}")
        try:
            return _unpack(record, archive)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{ENTRY} is damaged: {error!r}") from error


def _record(archive: Archive) -> dict[str, Any]:
    """The JSON object that describes the result."""
    try:
        record = json.loads(archive.text(ENTRY), parse_constant=_no_constant)
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"not a result saved by hgp_ref: no {ENTRY} of that format inside ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"not a result saved by hgp_ref: {ENTRY} is no JSON object")
    return record


def _no_constant(name: str) -> None:
    raise ValueError(f"{ENTRY} holds {name}, which is not JSON")


def content_digest(result: Result) -> str:
    """SHA-256 of all that a file of `result` would hold; the same after `save` and `load`."""
    arrays = dict[str, np.ndarray]()
    record = _without_libraries(_pack(result, "", arrays))
    total = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def _without_libraries(packed: Any) -> Any:
    """A packed value without the names of array libraries: loaded arrays are NumPy's."""
    if isinstance(packed, list):
        return [_without_libraries(item) for item in packed]
    if isinstance(packed, dict):
        return {name: _without_libraries(item) for name, item in packed.items() if name != "library"}
    return packed


# To a file and back: a JSON value, or an object whose first key says what it is


def _pack(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` for JSON; its arrays go to `arrays` under the name of the field, `where`."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": str(value)}
    if is_array(value) or isinstance(value, np.generic):
        return _pack_array(value, where, arrays)
    if isinstance(value, Result):
        return _pack_result(value, where, arrays)
    if isinstance(value, dict):
        return {"dict": [[_pack(part, _join(where, name), arrays) for part in (name, value[name])] for name in value]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(item, _join(where, index), arrays) for index, item in enumerate(value)]}
    if is_plain(value):
        raise TypeError(f"{where}: {type(value).__name__} given, needed arrays, numbers, text, None, tuple, list, dict")
    if is_dataclass(value) and any(map(is_array, field_values(value).values())):
        raise TypeError(f"{where}: {type(value).__name__} holds arrays and is no Result, so they would be lost")
    kind = value.kind if isinstance(value, Described) else f"{type(value).__module__}.{type(value).__qualname__}"
    return {"described": repr(value), "kind": kind}


def _pack_result(value: Result, where: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    name = type(value).__name__
    if _KINDS.get(name) is not type(value) or not is_dataclass(value):
        raise TypeError(f"{where or 'save'}: {name} given, needed a dataclass of hgp_ref that inherits Result")
    packed = {field: _pack(item, _join(where, field), arrays) for field, item in field_values(value).items()}
    return {"result": name, "fields": packed}


def _pack_array(value: Any, where: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    refusal = f"{where}: an array of dtype {value.dtype} given, needed a dtype of NumPy's own numbers or text"
    try:
        host = np.asarray(value) if isinstance(value, np.generic) else to_host(value)
    except TypeError as error:  # bfloat16 of PyTorch has no counterpart on the host
        raise TypeError(refusal) from error
    if host.dtype.kind not in "biufcSUmM":  # others would need pickle, or come back as bytes without a meaning
        raise TypeError(refusal)
    while where in arrays:  # a dictionary's names may hold dots
        where += "'"
    arrays[where] = host
    if isinstance(value, np.generic):
        return {"scalar": where}
    library = array_namespace(value).__name__.removeprefix("array_api_compat.").split(".")[0]
    return {"array": where, "library": library, "dtype": str(host.dtype), "shape": list(host.shape)}


def _join(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _unpack(packed: Any, archive: Archive) -> Any:
    if not isinstance(packed, dict):
        if isinstance(packed, list):
            raise ValueError(f"{ENTRY} is damaged: a list without a kind")
        return packed
    if "result" in packed:
        return _make(packed["result"], {name: _unpack(item, archive) for name, item in packed["fields"].items()})
    if "array" in packed:
        array = archive.array(packed["array"])
        if list(array.shape) != packed["shape"] or str(array.dtype) != packed["dtype"]:
            raise ValueError(f"array {packed['array']} is {array.dtype} {array.shape}, {ENTRY} says {packed}")
        return array
    if "described" in packed:
        text, kind = packed["described"], packed.get("kind", "")
        if not (isinstance(text, str) and isinstance(kind, str)):
            raise ValueError(f"{ENTRY} is damaged: {packed} does not describe an object")
        return Described(text, kind)
    ((kind, content),) = packed.items()
    if kind == "dict":
        return {_unpack(name, archive): _unpack(item, archive) for name, item in content}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_unpack(item, archive) for item in content)
    if kind == "scalar":
        return archive.array(content)[()]
    return {"float": _special}[kind](content)


def _special(text: str) -> float:
    """NaN or an infinity, as `str` writes them."""
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(f"{ENTRY} is damaged: {text!r} is none of nan, inf, -inf")
    return float(text)


def _make(name: str, given: dict[str, Any]) -> Result:
    """The result called `name` with fields `given`."""
    kind = _kind(name)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for field in given:
        if field not in known:
            raise ValueError(f"{name} has a field {field!r} that this hgp_ref does not know")
    for field, declared in known.items():
        if field not in given and declared.default is MISSING and declared.default_factory is MISSING:
            raise ValueError(f"{name} lacks the field {field!r}, which has no default")
    return kind(**given)


def _kind(name: str) -> type[Result]:
    if name not in _KINDS:  # its part of the package may not have been used yet: all parts, none named by the file
        for part in iter_modules([str(Path(__file__).parent)]):
            if part.ispkg:
                import_module(f"hgp_ref.{part.name}")
    if name not in _KINDS:
        raise ValueError(f"class {name!r} is not a result of this hgp_ref; it knows {', '.join(sorted(_KINDS))}")
    return _KINDS[name]
