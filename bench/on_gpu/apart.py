"""A last layer that tells items apart by their features, so that the answer to each is its own."""

from __future__ import annotations

import torch

MARGIN = 8.0
"""The score of an item's own class."""
RIDGE = 0.1


@torch.no_grad()
def told_apart(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and biases of a linear layer: class 17 is that of item 17, by a wide margin."""
    mean = features.mean(0)
    own = (features - mean).double()
    # Ridge regression from features to classes: what items share counts less, and noise is not blown up.
    alike = own @ own.t()
    ridge = RIDGE * alike.diagonal().mean() * torch.eye(len(own), dtype=alike.dtype, device=alike.device)
    rows = torch.linalg.solve(alike + ridge, own)
    rows = (rows * (MARGIN / (rows @ own.t()).diagonal().mean())).to(features.dtype)
    return rows, -(rows @ mean)
