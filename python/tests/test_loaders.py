"""Loaders of files and folders, as far as they can be told without the libraries of their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitney.definition.definition import define
from jitney.files.arrays import read_npy
from jitney.gpu import device as gpu
from jitney.loaders.loader import ARRAYS, TORCH, Loader, LoadOptions, ModelTensors, graph_options, tensor_model
from jitney.loaders.torch_export import CompiledLoader, ExportedLoader
from jitney.values.tensor import Tensor


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


PICTURE = Tensor("FP32", [-1, 3, 8, 8])


def tensors(*inputs: Tensor, takes: str = TORCH, **more: int | None) -> ModelTensors:
    """What a model with these inputs takes."""
    return ModelTensors({f"in{at}": one for at, one in enumerate(inputs)}, {"out": PICTURE}, takes=takes, **more)  # type: ignore[arg-type]


def test_graphs_run_models_whose_items_have_one_shape() -> None:
    assert tensors(PICTURE).is_even and tensors(PICTURE, Tensor("INT64", [-1])).is_even
    assert not tensors(Tensor("FP32", [-1, 3, -1])).is_even, "each length would have graphs of its own"
    assert not tensors(PICTURE, takes=ARRAYS).is_even
    assert not tensors(PICTURE, batch_dim=None).is_even and not tensors(PICTURE, batch_dim=1).is_even


def test_only_models_that_can_be_captured_have_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setattr("jitney.loaders.loader.gpu_in_sight", lambda: True)
    monkeypatch.setattr("jitney.loaders.loader._array_type", lambda takes: dict)

    def sizes(loader: Loader) -> tuple[int, ...]:
        return define(tensor_model(loader, Path("net.pt2"), tensors(PICTURE))).sizes

    assert sizes(ExportedLoader(LoadOptions())) == (1, 2, 4, 8, 16, 32)
    assert sizes(CompiledLoader(LoadOptions())) == ()


def test_a_gpu_runs_a_model_at_the_sizes_that_it_takes() -> None:
    pytest.importorskip("numpy")
    told = graph_options(tensors(PICTURE, Tensor("INT64", [-1, 2]), least_items=2, most_items=12))
    assert told["sizes"] == [2, 4, 8, 12]
    [item] = told["warm_up"]
    picture, numbers = (read_npy(one) for one in item.values())
    assert (picture.shape, str(picture.dtype)) == ((1, 3, 8, 8), "float32") and picture.any()
    assert (numbers.shape, str(numbers.dtype)) == ((1, 2), "int64") and set(numbers.flat) <= {0, 1}
    assert graph_options(tensors(PICTURE))["sizes"] == [1, 2, 4, 8, 16, 32]
    assert graph_options(tensors(Tensor("BF16", [-1, 2]))) == {}
