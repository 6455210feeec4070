"""English contractions and what they stand for, for text handlers: `CONTRACTION_MAP`.

Most of them are regular (a pronoun and a short verb, a verb and "not"), so they are put together here;
the rest is listed. Where a short form has two readings (he'd: he had, he would) the more frequent one
before a bare verb is taken.
"""

from __future__ import annotations

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
