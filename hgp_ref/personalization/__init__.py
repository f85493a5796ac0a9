"""Personal models of clients that train together: HGP-PL, HGP-MTL and the baselines of the paper's table.

result = FedProx(mu=0.1).fit(Task(model, data), net, LocalSGD(rounds=100))

Local               each client's own data alone
FedAvg              one model for all, by gradient push or FedAvg
FedProx             FedAvg with a proximal term in local training
FedAvgPlus          one model, fine-tuned by each client
ClassPrior          one model, its logits shifted by class frequencies (a control)
ClusteredFL         one model per cluster of clients; clusters are found during training
PFedMe              Moreau envelopes
FedEM               mixtures, by expectation maximisation
HGPPersonalLayer    a personal mask on the logits, by hyper-gradients (HGP-PL)
HGPMultiTask        personal mixtures, by hyper-gradients (HGP-MTL)
HGPInstanceWeights  weights of training instances, by hyper-gradients
"""

from hgp_ref.personalization.hypergradients import HGPInstanceWeights, HGPMultiTask, HGPPersonalLayer, OuterLoop
from hgp_ref.personalization.methods import (
    ClassPrior,
    ClusteredFL,
    FedAvg,
    FedAvgPlus,
    FedEM,
    FedProx,
    Local,
    PersonalizationMethod,
    PFedMe,
)
from hgp_ref.personalization.task import Personalized, Task
from hgp_ref.personalization.trainers import GradientPush, LocalSGD

__all__ = [
    "ClassPrior",
    "ClusteredFL",
    "FedAvg",
    "FedAvgPlus",
    "FedEM",
    "FedProx",
    "GradientPush",
    "HGPInstanceWeights",
    "HGPMultiTask",
    "HGPPersonalLayer",
    "Local",
    "LocalSGD",
    "OuterLoop",
    "PFedMe",
    "PersonalizationMethod",
    "Personalized",
    "Task",
]
