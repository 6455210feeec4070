"""Cleaning and cutting text, each step a pure function from text to text or to words."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence

from ts.torch_handler.contractions import CONTRACTION_MAP
from ts.utils.util import CLEANUP_REGEX

CONTRACTIONS = re.compile(
    "|".join(rf"(?<!\w){re.escape(short)}(?!\w)" for short in sorted(CONTRACTION_MAP, key=len, reverse=True)),
    re.IGNORECASE,
)
APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'"})
PUNCTUATION = str.maketrans("", "", string.punctuation)

ENGLISH_STEPS = [
    (re.compile(r"'"), " '  "),
    (re.compile(r'"'), ""),
    (re.compile(r"\."), " . "),
    (re.compile(r"<br \/>"), " "),
    (re.compile(r","), " , "),
    (re.compile(r"\("), " ( "),
    (re.compile(r"\)"), " ) "),
    (re.compile(r"!"), " ! "),
    (re.compile(r"\?"), " ? "),
    (re.compile(r";"), " "),
    (re.compile(r":"), " "),
    (re.compile(r"\s+"), " "),
]
"""torchtext's `basic_english`: what is set apart, what is dropped."""


def without_html(text: str) -> str:
    """Text without tags."""
    return re.sub(CLEANUP_REGEX, "", text)


def expanded(text: str) -> str:
    """Text without contractions; a capital letter at the start stays one."""

    def long_form(match: re.Match[str]) -> str:
        short = match.group(0)
        long = CONTRACTION_MAP.get(short) or CONTRACTION_MAP[short.lower()]
        return short[0] + long[1:] if short[0].isalpha() and short[0].lower() == long[0].lower() else long

    return CONTRACTIONS.sub(long_form, text.translate(APOSTROPHES))


def without_accents(text: str) -> str:
    """Text in ASCII: letters lose their accents, what has no ASCII form is dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def without_punctuation(text: str) -> str:
    """Text without punctuation marks."""
    return text.translate(PUNCTUATION)


def basic_english(text: str) -> list[str]:
    """Lower-case words and set-apart punctuation."""
    text = text.lower()
    for pattern, replacement in ENGLISH_STEPS:
        text = pattern.sub(replacement, text)
    return text.split()


def with_ngrams(words: Sequence[str], longest: int) -> Iterator[str]:
    """The words, then their groups of two up to `longest`, joined by spaces."""
    yield from words
    for size in range(2, longest + 1):
        for start in range(len(words) - size + 1):
            yield " ".join(words[start : start + size])
