"""`jitney inspect`: what a file or folder is, what it takes and gives, how it is batched, what is missing, and the
lines to serve and to call it with. It loads the model only if that may be: its library is there, and it is trusted
where it runs code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.definition import Definition, Endpoint, define
from jitney.definition.signature import Signature
from jitney.loaders.huggingface.hub import located
from jitney.loaders.loader import LoadOptions
from jitney.loaders.registry import loader_for, model_name, model_path, open_path
from jitney.values.tensor import BYTES

FOUND, FAILED = 0, 1


@dataclass
class Inspection:
    """What was found."""

    path: str
    format: str = ""
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What keeps it from being served, each with what to do."""
    serve: str = ""
    call: str = ""

    @property
    def status(self) -> int:
        """The exit status."""
        return FAILED if self.problems else FOUND

    def told(self, as_json: bool) -> str:
        """What is printed."""
        if as_json:
            return json.dumps(asdict(self), indent=2)
        lines = [f"{self.path}: {self.format or 'no known format'}"]
        for one in self.endpoints:
            lines += [f"  {one['name']}"]
            lines += [f"    in   {_shown(tensor)}" for tensor in one["inputs"]] or ["    in   any columns by name"]
            lines += [f"    out  {_shown(tensor)}" for tensor in one["outputs"]]
            lines.append(f"    {one['batching']}")
        lines += [f"  missing: {one}" for one in self.problems]
        lines += [f"  {word}: {line}" for word, line in (("serve", self.serve), ("call", self.call)) if line]
        return "\n".join(lines)


def inspect(named: str, options: LoadOptions) -> Inspection:
    """Looks at a file or folder, or a model of the hub, and loads it if that may be."""
    found = Inspection(named)
    try:
        path = model_path(located(named))
        kind = loader_for(path)
    except DefinitionError as error:
        found.problems.append(str(error))
        return found
    found.format = kind.format
    found.serve = f"jitney serve {named}"
    why = kind.runs_code(path)
    if why is not None:
        found.serve += " --trust"
    try:
        definition = define(open_path(path, options))
    except DefinitionError as error:
        found.problems.append(str(error))
        return found
    words = getattr(definition.target, "batching", None)
    found.endpoints = [_endpoint(one, words if one is definition.default else None) for one in definition.endpoints]
    found.call = _call(definition, model_name(path))
    return found


def _endpoint(one: Endpoint, words: str | None) -> dict[str, Any]:
    tensors: Signature = one.tensors
    inputs = [{"name": each.name, "datatype": each.tensor.datatype, "shape": each.tensor.shape}
              for each in tensors.inputs if each.declared or tensors.frame is None]  # fmt: skip
    outputs = [{"name": name, "datatype": each.datatype, "shape": each.shape} for name, each in tensors.outputs.items()]
    return {"name": one.name, "inputs": inputs, "outputs": outputs, "batching": words or _batching(one)}


def _batching(one: Endpoint) -> str:
    """How requests share what runs."""
    if not one.batched:
        several = one.options.concurrency or 1
        return f"up to {several} requests at a time" if several > 1 else "one request at a time"
    if one.options.cost is not None:
        return f"requests share batches of a cost of up to {one.max_batch_size}"
    return f"requests share batches of up to {one.max_batch_size} items, along dimension {one.options.dims[0]}"


def _call(definition: Definition, name: str) -> str:
    """A request with made-up values, or one that the class of the model knows."""
    url, target = f"http://127.0.0.1:8080/predictions/{name}", definition.target
    if file := getattr(target, "example_file", None):
        return f"curl -H 'Content-Type: {file[0]}' --data-binary @{file[1]} {url}"
    body = target.example_request() if hasattr(target, "example_request") else _made_up(definition.default)
    return f"curl -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))} {url}" if body else ""


def _made_up(endpoint: Endpoint | None) -> dict[str, Any]:
    declared = [one for one in endpoint.tensors.inputs if one.declared] if endpoint is not None else []
    return {one.name: _value(one.tensor.shape, "text" if one.tensor.datatype == BYTES else 0) for one in declared}


VALUES_MAX = 64
"""Values of an example that is printed."""


def _value(shape: Sequence[int], leaf: Any) -> Any:
    for size in reversed(shape):
        leaf = [leaf] * min(max(size, 1), VALUES_MAX)
    return leaf


def _shown(tensor: dict[str, Any]) -> str:
    return f"{tensor['name']}  {tensor['datatype']}  {list(tensor['shape'])}"
