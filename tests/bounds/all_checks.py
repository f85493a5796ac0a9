"""All checks of the statements, and those of certificates."""

from __future__ import annotations

from . import certificate_checks, checks, checks_minibatch, checks_printed


def _checks(*modules):
    return [f for m in modules for name, f in vars(m).items() if name.startswith("check_")]


CHECKS = _checks(checks, checks_minibatch, checks_printed)
CERTIFICATE_CHECKS = _checks(certificate_checks)
