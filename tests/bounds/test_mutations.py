"""A bound that is slightly wrong must be noticed: altered copies of the package, each of which fails some check."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

import hgp_ref.bounds

from .all_checks import CHECKS

SOURCE = Path(hgp_ref.bounds.__file__).parent

# (file, as it is, as it must not be)
MUTATIONS = [
    # A: factor dropped, index shifted, rate or norm swapped
    ("series.py", "(1 + rho * geometric", "(1 + geometric"),
    ("series.py", "[M - 1 - j]))", "[np.maximum(M - 2 - j, 0)]))"),
    ("series.py", "rho**j *", "rho ** (j + 1) *"),
    ("series.py", "product(c.eta, c.G_inf, float", "product(c.eta, c.g_bar, float"),
    ("series.py", "rho = c.rho if", "rho = c.rho_bar if"),
    ("series.py", "product(c.rho_bar**M, c.g_bar", "product(c.rho_bar ** (M + 1), c.g_bar"),
    ("series.py", "c.g_bar, 1 / c.alpha_bar", "c.g_bar, 1 / c.L_bar"),
    ("series.py", "(1 - c.rho) ** -2", "(1 - c.rho) ** -1"),
    # B
    ("series.py", "(1 + c.eta * c.zeta * g[M - 1 - j])", "1"),
    ("series.py", "c.eps_par[:M] * g[M - j]", "c.eps_par[:M] * g[M - 1 - j]"),
    ("result.py", "a, s = c.a0 / unit, c.s0 / unit", "a, s = c.s0 / unit, c.a0 / unit"),
    ("result.py", "coupling = c.eta * c.zeta", "coupling = c.zeta"),
    ("result.py", "+ c.rho_perp * across", "+ c.rho_bar * across"),
    ("series.py", "tail / np.sqrt(c.n)", "tail / c.n"),
    ("series.py", "product(c.rho_bar**M, c.a0", "product(c.rho_bar**M, c.s0"),
    # constants: norms swapped
    ("constants.py", "np.abs(E).sum(axis=2).max(axis=1)", "np.abs(E).sum(axis=1).max(axis=1)"),
    ("constants.py", '"eps_par": np.sqrt(n) *', '"eps_par":'),
    ("constants.py", '"eps_perp": np.linalg.norm(E - column_means, 2', '"eps_perp": np.linalg.norm(E, 2'),
    ("constants.py", "np.linalg.norm(J / power_of_two(J), 2, axis", 'np.linalg.norm(J / power_of_two(J), "fro", axis'),
    ("constants.py", "norms(f_x).max()", "norms(f_x).mean()"),
    ("constants.py", "(deviation @ deviation).mean(axis=0)", "(deviation @ deviation).min(axis=0)"),
    # C
    ("residual.py", "beta * residual / alpha_bar", "beta * residual"),
    ("residual.py", "+ coupling / alpha_bar)", ")"),
    ("residual.py", "residual = g - w @ H_bar.T", "residual = g + w @ H_bar.T"),
    ("residual.py", "np.linalg.inv(H_bar)", "H_bar"),
    # Corollary 1 repaired, as printed statements, Lemma 2
    ("theorems.py", "product(2, c.eta, beta, eps", "product(1, c.eta, beta, eps"),
    ("theorems.py", "2 * rho * eps <= 1 - rho", "rho * eps <= 1 - rho"),
    ("theorems.py", "product(2, beta, eps, 1 / c.eta, ", "product(2, beta, eps, "),
    ("theorems.py", "copies = 2 if", "copies = 1 if"),
    ("theorems.py", "product(nu_f, beta, 1 / alpha,", "product(nu_f, beta, 1 / alpha, 1 / alpha,"),
    ("theorems.py", "return n * entry", "return math.sqrt(n) * entry"),
    ("theorems.py", "_power(self.log_tau, steps - 1)", "_power(self.log_tau, steps)"),
    # D
    ("noise.py", "np.sqrt(2 * log_term * squares)", "np.sqrt(log_term * squares)"),
    ("noise.py", "log_term = math.log(2) - ", "log_term = -"),
    ("noise.py", "[M - 1 - np.arange(M)]", "[np.maximum(M - 2 - np.arange(M), 0)]"),
    ("noise.py", "clients * (for_v + for_u) ** 2", "clients * (for_v**2 + for_u**2)"),
    ("noise.py", "clients * for_v**2 + n * for_u**2", "clients * for_v**2 + for_u**2"),
    ("noise.py", "rho=max(s.rho, c.rho)", "rho=c.rho"),
    # E
    ("noise.py", "(count - size) / ((count - 1) * size)", "(count - size) / (count * size)"),
    ("noise.py", "(J @ Q[m + 1])", "(J @ Q[m])"),
    ("noise.py", "squares[i] -= 2 * eta", "squares[i] -= eta"),
    # 2*, Chebyshev
    ("residual.py", "(nu.nu_flam + nu.nu_J * w_norm) * apart", "nu.nu_J * w_norm * apart"),
    ("residual.py", "product(nu.nu_fx + nu.nu_H * w_norm", "product(nu.nu_fx + nu.nu_H"),
    ("residual.py", "e = 2 * gradient / (alpha", "e = gradient / (alpha"),
    ("series.py", "2 * q**iterations", "q**iterations"),
    ("series.py", "root = math.sqrt(kappa)", "root = kappa"),
]  # fmt: skip


def load(source: Path):
    """The package in the folder `source`, under the folder's name."""
    sys.path.insert(0, str(source.parent))
    try:
        return importlib.import_module(source.name)
    finally:
        sys.path.remove(str(source.parent))


LIKELY = {  # the checks that run first for a file; all others follow
    "residual.py": ("check_c", "check_inexact", "check_distance"),
    "theorems.py": ("check_printed", "check_corollary1", "check_lemma2", "check_worst_case"),
    "series.py": ("check_a_is", "check_b_is", "check_chebyshev"),
    "noise.py": ("check_d", "check_e"),
}


def first_failure(package, file="") -> str | None:
    """The name of a check that does not pass, None if all do."""
    prefix = LIKELY.get(file, "check_a_is")
    for check in sorted(CHECKS, key=lambda c: not c.__name__.startswith(prefix)):
        try:
            check(package)
        except (AssertionError, ArithmeticError, ValueError, IndexError):
            return check.__name__
    return None


def copy_of_package(folder: Path, name: str) -> Path:
    """A copy of the package that imports itself under its own name."""
    copy = folder / name
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.glob("*.py"):
        file.write_text(file.read_text(encoding="utf-8").replace("hgp_ref.bounds", name), encoding="utf-8")
    return copy


def test_an_unaltered_copy_passes(tmp_path):
    assert first_failure(load(copy_of_package(tmp_path, "unaltered_bounds"))) is None


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_mutation_is_caught(number, tmp_path):
    file, old, new = MUTATIONS[number]
    copy = copy_of_package(tmp_path, f"mutated_bounds_{number}")
    text = (copy / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times; the mutation needs updating"
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    assert first_failure(load(copy), file), f"{file}: {old!r} → {new!r} went unnoticed"
