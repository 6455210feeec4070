"""An offline job: the moods of a file of sentences, as the command `jitney infer` or as an iterator.

jitney infer sentiment:mood sentences.csv -o moods.csv --with-input
python sentiment.py sentences.csv
"""

from __future__ import annotations

import sys
from collections import Counter

import jitney

GOOD, BAD = {"good", "great", "lovely", "sunny"}, {"bad", "late", "rainy", "broken"}


@jitney.batch(max_batch_size=64, examples=[{"text": "a lovely day"}, {"text": "late again"}])
def mood(text: list[str]) -> list[object]:
    """Tells whether a sentence sounds good or bad; an empty one fails alone."""
    return [classify(set(one.lower().split())) if one.strip() else jitney.BadInput("the text is empty") for one in text]


def classify(words: set[str]) -> str:
    """The mood of one sentence."""
    balance = len(words & GOOD) - len(words & BAD)
    return "good" if balance > 0 else "bad" if balance < 0 else "neither"


if __name__ == "__main__":
    moods = Counter(str(one) for one in jitney.infer(mood, sys.argv[1], workers=1))
    print(", ".join(f"{count} {name}" for name, count in sorted(moods.items())))
