"""Tokens and n-grams for text handlers, by the names TorchServe took over from torchtext."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ts.torch_handler.text_steps import basic_english, with_ngrams

__all__ = ["get_tokenizer", "ngrams_iterator"]

Tokenizer = Callable[[str], "list[str]"]


def ngrams_iterator(token_list: Sequence[str], ngrams: int) -> Iterator[str]:
    """The tokens, then their groups of two up to `ngrams`, joined by spaces."""
    return with_ngrams(token_list, ngrams)


def get_tokenizer(tokenizer: Any, language: str = "en") -> Tokenizer:
    """A function from text to tokens: None splits at white space, "basic_english" normalises first."""
    if tokenizer is None:
        return str.split
    if callable(tokenizer):
        own: Tokenizer = tokenizer
        return own
    if tokenizer != "basic_english":
        raise ValueError(f"the tokenizer {tokenizer!r} is not one of None, 'basic_english' or a function of your own")
    if language != "en":
        raise ValueError(f"basic_english is for the language en, not {language!r}")
    return basic_english
