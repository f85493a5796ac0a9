"""Hyper-Gradient Push: decentralized hyper-gradients over time-varying directed networks.

    import hgp_ref as hgp

Submodules and public functions are loaded on first use, so that importing the package costs little.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "attribution",
    "backend",
    "baselines",
    "bilevel",
    "bounds",
    "certificates",
    "data",
    "exact",
    "methods",
    "mixing",
    "mpi",
    "networks",
    "neural",
    "personalization",
    "planning",
    "problems",
    "training",
)
_NAMES = {
    "PushSum": "mixing",
    "RobustPushSum": "mixing",
    "ExactAverage": "mixing",
    "Gossip": "mixing",
    "falling_steps": "mixing",
    "Traffic": "mixing",
    "hypergradient": "methods",
    "Estimate": "methods",
    "DivergenceError": "errors",
    "ConvergenceWarning": "errors",
    "MiniBatches": "problems",
    "train": "training",
    "sgp": "training",
    "Fit": "training",
    "certify": "certificates",
    "Certificate": "certificates",
    "plan": "planning",
    "Plan": "planning",
    "influence": "attribution",
    "load": "results",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"hgp_ref.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"hgp_ref.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    if name == "__version__":  # of the installed package; pyproject.toml states it
        from importlib.metadata import version

        return version("hgp_ref")
    raise AttributeError(f"module 'hgp_ref' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
