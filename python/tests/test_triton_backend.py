"""What a model of Triton's Python backend imports, without a server."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jitney.triton import backend_utils as pb_utils
from jitney.triton import completion, framed
from jitney.triton.messages import ResponseSender
from jitney.triton.model import TritonModel
from jitney.values.tensor import RawTensor

MODEL = """
import json

import triton_python_backend_utils as pb_utils

import beside


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.add_input({"name": "x", "data_type": "TYPE_INT8", "dims": [-1]})
        return config

    async def initialize(self, args):
        self.config = json.loads(args["model_config"])

    async def execute(self, requests):
        return [None] * (len(requests) + beside.MORE)

    def finalize(self):
        beside.MORE = -1
"""


def test_types_have_their_names_and_numbers() -> None:
    for name, number, kind in (
        ("TYPE_FP32", 11, np.float32),
        ("TYPE_STRING", 13, np.object_),
        ("TYPE_BOOL", 1, np.bool_),
    ):
        assert pb_utils.triton_string_to_numpy(name) is kind
        assert pb_utils.triton_to_numpy_type(number) is kind
        assert pb_utils.numpy_to_triton_type(kind) == number


def test_a_tensor_is_seen_by_other_libraries() -> None:
    numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = pb_utils.Tensor("x", numbers)
    assert np.from_dlpack(tensor).tolist() == numbers.tolist()
    again = pb_utils.Tensor.from_dlpack("y", tensor.to_dlpack())
    assert (again.name(), again.as_numpy().tolist(), again.is_cpu()) == ("y", numbers.tolist(), True)
    assert (tensor.triton_dtype(), tensor.shape()) == (8, [2, 3])
    came = pb_utils.Tensor("z", RawTensor("FP16", [2], np.zeros(2, "<f2").tobytes()))
    assert (came.triton_dtype(), came.as_numpy().dtype) == (10, np.float16)


def test_texts_are_packed_and_unpacked() -> None:
    texts = np.array([b"ab", "ü", b""], dtype=object)
    packed = pb_utils.serialize_byte_tensor(texts)
    assert pb_utils.deserialize_bytes_tensor(packed.item()).tolist() == [b"ab", "ü".encode(), b""]


def test_tensors_travel_in_one_piece() -> None:
    inputs = [pb_utils.Tensor("x", np.ones((2, 1), np.float32)), pb_utils.Tensor("t", np.array([b"a"], object))]
    asked = pb_utils.InferenceRequest(b"m", ["y"], inputs, correlation_id=7, flags=2, timeout=5, parameters={"p": 1})
    body = framed.request(asked)
    head = json.loads(body[4 : 4 + framed.LENGTH.unpack_from(body)[0]])
    said = {"p": 1, "sequence_id": 7, "sequence_start": False, "sequence_end": True, "timeout": 5}
    assert head["parameters"] == {**said, "binary_data_output": True} and head["outputs"] == [{"name": "y"}]
    answer = framed.encode([(one.name(), framed.raw(one)) for one in inputs])
    read = framed.response(answer).output_tensors()
    assert [one.name() for one in read] == ["x", "t"]
    assert read[0].as_numpy().tolist() == [[1], [1]] and read[1].as_numpy().tolist() == [b"a"]


def test_a_sender_ends_once() -> None:
    sent = []
    sender = ResponseSender(lambda response, last: sent.append((response, last)), lambda: False)
    sender.send(pb_utils.InferenceResponse())
    with pytest.raises(pb_utils.TritonModelException, match="missing"):
        sender.send()
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(pb_utils.TritonModelException, match="after the final one"):
        sender.send(pb_utils.InferenceResponse())
    assert [last for _, last in sent] == [False, True]


def test_a_model_is_loaded_with_what_lies_beside_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("MORE = 0\n")
    model = TritonModel(str(tmp_path / "model.py"), {"name": "m", "max_batch_size": 0, "input": []}, {})
    assert (model.config["max_batch_size"], model.config["input"][0]["name"]) == (4, "x")
    assert model.execute([pb_utils.InferenceRequest()]) == [None]
    model.close()
    with pytest.raises(pb_utils.TritonModelException, match="returned 0 for 1 requests"):
        model.execute([pb_utils.InferenceRequest()])
    (tmp_path / "none.py").write_text("")
    with pytest.raises(pb_utils.TritonModelException, match="has no class TritonPythonModel"):
        TritonModel(str(tmp_path / "none.py"), {}, {})


def test_the_server_is_told_what_a_model_adds_to_its_configuration(tmp_path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("MORE = 0")
    declared = [{"name": "y", "data_type": "TYPE_STRING", "dims": ["3"], "optional": True}]
    config = json.dumps({"name": "m", "output": declared})
    completion.main(str(tmp_path / "model.py"), config, str(tmp_path / "answer"))
    told = json.loads((tmp_path / "answer").read_text())
    x = {"name": "x", "datatype": "INT8", "shape": [-1, -1], "required": True, "rows": True, "checked": True}
    y = {"name": "y", "datatype": "BYTES", "shape": [-1, 3], "required": False, "rows": True, "checked": True}
    assert told["max_batch_size"] == 4
    assert told["tensors"] == {"inputs": [x], "outputs": [y], "items": "rows", "takes_any": False}
