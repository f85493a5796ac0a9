"""ERRATA.md says what the command measures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verification import errata
from verification.errata.document import text
from verification.errata.entry import FALSE, GAP, SHARPER, SLIP
from verification.run import Run

DOCUMENT = Path(__file__).parents[2] / "ERRATA.md"
NUMBER = re.compile(r"(?<![\w^])\d+(?:\.\d+)?(?:e-?\d+)?")
ROUNDING = 1e-12  # residuals of identities below this differ from machine to machine


@pytest.fixture(scope="module")
def fresh():
    """The document as a run of now writes it."""
    return text(errata.verify(Run()))


def numbers(line: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(line)]


def test_there_are_30_entries_without_gap():
    assert list(errata.ERRATA) == list(range(1, 31))


def test_every_entry_has_a_kind():
    of_kind = {
        kind: [n for n, one in errata.ERRATA.items() if one.kind == kind] for kind in (FALSE, GAP, SLIP, SHARPER)
    }
    assert sorted(n for numbers in of_kind.values() for n in numbers) == list(errata.ERRATA)
    assert set(of_kind[SHARPER]) == {9, 10, 11, 12, 22, 23, 26}
    assert set(of_kind[FALSE]) == {4, 14, 15, 28, 29}


def test_words_and_numbers_agree_with_a_fresh_run(fresh):
    written = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for ours, theirs in zip(written, fresh.splitlines(), strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        for a, b in zip(numbers(ours), numbers(theirs), strict=True):
            assert max(a, b) < ROUNDING or a == pytest.approx(b, rel=0.05), ours


def test_a_wrong_number_is_seen():
    assert numbers("relative error 2.6e11 at M = 40, 9.8e-19 and √20 = 0.22") == [2.6e11, 40, 9.8e-19, 20, 0.22]
    assert numbers("ω^(0) = 1, n=128") == [0.0, 1, 128]


def test_unknown_numbers_are_refused():
    with pytest.raises(ValueError, match="erratum 31 given"):
        errata.verify(Run(quick=True), [31])
