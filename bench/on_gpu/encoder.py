"""An encoder of BERT's shape as a definition: token ids of texts in, the number of a class out.

Texts differ in length, so the requests of a batch are those of like length, and it is padded to the longest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import nn

import jitney

DEVICE = os.environ.get("BENCH_ENCODER_DEVICE", "cpu")
LAYERS = int(os.environ.get("BENCH_ENCODER_LAYERS", "12"))
WIDTH, HEADS, INNER, WORDS, LENGTH_MAX, CLASSES = 768, 12, 3072, 30522, 512, 16
FLOATS = torch.float16 if DEVICE.startswith("cuda") else torch.float32
TOKENS_MAX = 16384


class Block(nn.Module):
    """Attention and two linear layers, each with a norm after it, as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.given = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        query, key, value = self.taken(x).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.norms[0](x + self.given(seen.transpose(1, 2).reshape(rows, length, WIDTH)))
        return self.norms[1](x + self.narrow(nn.functional.gelu(self.wide(x))))


class Net(nn.Module):
    """Ids, padded with zeros, to one row of scores per text."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.spots = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH_MAX, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = (ids != 0)[:, None, None, :]
        spots = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.spots(spots))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, 0])


def load() -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(0)
    return Net().to(DEVICE).to(FLOATS).eval()


def padded(texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Texts as one tensor of the longest one's length."""
    return nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)


@torch.inference_mode()
def classes(net: nn.Module, texts: Sequence[Sequence[int]]) -> list[int]:
    """What a program without a server would do."""
    return net(padded(texts).to(DEVICE)).argmax(1).tolist()


@jitney.model
class Encoder:
    """Texts to classes."""

    def setup(self) -> None:
        self.net = load()

    @jitney.batch(max_batch_size=TOKENS_MAX, cost="len", padded=True)
    def predict(self, ids: list[list[int]]) -> list[int]:
        """The likeliest class of each text."""
        return classes(self.net, ids)
