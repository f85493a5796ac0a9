"""What a personalization method returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import arguments, texts
from hgp_ref.backend import Array
from hgp_ref.channels import Traffic
from hgp_ref.results import Result

PARTS = ("validation", "test")


def best_look(accuracy: np.ndarray, sizes: np.ndarray) -> int:
    """The look with the most right answers, of accuracies (K, n) on `sizes` (n,) instances; the first one of those.

    Right answers are whole numbers: accuracies weighed by sizes may differ by rounding where these are alike.
    """
    return int(np.argmax(np.rint(accuracy * sizes).sum(axis=1)))


@dataclass(frozen=True)
class Personalized(Result):
    """Each client's accuracy at every look, what was trained and what it cost.

    `best` is the look with the most right answers on validation data, the earlier one of two alike; test data have no
    part in that choice.

    Attributes
    ----------
    method : its name.
    turns : (K,) rounds, steps or outer steps at which it was looked at.
    validation : (K, n) accuracy of each client.
    test : (K, n), the same on test data.
    sizes : (n,) instances of each client in "validation" and "test".
    x : (n, d_x) at the end.
    lam : (n, d_λ) at the end, where the method has any.
    traffic : what clients sent.
    settings : what repeats it.
    notes : what went wrong or happened on the way.

    Examples
    --------
    >>> seen = np.array([[0.5, 0.7], [0.8, 0.6]])  # two looks, two clients
    >>> sizes = {"validation": np.array([10, 10]), "test": np.array([30, 10])}
    >>> result = hgp.personalization.Personalized(
    ...     "mine", np.array([1, 2]), seen, seen, sizes, np.zeros((2, 1)), None, hgp.Traffic())
    >>> result.best, round(result.accuracy(), 3), round(result.bottom(), 3)
    (1, 0.75, 0.62)
    """

    method: str
    turns: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    sizes: dict[str, np.ndarray]
    x: Array
    lam: Array | None
    traffic: Traffic
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def _summary(self) -> list[str]:
        best = self.best
        return texts.table(
            f"{self.method}: models of {self.validation.shape[1]} clients after {int(self.turns[-1])} turns",
            accuracy=f"test {self.accuracy():.3f}, validation {self.accuracy('validation'):.3f}, by turn "
            f"{int(self.turns[best])}, which validation data choose",
            bottom=f"test {self.bottom():.3f} at the client below which 10 % of the clients are",
            notes=f"{len(self.notes)}, the last one: {texts.cut(self.notes[-1])}" if self.notes else "",
            traffic=self.traffic.in_words(),
        )

    @property
    def best(self) -> int:
        """The look that validation data choose."""
        return best_look(self.validation, self.sizes["validation"])

    def curve(self, part: str = "test", *, weighted: bool = True) -> np.ndarray:
        """Mean accuracy over clients at each look, by their sizes or (weighted=False) not.  # (K,)

        Parameters
        ----------
        part : "validation" or "test".
        weighted : whether by sizes.

        Returns
        -------
        (K,).
        """
        accuracy = getattr(self, arguments.choice("part", part, PARTS))
        weights = self.sizes[part] if arguments.boolean("weighted", weighted) else np.ones(accuracy.shape[1])
        return np.asarray(accuracy @ (weights / weights.sum()))

    def accuracy(self, part: str = "test", *, weighted: bool = True) -> float:
        """Mean accuracy at the best look.

        Parameters
        ----------
        part : "validation" or "test".
        weighted : whether by sizes.

        Returns
        -------
        float in [0, 1].
        """
        return float(self.curve(part, weighted=weighted)[self.best])

    def bottom(self, share: float = 0.1, part: str = "test") -> float:
        """Accuracy at the best look of the client below which a share of the clients is (linear between two).

        Parameters
        ----------
        share : 0.1 for the bottom 10 %.
        part : "validation" or "test".

        Returns
        -------
        float in [0, 1].
        """
        accuracy = getattr(self, arguments.choice("part", part, PARTS))
        return float(np.quantile(accuracy[self.best], arguments.probability("share", share)))
