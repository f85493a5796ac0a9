"""Versions and the commit behind a number."""

from __future__ import annotations

import platform
import subprocess

import numpy as np
import pytest

from reporting import provenance


def test_versions_of_what_is_installed():
    found = provenance.versions(("numpy", "no-such-distribution"))
    assert found == {"python": platform.python_version(), "numpy": np.__version__}
    assert provenance.installed_version("no-such-distribution") is None


@pytest.mark.parametrize(("changes", "expected"), [("", "abc"), (" M setup.py\n", "abc+changes")])
def test_the_commit_is_marked_if_files_were_changed(monkeypatch, changes, expected):
    answers = {"rev-parse": "abc\n", "status": changes}
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, answers[command[1]])
    )
    assert provenance.commit() == expected


def test_outside_of_a_checkout_there_is_no_commit(monkeypatch):
    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert provenance.commit() is None
