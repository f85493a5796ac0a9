"""Which training data made the model what it is: predicted influence, retraining to check it, scores."""

from hgp_ref.attribution.prediction import Influence, Scores, f1_negative, influence, r2_score, scores, spearman
from hgp_ref.attribution.retraining import Retraining, all_instances, as_removals, retrain, retrain_from, retrain_sgp

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
