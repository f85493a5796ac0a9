"""Client costs g_i and f_i with their derivatives, batched over clients; see `protocol` for writing one's own."""

from hgp_ref.problems.adapters import from_jax, from_torch
from hgp_ref.problems.batches import sample_batches, sample_epochs
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.elementwise import LogRates
from hgp_ref.problems.hyper_cleaning import HyperCleaning
from hgp_ref.problems.instance_weights import InstanceWeights
from hgp_ref.problems.logistic import LogisticRegression
from hgp_ref.problems.neural import NeuralProblem
from hgp_ref.problems.neural_bias import PersonalBias
from hgp_ref.problems.neural_cost import NeuralCost
from hgp_ref.problems.neural_mask import PersonalMask
from hgp_ref.problems.neural_mixture import PersonalMixture
from hgp_ref.problems.neural_weights import NeuralInstanceWeights
from hgp_ref.problems.normalised import as_problem
from hgp_ref.problems.protocol import Linearization, Problem
from hgp_ref.problems.quadratic import Quadratic
from hgp_ref.problems.softmax import SoftmaxRegression
from hgp_ref.problems.term_sizes import TermSizes

__all__ = [
    "HyperCleaning",
    "InstanceWeights",
    "Linearization",
    "Lipschitz",
    "LogRates",
    "LogisticRegression",
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
    "from_jax",
    "from_torch",
    "sample_batches",
    "sample_epochs",
]
