"""The influence of training data on the validation cost: predictions, retraining to check them, and scores."""

from hgp_ref.attribution.prediction import Influence, Scores, f1_negative, influence, lds, r2_score, scores, spearman
from hgp_ref.attribution.retraining import (
    Retraining,
    client_removals,
    random_removals,
    retrain,
    retrain_from,
    retrain_over_network,
)

__all__ = [
    "Influence",
    "Retraining",
    "Scores",
    "client_removals",
    "f1_negative",
    "influence",
    "lds",
    "r2_score",
    "random_removals",
    "retrain",
    "retrain_from",
    "retrain_over_network",
    "scores",
    "spearman",
]
