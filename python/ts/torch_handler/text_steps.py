"""Cleaning and cutting text, each step a pure function from text to text or to words.

English contractions and what they stand for, for text handlers: `CONTRACTION_MAP`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence

from ts.utils.util import CLEANUP_REGEX

SHORT_VERBS = {
    "'m": ("am", ["I"]),
    "'re": ("are", ["you", "we", "they", "who", "what", "there", "these", "those", "why", "how", "where"]),
    "'ve": ("have", ["I", "you", "we", "they", "who", "what", "there", "these", "those", "when", "where", "why",
                     "could", "should", "would", "might", "must", "will", "to"]),
    "'ll": ("will", ["I", "you", "he", "she", "it", "we", "they", "who", "what", "that", "there", "how", "this",
                     "these", "those", "when", "where", "why"]),
    "'d": ("would", ["I", "you", "he", "she", "it", "we", "they", "who", "what", "that", "there", "how", "where"]),
    "'s": ("is", ["he", "she", "it", "who", "what", "that", "there", "how", "this", "when", "where", "why", "here"]),
}  # fmt: skip

NEGATED = [
    "are", "could", "did", "does", "do", "had", "has", "have", "is", "might", "must", "need", "ought", "should",
    "was", "were", "would", "may", "dare",
]  # fmt: skip

IRREGULAR = {
    "ain't": "is not", "can't": "cannot", "won't": "will not", "shan't": "shall not", "sha'n't": "shall not",
    "can't've": "cannot have", "won't've": "will not have", "'cause": "because", "let's": "let us", "ma'am": "madam",
    "o'clock": "of the clock", "y'all": "you all", "y'all're": "you all are", "y'all've": "you all have",
    "y'all'd": "you all would", "'tis": "it is", "'twas": "it was", "'em": "them", "e'er": "ever", "ne'er": "never",
    "o'er": "over", "gonna": "going to", "wanna": "want to", "gotta": "got to", "so's": "so is", "so've": "so have",
}  # fmt: skip


def _regular() -> dict[str, str]:
    found = {}
    for ending, (verb, words) in SHORT_VERBS.items():
        for word in words:
            found[word + ending] = f"{word} {verb}"
            if ending in ("'d", "'ll"):
                found[f"{word}{ending}'ve"] = f"{word} {verb} have"
    for word in NEGATED:
        found[f"{word}n't"] = f"{word} not"
        found[f"{word}n't've"] = f"{word} not have"
    return found


CONTRACTION_MAP: dict[str, str] = {**_regular(), **IRREGULAR}
CONTRACTION_MAP.update({short.lower(): long for short, long in list(CONTRACTION_MAP.items())})


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
