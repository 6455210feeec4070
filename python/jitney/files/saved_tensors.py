"""Reads a tensor that `torch.save` wrote, without unpickling anything but tensors."""

from __future__ import annotations

import inspect
import io
import sys
from typing import Any

from jitney.files.arrays import ZIP, open_zip
from jitney.files.limits import FileRejected, limits

SEND = "send one tensor as torch.save writes it"


def read_saved_tensor(content: Any, device: Any) -> Any:
    """The tensor, on a device."""
    torch: Any = sys.modules["torch"]
    if "weights_only" not in inspect.signature(torch.load).parameters:
        raise FileRejected(
            f"torch {torch.__version__} cannot read a client's file safely: the server needs 1.13 or newer"
        )
    if bytes(content[:4]) != ZIP:  # Older forms were unpickled whatever was asked (CVE-2025-32434).
        raise FileRejected(f"it is no file of torch 1.6 or newer: {SEND}")
    with open_zip(content) as archive:
        if any(name.endswith("/constants.pkl") for name in archive.namelist()):
            raise FileRejected(f"it is a TorchScript archive: {SEND}")
    try:
        tensor = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except MemoryError:
        raise
    except Exception as error:
        raise FileRejected(f"it holds more than a tensor, or is broken: {SEND}") from error
    if not torch.is_tensor(tensor):
        raise FileRejected(f"it holds a {type(tensor).__name__}: {SEND}")
    # A view that repeats its elements has more of them than were sent.
    limits.check_expansion(tensor.numel() * tensor.element_size(), len(content))
    return tensor
