"""`bilevel.optimise` with flat settings, so that a test can vary one of them at a time."""

from __future__ import annotations

from hgp_ref import bilevel
from hgp_ref.problems import MiniBatches
from hgp_ref.training import SGP


def optimise(problem, net, lam, outer_steps=20, train=None, estimate=None, update=None, project=None, warm_start=True,
             seed=0, *, log=False, x0=None, measure=None, patience=None, certify=None, file=None, callback=None,
             progress=False):  # fmt: skip
    """`train` and `estimate` are dictionaries, or functions with the arguments (problem, net, lam or x, …, seed=)."""
    tol = None
    if train is None or isinstance(train, dict):
        train = {"steps": 400, "lr": 1.0} if train is None else dict(train)
        tol, size = train.pop("tol", None), train.pop("batch_size", None)
        train.setdefault("milestones", () if callable(train.get("lr")) else (0.6, 0.8))
        method = SGP(**train, batches=None if size is None else MiniBatches(size, seed))
    else:
        method = _trainer(train, seed) if callable(train) else train
    if estimate is None or isinstance(estimate, dict):
        estimate = dict(estimate or {})
        size, shared = estimate.pop("batch_size", None), estimate.pop("shared_batch", False)
        if "steps" in estimate:
            estimate["averaging_steps"] = estimate.pop("steps")
        if estimate.get("method") is None:
            estimate.setdefault("eta", 1.0)
        batches = None if size is None else MiniBatches(size, seed, share=shared)
        estimator = bilevel.Estimator(**estimate, batches=batches)
    else:
        estimator = _estimator(estimate, seed)
    update = bilevel.Adam(0.1) if update is None else update
    if certify is not None:
        settings = certify if isinstance(certify, dict) else {"theta": certify}
        update = bilevel.CertifiedDescent(update.lr, **settings, log=log)
    elif log:
        update = type(update)(**{**vars(update), "log": True})
    monitor = None if measure is None else bilevel.Monitor(measure, patience)
    trainer = bilevel.Trainer(method, x0=x0, warm_start=warm_start, tol=tol)
    return bilevel.optimise(
        problem, lam, net, outer_steps=outer_steps, train=trainer, estimate=estimator, update=update, project=project,
        monitor=monitor, file=file, callback=callback, progress=progress,
    )  # fmt: skip


class _trainer:
    """A function of (problem, net, lam, x0=, seed=, first_batch=, outer_step=) as `Trainer` calls it."""

    def __init__(self, function, seed):
        self.function, self.seed = function, seed

    def __call__(self, problem, lam, net, x0, first_batch, outer_step):
        return self.function(problem, net, lam, x0=x0, seed=self.seed, first_batch=first_batch, outer_step=outer_step)

    def __repr__(self):
        return repr(self.function)


class _estimator(_trainer):
    """A function of (problem, net, x, lam, seed=, first_batch=, outer_step=) as `optimise` calls it."""

    def __call__(self, problem, x, lam, net, first_batch, outer_step):
        return self.function(problem, net, x, lam, seed=self.seed, first_batch=first_batch, outer_step=outer_step)
