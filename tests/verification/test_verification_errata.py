"""ERRATA.md contains the numbers that the command measures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hgp_ref.bounds import corollary2, minibatch_tail, realised_constants, sample_constants
from verification import errata
from verification.errata.batch_size import constant_of_corollary2, noise_against_size
from verification.errata.document import text
from verification.errata.entry import FALSE, GAP, SHARPER, SLIP
from verification.errata.push_sum import failure_probability
from verification.run import Run

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "ERRATA.md"
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
    assert set(of_kind[FALSE]) == {4, 15}
    assert {13, 20, 21, 28, 29} <= set(of_kind[SLIP])
    assert 14 in of_kind[GAP]


def test_all_pages_name_the_same_two_false_statements():
    index = (ROOT / "docs" / "theory" / "index.md").read_text(encoding="utf-8")
    rows = [line for line in index.splitlines() if line.startswith("|") and "false as printed" in line]
    assert [re.match(r"\| \[([^]]+)\]", row).group(1) for row in rows] == ["Theorem 1", "Theorem 2"]
    for page in ("README.md", "ERRATA.md", "docs/theory/index.md"):
        words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert "Theorem 1 needs a further condition on the step size" in words, page
    minibatches = (ROOT / "docs" / "theory" / "minibatches.md").read_text(encoding="utf-8")
    assert "False as printed" not in minibatches


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_bound_D_is_within_corollary_2_with_its_constant(n):
    """erratum 14: η(α + L) ≤ 2 over instances, C = √n κ/4: the noise of D never exceeds the printed term."""
    rng = np.random.default_rng([14, n])
    ratios = []
    for _ in range(20):
        d, d_lam, N, M = (int(k) for k in rng.integers(1, 5, 4))
        eta = float(rng.uniform(0.1, 2.0))
        low = float(rng.uniform(0.01, 0.9)) / eta
        basis = np.linalg.qr(rng.normal(size=(n, N, d, d)))[0]
        values = rng.uniform(low, 2 / eta - low, (n, N, d))
        values[0, 0, 0] = low  # α = low, so that η(α + L) ≤ 2
        H = np.einsum("nkab,nkb,nkcb->nkac", basis, values, basis)
        J = rng.normal(size=(n, N, d_lam, d))
        K = np.full((M, n, n), 1 / n)
        c = realised_constants(H.mean(axis=1), J.mean(axis=1), rng.normal(size=(n, d)), eta, K)
        s = sample_constants(list(H), list(J), eta)
        size, failure = int(rng.integers(1, 50)), float(rng.uniform(0.001, 0.99))
        noise = minibatch_tail(c, s, size, failure).terms["noise"]
        printed = corollary2(c, s, size, failure, C=constant_of_corollary2(s, n))
        assert printed.applicable, printed.why
        ratios.append(noise / printed.terms["noise"] if noise else 0.0)
    assert 0 < max(ratios) <= 1


def test_noise_of_erratum_14_falls_as_the_root_of_the_batch_size():
    noise = noise_against_size(Run(quick=True))
    assert noise["quantile"].max() < 1.5 * noise["quantile"].min()
    assert (noise["quantile"] <= noise["D"]).all() and (noise["D"] <= noise["corollary"]).all()


def test_failure_probability_of_a_window():
    assert failure_probability(np.array([[1.0, 0.5], [0.25, 1.0]]), 1) == pytest.approx(1 - 0.5 * 0.25)
    assert failure_probability(np.array([[1.0, 0.5], [0.25, 1.0]]), 2) == pytest.approx(1 - 0.75 * (1 - 0.75**2))
    assert failure_probability(np.ones((3, 3)), 1) == 0


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
    with pytest.raises(ValueError, match="errata must be numbers from 1 to 30, got 31"):
        errata.verify(Run(quick=True), [31])
