"""A progress bar for work that takes more than a few seconds."""

from __future__ import annotations

from typing import Any


class _Silent:
    def update(self, count: int = 1) -> None:
        return None

    def close(self) -> None:
        return None


def bar(total: int, label: str, show: bool) -> Any:
    """An object with update(count) and close(): tqdm's bar where `show`, nothing otherwise."""
    if not show:
        return _Silent()
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs tqdm: pip install 'hgp_ref[progress]'") from error
    return tqdm(total=total, desc=label)
