"""A model compiled by torch's inductor into a file, and called from it.

A file is for one shape of the input. Starting from it nothing is traced again, and the weights stay those of the
model, so the files are small.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jitney.gpu.inputs import CannotCompile, ModelInput
from jitney.gpu.trees import rebuilt, tensors_of, torch

USER_INPUT = "USER_INPUT"
PREFIX = "model."
OWN_GRAPHS = ("triton.cudagraphs", "triton.cudagraph_trees")
"""Options of inductor that would capture graphs of its own inside ours."""


class Slot(NamedTuple):
    """One parameter of the compiled function: a tensor of the model by its name, or one of the input."""

    kind: str
    name: str


class CompiledModel:
    """Calls compiled code with the model's weights and a batch; answers in the model's own structure."""

    def __init__(self, function: Callable[..., Any], slots: Sequence[Slot], model: Any, answer: Any) -> None:
        state = {PREFIX + name: tensor for name, tensor in tensors_by_name(model)}
        missing = [slot.name for slot in slots if slot.kind != USER_INPUT and slot.name not in state]
        if missing:
            raise CannotCompile(f"it holds a tensor that is neither a parameter nor a buffer: {missing[0]}")
        self.function, self.answer = function, answer
        self.fixed = [None if slot.kind == USER_INPUT else state[slot.name] for slot in slots]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The answer for a batch of the shape it was compiled for."""
        given = iter(tensors_of((args, kwargs)))
        outputs = iter(self.function(*(next(given) if tensor is None else tensor for tensor in self.fixed)))
        return rebuilt(self.answer, lambda _: next(outputs))


class Flat(torch.nn.Module):  # type: ignore[misc]
    """A model that takes tensors and gives tensors, one after another."""

    def __init__(self, model: Any, example: ModelInput) -> None:
        super().__init__()
        self.model, self.example = model, example

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        """Calls the model with its own arguments."""
        args, kwargs = self.example.with_tensors(list(tensors))
        return tuple(tensors_of(self.model(*args, **kwargs)))


class CompilerImport:
    """The import of torch's compiler, which takes seconds: on a thread, while the GPU is set up.

    Nobody may import parts of it meanwhile, since its modules import each other in circles: they wait for it.
    """

    thread: threading.Thread | None = None

    @classmethod
    def start(cls) -> None:
        """Returns at once."""
        cls.thread = threading.Thread(target=cls._run, name="importing", daemon=True)
        cls.thread.start()

    @classmethod
    def wait(cls) -> None:
        """Returns when it is done, or was not started."""
        if cls.thread is not None:
            cls.thread.join()

    @staticmethod
    def _run() -> None:
        with contextlib.suppress(Exception):  # Who needs it finds out.
            for module in ("compile_fx", "standalone_compile"):
                importlib.import_module(f"torch._inductor.{module}")
            importlib.import_module("torch._functorch._aot_autograd.autograd_cache")


def can_compile() -> bool:
    """Whether this torch can compile into a file."""
    CompilerImport.wait()
    return hasattr(torch, "export") and hasattr(importlib.import_module("torch._inductor"), "standalone_compile")


def compile_into(file: Path, model: Any, example: ModelInput, options: dict[str, Any]) -> None:
    """Compiles a model for the shape of the example into a file."""
    inductor = importlib.import_module("torch._inductor")
    try:
        with torch.no_grad():
            program = torch.export.export(Flat(model, example), tuple(example.tensors), strict=False)
            specs = program.graph_signature.input_specs
            slots = [Slot(spec.kind.name, spec.target or "") for spec in specs]
            table = {**dict(program.state_dict), **program.constants}
            given = iter(example.tensors)
            flat = [next(given) if slot.kind == USER_INPUT else table[slot.name] for slot in slots]
            # What it calls options are the arguments of its compile function.
            patches = {"config_patches": options} if options else {}
            artifact = inductor.standalone_compile(
                program.graph_module, flat, dynamic_shapes="from_example_inputs", options=patches
            )
            fresh = file.with_suffix(f".{os.getpid()}")
            artifact.save(path=str(fresh), format="binary")
    except Exception as error:
        raise CannotCompile(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    file.with_suffix(".json").write_text(json.dumps(slots))
    fresh.replace(file)


def load_from(file: Path, model: Any, answer: Any) -> CompiledModel:
    """What `compile_into` left in a file; `answer` is one of the model's, for its structure."""
    inductor = importlib.import_module("torch._inductor")
    slots = [Slot(*each) for each in json.loads(file.with_suffix(".json").read_text())]
    return CompiledModel(inductor.CompiledArtifact.load(path=str(file), format="binary"), slots, model, answer)


def tensors_by_name(model: Any) -> list[tuple[str, Any]]:
    """Parameters and buffers by every name they have, those too that the model does not save."""
    return [
        (f"{path}.{name}" if path else name, tensor)
        for path, module in model.named_modules(remove_duplicate=False)
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]
        if tensor is not None
    ]


def inductor_options(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """Inductor's options for torch.compile's mode, without graphs of its own."""
    listed = dict(importlib.import_module("torch._inductor").list_mode_options(mode)) if mode else {}
    return {name: value for name, value in {**listed, **(options or {})}.items() if name not in OWN_GRAPHS}
