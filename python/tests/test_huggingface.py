"""What of Hugging Face folders needs neither torch nor transformers: looking at them, lengths, pieces of texts."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from jitney.call.errors import DefinitionError
from jitney.definition.definition import define
from jitney.gpu.shapes import AllowedShapes
from jitney.loaders.huggingface.endpoint_handler import EndpointHandlerLoader
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import (
    FREE_PADDING,
    ROWS_MAX,
    SIZES,
    TOKENS_PER_BATCH,
    allowed_lengths,
    groups,
    run_tokens,
)
from jitney.loaders.huggingface.pieces import TextPieces, overlap
from jitney.loaders.huggingface.pretrained import HuggingFaceLoader, class_name
from jitney.loaders.huggingface.prompts import (
    TOKENS_MAX,
    TOKENS_MIN,
    NewTexts,
    PromptBudget,
    prompt_table,
    split_table,
)
from jitney.loaders.loader import LoadOptions


def folder(path: Path, **config: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    return path


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("BertForSequenceClassification", "TextClassification"),
        ("RobertaForTokenClassification", "TokenClassification"),
        ("BertForMaskedLM", "FillMask"),
        ("GPT2LMHeadModel", "TextGeneration"),
        ("LlamaForCausalLM", "TextGeneration"),
        ("T5ForConditionalGeneration", "TextToText"),
        ("MarianMTModel", "TextToText"),
        ("ViTForImageClassification", "ImageClassification"),
        ("BertModel", "FeatureExtraction"),
    ],
)
def test_the_architecture_tells_the_task(tmp_path: Path, architecture: str, name: str) -> None:
    found = PretrainedFolder.read(folder(tmp_path, architectures=[architecture]))
    assert class_name(found).endswith(f":{name}")


def test_what_tells_no_task_and_what_no_task_is(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="say one with --task"):
        PretrainedFolder.read(folder(tmp_path, architectures=["BertForPreTraining"]))
    with pytest.raises(DefinitionError, match="'painting' is not known"):
        class_name(PretrainedFolder.read(folder(tmp_path), "painting"))
    assert class_name(PretrainedFolder.read(folder(tmp_path), "translation_en_to_de")) == "writing:TextToText"
    (tmp_path / "config.json").write_text("[")
    assert not HuggingFaceLoader.finds(tmp_path)


def test_the_server_is_told_the_lengths_that_a_gpu_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, architectures=["BertForSequenceClassification"], max_position_embeddings=100)
    loader = HuggingFaceLoader(LoadOptions())
    assert define(loader.definition(path, loader.describe(path))).lengths == ()
    monkeypatch.setattr("jitney.loaders.huggingface.task.gpu_in_sight", lambda: True)
    definition = define(loader.definition(path, loader.describe(path)))
    assert definition.lengths == (16, 32, 64, 100) and definition.sizes[-1] == 64
    assert [one.name for one in definition.endpoints] == ["predict", "classify"]
    assert [param.name for param in definition.endpoint("predict").params] == ["inputs", "parameters"]


def test_a_gpu_has_two_workers_for_a_small_model_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, architectures=["BertForSequenceClassification"])

    def workers(task: str | None = None) -> int | None:
        loader = HuggingFaceLoader(LoadOptions(task=task))
        return define(loader.definition(path, loader.describe(path))).options.workers

    assert workers() is None
    for module in ("task", "text_task"):
        monkeypatch.setattr(f"jitney.loaders.huggingface.{module}.gpu_in_sight", lambda: True)
    assert workers() == 2 and workers("image-classification") is None
    weights = path / "model.safetensors"
    with weights.open("wb") as file:
        file.truncate(2**30)
    (path / "pytorch_model.bin").write_bytes(b"the same once more")
    assert workers() == 2
    os.truncate(weights, 2**30 + 1)
    assert workers() is None


def test_one_label_is_a_rank(tmp_path: Path) -> None:
    path = folder(tmp_path, architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})
    assert class_name(PretrainedFolder.read(path)) == "ranking:TextRanking"


def test_the_least_limit_of_a_folder_counts(tmp_path: Path) -> None:
    path = folder(tmp_path, model_type="roberta", max_position_embeddings=514, pad_token_id=1)
    assert PretrainedFolder.read(path, "fill-mask").longest == 512
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30}))
    assert PretrainedFolder.read(path, "fill-mask").longest == 512
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    assert PretrainedFolder.read(path, "fill-mask").longest == 128


def test_what_runs_code_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path, auto_map={"AutoModel": "code.Model"})
    assert "code of its own" in (HuggingFaceLoader.runs_code(path) or "")
    folder(tmp_path)
    assert HuggingFaceLoader.runs_code(path) is None
    (path / "pytorch_model.bin").write_bytes(b"")
    assert "pickle" in (HuggingFaceLoader.runs_code(path) or "")
    assert not EndpointHandlerLoader.finds(path)
    (path / "handler.py").write_text("class EndpointHandler:\n    pass\n")
    assert EndpointHandlerLoader.finds(path) and EndpointHandlerLoader.runs_code(path)


@pytest.mark.parametrize("seed", range(50))
def test_groups_hold_every_row_once_within_their_limits(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.choice((1, 7, 30, 100, 500)) for _ in range(chance.randrange(0, 300))]
    made = groups(lengths)
    assert sorted(at for group in made for at in group) == list(range(len(lengths)))
    for group in made:
        longest = max(lengths[at] for at in group)
        assert len(group) <= ROWS_MAX and (len(group) * longest <= TOKENS_PER_BATCH or len(group) == 1)
        short = [at for at in group if 2 * lengths[at] < longest]
        assert not short or sum(longest - lengths[at] for at in group) <= FREE_PADDING


@pytest.mark.parametrize("seed", range(50))
def test_where_only_some_shapes_run_groups_are_joined_that_cost_no_more_together(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.choice((3, 14, 30, 100, 500)) for _ in range(chance.randrange(0, 300))]
    shapes = AllowedShapes(SIZES, allowed_lengths(512))

    def cost(made: list[list[int]]) -> int:
        return sum(FREE_PADDING + run_tokens(one, lengths, shapes) for one in made)

    alone, joined = groups(lengths), groups(lengths, shapes)
    assert sorted(at for group in joined for at in group) == list(range(len(lengths)))
    assert cost(joined) <= cost(alone) and len(joined) <= len(alone)
    for group in joined:
        longest = lengths[group[0]]
        assert longest == max(lengths[at] for at in group)
        assert len(group) <= ROWS_MAX and (len(group) * longest <= TOKENS_PER_BATCH or len(group) == 1)


def test_rows_that_only_fill_up_a_run_are_taken_by_the_next_group() -> None:
    shapes = AllowedShapes(SIZES, allowed_lengths(512))
    lengths = [30] * 43 + [10] * 21
    assert list(map(len, groups(lengths))) == [55, 9]
    assert list(map(len, groups(lengths, shapes))) == [64]
    lengths = [120] * 20 + [10] * 44
    assert list(map(len, groups(lengths, shapes))) == [22, 42]


def test_lengths_end_with_the_longest() -> None:
    assert allowed_lengths(100) == (16, 32, 64, 100) and allowed_lengths(64) == (16, 32, 64)


class Letters:
    """A tokenizer whose tokens are bytes."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return bytes(ids).decode(errors="replace")


def written(text: str, *stops: str) -> tuple[list[str], bool]:
    pieces = TextPieces(Letters(), stops)
    found = []
    for token in text.encode():
        found.append(pieces.add([token]))
        if pieces.stopped:
            return found, True
    return [*found, pieces.end()], pieces.stopped


def test_a_letter_is_told_when_it_is_whole() -> None:
    found, stopped = written("aé€b")
    assert [one for one in found if one] == ["a", "é", "€", "b"] and not stopped


def test_a_stop_is_never_told_and_what_may_be_one_is_held_back() -> None:
    assert "".join(written("one END two", "END")[0]) == "one " and written("one END two", "END")[1]
    found, stopped = written("one EN", "END")
    assert "".join(found) == "one EN" and not stopped and "E" not in "".join(found[:-1])
    assert "".join(written("abcabd", "abd")[0]) == "abc"
    assert overlap("xxab", "abc") == 2 and overlap("abc", "abc") == 0


def test_more_tokens_of_new_texts_are_run_while_that_is_quick() -> None:
    budget = PromptBudget()
    usual = budget.tokens
    budget.learn(10, 0.001)
    assert budget.tokens == usual, "a lone short text says nothing about many"
    for _ in range(20):
        budget.learn(budget.tokens, 0.001)
    assert budget.tokens == TOKENS_MAX
    for _ in range(20):
        budget.learn(100, 1.0)
    assert budget.tokens == TOKENS_MIN


@dataclass
class Asked:
    """A text that is asked for."""

    prompt: list[int]
    left: bool = False


def asked(*sizes: int) -> list[Asked]:
    return [Asked([0] * size) for size in sizes]


def new_texts(texts: list[Asked]) -> NewTexts[Asked]:
    made: NewTexts[Asked] = NewTexts()
    made.budget.tokens = 512
    for one in texts:
        made.put(one)
    return made


def test_texts_that_are_begun_together_fit_with_their_padding() -> None:
    texts = asked(100, 4000, 50, 128, 128, 200, 1)
    new = new_texts(texts)
    first, second, last = new.together(64), new.together(1), new.together(64)
    assert [len(one.prompt) for one in first] == [100, 50, 128, 128], "the long one is passed"
    assert [len(one.prompt) for one in second] == [200] and [len(one.prompt) for one in last] == [1]
    assert new.together(64) == [] and new and new.long() is texts[1] and not new and new.long() is None


def test_who_left_is_not_begun() -> None:
    texts = asked(1, 2, 3, 600, 700)
    new = new_texts(texts)
    texts[0].left = texts[2].left = texts[3].left = True
    assert new.together(64) == [texts[1]] and new.long() is texts[4] and not new


def test_a_long_text_always_has_some_tokens() -> None:
    budget = PromptBudget()
    assert budget.left(0) == budget.tokens and budget.left(budget.tokens) == TOKENS_MIN


def test_new_texts_stand_at_the_end_of_their_rows_and_at_the_beginning_of_their_slots() -> None:
    pytest.importorskip("torch")
    table = prompt_table([[5, 6, 7], [8]], (4, 4), 10, 64)
    tokens, columns, slots, empty = (one.tolist() for one in split_table(table, 4))
    assert tokens == [[0, 5, 6, 7], [0, 0, 0, 8], [0] * 4, [0] * 4]
    assert columns[:2] == [[3, 0, 1, 2], [1, 2, 3, 0]], "what is empty is written behind the text"
    assert slots == [10, 11, 64, 64] and empty == [1, 3, 3, 3]
