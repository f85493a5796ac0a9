"""Which method, S and M for a given accuracy, by what clients can find out; and the run that certifies it."""

from hgp_ref.planning.execution import Outcome, Plan, Stage
from hgp_ref.planning.planner import plan
from hgp_ref.planning.probe import Diagnostics

__all__ = ["Diagnostics", "Outcome", "Plan", "Stage", "plan"]
