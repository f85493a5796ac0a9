"""Client costs g_i and f_i with their derivatives, batched over clients; `Problem` documents how to write one."""

from hgp_ref.problems.base import Linearization, Problem, as_problem
from hgp_ref.problems.batches import MiniBatches, sample_batches, sample_epochs
from hgp_ref.problems.derivatives import Comparison, DerivativeCheck, check_derivatives
from hgp_ref.problems.instance_weights import HyperCleaning, InstanceWeights
from hgp_ref.problems.jax import from_jax
from hgp_ref.problems.linear import LeastSquares, LogisticRegression, SoftmaxRegression
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.neural import NeuralInstanceWeights, NeuralProblem, PersonalBias, PersonalMask, PersonalMixture
from hgp_ref.problems.neural_costs import NeuralCost
from hgp_ref.problems.quadratic import Quadratic
from hgp_ref.problems.term_sizes import TermSizes
from hgp_ref.problems.torch import Composite, from_torch
from hgp_ref.problems.transforms import Damped, LogRates

__all__ = [
    "Comparison",
    "Composite",
    "Damped",
    "DerivativeCheck",
    "HyperCleaning",
    "InstanceWeights",
    "LeastSquares",
    "Linearization",
    "Lipschitz",
    "LogRates",
    "LogisticRegression",
    "MiniBatches",
    "NeuralCost",
    "NeuralInstanceWeights",
    "NeuralProblem",
    "PersonalBias",
    "PersonalMask",
    "PersonalMixture",
    "Problem",
    "Quadratic",
    "SoftmaxRegression",
    "TermSizes",
    "as_problem",
    "check_derivatives",
    "from_jax",
    "from_torch",
    "sample_batches",
    "sample_epochs",
]
