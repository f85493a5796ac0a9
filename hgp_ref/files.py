"""Files of arrays: written whole or not at all, read without pickle, equal bytes for equal numbers.

A file is a zip of .npy entries (an .npz) and, where a caller adds them, of text entries. Entries are stored without
compression and carry a fixed time, so that the bytes depend on the content alone. `Archive` reads single entries by
name: headers are checked before any data is read, and the zip's CRC afterwards.
"""

from __future__ import annotations

import errno
import io
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hgp_ref.memory import GIB, memory

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
