"""MiniLM: a BERT encoder of six layers with mean pooling, written out so that torch alone can run it."""

import math

import torch
from torch import nn

WIDTH, LAYERS, HEADS, INNER, WORDS, POSITIONS = 384, 6, 12, 1536, 30522, 512


def _layer() -> nn.ModuleDict:
    linear = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value", "output")}
    norms = {"attention_norm": nn.LayerNorm(WIDTH, eps=1e-12), "norm": nn.LayerNorm(WIDTH, eps=1e-12)}
    return nn.ModuleDict({**linear, **norms, "inner": nn.Linear(WIDTH, INNER), "outer": nn.Linear(INNER, WIDTH)})


class SentenceEncoder(nn.Module):
    """Token numbers and a mask to one vector of unit length per sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(_layer() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[N, L] twice to [N, 384]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.norm(self.words(tokens) + self.positions(positions) + self.kinds.weight[0])
        hidden = (mask[:, None, None, :] == 0).to(states.dtype) * torch.finfo(states.dtype).min
        for layer in self.layers:
            states = layer["attention_norm"](states + self._attention(layer, states, hidden))
            inner = nn.functional.gelu(layer["inner"](states))
            states = layer["norm"](states + layer["outer"](inner))
        weights = mask[:, :, None].to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)

    def _attention(self, layer: nn.ModuleDict, states: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        count, length, _ = states.shape
        query, key, value = (
            layer[name](states).view(count, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + hidden
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(count, length, WIDTH)
        return layer["output"](mixed)
