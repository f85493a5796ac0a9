"""What the library returns: frozen dataclasses that can be compared, saved to a file and loaded again.

    @dataclass(frozen=True)
    class Estimate(Result):
        value: Array
        traffic: Traffic  # a Result too

`a == b` compares classes and fields by value. `a.save(path)` writes one .npz file: host arrays, and a JSON entry for
everything else. `load(path)` makes the result again. A file is read without pickle, and no name in it is imported: only
subclasses of `Result` inside this package are made, and every field must have the type that its class declares.
Averagings, networks and other objects are saved as their repr and loaded as a `Described`.

`print(result)` shows the lines of `_summary`, and `repr(result)` the first of them. Arrays appear as dtype and shape.
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
from numbers import Integral, Number, Real
from pathlib import Path
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Annotated, Any, BinaryIO, Union, get_args, get_origin, get_type_hints

import array_api_compat as compat
import numpy as np

from hgp_ref.backend import Array, array_namespace, device, to_host
from hgp_ref.validation import GIB, FilePath, checked, memory, short

__all__ = ["Described", "Result", "content_digest", "load"]

Numbers = Annotated[Any, "a number, or an array with one for each run"]  # annotation of fields

FORMAT = "hgp_ref result"
VERSION = 1  # of the file format; increase it when older files cannot be read any more
ENTRY = "result.json"
DTYPES = "biufcSUmM"  # kinds that a file may hold: numbers, text and times of NumPy; others would need pickle
_CLASSES: dict[str, type[Result]] = {}  # by name: the classes that `load` may make


class Result:
    """Base of the frozen dataclasses that the library returns: comparison by value, `save`, and a short `print`."""

    def __init_subclass__(cls) -> None:
        # In the class's own namespace, where @dataclass respects them; inherited ones it would replace.
        for method in (Result.__eq__, Result.__hash__, Result.__repr__):
            if method.__name__ not in vars(cls):
                setattr(cls, method.__name__, method)
        if cls.__module__.split(".")[0] != "hgp_ref":
            return
        other = _CLASSES.get(cls.__name__, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two results called {cls.__name__}: in {other.__module__} and in {cls.__module__}")
        _CLASSES[cls.__name__] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _equal(self, other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, _hashable(_field_values(self))))

    def __repr__(self) -> str:
        if type(self).__str__ is Result.__str__ and type(self)._summary is Result._summary:
            return self._summary()[0]
        return f"<{type(self).__name__}: {str(self).partition(chr(10))[0]}>"

    def __str__(self) -> str:
        return "\n".join(self._summary())

    def _summary(self) -> list[str]:
        """What was computed, how accurately, why it stopped and what it sent, one line each; by default all fields."""
        values = (f"{name}={short(value)}" for name, value in _field_values(self).items())
        return [f"{type(self).__name__}({', '.join(values)})"]

    @checked(path=FilePath())
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write this result to `path` (usually *.npz), completely or not at all; `hgp_ref.load(path)` reads it.

        Arrays of other libraries are saved as host arrays and loaded as NumPy arrays.
        """
        destination, arrays = Path(path), dict[str, np.ndarray]()
        record = {"format": FORMAT, "version": VERSION, **_pack(self, "", arrays)}
        text = json.dumps(record, indent=1, allow_nan=False)
        write_whole(destination, npz_bytes(arrays, {ENTRY: text}))
        return destination


@dataclass(frozen=True)
class Described:
    """An object of which a file has only the repr, such as "PushSum(RandomDirected(n=3, …), steps=10)".

    Attributes
    ----------
    text : the repr.
    kind : module and name of its class; "" in files of earlier versions.
    """

    text: str
    kind: str = ""

    def __repr__(self) -> str:
        return self.text


@checked(path=FilePath())
def load(path: str | os.PathLike[str]) -> Any:
    """Load a result from a file that `save` wrote.

    The file is checked before it is used: sizes in headers before any data is read, then checksums, then the type of
    every field. Fields that have been added since the file was written take their default.

    Raises
    ------
    ValueError
        The file is damaged, not written by `save`, of a later format, or has a class or fields that this version does
        not know. The message begins with the path.
    OSError
        The file does not exist, may not be read, or its disk fails.

    Examples
    --------
    >>> fit = hgp.attribution.Scores(r2=1.0, f1=1.0, spearman=1.0)
    >>> fit.save("scores.npz")
    PosixPath('scores.npz')
    >>> hgp.load("scores.npz") == fit
    True
    """
    with opened(Path(path)) as archive:
        record = _record(archive)
        if record.get("format") != FORMAT:
            raise ValueError(f"not a result saved by hgp_ref: format {record.get('format')!r} instead of {FORMAT!r}")
        if record.get("version") != VERSION:
            raise ValueError(f"it has format version {record.get('version')!r}, this hgp_ref reads version {VERSION}")
        try:
            return _unpack(record, archive)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{ENTRY} is damaged: {error!r}") from error


def content_digest(result: Result) -> str:
    """SHA-256 of all that a file of `result` would hold; the same after `save` and `load`."""
    arrays = dict[str, np.ndarray]()
    record = _without_libraries(_pack(result, "", arrays))
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _without_libraries(packed: Any) -> Any:
    """A packed value without the names of array libraries: loaded arrays are NumPy's."""
    if isinstance(packed, list):
        return [_without_libraries(item) for item in packed]
    if isinstance(packed, dict):
        return {name: _without_libraries(item) for name, item in packed.items() if name != "library"}
    return packed


# From a result to JSON and arrays -------------------------------------------------------------------------------------
#
# None, text, finite numbers and booleans are themselves in JSON. Everything else is an object whose first key says what
# it is: "result", "array", "scalar", "described", "dict", "list", "tuple" or "float" (NaN and infinities).


def _pack(value: Any, field: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` for JSON; its arrays go to `arrays` under the dotted name `field`."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": str(value)}
    if _is_array(value) or isinstance(value, np.generic):
        return _pack_array(value, field, arrays)
    if isinstance(value, Result):
        return _pack_result(value, field, arrays)
    if isinstance(value, dict):
        return {"dict": [[_pack(part, _join(field, name), arrays) for part in (name, value[name])] for name in value]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(item, _join(field, index), arrays) for index, item in enumerate(value)]}
    if _is_plain(value):
        allowed = "arrays, numbers, text, None, tuples, lists or dictionaries"
        raise TypeError(f"{field} must consist of {allowed} to be saved, got {type(value).__name__}")
    if is_dataclass(value) and any(map(_is_array, _field_values(value).values())):
        raise TypeError(f"{field} cannot be saved: {type(value).__name__} has arrays but does not inherit Result")
    kind = value.kind if isinstance(value, Described) else f"{type(value).__module__}.{type(value).__qualname__}"
    return {"described": repr(value), "kind": kind}


def _pack_result(value: Result, field: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value) or not is_dataclass(value):
        raise TypeError(f"{field or 'the result'} must be a dataclass of hgp_ref that inherits Result, got {name}")
    packed = {child: _pack(item, _join(field, child), arrays) for child, item in _field_values(value).items()}
    return {"result": name, "fields": packed}


def _pack_array(value: Any, field: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    message = f"{field} must have a dtype of NumPy's numbers or text to be saved, got {value.dtype}"
    try:
        host = np.asarray(value) if isinstance(value, np.generic) else to_host(value)
    except TypeError as error:  # bfloat16 of PyTorch has no counterpart on the host
        raise TypeError(message) from error
    if host.dtype.kind not in DTYPES:
        raise TypeError(message)
    while field in arrays:  # names in a dictionary may contain dots
        field += "'"
    arrays[field] = host
    if isinstance(value, np.generic):
        return {"scalar": field}
    library = array_namespace(value).__name__.removeprefix("array_api_compat.").split(".")[0]
    return {"array": field, "library": library, "dtype": str(host.dtype), "shape": list(host.shape)}


def _join(field: str, name: object) -> str:
    return f"{field}.{name}" if field else str(name)


# From a file to a result ----------------------------------------------------------------------------------------------


def _record(archive: Archive) -> dict[str, Any]:
    """The JSON object that describes the result."""
    try:
        record = json.loads(archive.text(ENTRY), parse_constant=_refuse_constant)
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"not a result saved by hgp_ref: no {ENTRY} of that format inside ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"not a result saved by hgp_ref: {ENTRY} is not a JSON object")
    return record


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{ENTRY} holds {name}, which is not JSON")


def _unpack(packed: Any, archive: Archive) -> Any:
    """The value that `_pack` made `packed` of."""
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
    if kind != "float" or content not in ("nan", "inf", "-inf"):
        raise ValueError(f"{ENTRY} is damaged: {packed} is not a value")
    return float(content)


def _make(name: str, values: dict[str, Any]) -> Result:
    """The result of the class called `name` with these fields, whose types are checked."""
    cls = _class(name)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    types = get_type_hints(cls, include_extras=True)
    for field, value in values.items():
        if field not in known:
            raise ValueError(f"{name} has a field {field!r} that this hgp_ref does not know")
        if not _has_type(value, types[field]):
            raise ValueError(f"{name}.{field} must be of type {known[field].type}, got {short(value)}")
    for field, declaration in known.items():
        if field not in values and declaration.default is MISSING and declaration.default_factory is MISSING:
            raise ValueError(f"{name} lacks the field {field!r}, which has no default")
    return cls(**values)


def _class(name: str) -> type[Result]:
    if name not in _CLASSES:  # it may be in a part that has not been imported: import all, none named by the file
        for part in iter_modules([str(Path(__file__).parent)]):
            if part.ispkg:
                import_module(f"hgp_ref.{part.name}")
    if name not in _CLASSES:
        raise ValueError(f"class {name!r} is not a result of this hgp_ref; it knows {', '.join(sorted(_CLASSES))}")
    return _CLASSES[name]


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a loaded value fits the annotation of its field. Objects are loaded as `Described`, arrays as NumPy's."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint == Array:
        return isinstance(value, np.ndarray)
    if hint == Numbers:
        return isinstance(value, np.ndarray) or _has_type(value, float)
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin is tuple and Ellipsis not in parts:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_has_type, value, parts))
    if origin in (list, tuple):
        return isinstance(value, origin) and all(_has_type(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _has_type(part, hint) for item in value.items() for part, hint in zip(item, parts, strict=True)
        )
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint in (str, NoneType, np.ndarray) or issubclass(hint, Result):
        return isinstance(value, hint)
    return isinstance(value, Described)


# Files of arrays ------------------------------------------------------------------------------------------------------
#
# A file is a zip of .npy entries (an .npz) and, where a caller adds them, of text entries. Entries are stored without
# compression and with a fixed time, so that equal content gives equal bytes. A file is written completely or not at
# all. `Archive` reads single entries by name: it checks headers before any data is read, and the zip's CRC afterwards.

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip entry
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ENCRYPTED = 1  # bit of the flags of a zip entry
NAME_LENGTH = 32  # characters of a file's name in that of its temporary file: names may have 255 bytes


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file, the new one or none, never a part.

    A link remains a link, to the new content. The mode is that of new files of the process (its umask). A directory or
    a device is refused, since it would be replaced by a file.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:NAME_LENGTH]}.{secrets.token_hex(8)}")
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
    """An uncompressed .npz of `texts` and `arrays`, in order of name. Object arrays are refused."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted((texts or {}).items()):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text.encode())
        for name in sorted(arrays):
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.array(arrays[name], order="C"), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", EPOCH), entry.getvalue())
    return buffer.getvalue()


def read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All arrays and texts in `path`; errors are those of `opened`."""
    with opened(path) as archive:
        names = archive.names()
        arrays = [name.removesuffix(".npy") for name in names if name.endswith(".npy")]
        texts = {name: archive.text(name) for name in names if not name.endswith(".npy")}
        return {name: archive.array(name) for name in arrays}, texts


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The entries of `path`, which are read one by one inside the block.

    OSError if the file does not exist, may not be read or its disk fails. Whatever else goes wrong inside the block,
    because of what the file contains, is a ValueError that begins with the path.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: a FIFO blocks, a device may do anything
            raise ValueError("it is not a regular file")
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a regular file")
            yield Archive(file, status.st_size)
    except Exception as error:  # zipfile, codecs and NumPy raise errors of any type for damaged bytes
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: seek to a damaged offset
            raise
        message = str(error) or "no message"
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(f"{path} cannot be read: {kind}{message}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file that may have been replaced by a FIFO since it was examined."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Archive:
    """The entries of an open file of `size` bytes; only those that are requested are read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        available = memory()
        if available is not None and size > available:  # a sparse file may claim more than any disk has
            raise ValueError(f"it has {size / GIB:.1f} GiB, but this process may use only {available / GIB:.1f} GiB")
        self._zip, self._unread = zipfile.ZipFile(file), size
        self._arrays: dict[str, np.ndarray] = {}

    def names(self) -> list[str]:
        """The names of all entries."""
        return self._zip.namelist()

    def text(self, name: str) -> str:
        """The text entry `name`; KeyError if there is none."""
        return self._zip.read(self._entry(name)).decode()

    def array(self, name: str) -> np.ndarray:
        """The array `name`, the same object at every call; KeyError if there is none."""
        if name not in self._arrays:
            self._arrays[name] = self._read(f"{name}.npy")
        return self._arrays[name]

    def _read(self, name: str) -> np.ndarray:
        entry = self._entry(name)
        with self._zip.open(entry) as file:
            version = np.lib.format.read_magic(file)
            if version not in HEADERS:
                raise ValueError(f"{name} must have version 1.0 or 2.0 of the .npy format, got {version}")
            shape, fortran, dtype = HEADERS[version](file)
            if dtype.kind not in DTYPES or dtype.hasobject or dtype.itemsize == 0:
                raise ValueError(f"{name} must hold numbers or text, got {dtype}, which needs pickle")
            size, remaining = math.prod(shape) * dtype.itemsize, entry.file_size - file.tell()
            if size != remaining:
                raise ValueError(f"{name} has {remaining} bytes of data, but shape {shape} of {dtype} needs {size}")
            data = bytearray(file.read())  # compares the CRC at its end
        if len(data) != size:
            raise ValueError(f"{name} ends after {len(data)} of {size} bytes of data")
        return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")

    def _entry(self, name: str) -> zipfile.ZipInfo:
        """The entry `name`, if its header is one that `npz_bytes` writes.

        Entries are not compressed and each byte belongs to one of them, so that together they cannot exceed the file,
        however it was made.
        """
        entry = self._zip.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise ValueError(f"{name} is compressed or encrypted, but `save` writes neither")
        self._unread -= entry.file_size
        if entry.file_size != entry.compress_size or self._unread < 0:
            raise ValueError(f"{name} declares {entry.file_size} bytes, more than the file can hold")
        return entry


# Equality by value ----------------------------------------------------------------------------------------------------
#
# Arrays are equal if dtype, shape and entries are, whatever their library and device; NaN equals NaN. Numbers are equal
# by value (True is not 1), sequences and dictionaries item by item, dataclasses of one class field by field. Other
# objects are equal if their reprs are, because a file has only these.


def _equal(a: Any, b: Any) -> bool:
    if _is_array(a) or _is_array(b):
        return _is_array(a) and _is_array(b) and _equal_arrays(a, b)
    if _is_number(a) and _is_number(b):
        a, b = _python_number(a), _python_number(b)
        return isinstance(a, bool) == isinstance(b, bool) and bool(a == b or (a != a and b != b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    if is_dataclass(a) and type(a) is type(b):
        return _equal(_field_values(a), _field_values(b))
    if _is_plain(a) or _is_plain(b):
        return type(a) is type(b) and bool(a == b)
    return a is b or repr(a) == repr(b)


def _equal_arrays(a: Array, b: Array) -> bool:
    name = _dtype_name(a)
    if _dtype_name(b) != name or tuple(a.shape) != tuple(b.shape):
        return False
    if compat.array_namespace(a) is not compat.array_namespace(b) or str(device(a)) != str(device(b)):
        if name not in np.sctypeDict:  # bfloat16 of two libraries: there is no third in which to compare
            return False
        a, b = to_host(a), to_host(b)
    if name == "object":
        return all(map(_equal, a.ravel().tolist(), b.ravel().tolist()))
    xp = array_namespace(a)
    return bool(to_host(xp.all((a == b) | ((a != a) & (b != b)))))


def _hashable(value: Any) -> Hashable:
    """A hashable that is equal for equal values; of an array only dtype and shape."""
    if _is_array(value):
        return _dtype_name(value), tuple(value.shape)
    if isinstance(value, dict):
        return frozenset((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if _is_number(value):
        return None if value != value else _python_number(value)
    if _is_plain(value):
        return value if isinstance(value, str) else type(value).__name__
    return None  # it may equal a `Described`


def _field_values(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def _is_array(value: Any) -> bool:
    """Whether `value` is an array of any library; NumPy's scalars are none."""
    return compat.is_array_api_obj(value) and not isinstance(value, np.generic)


def _is_plain(value: Any) -> bool:
    """Whether `value` is of a type of Python or NumPy itself."""
    return type(value).__module__ in ("builtins", "numpy")


def _is_number(value: Any) -> bool:
    return isinstance(value, Number | np.number | np.bool_)


def _python_number(value: Any) -> Any:
    """Python's number of the same value: NumPy rounds 0.1 to float32 before it compares, and overflows."""
    return value.item() if isinstance(value, np.generic) else value


def _dtype_name(x: Array) -> str:
    """The name of the dtype of `x`, the same for all libraries."""
    return str(x.dtype).rsplit(".", 1)[-1]
