"""Personal models of clients that train together: HGP-PL, HGP-MTL and the baselines of the paper's table.

Every method is a function (task, net, recipe, its own settings) → `Personalized`:

    local           own data alone                               local_training
    fedavg          one model for all (SGP / FedAvg)             global_model
    fedprox         the same, held near by a proximal term       proximal
    fedavg_plus     one model, tuned by each client              tuning
    clustered_fl    one model for each cluster, found on the way clustering
    pfedme          Moreau envelopes                             moreau
    fedem           mixtures by EM                               mixtures
    hgp_pl          a mask on the logits by hyper-gradients      personal_layer
    hgp_mtl         a mixture by hyper-gradients                 multi_task
    hgp_weights     weights of training instances likewise       instance_weights
    class_prior     one model, shifted by class frequencies      priors (a control)
"""

from hgp_ref.personalization.baselines import (
    class_prior,
    clustered_fl,
    fedavg,
    fedavg_plus,
    fedprox,
    hgp_mtl,
    hgp_pl,
    local,
    pfedme,
)
from hgp_ref.personalization.hypergradients import Outer, fedem, hgp_weights
from hgp_ref.personalization.task import Personalized, Push, Rounds, Task

__all__ = [
    "Outer",
    "Personalized",
    "Push",
    "Rounds",
    "Task",
    "class_prior",
    "clustered_fl",
    "fedavg",
    "fedavg_plus",
    "fedem",
    "fedprox",
    "hgp_mtl",
    "hgp_pl",
    "hgp_weights",
    "local",
    "pfedme",
]
