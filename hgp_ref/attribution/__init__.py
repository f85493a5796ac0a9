"""Which training data made the model what it is: predicted influence, retraining to check it, scores."""

from hgp_ref.attribution.agreement import Scores, f1_negative, r2_score, scores, spearman
from hgp_ref.attribution.more_steps import retrain_from
from hgp_ref.attribution.predict import Influence, influence
from hgp_ref.attribution.removals import all_instances, as_removals
from hgp_ref.attribution.retraining import Retraining, retrain, retrain_sgp

__all__ = [
    "Influence",
    "Retraining",
    "Scores",
    "all_instances",
    "as_removals",
    "f1_negative",
    "influence",
    "r2_score",
    "retrain",
    "retrain_from",
    "retrain_sgp",
    "scores",
    "spearman",
]
