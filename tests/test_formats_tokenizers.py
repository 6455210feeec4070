"""Single texts are tokenised by a copy of the tokenizer's own tokenizer, which gives what `transformers` gives:
`make test-formats`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import pretrained
from jitney.loaders.huggingface.network import quick_tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.heavy

LONGEST = 24
TEXTS = [
    *pretrained.LINES,
    pretrained.LONG,
    "",
    " ",
    "  two  spaces\tand\na line ",
    "Ünïcode, e\u0301 is é, ﬁne: ½ → 京都 مرحبا 👩‍👩‍👧",
    "zero\u200bwidth \u00a0 and \x00 and \ufffd",
    "[CLS] Paris [SEP] <s>London</s> <pad> <|endoftext|> <unk>",
    "word" * 200,
]


def word_pieces(folder: Path) -> Any:
    """BERT's kind."""
    return pretrained.word_tokenizer(folder, LONGEST)


def bytes_of_roberta(folder: Path) -> Any:
    """RoBERTa's kind, which puts tokens around a text."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizerFast

    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(pretrained.LINES, vocab_size=400, special_tokens=special, show_progress=False)
    trained.save(str(folder / "tokenizer.json"))
    return RobertaTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), model_max_length=LONGEST)


def bytes_of_gpt2(folder: Path) -> Any:
    """GPT-2's kind, which puts nothing around a text."""
    return pretrained.byte_tokenizer(folder, LONGEST)


def unigram(folder: Path, kind: int = 0) -> Any:
    """SentencePiece's kind; the token in front may be of a type of its own, as XLNet's is."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(pretrained.LINES, trainer)
    numbered = [(one, made.token_to_id(one)) for one in ("<s>", "</s>")]
    made.post_processor = processors.TemplateProcessing(
        single=f"<s>:{kind} $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=numbered
    )
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LONGEST, **named)
    fast.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return fast


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make", [word_pieces, bytes_of_roberta, bytes_of_gpt2, unigram])
def test_single_texts_have_the_tokens_of_the_library(make: Callable[[Path], Any], side: str, tmp_path: Path) -> None:
    tokenizer = make(tmp_path)
    tokenizer.truncation_side = side
    quick = quick_tokenizer(tokenizer, LONGEST)
    expected = tokenizer(TEXTS, truncation=True, max_length=LONGEST)["input_ids"]
    assert max(map(len, expected)) == LONGEST
    assert [one.ids for one in quick.encode_batch_fast(TEXTS)] == expected
    tokenizer(TEXTS, truncation=True, max_length=5, padding="max_length", return_offsets_mapping=True)
    assert [one.ids for one in quick.encode_batch_fast(TEXTS)] == expected


def test_a_tokenizer_whose_single_texts_have_types_is_asked_itself(tmp_path: Path) -> None:
    tokenizer = unigram(tmp_path, kind=1)
    assert tokenizer("Paris")["token_type_ids"][0] == 1
    assert quick_tokenizer(tokenizer, LONGEST) is None
