"""Files whose SHA-256 sums are known: downloaded whole or not at all, looked at before they are opened."""

from __future__ import annotations

import hashlib
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

CHUNK = 2**20  # bytes read at once
PATIENCE = 60  # seconds without an answer of the server


def download(url: str, path: Path, sha256: str) -> Path:
    """`url` at `path`, with the sum `sha256`; a file that is there already and has it is left alone.

    A download that is broken off or has another sum leaves nothing behind.
    """
    if path.is_file() and _sum(path) == sha256.lower():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file, urlopen(url, timeout=PATIENCE) as answer:
            while piece := answer.read(CHUNK):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256.lower():
            raise ValueError(f"{url} has SHA-256 {digest.hexdigest()}, needed {sha256}: cut short or another file")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def known_sum(path: Path, sums: Mapping[str, str]) -> None:
    """ValueError unless the file has the SHA-256 sum that `sums` holds under its name."""
    if path.name not in sums:
        raise ValueError(f"no SHA-256 sum is known for {path.name}: give it as sums={{{path.name!r}: '…'}}")
    given = _sum(path)
    if given != sums[path.name].lower():
        raise ValueError(f"{path} has SHA-256 {given}, needed {sums[path.name]}: the file is damaged or another one")


def zip_entry(path: Path, name: str) -> bytes | None:
    """The bytes of the file called `name`, in whatever folder inside the archive; None if there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.namelist() if entry.rsplit("/", 1)[-1] == name]
            if len(entries) > 1:
                raise ValueError(f"{path} holds {name} more than once: {', '.join(entries)}")
            return archive.read(entries[0]) if entries else None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:  # or encrypted
        raise ValueError(f"{path} is not a zip archive that can be read: {error}") from error


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
