"""The base of text handlers: the vocabulary, the cleaning steps, and help with explanations."""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable
from typing import Any

from ts.torch_handler import text_steps
from ts.torch_handler.base_handler import BaseHandler, torch
from ts.torch_handler.settings import installed, need

VOCABULARY_FILE = "source_vocab.pt"


class TextHandler(BaseHandler, abc.ABC):
    """Text in; `source_vocab.pt` beside the model numbers its text_steps."""

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab: Any = None
        self.tokenizer: Any = text_steps.basic_english
        self.input_text: Any = None
        self.lig: Any = None

    def initialize(self, context: Any) -> None:
        """Also loads the vocabulary: a torchtext Vocab, or a dictionary of word and number."""
        super().initialize(context)
        path = self.get_source_vocab_path(context)
        try:
            self.source_vocab = torch.load(path, weights_only=False)
        except TypeError:  # torch before 1.13 knows no weights_only.
            self.source_vocab = torch.load(path)
        embedding = getattr(self.model, "embedding", None)
        if installed("captum") and embedding is not None:
            self.lig = need("captum.attr", "explanations").LayerIntegratedGradients(self.model, embedding)

    def get_source_vocab_path(self, ctx: Any) -> str:
        """Where the vocabulary lies."""
        model_dir = ctx.system_properties.get("model_dir")
        path = os.path.join(model_dir, VOCABULARY_FILE)
        if not os.path.isfile(path):
            raise RuntimeError(f"Missing the {VOCABULARY_FILE} file: pack it with --extra-files")
        return path

    def number_of(self, word: str) -> int | None:
        """A word's number; an unknown word has that of `<unk>`, or none."""
        vocabulary = self.source_vocab
        if isinstance(vocabulary, dict):
            return vocabulary.get(word, vocabulary.get("<unk>"))
        return int(vocabulary[word])

    def get_word_token(self, input_tokens: Iterable[str]) -> list[str]:
        """Tokens without the mark that some tokenizers put where a word begins, for showing explanations."""
        return [token.replace("\u0120", "") for token in input_tokens]

    def summarize_attributions(self, attributions: Any) -> Any:
        """One number per word, of unit length together."""
        summed = attributions.sum(dim=-1).squeeze(0)
        return summed / torch.norm(summed)

    _remove_html_tags = staticmethod(text_steps.without_html)
    _expand_contractions = staticmethod(text_steps.expanded)
    _remove_accented_characters = staticmethod(text_steps.without_accents)
    _remove_punctuation = staticmethod(text_steps.without_punctuation)

    def _tokenize(self, text: str) -> list[str]:
        return list(self.tokenizer(text))
