"""The recipes of the documentation run, and messages reveal what docs/privacy.md says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "recipes.md").read_text(encoding="utf-8")
BEGINNING, *SECTIONS = TEXT.split("\n## ")
RECIPES = {section.splitlines()[0]: section for section in SECTIONS}
NEEDS = {
    "A networkx sequence with message loss": ("networkx", "matplotlib"),
    "TensorBoard": ("torch", "tensorboard"),
    "A sweep with joblib": ("joblib",),
    "A notebook": ("matplotlib", "tqdm"),
}


def code(section):
    (block,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return block


def recipe(name, tmp_path, monkeypatch):
    for library in NEEDS.get(name, ()):
        pytest.importorskip(library, reason=f"the recipe '{name}' needs {library}")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(compile(code(BEGINNING), "recipes.md", "exec"), namespace)
    exec(compile(code(RECIPES[name]), f"recipes.md, {name}", "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def no_figures():
    yield
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_recipes_are_short():
    for name, section in RECIPES.items():
        lines = [line for line in code(section).splitlines() if line.strip()]
        assert len(lines) <= 12, (name, len(lines))


def test_networkx_sequence_with_message_loss(tmp_path, monkeypatch, capsys):
    made = recipe("A networkx sequence with message loss", tmp_path, monkeypatch)
    x = hgp.exact.inner_solution(made["problem"], made["lam"])
    truth = hgp.exact.hypergradient(made["problem"], x, made["lam"])
    assert np.linalg.norm(made["fit"].x - x) < 1e-6 * np.linalg.norm(x)
    assert np.linalg.norm(made["est"].value - truth) < 1e-3 * np.linalg.norm(truth)
    assert made["cities"].nodes == ("Oslo", "Rome", "Kyiv", "Bonn") and "'Oslo': array" in capsys.readouterr().out


def test_tensorboard(tmp_path, monkeypatch):
    made = recipe("TensorBoard", tmp_path, monkeypatch)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "runs/lambda")).Reload()
    assert [event.value for event in events.Scalars("outer cost")] == pytest.approx(made["path"].outer_cost)


def test_sweep_with_joblib(tmp_path, monkeypatch):
    made = recipe("A sweep with joblib", tmp_path, monkeypatch)
    assert made["errors"] == [made["error"](*point) for point in made["grid"]]
    assert max(made["errors"][-2:]) < min(made["errors"][:2])


def test_notebook(tmp_path, monkeypatch):
    made = recipe("A notebook", tmp_path, monkeypatch)
    assert str(made["est"]).startswith("hyper-gradient of 4 clients") and "learning rate" in str(made["fit"])
    assert len(__import__("matplotlib.pyplot").pyplot.get_fignums()) == 2


def test_checkpoints(tmp_path, monkeypatch):
    made = recipe("Checkpoints", tmp_path, monkeypatch)
    whole = hgp.bilevel.optimise(made["problem"], made["lam"], made["net"], outer_steps=4, train=hgp.training.SGP(100))
    np.testing.assert_array_equal(made["path"].lam, whole.lam)
    x, lam, avg = made["path"].x, made["path"].lam[-1], hgp.PushSum(made["net"], 10)
    long = hgp.hypergradient(made["problem"], x, lam, avg, iterations=100)
    np.testing.assert_array_equal(made["est"].value, long.value)


def test_clients_from_one_data_set(tmp_path, monkeypatch):
    made = recipe("Clients from one data set", tmp_path, monkeypatch)
    assert sum(map(len, made["X_clients"])) == sum(map(len, made["y_clients"])) == 400


class Overheard(hgp.PushSum):
    """Push-Sum that stores what clients hold at the start of each call: their first message divided by its weight."""

    def connect(self):
        channel = super().connect()
        self.heard, average = [], channel.average

        def listening(u, *args):
            self.heard.append(np.array(u))
            return average(u, *args)

        channel.average = listening
        return channel


def test_first_messages_reveal_gradients_and_products_with_hessians():
    """u⁰ is ∂_x f, and η⁻¹ (ū − u⁺) = H_i ū; d_x of these give H_i."""
    n, d, eta = 3, 4, 0.4
    problem = hgp.problems.Quadratic.random(n, d, 2, seed=3)
    rng = np.random.default_rng(0)
    x, lam = rng.normal(size=(n, d)), rng.normal(size=(n, 2))
    avg = Overheard(hgp.networks.FullyConnected(n), steps=1)
    hgp.hypergradient(problem, x, lam, avg, eta=eta, iterations=d + 1)
    heard = np.stack(avg.heard)
    np.testing.assert_array_equal(heard[0], problem.outer_grad(x, lam)[0])
    means = heard.mean(axis=1)[:d]  # ū of iterations 0 .. d−1, which every client knows here
    for i, H in enumerate(hgp.exact.hessians(problem, x, lam)):
        products = (means - heard[1 : d + 1, i]) / eta  # rows H_i ū
        assert_close(np.linalg.solve(means, products), H, 1e-6)
