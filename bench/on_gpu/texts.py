"""The encoder of examples/encoder.py as a classifier of texts: token ids in, the number of a class out.

The first 64 texts have a class each. Served, the model runs at allowed sizes and lengths; `classes` is what a program
without a server would do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import nn

import encoder as example
import jitney
from on_gpu.apart import told_apart

TEXTS, COUNT, LONGEST = 64, 4096, max(example.LENGTHS)
DEVICE = jitney.device()
FLOATS = torch.float16 if DEVICE.is_gpu else torch.float32


def short_texts() -> list[list[int]]:
    """Ids of texts whose lengths are lognormal, as those of questions, titles and messages are; the median is 24."""
    chance = random.Random(3)
    lengths = [min(LONGEST, max(3, round(chance.lognormvariate(math.log(24), 0.8)))) for _ in range(COUNT)]
    return [[chance.randrange(1, example.VOCABULARY) for _ in range(length)] for length in lengths]


class Classifier(nn.Module):
    """An encoder and the classes of some texts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bert = example.Bert(example.LAYERS, example.WIDTH, example.HEADS, LONGEST)
        self.head = nn.Linear(example.WIDTH, TEXTS)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.bert(ids, mask))


@torch.inference_mode()
def load() -> Classifier:
    """The same one each time."""
    net = Classifier().eval().to(DEVICE).to(FLOATS)
    texts = sorted(short_texts()[:TEXTS], key=len)
    vectors = {tuple(text): net.bert(*padded([text])).float()[0] for text in texts}
    weight, bias = told_apart(torch.stack([vectors[tuple(text)] for text in short_texts()[:TEXTS]]))
    net.head.weight.data, net.head.bias.data = weight.to(FLOATS), bias.to(FLOATS)
    return net


def padded(texts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts as one tensor of the longest one's length, and where there is something."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True).to(DEVICE)
    return ids, ids != 0


@torch.inference_mode()
def classes(net: Classifier, texts: Sequence[Sequence[int]]) -> list[int]:
    """The likeliest class of each text, padded to the longest of them."""
    return net(*padded(texts)).argmax(1).tolist()


@jitney.model
class Encoder:
    """Texts to classes."""

    def setup(self) -> None:
        self.net = jitney.graphs(load())

    @jitney.batch(
        max_batch_size=64 * 128,
        cost="len",
        sizes=example.SIZES,
        lengths=example.LENGTHS,
        examples=[{"tokens": list(range(1, 40))}],
    )
    @torch.inference_mode()
    def predict(self, tokens: list[list[int]]) -> torch.Tensor:
        """The likeliest class of each text."""
        return self.net(*jitney.pad(tokens)).argmax(1)
