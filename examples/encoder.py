"""Texts of many lengths on a GPU: an encoder of BERT's shape that turns token ids into vectors.

jitney serve encoder:Encoder

Requests of similar length share a batch. Their ids are padded to one of LENGTHS, and CUDA graphs run them at one of
SIZES. Without a GPU the same code runs as it is. The weights are random: put your own model in `setup`.
"""

from __future__ import annotations

import os

import torch
from torch import nn

import jitney

SIZES, LENGTHS = [1, 2, 4, 8, 16, 32, 64], [32, 64, 128, 256, 512]
LAYERS, WIDTH, HEADS = (int(one) for one in os.environ.get("ENCODER_SHAPE", "12,768,12").split(","))
VOCABULARY = 30522


@jitney.model
class Encoder:
    """Vectors of texts."""

    def setup(self) -> None:
        """Once per worker."""
        device = jitney.device()
        model = Bert(LAYERS, WIDTH, HEADS, max(LENGTHS)).eval().to(device)
        self.model = jitney.graphs(model.half() if device.is_gpu else model)

    @jitney.batch(
        max_batch_size=64 * 128,  # Items times the length that they are padded to.
        cost="len",
        sizes=SIZES,
        lengths=LENGTHS,
        examples=[{"tokens": [101, 7592, 2088, 102]}],
    )
    @torch.inference_mode()
    def embed(self, tokens: list[list[int]]) -> torch.Tensor:
        """The mean of the vectors of a text's tokens."""
        ids, mask = jitney.pad(tokens)
        return self.model(ids.clamp(0, VOCABULARY - 1), mask)


class Bert(nn.Module):
    """A transformer encoder with learned positions and mean pooling."""

    def __init__(self, layers: int, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """One vector per row of ids; where the mask is false there is nothing."""
        seen = mask[:, None, None, :]
        states = self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]])
        for layer in self.layers:
            states = layer(states, seen)
        weights = mask[:, :, None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class Layer(nn.Module):
    """Attention and two dense layers, each followed by a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, states: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """The states after this layer."""
        count, length, width = states.shape
        split = self.query_key_value(states).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind()
        mixed = attention(query, key, value, seen).transpose(1, 2).reshape(count, length, width)
        states = self.norms[0](states + self.out(mixed))
        return self.norms[1](states + self.dense(states))


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Each position's mean of the values that it may see."""
    if hasattr(nn.functional, "scaled_dot_product_attention"):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    scores = query @ key.transpose(-2, -1) * key.shape[-1] ** -0.5  # As it is computed before torch 2.
    return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) @ value
