"""A slightly wrong bound must be noticed: each altered copy of the package fails some check."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

import hgp_ref.bounds

from .all_checks import CHECKS

SOURCE = Path(hgp_ref.bounds.__file__).parent

# (topic, as it is, as it must not be)
MUTATIONS = [
    # A: factor dropped, index shifted, rate or norm swapped
    ("contraction", "(1 + rho * geometric", "(1 + geometric"),
    ("contraction", "[M - 1 - j]))", "[np.maximum(M - 2 - j, 0)]))"),
    ("contraction", "rho**j *", "rho ** (j + 1) *"),
    ("contraction", "product(c.eta, c.G_inf, float", "product(c.eta, c.g_bar, float"),
    ("contraction", "rho = c.rho if", "rho = c.rho_bar if"),
    ("contraction", "product(c.rho_bar**M, size", "product(c.rho_bar ** (M + 1), size"),
    ("contraction", "size, 1 / c.alpha_bar", "size, 1 / c.L_bar"),
    ("contraction", "(1 - c.rho) ** -2", "(1 - c.rho) ** -1"),
    # B
    ("convexity", "(1 + c.eta * c.zeta * g[M - 1 - j])", "1"),
    ("convexity", "c.eps_par[:M] * g[M - j]", "c.eps_par[:M] * g[M - 1 - j]"),
    ("recursion", "a, s = c.a0 / unit, c.s0 / unit", "a, s = c.s0 / unit, c.a0 / unit"),
    ("recursion", "coupling = c.eta * c.zeta", "coupling = c.zeta"),
    ("recursion", "+ c.rho_perp * across", "+ c.rho_bar * across"),
    ("convexity", "tail / np.sqrt(c.n)", "tail / c.n"),
    ("convexity", "truncation(c, M, c.a0)", "truncation(c, M, c.s0)"),
    # constants: norms swapped
    ("constants", "np.abs(E).sum(axis=2).max(axis=1)", "np.abs(E).sum(axis=1).max(axis=1)"),
    ("constants", '"eps_par": np.sqrt(n) *', '"eps_par":'),
    ("constants", '"eps_perp": np.linalg.norm(E - column_means, 2', '"eps_perp": np.linalg.norm(E, 2'),
    ("constants", "np.linalg.norm(J / power_of_two(J), 2, axis", 'np.linalg.norm(J / power_of_two(J), "fro", axis'),
    ("constants", "norms(f_x).max()", "norms(f_x).mean()"),
    ("constants", "(deviation @ deviation).mean(axis=0)", "(deviation @ deviation).min(axis=0)"),
    # C
    ("residual", "beta * residual / alpha_bar", "beta * residual"),
    ("residual", "+ coupling / alpha_bar)", ")"),
    ("residual", "residual = g - w @ H_bar.T", "residual = g + w @ H_bar.T"),
    ("residual", "np.linalg.inv(H_bar)", "H_bar"),
    # Corollary 1 repaired, as printed statements, Lemma 2
    ("theorem_1", "product(2, c.eta, beta, eps", "product(1, c.eta, beta, eps"),
    ("theorem_1", "2 * rho * eps <= 1 - rho", "rho * eps <= 1 - rho"),
    ("theorem_1", "product(2, beta, eps, 1 / c.eta, ", "product(2, beta, eps, "),
    ("theorem_1", "copies = 2 if", "copies = 1 if"),
    ("theorem_2", "product(nu_f, beta, 1 / alpha,", "product(nu_f, beta, 1 / alpha, 1 / alpha,"),
    ("lemma_2", "return n * entry", "return math.sqrt(n) * entry"),
    ("nedic_olshevsky", "_power(self.log_tau, steps - 1)", "_power(self.log_tau, steps)"),
    # D
    ("minibatches", "np.sqrt(2 * log_term * squares)", "np.sqrt(log_term * squares)"),
    ("minibatches", "log_term = math.log(2) - ", "log_term = -"),
    ("minibatches", "[M - 1 - np.arange(M)]", "[np.maximum(M - 2 - np.arange(M), 0)]"),
    ("minibatches", "clients * (for_v + for_u) ** 2", "clients * (for_v**2 + for_u**2)"),
    ("minibatches", "clients * for_v**2 + n * for_u**2", "clients * for_v**2 + for_u**2"),
    ("minibatches", "rho=max(s.rho, c.rho)", "rho=c.rho"),
    # E
    ("mean_square", "(count - size) / ((count - 1) * size)", "(count - size) / (count * size)"),
    ("mean_square", "(J @ Q[m + 1])", "(J @ Q[m])"),
    ("mean_square", "squares[i] -= 2 * eta", "squares[i] -= eta"),
    # 2*, Chebyshev
    ("inexact_solution", "(nu.nu_flam + nu.nu_J * w_norm) * apart", "nu.nu_J * w_norm * apart"),
    ("inexact_solution", "product(nu.nu_fx + nu.nu_H * w_norm", "product(nu.nu_fx + nu.nu_H"),
    ("inexact_solution", "e = 2 * gradient / (alpha", "e = gradient / (alpha"),
    ("chebyshev_bound", "2 * q**iterations", "q**iterations"),
    ("chebyshev_bound", "root = math.sqrt(kappa)", "root = kappa"),
]  # fmt: skip


def load(source: Path):
    """The package in the folder `source`, under the folder's name."""
    sys.path.insert(0, str(source.parent))
    try:
        return importlib.import_module(source.name)
    finally:
        sys.path.remove(str(source.parent))


TOPICS = {  # where a topic is written, and the checks that are tried first
    "residual": ("residual.py", "check_c"),
    "theorem_1": ("theorems.py", ("check_printed", "check_corollary1")),
    "theorem_2": ("theorems.py", "check_printed"),
    "lemma_2": ("theorems.py", "check_lemma2"),
    "nedic_olshevsky": ("theorems.py", "check_worst_case"),
    "contraction": ("series.py", "check_a_is"),
    "convexity": ("series.py", "check_b_is"),
    "recursion": ("result.py", "check_b_is"),
    "minibatches": ("noise.py", "check_d"),
    "mean_square": ("noise.py", "check_e"),
    "inexact_solution": ("residual.py", ("check_inexact", "check_distance")),
    "chebyshev_bound": ("series.py", "check_chebyshev"),
    "constants": ("constants.py", "check_a_is"),
}


def first_failure(package, topic="constants") -> str | None:
    """The name of a check that does not pass, None if all do."""
    prefix = TOPICS[topic][1]
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
    topic, old, new = MUTATIONS[number]
    file = TOPICS[topic][0]
    copy = copy_of_package(tmp_path, f"mutated_bounds_{number}")
    text = (copy / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times; the mutation needs updating"
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    assert first_failure(load(copy), topic), f"{file}: {old!r} → {new!r} went unnoticed"
