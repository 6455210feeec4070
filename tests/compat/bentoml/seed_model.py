"""A model that takes a dictionary of tensors, for seed_service.py."""

import bentoml
import torch


class Added(torch.nn.Module):
    """Adds what it gets, and doubles it."""

    def forward(self, batch):
        return sum(batch.values()) * 2


if __name__ == "__main__":
    from seed_model import Added as Importable

    bentoml.pytorch.save_model("my_pytorch_model", Importable())
