"""Request envelopes: what handlers see, what clients get, batches of several requests."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
import wire

from ts.context import Context, RequestProcessor
from ts.torch_handler.request_envelope.body import BodyEnvelope
from ts.torch_handler.request_envelope.json import JSONEnvelope
from ts.torch_handler.request_envelope.kserve import KServeEnvelope
from ts.torch_handler.request_envelope.kservev2 import KServev2Envelope
from ts.utils.util import PredictionException


def context_of(*headers):
    context = Context("m", "/m", {"model": {"modelVersion": "2.1"}}, 4, None, "0.12.0")
    context.request_processor = [RequestProcessor(header) for header in headers]
    context.request_ids = {idx: f"id-{idx}" for idx in range(len(headers))}
    return context


def ask(envelope, handler, *bodies, explain=()):
    """Answers one batch of JSON bodies."""
    headers = [{"explain": "True"} if idx in explain else {} for idx in range(len(bodies))]
    return envelope(handler).handle([{"body": body} for body in bodies], context_of(*headers))


def double(rows, context):
    return [2 * row for row in rows]


def tensor(*data, name="x", shape=None, datatype="INT64"):
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": list(data)}


def test_the_body_envelope_hands_over_bare_values():
    data = [{"body": 1}, {"data": 2, "body": 3}, {"body": 0}]
    assert BodyEnvelope(double).handle(data, context_of({}, {}, {})) == [2, 4, 0]


def test_every_request_of_a_batch_gets_its_own_predictions():
    bodies = {"instances": [1, 2]}, b'{"instances": []}', {"instances": [3]}
    answers = ask(KServeEnvelope, double, *bodies)
    assert answers == [{"predictions": [2, 4]}, {"predictions": []}, {"predictions": [6]}]
    assert ask(JSONEnvelope, double, *bodies) == [json.dumps(answer) for answer in answers]


def test_explanations_are_called_so_request_by_request():
    answers = ask(KServeEnvelope, double, {"instances": [1]}, {"instances": [2]}, explain={1})
    assert answers == [{"predictions": [2]}, {"explanations": [4]}]


def test_a_lone_request_gets_whatever_the_handler_returns():
    assert ask(KServeEnvelope, lambda rows, _: ["one"], {"instances": [1, 2]}) == [{"predictions": ["one"]}]


def test_rows_that_do_not_add_up_fail_a_batch_of_several():
    with pytest.raises(ValueError, match="given 2 rows of 2 requests and returned 1"):
        ask(KServeEnvelope, lambda rows, _: ["one"], {"instances": [1]}, {"instances": [2]})


def test_a_handler_is_not_called_without_rows():
    assert ask(KServeEnvelope, None, {"instances": []}) == [{"predictions": []}]


def test_a_description_bypasses_the_envelope():
    assert KServeEnvelope(lambda data, _: ["about me"]).handle([{}], context_of({"describe": "True"})) == ["about me"]


def test_base64_values_reach_the_handler_as_bytes():
    seen = []
    body = {"instances": [{"b64": "aGk="}, {"image": {"b64": "aGk="}, "n": 1}, 5]}
    ask(JSONEnvelope, lambda rows, _: seen.extend(rows) or rows[2:] * 3, body)
    assert seen == [b"hi", {"image": b"hi", "n": 1}, 5]


@pytest.mark.parametrize("envelope, body", [
    (KServeEnvelope, b"{"), (KServeEnvelope, [1]), (KServeEnvelope, {"inputs": []}), (KServeEnvelope, {"instances": 1}),
    (JSONEnvelope, {"instances": [{"b64": "a"}]}), (JSONEnvelope, {"instances": [{"b64": 3}]}),
    (KServev2Envelope, {"instances": []}), (KServev2Envelope, {"inputs": [3]}),
    (KServev2Envelope, {"inputs": [tensor(1, 2, shape=[3])]}),
    (KServev2Envelope, {"inputs": [tensor(1, 2, shape=[-1, 3])]}),
    (KServev2Envelope, {"inputs": [tensor(1, 2, shape=[-1, -1])]}),
    (KServev2Envelope, {"inputs": [tensor(1, 2, shape=[-1, 0])]}),
])  # fmt: skip
def test_a_request_that_does_not_fit_is_the_clients_mistake(envelope, body):
    with pytest.raises(PredictionException) as caught:
        ask(envelope, double, body)
    assert caught.value.error_code == 400


def test_tensors_have_their_shape_and_results_their_type():
    seen = []

    def handler(rows, context):
        seen.extend(row["data"] for row in rows)
        return [7, 0.5, [True, False], "text", {"cat": 0.9}]

    inputs = [
        tensor(1, 2, 3, 4, shape=[2, 2], name="a"), tensor([1, 2], [3, 4], shape=[4, 1], name="b"),
        tensor(True, name="c", datatype="BOOL"), tensor("hello", "x", name="d", datatype="BYTES"), tensor(name="e"),
    ]  # fmt: skip
    (answer,) = ask(KServev2Envelope, handler, {"id": "q", "inputs": inputs})
    assert seen == [[[1, 2], [3, 4]], [[1], [2], [3], [4]], [True], "hello", []]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("q", "m", "2.1")
    assert [(out["name"], out["datatype"], out["shape"], out["data"]) for out in answer["outputs"]] == [
        ("a", "INT64", [1], [7]), ("b", "FP64", [1], [0.5]), ("c", "BOOL", [2], [True, False]),
        ("d", "BYTES", [1], ["text"]), ("e", "BYTES", [1], ['{"cat": 0.9}']),
    ]  # fmt: skip


def test_a_handler_sees_all_a_v2_input_says():
    seen = []
    sent = [tensor(1, 2, 3, 4, shape=[-1, 2]), tensor("hi", "x", datatype="BYTES", shape=-1)]
    sent[0]["parameters"] = {"unit": "m"}
    ask(KServev2Envelope, lambda rows, _: seen.extend(rows) or [0, 0], {"inputs": sent})
    assert seen == [{**sent[0], "data": [[1, 2], [3, 4]]}, {**sent[1], "data": "hi"}]


def test_numbers_too_large_for_signed_types_are_unsigned():
    (answer,) = ask(KServev2Envelope, lambda rows, _: [[1, 2**64 - 1]], {"inputs": [tensor(1)]})
    assert answer["outputs"][0]["datatype"] == "UINT64"


def test_arrays_keep_the_type_they_have():
    class Array:
        dtype = "torch.float32"

        def tolist(self):
            return [[1, 2.5]]

    (answer,) = ask(KServev2Envelope, lambda rows, _: [Array()], {"inputs": [tensor(1)]})
    assert answer["outputs"] == [{"name": "x", "datatype": "FP32", "data": [1, 2.5], "shape": [2]}]
    assert answer["id"] == "id-0"


def test_batches_of_v2_requests_are_kept_apart():
    bodies = [{"id": str(n), "inputs": [tensor(n, name=f"t{k}") for k in range(n)]} for n in (1, 2)]
    answers = ask(KServev2Envelope, lambda rows, _: [sum(row["data"]) for row in rows], *bodies)
    assert [(a["id"], [(o["name"], o["data"]) for o in a["outputs"]]) for a in answers] == [
        ("1", [("t0", [1])]), ("2", [("t0", [2]), ("t1", [2])]),
    ]  # fmt: skip


def test_batches_of_an_asynchronous_handler_do_not_meet_in_the_envelope():
    async def slow(rows, context):
        await asyncio.sleep(0)
        return [row + 1 for row in rows]

    async def both():
        handle = KServeEnvelope(slow).handle
        bodies = {"instances": [1]}, {"instances": [5, 6, 7]}
        return await asyncio.gather(*(handle([{"body": body}], context_of({})) for body in bodies))

    assert asyncio.run(both()) == [[{"predictions": [2]}], [{"predictions": [6, 7, 8]}]]


def test_a_worker_loads_its_model_behind_an_envelope(worker):
    one = worker("def handle(data, context):\n    return data and [sum(row) for row in data]\n", envelope="kserve")
    answers = one.ask(wire.bodies(b'{"instances": [[1, 2]]}', b'{"instances": [[3], [4, 5]]}'))
    assert [json.loads(item["body"]) for item in answers] == [{"predictions": [3]}, {"predictions": [3, 9]}]


def test_a_context_of_the_caller_s_own_needs_no_model_name():
    bare = SimpleNamespace(manifest={"model": {}}, get_request_header=lambda *_: None)
    (answer,) = KServev2Envelope(lambda rows, _: [1]).handle([{"body": {"id": "q", "inputs": [tensor(1)]}}], bare)
    assert (answer["id"], answer["model_name"]) == ("q", "")
