"""Compiled steps do not check what they read, so tapes do: shapes and dtypes of all inputs."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import neural
from hgp_ref.backend import array_namespace
from hgp_ref.problems import NeuralInstanceWeights, PersonalBias, PersonalMask, PersonalMixture


@pytest.fixture
def tape():
    model = neural.Sequential((1, 8, 8), neural.Conv2d(1, 2, 3), neural.ReLU(), neural.MaxPool2d(2))
    return model.forward(model.init(2), np.ones((2, 5, 1, 8, 8)))


@pytest.mark.parametrize("shape", [(2, 5, 2, 2, 2), (2, 4, 2, 3, 3), (2, 5, 1, 3, 3), (2, 5, 2, 9, 9), (1, 5, 2, 3, 3)])
def test_what_goes_into_a_pass_has_the_shape_of_the_outputs(tape, shape):
    tangent = tape.tangent(np.ones((2, 20)))
    adjoint = tape.adjoint(np.ones((2, 5, 2, 3, 3)))
    for name, call in (("c", tape.backward), ("c", tape.adjoint), ("c_dot", lambda c: adjoint.tangent(tangent, c))):
        with pytest.raises(ValueError, match=rf"^{name} must have shape \(2, 5, 2, 3, 3\) of float64, got shape"):
            call(np.ones(shape))
        with pytest.raises(ValueError, match=rf"^{name} must have shape .* of float64, got .* of float32"):
            call(np.ones((2, 5, 2, 3, 3), dtype=np.float32))
        with pytest.raises(ValueError, match=rf"^{name} must have shape .*, got float"):
            call(1.0)
    with pytest.raises(ValueError, match=r"^u must have shape \(2, 20\) of float64, got shape \(2, 19\)"):
        tape.tangent(np.ones((2, 19)))


class Doubles(neural.ReLU):
    """A user's layer; one of its passes may answer in a wrong shape."""

    wrong = ""

    def forward(self, p, a, xp):
        z, saved = super().forward(p, a, xp)
        return (z[:, :, :-1] if self.wrong == "forward" else z), saved

    def vjp(self, saved, delta, xp):
        result = super().vjp(saved, delta, xp)
        return result[:, :, :-1] if self.wrong == "vjp" else result

    def jvp(self, saved, a_dot, xp):
        result = super().jvp(saved, a_dot, xp)
        return result.astype(np.float32) if self.wrong == "jvp" else result


@pytest.mark.parametrize("fused", [True, False])
def test_what_a_layer_hands_on_is_looked_at(fused):
    layer = Doubles()
    layers = (neural.Conv2d(1, 2, 3), layer, neural.Conv2d(2, 2, 3), neural.Flatten(), neural.Linear(32, 3))
    model = neural.Sequential((1, 8, 8), *layers, fused=fused)
    x, X, c = model.init(2), np.ones((2, 5, 1, 8, 8)), np.ones((2, 5, 3))
    tape = model.forward(x, X)
    adjoint, tangent = tape.adjoint(c), tape.tangent(x)
    layer.wrong = "vjp"
    for method, call in {
        "backward": lambda: tape.backward(c),
        "pull": lambda: tape.adjoint(c),
        "backward_tangent": lambda: adjoint.tangent(tangent, c),
    }.items():
        message = rf"layers: Doubles\(\)\.{method} must return .*, got shape \(2, 5, 5, 6, 2\)"
        with pytest.raises(ValueError, match=message):
            call()
    layer.wrong = "jvp"
    with pytest.raises(
        ValueError, match=r"Doubles\(\)\.tangent must return shape \(2, 5, 6, 6, 2\) of float64, got .* of float32"
    ):
        tape.tangent(x)
    layer.wrong = "forward"
    with pytest.raises(ValueError, match=r"Doubles\(\)\.forward must return .*, got shape \(2, 5, 5, 6, 2\)"):
        model.forward(x, X)


MODEL = neural.Sequential((4,), neural.Linear(4, 3))
KINDS = {
    "NeuralInstanceWeights": lambda X, y: NeuralInstanceWeights(MODEL, X, y, X, y),
    "PersonalMask": lambda X, y: PersonalMask(MODEL, X, y),
    "PersonalBias": lambda X, y: PersonalBias(MODEL, X, y),
    "PersonalMixture": lambda X, y: PersonalMixture(MODEL, X, y, components=2),
    "SoftmaxRegression": lambda X, y: hgp.problems.SoftmaxRegression(X, y, X, y, n_classes=3),
    "HyperCleaning": lambda X, y: hgp.problems.HyperCleaning(X, y, X, y),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_does_not_follow_the_arrays_that_it_was_made_of(kind):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    problem = KINDS[kind](X, y)
    x, lam = rng.standard_normal((2, problem.dim_x)), np.ones((2, problem.dim_lam))
    before = problem.inner_cost(x, lam), problem.outer_cost(x, lam)
    X[:], y[:] = 0, 0
    assert np.array_equal(problem.inner_cost(x, lam), before[0])
    assert np.array_equal(problem.outer_cost(x, lam), before[1])


def test_repr_of_neural_problems():
    X, y = np.ones((2, 5, 4)), np.array([[0, 1, 2, 0, 1]] * 2)
    mixture = PersonalMixture(MODEL, X, y, components=2)
    assert repr(mixture.model) == "Ensemble(Sequential((4,), Linear(4, 3)), 2)"
    assert repr(mixture) == f"<PersonalMixture of {mixture.model!r}: n_clients=2, dim_x=30, dim_lam=2>"


def test_one_instance_of_width_one_with_zeros_around():
    """np.pad keeps the order of a turned view; compiled steps need the plain one."""
    layers = (neural.Conv2d(2, 1, (3, 1), padding="same"), neural.Flatten(), neural.Linear(4, 2))
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1, 1, 2, 4, 1)), np.zeros((1, 1), dtype=int)
    fused, plain = (PersonalMask(neural.Sequential((2, 4, 1), *layers, fused=f), X, y) for f in (True, False))
    x, lam = rng.standard_normal((1, fused.dim_x)), np.zeros((1, 2))
    assert np.allclose(fused.inner_grad(x, lam), plain.inner_grad(x, lam), rtol=1e-12, atol=1e-15)
    both = (problem.linearize(x, lam).hvp(x) for problem in (fused, plain))
    assert np.allclose(*both, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("z", [0.0, 5.0, 20.0, 36.0, 40.0, 300.0])
def test_curvature_where_the_model_is_sure_of_itself(z):
    """Logits (z, 0): ∂²CE = p q [[1, −1], [−1, 1]] with p q = e^−z / (1 + e^−z)², to rounding for any z."""
    X, y = np.array([[[1.0, 0.0]]]), np.zeros((1, 1), dtype=int)
    problem = NeuralInstanceWeights(neural.Sequential((2,), neural.Linear(2, 2)), X, y, X, y, l2=0.0)
    u = np.array([[1.0, 0, 0, 0, 0, 0]])
    Hu = problem.linearize(z * u, np.ones((1, 1))).hvp(u)[0]
    expected = np.exp(-z) / (1 + np.exp(-z)) ** 2
    assert np.allclose(Hu[[0, 2]], [expected, -expected], rtol=1e-14, atol=0)
    linear = hgp.problems.SoftmaxRegression(X, y, X, y, n_classes=2)
    logits = np.array([z, 0.0])
    block = linear._loss.blocks(logits, xp=array_namespace(logits))
    assert np.allclose(block, expected * np.array([[1, -1], [-1, 1]]), rtol=1e-14, atol=0)
