"""An ensemble of Triton: its steps call other models, each as soon as its inputs are there."""

from __future__ import annotations

import asyncio
from typing import Any

from jitney.triton.messages import BackendTensor, InferenceRequest, InferenceResponse, TritonError


class Ensemble:
    """The steps of a configuration, ready to be run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._steps = list(config["ensemble_scheduling"].get("step", ()))
        known = {one["name"] for one in config.get("input", ())}
        waiting = list(self._steps)
        while waiting:
            ready = [step for step in waiting if known.issuperset(_map(step, "input_map").values())]
            if not ready:
                lacking = set(_map(waiting[0], "input_map").values()) - known
                raise ValueError(f"step {waiting[0]['model_name']}: nothing gives {', '.join(sorted(lacking))}")
            waiting = [step for step in waiting if step not in ready]
            known.update(name for step in ready for name in _map(step, "output_map").values())
        for one in config.get("output", ()):
            if one["name"] not in known:
                raise ValueError(f"no step gives the output {one['name']!r}")
        self._outputs = [one["name"] for one in config.get("output", ())]

    async def respond(self, request: InferenceRequest) -> InferenceResponse:
        """The response to one request."""
        tensors = {one.name(): one for one in request.inputs()}
        waiting = list(self._steps)
        while waiting:
            ready = [step for step in waiting if tensors.keys() >= set(_map(step, "input_map").values())]
            if not ready:
                return InferenceResponse(error=TritonError("a step lacks an input", TritonError.INVALID_ARG))
            waiting = [step for step in waiting if step not in ready]
            answers: list[InferenceResponse] = await asyncio.gather(*(_call(step, tensors, request) for step in ready))
            for step, answer in zip(ready, answers):
                if answer.has_error():
                    return answer
                given = {one.name(): one for one in answer.output_tensors()}
                for own, name in _map(step, "output_map").items():
                    tensors[name] = _renamed(given[own], name)
        return InferenceResponse([tensors[name] for name in self._outputs])


def _map(step: dict[str, Any], kind: str) -> dict[str, str]:
    """The names of a model's tensors, and those of the ensemble."""
    found: dict[str, str] = step.get(kind, {})
    return found


async def _call(step: dict[str, Any], tensors: dict[str, BackendTensor], request: InferenceRequest) -> Any:
    inputs = [_renamed(tensors[name], own) for own, name in _map(step, "input_map").items()]
    asked = InferenceRequest(
        step["model_name"],
        list(_map(step, "output_map")),
        inputs,
        request.request_id(),
        request.correlation_id(),
        step.get("model_version", -1),
        request.flags(),
        request.timeout(),
    )
    return await asked.async_exec()


def _renamed(tensor: BackendTensor, name: str) -> BackendTensor:
    return BackendTensor(name, tensor.raw)
