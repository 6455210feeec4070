"""A text classifier for the stock handler `text_classifier`, trained here on human-rated sentences in half a minute.

The data are the rated snippets of reviews and tweets in the source package of vaderSentiment (MIT). Every
tenth sentence is left out of the training and measures the result, which is printed.
"""

from __future__ import annotations

import collections
import json
import shutil
import sys
import tarfile
from pathlib import Path

import torch
from fetch import VADER, unpacked

ROOT = Path(__file__).parent.parent.parent
PARTS = ROOT / "models" / "parts"
HANDLER = "text_classifier"
MODEL_FILE = "sentiment_net.py"
SERIALIZED = "sentiment.pt"
EXTRA = ["index_to_name.json", "source_vocab.pt"]
SOURCES = ["movieReviewSnippets", "amazonReviewSnippets", "tweets"]
WORDS_MAX, EPOCHS, BATCH = 20000, 6, 64
UNKNOWN = "<unk>"


def sentences(cache: Path) -> list[tuple[str, int]]:
    """Texts and whether they are positive; the undecided ones are left out."""
    (packed,) = unpacked(VADER, cache).glob("*/additional_resources/hutto_ICWSM_2014.tar.gz")
    found = []
    with tarfile.open(packed) as archive:
        for source in SOURCES:
            member = archive.extractfile(f"hutto_ICWSM_2014/{source}_GroundTruth.txt")
            for line in member.read().decode("utf-8", "replace").splitlines():
                _, rating, text = line.split("\t", 2)
                if abs(float(rating)) > 0.5:
                    found.append((text, int(float(rating) > 0)))
    return found


def tokens(text: str) -> list[str]:
    """Words and word pairs exactly as the handler will make them."""
    from ts.torch_handler import text_steps

    text = text_steps.without_html(text).lower()
    for step in (text_steps.expanded, text_steps.without_accents, text_steps.without_punctuation):
        text = step(text)
    return list(text_steps.with_ngrams(text_steps.basic_english(text), 2))


def vocabulary(texts: list[list[str]]) -> dict[str, int]:
    """The most frequent words and pairs, by number."""
    counted = collections.Counter(word for text in texts for word in text)
    known = sorted((word for word, count in counted.items() if count > 1), key=lambda word: (-counted[word], word))
    return {word: number for number, word in enumerate([UNKNOWN, *known[: WORDS_MAX - 1]])}


def bag(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of several texts, and where each begins."""
    starts = torch.tensor([0, *(len(text) for text in texts[:-1])]).cumsum(0)
    return torch.tensor([number for text in texts for number in text]), starts


def train(net: torch.nn.Module, texts: list[list[int]], labels: torch.Tensor) -> None:
    """Plain gradient descent, the same every time."""
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(texts)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(net(*bag([texts[number] for number in chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def build(folder: Path, cache: Path) -> None:
    """Writes the parts of the archive."""
    sys.path[:0] = [str(ROOT / "python"), str(PARTS)]
    from sentiment_net import Sentiment

    rated = [(tokens(text), label) for text, label in sentences(cache)]
    rated = [(text, label) for text, label in rated if text]
    kept = [pair for number, pair in enumerate(rated) if number % 10]
    words = vocabulary([text for text, _ in kept])
    numbered = [[words.get(word, 0) for word in text] for text, _ in kept]
    torch.manual_seed(1)
    net = Sentiment(WORDS_MAX)
    train(net, numbered, torch.tensor([label for _, label in kept]))
    held = rated[::10]
    with torch.no_grad():
        answers = net(*bag([[words.get(word, 0) for word in text] for text, _ in held])).argmax(1)
    right = (answers == torch.tensor([label for _, label in held])).float().mean().item()
    print(f"sentiment: {right:.1%} of {len(held)} unseen sentences")
    torch.save(net.state_dict(), folder / SERIALIZED)
    torch.save(words, folder / "source_vocab.pt")
    (folder / "index_to_name.json").write_text(json.dumps({"0": "negative", "1": "positive"}))
    shutil.copy(PARTS / MODEL_FILE, folder)
