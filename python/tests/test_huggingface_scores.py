"""Scores of Hugging Face's classifiers: those of a batch are those of each text by itself."""

from __future__ import annotations

import pytest

from jitney.call.errors import BadInput
from jitney.loaders.huggingface.scores import SCORES, ranked, score_kind, scores_of_each

torch = pytest.importorskip("torch", reason="NO TORCH HERE")


@pytest.mark.parametrize("labels", [1, 2, 4, 1000])
def test_every_item_of_a_batch_has_the_scores_that_it_has_alone(labels: int) -> None:
    torch.manual_seed(labels)
    outputs = 20 * torch.randn(7, labels)
    together = scores_of_each(outputs)
    assert len(together) == 7
    for kind, score in SCORES.items():
        for one, row in zip(together, outputs):
            assert one.of(kind) == pytest.approx(score(row).tolist(), rel=1e-6, abs=1e-12)
    assert together[0].of("none") == outputs[0].tolist()


def test_the_best_labels_come_first_and_equal_ones_in_their_own_order() -> None:
    labels = {0: "a", 1: "b", 2: "c", 3: "d"}
    found = ranked([0.2, 0.3, 0.2, 0.3], labels, 3)
    assert found == [{"label": "b", "score": 0.3}, {"label": "d", "score": 0.3}, {"label": "a", "score": 0.2}]


def test_a_request_may_choose_what_is_applied() -> None:
    assert (score_kind(None, "sigmoid"), score_kind("none", "sigmoid")) == ("sigmoid", "none")
    with pytest.raises(BadInput, match="function_to_apply must be one of sigmoid, softmax, none, not 'half'"):
        score_kind("half", "softmax")
