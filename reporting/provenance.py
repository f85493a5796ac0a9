"""Where numbers come from: versions of libraries, and the commit of the checkout that ran."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Python's version and those of the `libraries` that are installed, by name."""
    installed = {name: installed_version(name) for name in libraries}
    return {"python": platform.python_version()} | {name: v for name, v in installed.items() if v is not None}


def installed_version(library: str) -> str | None:
    """The version of a distribution; None where it is not installed."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Commit of the checkout that runs, with "+changes" if tracked files differ from it; None outside of one."""
    try:
        head = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changes else "")


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
