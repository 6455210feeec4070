"""From a network's outputs to scores, as the pipelines of `transformers` choose it. Those of a batch are computed
together: to do it for each text takes longer than to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jitney.call.errors import BadInput

SCORES: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda outputs: outputs.sigmoid(),
    "softmax": lambda outputs: outputs.softmax(-1),
    "none": lambda outputs: outputs,
}
"""What is applied to outputs, by its name; of many items as of each by itself."""


class GroupScores:
    """The scores of items that ran together, of each kind that one of them asks for."""

    def __init__(self, outputs: Any) -> None:
        self._outputs = outputs
        self._made: dict[str, list[list[float]]] = {}

    def of(self, kind: str) -> list[list[float]]:
        """Those of all items."""
        made = self._made.get(kind)
        if made is None:
            made = self._made[kind] = SCORES[kind](self._outputs).tolist()
        return made


class ItemScores(NamedTuple):
    """The scores of one item."""

    group: GroupScores
    at: int

    def of(self, kind: str) -> list[float]:
        """One for each class."""
        return self.group.of(kind)[self.at]


def scores_of_each(outputs: Any) -> list[ItemScores]:
    """The scores of each item of a table of outputs."""
    group = GroupScores(outputs)
    return [ItemScores(group, at) for at in range(len(outputs))]


def score_kind(asked: Any, usual: str) -> str:
    """What a request asked for, or else the model's own."""
    if asked is None:
        return usual
    if asked not in SCORES:
        raise BadInput(f"function_to_apply must be one of {', '.join(SCORES)}, not {asked!r}")
    return str(asked)


def usual_kind(config: Any) -> str:
    """What fits the model. The library's configurations take their time to answer: ask once."""
    kind = config.problem_type
    if kind == "regression":
        return "none"
    return "sigmoid" if kind == "multi_label_classification" or config.num_labels == 1 else "softmax"


def ranked(scores: list[float], labels: dict[int, str], count: int) -> list[dict[str, Any]]:
    """The best labels, the best one first."""
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:count]
    return [{"label": labels[at], "score": scores[at]} for at in order]
