"""A slightly wrong certificate must be noticed: each altered copy of the package fails some check."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

import hgp_ref

from .certificate_checks import CHECKS, PROBLEM_CHECKS
from .hard_checks import HARD_CHECKS

SOURCE = Path(hgp_ref.__file__).parent

# (file, as it is, as it must not be)
MUTATIONS = [
    ("certificates/certification.py", "difference + total + smaller", "total + smaller"),
    ("certificates/certification.py", "difference + difference_rounding + smaller",
     "difference_rounding + smaller"),
    ("certificates/result.py", "return self.centralised if self.inexact is None else self.centralised + self.inexact",
     "return self.centralised"),
    ("certificates/point.py", "self.g_bar - products", "self.g_bar - 0.9 * products"),
    ("certificates/residuals.py", "else point.beta_inverse * size", "else point.beta * size"),
    ("certificates/residuals.py", "apart = distances + distance",  # by an observer of all clients
     "apart = distance + (0 if largest is None else 1) * distances"),
    ("certificates/residuals.py", "gradient = rounding.norm(rounding.mean(gradients)) * point.slack + hidden",
     "gradient = 0.0"),
    ("certificates/residuals.py", "np.abs(w - centre) + half_width", "np.abs(w - centre)"),
    ("certificates/residuals.py", "-y_low.low", "y_low.low"),
    ("certificates/residuals.py", "norms(y_r.max_abs)", "0 * norms(y_r.max_abs)"),
    ("certificates/residuals.py", "np.maximum(np.abs(high - middle)", "np.minimum(np.abs(high - middle)"),
    ("certificates/residuals.py", "c4(point.beta, r_at_centre, from_centre", "c4(point.beta, 0.0, from_centre"),
    ("certificates/residuals.py", "apart = distances + distance",  # by the clients
     "apart = distances + (distance if largest is None else 0)"),
    # over links that lose and delay: the ends of boxes swapped, or only one of them looked at
    ("certificates/residuals.py", "y_w.high, -y_w.low, norms(y_r.max_abs)",
     "y_w.low, -y_w.high, norms(y_r.max_abs)"),
    ("certificates/residuals.py", "-y_low.low, high", "-y_low.high, high"),
    ("certificates/residuals.py", "y_w, y_r, y_low = network.means(w, point.f_x - point.H(w), low)",
     "y_w, y_r, y_low = network.means(w, point.f_x - point.H(w), low); y_w = type(y_w)(y_w.high, y_w.low)"),
    ("certificates/residuals.py", "np.maximum(np.abs(self.low), np.abs(self.high))", "np.abs(self.low)"),
    ("certificates/residuals.py", "np.maximum(np.abs(self.low), np.abs(self.high))", "np.abs(self.high)"),
    ("certificates/residuals.py", "np.maximum(np.abs(self.low), np.abs(self.high))",
     "np.minimum(np.abs(self.low), np.abs(self.high))"),
    ("certificates/residuals.py", "[MeanInterval(*box) for box in", "[MeanInterval(*box[::-1]) for box in"),
    # rounding: ᾱ, ‖J H̄⁻¹‖ and the residual without their allowances
    ("certificates/point.py", "float(rounding.lowest_eigenvalues(self.H_bar)) - self.H_bar_error", "computed"),
    ("certificates/point.py", "JX / (1 - epsilon)", "JX"),
    ("certificates/residuals.py", "rounding=gain * error", "rounding=0 * error"),
    ("certificates/point.py",
     "columns = host_copies(self.name, products, self.shape)",
     "columns = host_copies(self.name, products, self.shape) * 0.5"),
    ("problems/losses.py", "SKEW = 1 / (6 * math.sqrt(3))", "SKEW = 1 / 24"),
    ("problems/losses.py", "0.5, 2 * math.sqrt(2) * SKEW", "0.25, SKEW"),
    ("problems/lipschitz.py", "rounding.norms(X) ** power", "rounding.norms(X) ** (power / 2)"),
]  # fmt: skip


def altered(folder: Path, part: str, name: str, file: str = "", old: str = "", new: str = ""):
    """hgp_ref/`part` copied into `folder` under `name`, where it imports itself by that name, with one change."""
    copy = folder / name
    shutil.copytree(SOURCE / part, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name == file:
            assert text.count(old) == 1, f"{file}: {old!r} occurs {text.count(old)} times; the mutation needs updating"
            text = text.replace(old, new)
        path.write_text(text.replace(f"hgp_ref.{part}", name), encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def first_failure(part: str, package) -> str | None:
    """The name of a check that does not pass, None if all do."""
    for check in [*CHECKS, *HARD_CHECKS] if part == "certificates" else PROBLEM_CHECKS:
        try:
            check(package)
        except (AssertionError, ArithmeticError, ValueError, IndexError):
            return check.__name__
    return None


@pytest.mark.parametrize("part", ["certificates", "problems"])
def test_an_unaltered_copy_passes(part, tmp_path):
    assert first_failure(part, altered(tmp_path, part, f"unaltered_{part}")) is None


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_mutation_is_caught(number, tmp_path):
    path, old, new = MUTATIONS[number]
    part, _, file = path.partition("/")
    package = altered(tmp_path, part, f"mutated_{part}_{number}", file, old, new)
    assert first_failure(part, package), f"{path}: {old!r} → {new!r} went unnoticed"
