"""All checks of the statements."""

from __future__ import annotations

from . import checks, checks_minibatch, checks_printed


def _checks(*modules):
    return [f for m in modules for name, f in vars(m).items() if name.startswith("check_")]


CHECKS = _checks(checks, checks_minibatch, checks_printed)
