"""A repository of small models as Triton has them: ONNX files behind other shapes and in sequences, models of the
Python backend, an ensemble, and one that does not load."""

from __future__ import annotations

import struct
from pathlib import Path

from harness import onnx

NAMES = (
    "reshaped", "rows", "counted", "summed", "added", "add_sub", "repeat", "caller", "talk", "talk_direct",
    "pairs_oldest", "pairs_direct", "completed", "turned", "twice_more", "ragged", "waiting",
)  # fmt: skip
"""Those that load."""

RESHAPED = """
platform: "onnxruntime_onnx"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 1, 6 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 6 ] reshape { shape: [ 1, 6 ] } } ]
"""

ROWS = """
platform: "onnxruntime_onnx"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 6 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 3, 2 ] reshape { shape: [ 6 ] } } ]
"""

TURNED = """
platform: "onnxruntime_onnx"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 2 ] reshape { shape: [ 6 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 6 ] } } ]
"""

COUNTED = """
platform: "onnxruntime_onnx"
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 10 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 100 ] } ] }
  ]
}
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""

SUMMED = """
platform: "onnxruntime_onnx"
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  state [ { input_name: "sum_in" output_name: "sum_out" data_type: TYPE_INT32 dims: [ 1 ]
            initial_state { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } ]
}
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""

ADDED = SUMMED.replace('platform: "onnxruntime_onnx"', 'backend: "python"')
ADDER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.add(request) for request in requests]

    def add(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        total = x + pb_utils.get_input_tensor_by_name(request, "sum_in").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * total), pb_utils.Tensor("sum_out", total)])
"""

ADD_SUB_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "b" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "seen" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters [ { key: "scale" value: { string_value: "2" } } ]
dynamic_batching { }
"""

ADD_SUB = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.scale = float(config["parameters"]["scale"]["string_value"])
        self.dtype = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "sum")["data_type"])
        assert args["model_name"] == "add_sub" and args["model_version"] == "3", args
        assert config["max_batch_size"] == 8 and config["input"][0]["dims"] == [2], config

    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "a").as_numpy()
            b = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "b"))
            if (a < 0).any():
                error = pb_utils.TritonError("no negative numbers", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            seen = json.dumps([request.request_id(), json.loads(request.parameters())])
            rows = np.array([[seen.encode()]] * len(a), dtype=object)
            total = pb_utils.Tensor("sum", ((a + b) * self.scale).astype(self.dtype))
            told = {"rows": len(a), "tone": json.loads(request.parameters()).get("tone", "")}
            responses.append(pb_utils.InferenceResponse([total, pb_utils.Tensor("seen", rows)], parameters=told))
        return responses

    def finalize(self):
        print("the model was finalized")
"""

REPEAT_CONFIG = """
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: True }
input [ { name: "in" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "out" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""

REPEAT = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "in").as_numpy()
            threading.Thread(target=self.send, args=(request.get_response_sender(), numbers)).start()

    def send(self, sender, numbers):
        for number in numbers:
            if number < 0:
                error = pb_utils.InferenceResponse(error=pb_utils.TritonError("below zero"))
                sender.send(error, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            tensor = pb_utils.Tensor("out", np.array([number], np.int32))
            sender.send(pb_utils.InferenceResponse([tensor], parameters={"is_odd": bool(number % 2)}))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

WAITING_CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
output [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
"""
WAITING = """
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.gate = Path(__file__).with_name("open")

    def execute(self, requests):
        while not self.gate.exists():
            time.sleep(0.01)
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]
"""
"""A model that answers when there is a file beside it."""

CALLER_CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "model" data_type: TYPE_STRING dims: [ 1 ] }, { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

CALLER = """
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.call(request) for request in requests]

    async def call(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "model").as_numpy()[0].decode()
        x = pb_utils.get_input_tensor_by_name(request, "x")
        if name == "repeat":
            numbers = pb_utils.Tensor("in", np.arange(3, dtype=np.int32))
            asked = pb_utils.InferenceRequest(name, ["out"], [numbers])
            found = [one async for one in await asked.async_exec(decoupled=True)]
            y = np.concatenate([one.output_tensors()[0].as_numpy() for one in found]).astype(np.float32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("y", y)])
        if name == "held":
            asked = pb_utils.InferenceRequest("waiting", ["x"], [x])
            answers = [await asked.async_exec(execution_timeout=50_000)]
            answers.append(asked.exec(execution_timeout=50_000))
            assert all(one.has_error() for one in answers), answers
            return pb_utils.InferenceResponse(error=answers[0].error())
        asked = pb_utils.InferenceRequest(model_name=name, requested_output_names=["y"], inputs=[x])
        loop = asyncio.get_running_loop()
        waited, awaited = await asyncio.gather(loop.run_in_executor(None, asked.exec), asked.async_exec())
        for answer in (waited, awaited):
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
        assert (waited.output_tensors()[0].as_numpy() == awaited.output_tensors()[0].as_numpy()).all()
        return pb_utils.InferenceResponse(output_tensors=awaited.output_tensors())
"""

TALK_CONFIG = """
backend: "python"
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 8 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] }
  ]
}
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [
  { name: "total" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "together" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "process" data_type: TYPE_INT32 dims: [ 1 ] }
]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
OLDEST = "oldest { max_candidate_sequences: 8 }"
"""The strategy of this configuration."""
PAIRS_CONFIG = TALK_CONFIG.replace("max_batch_size: 4", "max_batch_size: 2").replace("count: 2", "count: 1")
"""Batches of two, which wait for an hour to be full."""
PAIRS = {
    "oldest": "oldest { max_candidate_sequences: 8 max_queue_delay_microseconds: 3600000000 }",
    "direct": "direct { max_queue_delay_microseconds: 3600000000 minimum_slot_utilization: 1.0 }",
}

TALK = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.add(request, len(requests)) for request in requests]

    def add(self, request, together):
        key = request.correlation_id()
        assert pb_utils.get_input_tensor_by_name(request, "ID").as_numpy()[0, 0] == str(key).encode()
        starts = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()[0, 0] == 1
        assert starts == bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
        known = 0 if starts else self.totals[key]
        self.totals[key] = known + int(pb_utils.get_input_tensor_by_name(request, "x").as_numpy()[0, 0])
        told = {"total": self.totals[key], "together": together, "process": os.getpid()}
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.totals[key]
        tensors = [pb_utils.Tensor(name, np.array([[one]], np.int32)) for name, one in told.items()]
        return pb_utils.InferenceResponse(tensors)
"""

RAGGED_CONFIG = """
backend: "python"
max_batch_size: 2
dynamic_batching { max_queue_delay_microseconds: 3600000000 priority_levels: 2 default_priority_level: 1 }
input [
  { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "bias" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
RAGGED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sums = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy().sum() for request in requests]
        rows = [np.array([[one, len(requests)]], np.float32) for one in sums]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", row)]) for row in rows]
"""

ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "first" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
output [ { name: "last" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
ensemble_scheduling {
  step [
    { model_name: "turned" model_version: -1
      input_map { key: "x" value: "middle" } output_map { key: "y" value: "last" } },
    { model_name: "rows" model_version: -1
      input_map { key: "x" value: "first" } output_map { key: "y" value: "middle" } }
  ]
}
"""

COMPLETED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        outputs = [pb_utils.Tensor("y", 2 * one.inputs()[0].as_numpy().astype(np.float64)) for one in requests]
        return [pb_utils.InferenceResponse([one]) for one in outputs]
"""


def model(home: Path, name: str, config: str | None, code: str, version: int = 1) -> None:
    (home / name / str(version)).mkdir(parents=True)
    (home / name / str(version) / "model.py").write_text(code)
    if config is not None:
        (home / name / "config.pbtxt").write_text(config)


def plus_one(home: Path, name: str, config: str, rows: int | str) -> None:
    """`y = x + 1`, for rows of six numbers."""
    (home / name / "1").mkdir(parents=True)
    row = [onnx.value(one, onnx.FLOAT, [rows, 6]) for one in "xy"]
    weight = onnx.tensor(onnx.FLOAT, [1], struct.pack("<f", 1), "b")
    onnx.write(home / name / "1/model.onnx", [onnx.node("Add", ["x", "b"], "y")], row[:1], row[1:], [weight])
    (home / name / "config.pbtxt").write_text(config)


def counted(home: Path) -> None:
    """`y = x + START + END + READY`."""
    (home / "counted/1").mkdir(parents=True)
    inputs = [onnx.value(one, onnx.INT32, ["n", 1]) for one in ("x", "START", "END", "READY")]
    nodes = [
        onnx.node("Add", ["x", "START"], "first"),
        onnx.node("Add", ["first", "END"], "second"),
        onnx.node("Add", ["second", "READY"], "y"),
    ]
    onnx.write(home / "counted/1/model.onnx", nodes, inputs, [onnx.value("y", onnx.INT32, ["n", 1])])
    (home / "counted/config.pbtxt").write_text(COUNTED)


def summed(home: Path) -> None:
    """`sum_out = x + sum_in` and `y = 2 * sum_out`."""
    (home / "summed/1").mkdir(parents=True)
    row = {name: onnx.value(name, onnx.INT32, ["n", 1]) for name in ("x", "sum_in", "sum_out", "y")}
    nodes = [onnx.node("Add", ["x", "sum_in"], "sum_out"), onnx.node("Add", ["sum_out", "sum_out"], "y")]
    onnx.write(home / "summed/1/model.onnx", nodes, [row["x"], row["sum_in"]], [row["y"], row["sum_out"]])
    (home / "summed/config.pbtxt").write_text(SUMMED)


def write(models: Path) -> None:
    """Writes all of them into this folder."""
    plus_one(models, "reshaped", RESHAPED, 1)
    plus_one(models, "rows", ROWS, "n")
    plus_one(models, "turned", TURNED, "n")
    (models / "twice_more/1").mkdir(parents=True)
    (models / "twice_more/config.pbtxt").write_text(ENSEMBLE)
    counted(models)
    summed(models)
    model(models, "added", ADDED, ADDER)
    model(models, "add_sub", ADD_SUB_CONFIG, ADD_SUB, 3)
    model(models, "repeat", REPEAT_CONFIG, REPEAT)
    model(models, "caller", CALLER_CONFIG, CALLER)
    model(models, "talk", TALK_CONFIG, TALK)
    model(models, "talk_direct", TALK_CONFIG.replace(OLDEST, "direct { }"), TALK)
    for name, strategy in PAIRS.items():
        model(models, f"pairs_{name}", PAIRS_CONFIG.replace(OLDEST, strategy), TALK)
    model(models, "ragged", RAGGED_CONFIG, RAGGED)
    model(models, "waiting", WAITING_CONFIG, WAITING)
    model(models, "completed", None, COMPLETED)
    model(models, "broken", ADD_SUB_CONFIG, "import nothing_of_this_name")
