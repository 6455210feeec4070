"""Loaders of files and folders, as far as they can be told without the libraries of their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitney.gpu import device as gpu
from jitney.loaders.loader import LoadOptions, ModelTensors
from jitney.loaders.torch_export import CompiledLoader


def test_a_compiled_package_is_described_on_the_device_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for CUDA cannot be loaded on the processor, so that is no way to learn its types."""
    seen = []

    class Compiled(CompiledLoader):
        def load(self, path: Path, device: str) -> None:
            seen.append(device)

        def tensors(self) -> ModelTensors:
            return ModelTensors({}, {})

    monkeypatch.setattr(gpu, "find_torch", lambda: None)
    monkeypatch.setattr(gpu._Assigned, "by_server", True)
    for number, expected in ((1, "cuda:1"), (None, "cpu")):
        monkeypatch.setattr(gpu._Assigned, "gpu", number)
        Compiled(LoadOptions()).describe(Path("net.pt2"))
        assert seen.pop() == expected
