"""The forms a model comes in: state dict, TorchScript, exported program, AOTInductor package, ONNX.

Each function takes paths and a device and returns something callable (for ONNX the session itself,
because handlers written for TorchServe call its `run`).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import zipfile
from collections.abc import Iterator
from typing import Any

from ts.torch_handler.settings import need
from ts.utils.util import list_classes_from_module

SCRIPT_ENDINGS = (".pt", ".pth", ".ptc", ".jit", ".torchscript")


def load_eager(model_dir: str, model_file: str, weights_path: str | None, device: Any) -> Any:
    """The one class of the model file, with its weights if there are any."""
    if not os.path.isfile(os.path.join(model_dir, model_file)):
        raise RuntimeError(f"Missing the {model_file} file")
    name = os.path.basename(model_file)
    module = importlib.import_module(name[:-3] if name.endswith(".py") else name)
    classes = list_classes_from_module(module)
    if len(classes) != 1:
        raise ValueError(f"Expected only one class as model definition. {classes}")
    if not weights_path:
        return classes[0]()
    with unfilled_parameters():
        model = classes[0]()
    take_state(model, read_state(weights_path, device))
    return model


@contextlib.contextmanager
def unfilled_parameters() -> Iterator[None]:
    """Inside, parameters are not filled with random numbers: a state dict, which has all of them, comes after.

    That takes seconds for a large model.
    """
    torch = need("torch", "a model file")
    init, parameter = torch.nn.init, torch.nn.Parameter
    fillers = {name: getattr(init, name) for name in vars(init) if name.endswith("_") and not name.startswith("_")}

    def skipping(fill: Any) -> Any:
        def filled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return tensor if isinstance(tensor, parameter) else fill(tensor, *args, **kwargs)

        return filled

    for name, fill in fillers.items():
        setattr(init, name, skipping(fill))
    try:
        yield
    finally:
        for name, fill in fillers.items():
            setattr(init, name, fill)


def read_state(path: str, device: Any) -> Any:
    """A state dict from `torch.save` or from safetensors. Its tensors are pages of the file where torch can map it."""
    with open(path, "rb") as file:  # The kernel reads on while the model is made.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    if path.endswith(".safetensors"):
        return need("safetensors.torch", "a .safetensors file").load_file(path, device=str(device))
    load = need("torch", "a state dict").load
    maps = "mmap" in inspect.signature(load).parameters and zipfile.is_zipfile(path)
    return load(path, map_location=device, mmap=True) if maps else load(path, map_location=device)


def take_state(model: Any, state: Any) -> None:
    """Gives a model its weights: where types agree and torch can, the tensors themselves and not copies of them.

    All workers of a model then share the pages of its file, and a worker that comes back finds them in memory.
    """
    own = model.state_dict()
    told = {name: getattr(own.get(name), "dtype", None) for name in state}
    agrees = all(getattr(state[name], "dtype", None) == kind for name, kind in told.items())
    assigns = agrees and "assign" in inspect.signature(model.load_state_dict).parameters
    model.load_state_dict(state, **({"assign": True} if assigns else {}))


def load_script(path: str, device: Any) -> Any:
    """A TorchScript program."""
    return need("torch", "a TorchScript model").jit.load(path, map_location=device)


def load_shared_object(path: str, device: Any) -> Any:
    """A library made by AOTInductor (`.so`)."""
    torch = need("torch", "an AOTInductor library")
    loader = getattr(getattr(torch, "_export", None), "aot_load", None)
    if loader is None:
        raise RuntimeError(f"{path} needs torch 2.2 or newer; this is torch {torch.__version__}")
    return loader(path, str(device))


def load_package(path: str, device: Any) -> Any:
    """A `.pt2` file: an AOTInductor package, or an exported program."""
    torch = need("torch", "a .pt2 package")
    if is_compiled_package(path):
        inductor = importlib.import_module("torch._inductor")
        if not hasattr(inductor, "aoti_load_package"):
            raise RuntimeError(f"{path} needs torch 2.6 or newer; this is torch {torch.__version__}")
        return inductor.aoti_load_package(path)
    if not hasattr(torch, "export"):
        raise RuntimeError(f"{path} needs torch 2.1 or newer; this is torch {torch.__version__}")
    return torch.export.load(path).module().to(device)


def is_compiled_package(path: str) -> bool:
    """Whether a `.pt2` file holds compiled code rather than a graph."""
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(".so") or "aotinductor" in name for name in archive.namelist())


def load_onnx(path: str, device: Any) -> Any:
    """An ONNX Runtime session on the CPU, or on the device's CUDA card if the runtime can."""
    ort = need("onnxruntime", "an .onnx model")
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda" and "CUDAExecutionProvider" in ort.get_available_providers():
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    options = ort.SessionOptions()
    # Weights stored as 8-bit integers are unpacked once, not with every call.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = need("torch", "a torch handler").get_num_threads()
    return ort.InferenceSession(path, sess_options=options, providers=providers)


def is_onnx(model: Any) -> bool:
    """Whether a model is a session of ONNX Runtime."""
    return type(model).__name__ == "InferenceSession"


def is_script(model: Any) -> bool:
    """Whether a model is a TorchScript program."""
    return isinstance(model, need("torch", "a torch handler").jit.ScriptModule)


def run_onnx(session: Any, inputs: tuple[Any, ...]) -> Any:
    """Runs a session on tensors, by position; one output is a tensor, several are a list."""
    torch = need("torch", "a torch handler")
    declared = session.get_inputs()
    if len(inputs) != len(declared):
        raise ValueError(f"the ONNX model takes {[one.name for one in declared]}, but {len(inputs)} inputs came")
    feed = {one.name: as_declared(value, one.type) for one, value in zip(declared, inputs)}
    outputs = [torch.from_numpy(output) for output in session.run(None, feed)]
    return outputs[0] if len(outputs) == 1 else outputs


ONNX_NUMBERS = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int32)": "int32",
    "tensor(int64)": "int64", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(bool)": "bool",
}  # fmt: skip


def as_declared(value: Any, kind: str) -> Any:
    """A tensor as an array of the type that an ONNX input declares."""
    array = value.detach().cpu().numpy()
    return array.astype(ONNX_NUMBERS[kind], copy=False) if kind in ONNX_NUMBERS else array
