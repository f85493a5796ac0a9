"""The influence of training data on the validation cost: predictions, retraining to check them, and scores."""

from hgp_ref.attribution.prediction import Influence, Scores, f1_negative, influence, r2_score, scores, spearman
from hgp_ref.attribution.retraining import Retraining, as_removals, retrain, retrain_from, retrain_over_network

__all__ = [
    "Influence",
    "Retraining",
    "Scores",
    "as_removals",
    "f1_negative",
    "influence",
    "r2_score",
    "retrain",
    "retrain_from",
    "retrain_over_network",
    "scores",
    "spearman",
]
