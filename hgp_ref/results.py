"""Equality of results by value: what `==` means for dataclasses that hold arrays.

Arrays are equal if dtype, shape and entries are, whatever their library and device; NaN equals NaN. Numbers are equal
by value (True is not 1), sequences and dictionaries item by item, dataclasses of one class field by field, and
averagings, networks and other objects if their reprs are equal, because that is how a file keeps them
(`results.Described`).
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from numbers import Number
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, BinaryIO

import array_api_compat as compat
import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, device, to_host
from hgp_ref.validation import GIB, memory, short

__all__ = ["Described", "Result", "content_digest", "load"]


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


# ----------------------------------------------------------------------------------------------------
# Files of arrays: written whole or not at all, read without pickle, equal bytes for equal numbers.
#
# A file is a zip of .npy entries (an .npz) and, where a caller adds them, of text entries. Entries are stored without
# compression and carry a fixed time, so that the bytes depend on the content alone. `Archive` reads single entries by
# name: headers are checked before any data is read, and the zip's CRC afterwards.


EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip entry can carry
KINDS = "biufcSUmM"  # of dtypes that a file may hold: NumPy's own numbers, text, times
READ = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ENCRYPTED = 1  # bit of the flags of a zip entry
SHOWN = 32  # characters of a file's name in that of its temporary file: names may have 255 bytes


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file, the new one or none, never a piece.

    A link stays a link, to the new content; the mode is the one that the process gives to new files (its umask). What
    is no regular file, such as a directory or a device, is refused, since it would be replaced by one.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file, needed one or a new name", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:SHOWN]}.{secrets.token_hex(8)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def npz_bytes(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str] | None = None) -> bytes:
    """An uncompressed .npz of `arrays` in order of name, after the entries `texts`. Object arrays are refused."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted((texts or {}).items()):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text.encode())
        for name in sorted(arrays):
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.array(arrays[name], order="C"), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", EPOCH), entry.getvalue())
    return buffer.getvalue()


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The entries of `path`, which are read one by one inside the block.

    OSError if the file is not there, may not be read or its disk fails. Whatever else goes wrong inside the block,
    because of what the file contains, is a ValueError that begins with the path.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: a FIFO blocks, a device may do anything
            raise ValueError("it is not a regular file")
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a regular file")
            yield Archive(file, status.st_size)
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # of the system; seeking to a damaged offset is EINVAL
            raise
        raise ValueError(f"{path} cannot be read: {_words(error)}") from error
    except Exception as error:  # zipfile, codecs and NumPy's header parser raise what they like for damaged bytes
        raise ValueError(f"{path} cannot be read: {_words(error)}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a file that may have become a FIFO since it was looked at."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Archive:
    """The entries of an open file of `size` bytes; those that nobody asks for are not read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        there = memory()
        if there is not None and size > there:  # a sparse file may claim more than any disk has
            raise ValueError(f"it has {size / GIB:.1f} GiB, this process may have {there / GIB:.1f} GiB")
        self._zip, self._left = zipfile.ZipFile(file), size
        self._arrays: dict[str, np.ndarray] = {}

    def names(self) -> list[str]:
        """The names of all entries."""
        return self._zip.namelist()

    def text(self, name: str) -> str:
        """The text entry `name`; KeyError if there is none."""
        return self._zip.read(self._checked(name)).decode()

    def array(self, name: str) -> np.ndarray:
        """The array `name`, the same object whenever it is asked for; KeyError if there is none."""
        if name not in self._arrays:
            self._arrays[name] = self._read(f"{name}.npy")
        return self._arrays[name]

    def _read(self, name: str) -> np.ndarray:
        entry = self._checked(name)
        with self._zip.open(entry) as file:
            version = np.lib.format.read_magic(file)
            if version not in READ:
                raise ValueError(f"{name} has version {version} of the .npy format, needed 1.0 or 2.0")
            shape, fortran, dtype = READ[version](file)
            if dtype.kind not in KINDS or dtype.hasobject or dtype.itemsize == 0:
                raise ValueError(f"{name} holds {dtype} objects, which need pickle; needed numbers or text")
            wanted, there = math.prod(shape) * dtype.itemsize, entry.file_size - file.tell()
            if wanted != there:
                raise ValueError(f"{name} holds {there} bytes of data, but shape {shape} of {dtype} needs {wanted}")
            data = bytearray(file.read())  # compares the CRC at its end
        if len(data) != wanted:
            raise ValueError(f"{name} ends after {len(data)} bytes of data, needed {wanted}")
        return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")

    def _checked(self, name: str) -> zipfile.ZipInfo:
        """The entry `name`, if its header is one that `npz_bytes` writes.

        Entries are stored as they are and each byte belongs to one of them, so that together they cannot exceed the
        file, however it was made.
        """
        entry = self._zip.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise ValueError(f"{name} is compressed or encrypted, needed an entry that is stored as it is")
        self._left -= entry.file_size
        if entry.file_size != entry.compress_size or self._left < 0:
            raise ValueError(f"{name} is said to have {entry.file_size} bytes, more than the file can hold")
        return entry


def read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All arrays and texts in `path`; errors are those of `opened`."""
    with opened(path) as archive:
        names = archive.names()
        arrays = {name.removesuffix(".npy"): None for name in names if name.endswith(".npy")}
        texts = {name: archive.text(name) for name in names if not name.endswith(".npy")}
        return {name: archive.array(name) for name in arrays}, texts


def _words(error: BaseException) -> str:
    """What an exception says, with its kind where that is not a ValueError's."""
    said = str(error) or "no message"
    return said if type(error) is ValueError else f"{type(error).__name__}: {said}"


# ----------------------------------------------------------------------------------------------------
# What the library returns: frozen dataclasses that can be compared, kept in a file and read again.
#
#     @dataclass(frozen=True)
#     class Estimate(Result):
#         value: Array
#         traffic: Traffic  # a Result too
#
# `a == b` compares class and fields by value, arrays by dtype, shape and entries whatever their library, with NaN equal
# to NaN. `a.save(path)` writes one .npz of host arrays and a JSON entry for everything else; `load(path)` makes the
# result again. No pickle, and no name in a file is ever imported: only subclasses of `Result` inside this package are
# made. Averagings, networks and other objects are kept as their repr and come back as a `Described`.
#
# `print(result)` writes a few lines, which a class gives in `_summary`, and `repr(result)` the first of them; a class
# without a summary lists its fields. Arrays appear as dtype and shape, never as numbers.


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
        place, arrays = validation.path("path", path), dict[str, np.ndarray]()
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
    if isinstance(path, str) and not path:
        raise ValueError("path='' given, needed the path of a file")
    with opened(validation.path("path", path)) as archive:
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
