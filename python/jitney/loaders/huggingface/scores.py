"""From a network's outputs to scores, as the pipelines of `transformers` choose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitney.call.errors import BadInput

SCORES: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda outputs: outputs.sigmoid(),
    "softmax": lambda outputs: outputs.softmax(-1),
    "none": lambda outputs: outputs,
}
"""What is applied to the outputs of one item, by its name."""


def score_kind(asked: Any, config: Any) -> str:
    """What a request asked for, or what fits the model."""
    if asked is not None:
        if asked not in SCORES:
            raise BadInput(f"function_to_apply must be one of {', '.join(SCORES)}, not {asked!r}")
        return str(asked)
    kind = config.problem_type
    if kind == "regression":
        return "none"
    return "sigmoid" if kind == "multi_label_classification" or config.num_labels == 1 else "softmax"


def ranked(scores: list[float], labels: dict[int, str], count: int) -> list[dict[str, Any]]:
    """The best labels, the best one first."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[:count]
    return [{"label": labels[at], "score": scores[at]} for at in order]
