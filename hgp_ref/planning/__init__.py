"""Which method, S and M for a given accuracy, by what clients can find out; and the run that certifies it."""

from hgp_ref.planning.planner import Outcome, Plan, Stage, plan
from hgp_ref.planning.probe import Diagnostics

__all__ = ["Diagnostics", "Outcome", "Plan", "Stage", "plan"]
