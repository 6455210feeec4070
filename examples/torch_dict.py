"""A torch model that takes a dictionary of tensors: each becomes a keyword argument, joined by row.

Callers whose tensors have another width run in a batch of their own.
"""

from __future__ import annotations

import torch

import jitney


@jitney.model
class Scorer:
    """Scores token ids under a mask."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(1000, 8).eval()

    @jitney.batch(max_batch_size=32)
    def predict(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean of the embeddings that the mask lets through, and how many they are."""
        with torch.inference_mode():
            weights = mask.unsqueeze(-1).float()
            total = (self.table(ids.long()) * weights).sum(1)
            return {"score": (total / weights.sum(1).clamp(min=1)).sum(1), "tokens": mask.sum(1)}
