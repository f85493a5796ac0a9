"""Which method, S and M for a given accuracy, by what clients can find out; and the run that certifies it."""

from hgp_ref.planning.door import plan
from hgp_ref.planning.enquiry import Found
from hgp_ref.planning.result import Outcome, Plan, Stage

__all__ = ["Found", "Outcome", "Plan", "Stage", "plan"]
