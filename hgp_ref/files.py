"""Files of arrays: written whole or not at all, read without pickle, equal bytes for equal numbers.

A file is a zip of .npy entries (an .npz) and, where a caller adds them, of text entries. Entries carry a fixed time,
for the bytes to depend on the content alone; the zip's CRC of every entry is checked on reading.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip entry can carry


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file, the new one or none, never a piece.

    A link stays a link, to the new content; the mode is the one that the process gives to new files (its umask). What
    is no regular file, such as a directory or a device, is refused, since it would be replaced by one.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file, needed one or a new name", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
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


def read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the texts in `path`; ValueError with its name if it is no zip, cut short or damaged."""
    arrays, texts = {}, {}
    try:
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
            for name in archive.namelist():
                entry = archive.read(name)  # compares the CRC
                if name.endswith(".npy"):
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(io.BytesIO(entry), allow_pickle=False)
                else:
                    texts[name] = entry.decode()
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return arrays, texts
