"""What the server gets for a handler's return values, statuses and headers."""

from __future__ import annotations

import json
import sys
import types

import pytest
import wire

from jitney.torchserve.bodies import UnsupportedOutput, encode_output, json_text, use_strict_json


class Text(str):
    pass


@pytest.mark.parametrize(
    "output, body",
    [
        ("plain é世", "plain é世".encode()),
        (Text("sub"), b"sub"),
        ("", b""),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        (memoryview(b"view")[::2], b"ve"),
        (memoryview(b"12345678").cast("I"), b"12345678"),
        ({"b": 1, "a": [1, 2.5, None, True]}, json.dumps({"b": 1, "a": [1, 2.5, None, True]}, indent=2).encode()),
        ({"k": "é"}, b'{\n  "k": "\\u00e9"\n}'),
        ([1, "two", [3]], json.dumps([1, "two", [3]], indent=2).encode()),
        ((1, 2), b"[\n  1,\n  2\n]"),
        ({}, b"{}"),
        (7, b"7"),
        (0.5, b"0.5"),
        (None, b"null"),
        (True, b"true"),
    ],
)
def test_an_output_has_its_body(output, body):
    assert bytes(encode_output(output)) == body


@pytest.mark.parametrize("output", [object(), {"a": {1, 2}}, "\ud800", {("a", "b"): 1}, Text("\ud800")])
def test_an_output_without_a_byte_form_is_rejected(output):
    with pytest.raises(UnsupportedOutput, match=r"^Unsupported model output data type\.$"):
        encode_output(output)


def test_numbers_that_json_does_not_have_are_null_where_json_is_strict():
    odd = {"a": [float("nan"), 1.5, float("inf")], "b": -float("inf"), "c": "NaN"}
    assert b"NaN" in encode_output(odd) and "Infinity" in json_text(odd, str), "as TorchServe writes them"
    use_strict_json(True)
    try:
        expected = {"a": [None, 1.5, None], "b": None, "c": "NaN"}
        assert encode_output(odd) == json.dumps(expected, indent=2).encode()
        assert json_text(odd, str) == json.dumps(expected)
        assert encode_output(float("nan")) == b"null"
        with pytest.raises(UnsupportedOutput):
            encode_output([float("nan"), object()])
    finally:
        use_strict_json(False)


def test_a_tensor_is_saved_by_torch_if_the_handler_loaded_it(monkeypatch):
    torch = types.ModuleType("torch")
    torch.Tensor = type("Tensor", (), {})
    torch.save = lambda tensor, file: file.write(b"saved")
    tensor = torch.Tensor()
    with pytest.raises(UnsupportedOutput):
        encode_output(tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert encode_output(tensor) == b"saved"


OPS = """
    def handle(data, context):
        out = []
        for i, row in enumerate(data or ()):
            op, _, arg = row["body"].partition(" ")
            if op == "status":
                context.set_response_status(int(arg), "phrase " + arg, i)
            if op == "all":
                context.set_all_response_status(int(arg), "everyone")
            if op == "header":
                context.set_response_header(i, "X-Arg", arg)
            if op == "number":
                context.set_response_header(i, "X-Count", 7)
            if op == "type":
                context.set_response_content_type(i, arg)
                assert context.get_response_content_type(i) == arg
            if op == "look":
                context.get_request_header(i, "x-op")
            if op == "last":
                context.set_response_status(202, "", -1)
            out.append(object() if op == "object" else row["body"])
        return out
"""


def ask(worker, *ops):
    return worker.ask(wire.bodies(*(op.encode() for op in ops), content_type="text/plain"))


def shape(answer):
    return answer["outcome"], answer["status"], answer["phrase"], answer["headers"]


PLAIN = (0, 200, "", [])


def test_status_and_headers_stay_with_their_request(worker):
    answers = ask(worker(OPS), "status 404", "echo", "header v", "type text/html", "look", "number")
    assert [shape(answer) for answer in answers] == [
        (0, 404, "phrase 404", []),
        PLAIN,
        (0, 200, "", [["X-Arg", "v"]]),
        (0, 200, "", [["content-type", "text/html"]]),
        PLAIN,
        (0, 200, "", [["X-Count", "7"]]),
    ]
    assert answers[0]["body"] == b"status 404"


def test_nothing_leaks_into_the_next_batch(worker):
    one = worker(OPS)
    for op in ("status 418", "all 500", "header v", "type text/html", "object"):
        ask(one, op, op)
        assert [shape(answer) for answer in ask(one, "echo", "look")] == [PLAIN, PLAIN]


def test_a_status_can_be_set_for_all_and_from_the_end(worker):
    one = worker(OPS)
    assert [shape(a) for a in ask(one, "echo", "all 202")] == [(0, 202, "everyone", [])] * 2
    assert [shape(a)[1] for a in ask(one, "last", "echo")] == [200, 202]


def test_an_unsupported_output_fails_only_its_item(worker):
    first, second, third = ask(worker(OPS), "status 201", "object", "echo")
    assert shape(first)[:2] == (0, 201)
    assert (second["outcome"], second["cause"], second["status"]) == (1, 6, 503)
    assert second["body"] == b"Unsupported model output data type."
    assert shape(third) == PLAIN and third["body"] == b"echo"


def test_a_status_that_cannot_be_sent_fails_only_its_item(worker):
    first, second = ask(worker(OPS), "status 70000", "echo")
    assert (first["outcome"], first["cause"], first["body"]) == (1, 1, b"Prediction failed")
    assert shape(second) == PLAIN
