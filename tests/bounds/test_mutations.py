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
    ("bound_a.py", "(1 + rho * geometric", "(1 + geometric"),
    ("bound_a.py", "[M - 1 - j]))", "[np.maximum(M - 2 - j, 0)]))"),
    ("bound_a.py", "rho**j *", "rho ** (j + 1) *"),
    ("bound_a.py", "c.eta * c.G_inf * np.sum", "c.eta * c.g_bar * np.sum"),
    ("bound_a.py", "rho = c.rho if", "rho = c.rho_bar if"),
    ("bound_a.py", "c.rho_bar**M * c.g_bar / c.alpha_bar", "c.rho_bar ** (M + 1) * c.g_bar / c.alpha_bar"),
    ("bound_a.py", "c.rho_bar**M * c.g_bar / c.alpha_bar", "c.rho_bar**M * c.g_bar / c.L_bar"),
    ("bound_a.py", "(1 - c.rho) ** 2", "(1 - c.rho)"),
    # B
    ("bound_b.py", "(1 + c.eta * c.zeta * g[M - 1 - j])", "1"),
    ("bound_b.py", "c.eps_par[:M] * g[M - j]", "c.eps_par[:M] * g[M - 1 - j]"),
    ("bound_b.py", "a, s, seen = c.a0, c.s0", "a, s, seen = c.s0, c.a0"),
    ("bound_b.py", "coupling = c.eta * c.zeta", "coupling = c.zeta"),
    ("bound_b.py", "+ c.rho_perp * across", "+ c.rho_bar * across"),
    ("bound_b.py", "tail / np.sqrt(c.n)", "tail / c.n"),
    ("bound_b.py", "c.rho_bar**M * c.a0 / c.alpha_bar", "c.rho_bar**M * c.s0 / c.alpha_bar"),
    # constants: norms swapped
    ("constants.py", "np.abs(E).sum(axis=2).max(axis=1)", "np.abs(E).sum(axis=1).max(axis=1)"),
    ("constants.py", '"eps_par": np.sqrt(n) *', '"eps_par":'),
    ("constants.py", '"eps_perp": np.linalg.norm(E - column_means, 2', '"eps_perp": np.linalg.norm(E, 2'),
    ("constants.py", "beta=np.linalg.norm(J, 2, axis=(1, 2))", 'beta=np.linalg.norm(J, "fro", axis=(1, 2))'),
    ("constants.py", "np.linalg.norm(f_x, axis=1).max()", "np.linalg.norm(f_x, axis=1).mean()"),
    ("constants.py", "(deviation @ deviation).mean(axis=0)", "(deviation @ deviation).min(axis=0)"),
    # C
    ("residual.py", "beta * residual / alpha_bar", "beta * residual"),
    ("residual.py", "+ coupling / alpha_bar)", ")"),
    ("residual.py", "residual = g - w @ H_bar.T", "residual = g + w @ H_bar.T"),
    ("residual.py", "np.linalg.inv(H_bar)", "H_bar"),
    # Corollary 1 repaired, as printed statements, Lemma 2
    ("theorem1.py", "2 * c.eta * beta * eps / (1 - rho) ** 2", "c.eta * beta * eps / (1 - rho) ** 2"),
    ("theorem1.py", "2 * rho * eps <= 1 - rho", "rho * eps <= 1 - rho"),
    ("theorem1.py", "2 * beta * eps / (c.eta * alpha**2)", "2 * beta * eps / alpha**2"),
    ("theorem1.py", "copies = 2 if", "copies = 1 if"),
    ("theorem2.py", "nu_f * beta / alpha", "nu_f * beta / alpha**2"),
    ("lemma2.py", "return n * entry", "return math.sqrt(n) * entry"),
    ("nedic_olshevsky.py", "_power(self.log_tau, steps - 1)", "_power(self.log_tau, steps)"),
    # D
    ("bound_d.py", "return float(np.sqrt(2 * log_term * squares))", "return float(np.sqrt(log_term * squares))"),
    ("bound_d.py", "log_term = np.log(2 / failure)", "log_term = np.log(1 / failure)"),
    ("bound_d.py", "[M - 1 - np.arange(M)]", "[np.maximum(M - 2 - np.arange(M), 0)]"),
    ("bound_d.py", "clients * (for_v + for_u) ** 2", "clients * (for_v**2 + for_u**2)"),
    ("bound_d.py", "clients * for_v**2 + n * for_u**2", "clients * for_v**2 + for_u**2"),
    ("bound_d.py", "rho=max(s.rho, c.rho)", "rho=c.rho"),
    # E
    ("bound_e.py", "(count - size) / ((count - 1) * size)", "(count - size) / (count * size)"),
    ("bound_e.py", "(J @ Q[m + 1])", "(J @ Q[m])"),
    ("bound_e.py", "found[i] -= 2 * eta", "found[i] -= eta"),
    # 2*, Chebyshev
    ("inexact.py", "(nu.nu_flam + nu.nu_J * w_norm) * apart", "nu.nu_J * w_norm * apart"),
    ("inexact.py", "(nu.nu_fx + nu.nu_H * w_norm) * mean_apart", "(nu.nu_fx + nu.nu_H) * mean_apart"),
    ("inexact.py", "e = 2 * gradient / (alpha", "e = gradient / (alpha"),
    ("chebyshev.py", "2 * q**iterations", "q**iterations"),
    ("chebyshev.py", "root = math.sqrt(kappa)", "root = kappa"),
]  # fmt: skip


def load(source: Path):
    """The package in the folder `source`, under the folder's name."""
    sys.path.insert(0, str(source.parent))
    try:
        return importlib.import_module(source.name)
    finally:
        sys.path.remove(str(source.parent))


LIKELY = {  # who is asked first about a file; everybody else follows
    "residual.py": "check_c",
    "theorem1.py": ("check_printed", "check_corollary1"),
    "theorem2.py": "check_printed",
    "lemma2.py": "check_lemma2",
    "nedic_olshevsky.py": "check_worst_case",
    "bound_a.py": "check_a_is",
    "bound_b.py": "check_b_is",
    "bound_d.py": "check_d",
    "bound_e.py": "check_e",
    "inexact.py": ("check_inexact", "check_distance"),
    "chebyshev.py": "check_chebyshev",
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
    copy = folder / name
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
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
