"""The first code block of BentoML's page about adaptive batching, with a model to save."""

import bentoml
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)

bentoml.pytorch.save_model(
    name="mnist",
    model=model,
    signatures={
        "__call__": {
            "batchable": True,
            "batch_dim": (0, 0),
        },
    },
)
