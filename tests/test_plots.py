"""Figures of results are pyplot's: `plt.savefig` after `.plot()` writes them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from support.examples import quadratic

import hgp_ref as hgp

plt = pytest.importorskip("matplotlib.pyplot")
NET = hgp.networks.RandomDirected(n=3, seed=1)


@pytest.fixture(autouse=True)
def closed():
    plt.close("all")
    yield
    plt.close("all")


def estimate(**given):
    problem, x, lam = quadratic()
    return hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), iterations=10, **given)


def certificate():
    problem, x, lam = quadratic()
    return hgp.certify(problem, x, lam, estimate(), hgp.PushSum(NET, 5))


def path():
    problem, _, lam = quadratic()
    settings = dict(outer_steps=2, train=hgp.training.SGP(20, 0.1), estimate=hgp.bilevel.Estimator(2, 5, eta=1.0))
    return hgp.bilevel.optimise(problem, lam, NET, **settings)


def network():
    return NET


def influence():
    clients = hgp.data.synthetic_mixture(n_clients=3, n_train=8, seed=0)
    problem = hgp.problems.InstanceWeights(*clients.train, *clients.validation, l2=0.1)
    lam = np.ones((3, 8))
    return hgp.influence(problem, np.zeros((3, problem.dim_x)), lam, hgp.ExactAverage(3), iterations=5)


def test_influence_marks_its_two_ends():
    found, (_, ax) = influence(), plt.subplots()
    assert found.plot(2, ax=ax) is ax
    harmful, helpful = (line.get_ydata() for line in ax.lines[1:])
    assert harmful.tolist() == [found.per_instance[pair] for pair in found.most_harmful(2)]
    assert helpful.tolist() == [found.per_instance[pair] for pair in found.most_helpful(2)]
    listed = "".join(text.get_text() for text in ax.texts)
    assert all(f"client {i}, instance {k}" in listed for i, k in found.most_harmful(2) + found.most_helpful(2))


@pytest.mark.parametrize("made", [estimate, certificate, path, network, influence], ids=lambda made: made.__name__)
def test_savefig_writes_the_figure_that_was_drawn(made, tmp_path):
    result = made()
    before = plt.figure()  # another one that was current
    drawn = result.plot()
    figure = getattr(drawn, "figure", None) or drawn  # axes know theirs
    assert plt.gcf() is figure is not before and len(plt.get_fignums()) == 2
    plt.savefig(tmp_path / "drawn.png", dpi=50)
    image = plt.imread(tmp_path / "drawn.png")
    assert np.mean(image[..., :3].min(axis=-1) < 0.9) > 0.005  # an empty one is white
    plt.close(figure)
    assert plt.get_fignums() == [before.number]


def test_axes_that_were_given_are_drawn_on_and_no_figure_is_made():
    figure, ax = plt.subplots()
    assert estimate().plot(ax=ax) is ax and len(ax.lines) == 1 and plt.get_fignums() == [figure.number]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: estimate().plot(truth=np.zeros((3, 2))), ValueError),
        (lambda: estimate(history=True).plot(truth=np.zeros((3, 7))), ValueError),
        (lambda: estimate(history=True).plot(truth=[1.0]), TypeError),
        (lambda: estimate().plot(ax=3), TypeError),
        (lambda: influence().plot(ax=3), TypeError),
        (lambda: influence().plot(13), ValueError),
        (lambda: path().plot("seconds"), ValueError),
    ],
)
def test_what_cannot_be_drawn_leaves_no_figure_behind(call, error):
    with pytest.raises(error):
        call()
    assert plt.get_fignums() == []


KINDS = [
    hgp.networks.Ring(3, directed=True),
    hgp.networks.Star(40),
    hgp.networks.Torus(3, 4),
    hgp.networks.Torus(3, 4).after(2),
    hgp.networks.Hypercube(3),
    hgp.networks.SelfLoops(1),
    hgp.networks.Unreliable(hgp.networks.RandomDirected(6, seed=1), loss=0.5, seed=2),
]


def drawn_edges(ax):
    """(arrows, lines, dashed arrows) of a plot."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import ArrowStyle

    arrows = [patch for patch in ax.patches if isinstance(patch.get_arrowstyle(), ArrowStyle.CurveFilledB)]
    lines = sum(len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection))
    return len(arrows), lines, sum(patch.get_linestyle() not in ("-", "solid") for patch in arrows)


@pytest.mark.parametrize("net", KINDS, ids=repr)
def test_networks_show_every_message_and_every_client(net):
    ax = net.plot(step=2)
    senders, receivers = net.edges(2)
    messages = int(np.count_nonzero(senders != receivers))
    arrows, lines, dashed = drawn_edges(ax)
    wrapped = 2 * (3 + 4) // 2 if isinstance(getattr(net, "net", net), hgp.networks.Torus) else 0  # two stubs each
    assert (arrows, lines) == ((messages, 0) if arrows else (0, messages // 2 + wrapped))
    arrived = len(set(zip(*(p.tolist() for p in net.delivered_edges(2, 1)), strict=True))) - net.n
    assert dashed == messages - arrived
    names = [text.get_text() for text in ax.texts]
    assert names == [str(i) for i in range(net.n)] and ax.get_title() == "step 2"
    positions = ax.collections[-1].get_offsets()
    assert len(np.unique(np.round(positions, 6), axis=0)) == net.n


def test_a_strip_of_steps_has_axes_for_each():
    axes = NET.plot(step=(1, 2, 5, 6, 7))
    assert [ax.get_title() for ax in axes] == [f"step {s}" for s in (1, 2, 5, 6, 7)]
    assert len(plt.get_fignums()) == 1
    _, given = plt.subplots(1, 2)
    assert NET.plot(step=[3, 4], ax=given) == list(given)


def test_positions_and_names_of_a_networkx_graph():
    graph = nx.DiGraph([("Ann", "Bob"), ("Bob", "Cem"), ("Cem", "Ann")])
    ax = hgp.networks.from_networkx(graph).plot(layout={"Cem": (0, 0), "Bob": (1, 0), "Ann": (2, 3)})
    assert [text.get_text() for text in ax.texts] == ["Ann", "Bob", "Cem"]
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), [(2, 3), (1, 0), (0, 0)])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (dict(step=0), ValueError, "step must be an integer >= 1, got 0"),
        (dict(step=2**56), ValueError, f"step must be an integer from 1 to {2**56 - 1}, got {2**56}"),
        (dict(step=()), ValueError, "step must be an integer >= 1 or several of them, got none"),
        (dict(step="1"), TypeError, "step must be an integer >= 1, got '1'"),
        (dict(ax=3), TypeError, "ax must be axes of matplotlib or None, got int"),
        (dict(layout=np.zeros((2, 2))), ValueError, "layout must have shape"),
        (dict(layout={0: (0, 0)}), ValueError, "layout must have a position for every node, got none for 1"),
    ],
)
def test_what_cannot_be_drawn_of_a_network_leaves_no_figure_behind(given, error, message):
    with pytest.raises(error, match=message):
        NET.plot(**given)
    assert plt.get_fignums() == []


def test_every_step_needs_its_axes():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="ax must be 2 axes, one for each step, got 1"):
        NET.plot(step=(1, 2), ax=ax)
