"""The smallest model with which a handler can be tested."""

from __future__ import annotations

from typing import Any

import torch


class ArgmaxModel(torch.nn.Module):  # type: ignore[misc]
    """The position of the largest number in each row."""

    def forward(self, *batch: Any) -> Any:
        """Answers a batch."""
        return torch.argmax(batch[0], 1)


def save_pt_file(filepath: str = "base_model.pt") -> None:
    """Writes the model's weights, of which it has none."""
    torch.save(ArgmaxModel().state_dict(), filepath)
