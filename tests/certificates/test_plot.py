"""The plot of a certificate: its parts add up to the bound, and a missing matplotlib is named with its extra."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.certificates import result

from .certificate_checks import logistic


def certificate(n=3, avg=True, runs=False, **options):
    problem, lam = logistic(n, 3, 2)
    x = exact.inner_solution(problem, lam) + 1e-3
    used = hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1), 8)
    est = hgp.hypergradient(problem, x, lam, [used] * 2 if runs else used, eta=0.3, iterations=9, batches=4)
    return hgp.certify(problem, x, lam, est, used if avg else None, **options)


@pytest.mark.parametrize("options", [{}, {"avg": False}, {"runs": True}, {"matrix_free": True}, {"n": 35}])
def test_parts_add_up_and_are_drawn(options):
    plt = pytest.importorskip("matplotlib.pyplot")
    found = certificate(**options)
    shown = result.panels(found)
    assert list(shown) == [result.OBSERVER, result.CLIENTS][: len(shown)] and len(shown) == 1 + options.get("avg", True)
    for named in shown.values():
        total = sum(a for name, a in named.items() if name != "bound")
        assert np.allclose(total, named["bound"], rtol=1e-9)
    figure = found.plot()
    axes = figure.axes
    assert len(axes) == len(shown)
    rows = min(found.bound.shape[-1], result.SHOWN)
    for ax, named in zip(axes, shown.values(), strict=True):
        lines = {line.get_label(): line for line in ax.lines}
        assert len(lines["bound = sum"].get_xdata()) == rows
        assert np.isclose(max(lines["bound = sum"].get_xdata()), named["bound"].max())
        assert ax.get_xscale() == "log" and "residual" in lines
    if options.get("n"):
        assert axes[0].get_ylabel() == "client (30 of 35)"
    plt.close(figure)


def test_the_extra_is_named(monkeypatch):
    found = certificate(avg=False)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'hgp_ref\[figures\]'"):
        found.plot()
