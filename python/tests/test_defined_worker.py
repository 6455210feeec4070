"""A definition inside the real worker loop: what is on the wire for it."""

from __future__ import annotations

import json

import pytest
import wire

from jitney.wire.calls import VALUE_TYPE, encode_call
from jitney.wire.values import encode

SOURCE = """
import jitney

class Model:
    @jitney.batch(max_batch_size=8)
    def half(self, x: list[int], request: list[jitney.Request]) -> list[int]:
        for one in request:
            one.response_headers["X-Who"] = one.headers["who"]
        return [one // 2 if one % 2 == 0 else jitney.BadInput(f"{one} is odd") for one in x]

    @jitney.batch
    def boom(self, x: list[int]) -> list[int]:
        raise KeyError("boom")

    @jitney.endpoint
    def picture(self, request: jitney.Request) -> bytes:
        request.response_headers["content-type"] = "image/png"
        return b"png"

    @jitney.endpoint
    def spell(self, word: str):
        yield from word

    def teardown(self):
        open("torn-down", "w").close()
"""


@pytest.fixture
def defined(worker, model, tmp_path):
    settings = {"jitney": {"object": "defined_app:Model", "directory": str(tmp_path)}}
    model(SOURCE, "defined_app.py")
    return worker("", "defined_app:Model", model_yaml_config=settings)


def item(path: str, body: object, who: str = "me") -> tuple[bytes, bytes]:
    params = [("body", "application/json", json.dumps(body).encode())]
    return wire.item(params, [("who", who), ("url_path", path)])


def test_every_item_is_answered_with_its_own_type_headers_and_failure(defined):
    good, bad, lost = defined.ask([item("half", 4, "a"), item("half", {"x": 3}, "b"), item("nowhere", 1)])
    assert (good["body"], good["status"]) == (b"2", 200)
    assert good["headers"] == [["Content-Type", "application/json"], ["X-Who", "a"]]
    assert (bad["outcome"], bad["status"], bad["body"]) == (1, 400, b"3 is odd")
    assert (lost["outcome"], lost["status"]) == (1, 404)
    assert b"it has: half, boom, picture, spell" in lost["body"]


def test_the_last_header_of_that_name_chooses_whatever_the_words_of_others(defined):
    def ask(*headers: tuple[str, str]) -> tuple[int, bytes]:
        found = defined.ask([wire.item([("body", "application/json", b"1")], [("who", "me"), *headers])])
        return found[0]["status"], found[0]["body"]

    boom = (500, b"KeyError: 'boom'")
    assert ask(("url_path", "half"), ("url_path", "boom")) == boom
    assert ask(("url_path", "boom"), ("jitney path", "/url_path"), ("explain", "False")) == boom
    assert ask(("url_path", "boom"), ("x-url_path", "half")) == boom
    assert ask(("url_path", "boom"), ("x", "url_path")) == boom
    assert ask(("url_path", "nöwhere"))[0] == 404


def test_a_batch_that_raises_fails_as_a_whole_and_an_item_alone_by_itself(defined):
    assert defined.ask([item("boom", 1), item("boom", 2)])["cause"] == "raised"
    (alone,) = defined.ask([item("boom", 1)])
    assert (alone["outcome"], alone["status"], alone["body"]) == (1, 500, b"KeyError: 'boom'")


def test_a_model_chooses_its_content_type_and_a_handle_still_reads_a_value(defined):
    (browser,) = defined.ask([item("picture", {})])
    assert (browser["headers"], browser["body"]) == ([["Content-Type", "image/png"]], b"png")
    (handle,) = defined.ask([wire.item([("jitney-call", "", encode_call((), {}))], [("url_path", "picture")])])
    assert (handle["headers"], handle["body"]) == ([["Content-Type", VALUE_TYPE]], encode(b"png"))


def test_pieces_of_a_stream_are_sent_one_by_one(defined):
    defined.send(wire.batch([item("spell", "ab")]))
    pieces = []
    for _ in "ab":
        kind, count, _, payload = defined.read()
        assert kind == wire.CHUNK
        pieces += wire.decode_chunk(payload, count)
    assert [piece["body"] for piece in pieces] == [b"a", b"b"]
    assert pieces[0]["headers"] == [["Content-Type", "text/plain; charset=utf-8"]]
    kind, count, _, payload = defined.read()
    assert (kind, wire.decode_reply(payload, count)[0]["body"]) == (wire.REPLY, b"")


PATIENT = """
import asyncio
import jitney

class Patient:
    def setup(self):
        self.gates = {}

    @jitney.endpoint
    async def gate(self, order: str, name: str) -> str:
        gate = self.gates.setdefault(name, asyncio.Event())
        if order == "open":
            gate.set()
        await gate.wait()
        return order
"""


def test_a_cancelled_batch_ends_its_coroutine_and_is_answered_with_nothing(worker, model, tmp_path):
    settings = {"jitney": {"object": "patient_app:Patient", "directory": str(tmp_path)}}
    model(PATIENT, "patient_app.py")
    one = worker("", "patient_app:Patient", model_yaml_config=settings, mode="concurrent")

    def ask(order: str, frame_id: int) -> None:
        one.send(wire.batch([item("gate", {"order": order, "name": "a"})], frame_id))

    def answer() -> tuple[int, bytes]:
        _, count, frame_id, payload = one.read()
        return frame_id, wire.decode_reply(payload, count)[0]["body"]

    ask("wait", 1)
    ask("wait", 2)
    one.send(wire.control(wire.CANCEL, frame_id=1))
    assert answer() == (1, b"")
    one.send(wire.control(wire.CANCEL, frame_id=7))  # It was answered long ago.
    ask("open", 3)
    assert {answer(), answer()} == {(3, b"open"), (2, b"wait")}


def test_teardown_is_called_when_the_worker_ends(defined, tmp_path):
    defined.send(wire.control(wire.STOP))
    assert defined.ended()
    assert (tmp_path / "torn-down").exists()


NOTED = """
import threading
import jitney

NEXT_IS_READ = threading.Event()

class Noted:
    @classmethod
    def model_validate(cls, value):
        if value == 1:
            NEXT_IS_READ.set()
        if value == 8:
            raise ValueError("eight")
        return value
"""
"""A parameter's type that tells when the second item is read."""

OVERLAPPED = f"""{NOTED}
@jitney.batch(max_batch_size=8, overlap=3)
def call(x: list[Noted]) -> list:
    if x == [0]:
        assert NEXT_IS_READ.wait(60)
    if 5 in x:
        raise jitney.ItemErrors({{x.index(5): jitney.BadInput("five")}})
    if 7 in x:
        raise KeyError("seven")
    return x[1:] if 6 in x else x
"""


def answered(worker) -> object:
    """The next REPLY or FAILED: its id, and the bodies or the cause."""
    kind, count, frame_id, payload = worker.read()
    while kind not in (wire.REPLY, wire.FAILED):
        kind, count, frame_id, payload = worker.read()
    if kind == wire.FAILED:
        return frame_id, json.loads(payload)["cause"]
    return frame_id, [(one["outcome"], one["body"]) for one in wire.decode_reply(payload, count)]


def test_batches_of_a_definition_overlap_and_each_is_answered_in_order_as_if_it_were_alone(raw_worker, model, tmp_path):
    one = raw_worker()
    settings = {"jitney": {"object": "overlapped_app:call", "directory": str(tmp_path)}}
    one.load(model(OVERLAPPED, "overlapped_app.py"), "overlapped_app:call", model_yaml_config=settings)
    assert one.read_control(wire.LOADED)["slots"] == 3
    batches = [[0], [1, 5], [2, 6], [3, 7], [7], [8, 4]]
    for frame_id, values in enumerate(batches):
        one.send(wire.batch([item("", value) for value in values], frame_id))
    assert [answered(one) for _ in batches] == [
        (0, [(0, b"0")]),
        (1, [(0, b"1"), (1, b"five")]),
        (2, "raised"),
        (3, "raised"),
        (4, [(1, b"KeyError: 'seven'")]),
        (5, [(1, b"parameter 'x' cannot be read as Noted: eight"), (0, b"4")]),
    ]


BESIDE_RAW = f"""{NOTED}
@jitney.model(overlap=3)
class Model:
    @jitney.batch(max_batch_size=8)
    def call(self, x: list[Noted]) -> list:
        assert NEXT_IS_READ.wait(60)
        return x

    @jitney.endpoint(raw=True, route="POST /spell")
    def spell(self, request: jitney.HttpRequest):
        return jitney.Response(iter(request.body.decode()), media_type="text/plain")
"""


def test_batches_overlap_beside_requests_that_are_taken_as_they_came(raw_worker, model, tmp_path):
    one = raw_worker()
    settings = {"jitney": {"object": "raw_app:Model", "directory": str(tmp_path)}}
    one.load(model(BESIDE_RAW, "raw_app.py"), "raw_app:Model", model_yaml_config=settings)
    assert one.read_control(wire.LOADED)["slots"] == 3
    told = [("url_path", "spell"), ("jitney method", "POST"), ("jitney path", "/spell"), ("jitney mount", "")]
    raw = wire.item([("body", "", b"ab")], [*told, ("jitney query", "")])
    for frame_id, sent in enumerate([item("call", 0), item("call", 1), raw, item("call", 2)]):
        one.send(wire.batch([sent], frame_id))
    pieces, replies = [], []
    while len(replies) < 4:  # The pieces may come while the batch before is being answered.
        kind, count, frame_id, payload = one.read_answer()
        if kind == wire.CHUNK:
            pieces += [(frame_id, piece["body"]) for piece in wire.decode_chunk(payload, count)]
        else:
            replies += [(frame_id, reply["body"]) for reply in wire.decode_reply(payload, count)]
    assert replies == [(0, b"0"), (1, b"1"), (2, b""), (3, b"2")]
    assert pieces == [(2, b""), (2, b"a"), (2, b"b")]


@pytest.mark.parametrize("source", ["async def call(x: int): return x", "def call(x: int): yield x"])
def test_streams_and_coroutines_do_not_overlap(raw_worker, model, tmp_path, source):
    one = raw_worker()
    settings = {"jitney": {"object": "other_app:call", "directory": str(tmp_path)}}
    code = f"import jitney\n@jitney.endpoint(overlap=3, concurrency=None)\n{source}\n"
    one.load(model(code, "other_app.py"), "other_app:call", model_yaml_config=settings)
    assert "slots" not in one.read_control(wire.LOADED)


ASKING = """
import jitney

@jitney.endpoint
def about() -> list:
    request = jitney.context().request
    left = request.deadline
    assert not any("jitney" in name and name != "x-jitney-tenant" for name in request.headers)
    return [request.id, request.origin, request.tenant, request.priority, left if left is None else round(left)]
"""


def test_the_server_says_what_it_knows_of_a_request(worker, model, tmp_path):
    settings = {"jitney": {"object": "asking_app:about", "directory": str(tmp_path)}}
    model(ASKING, "asking_app.py")
    one = worker("", "asking_app:about", model_yaml_config=settings)

    def told(*headers: tuple[str, str], **facts: object) -> list[object]:
        (reply,) = one.ask([wire.item([("body", "", b"")], headers, request_id="r7", **facts)])
        return json.loads(reply["body"])

    assert told() == ["r7", "http", None, "interactive", None]
    assert told(deadline_ms=60_000, priority="bulk") == ["r7", "http", None, "bulk", 60]
    assert told(("x-jitney-tenant", "gold"), origin="grpc") == ["r7", "grpc", "gold", "interactive", None]
    assert told(origin="python") == ["r7", "python", None, "interactive", None]


CALLING = """
import jitney

class Other:
    @jitney.endpoint
    def call(self, x: int) -> int:
        return x

class Caller:
    other = jitney.depends(Other)

    @jitney.endpoint
    async def call(self, x: int) -> str:
        return repr(self.other)
"""


def test_a_worker_runs_one_part_of_an_application(worker, model, tmp_path):
    settings = {"jitney": {"object": "calling_app:Caller", "directory": str(tmp_path), "part": "Other"}}
    model(CALLING, "calling_app.py")
    one = worker("", "calling_app:Caller", model_yaml_config=settings)
    (reply,) = one.ask([wire.item([("body", "application/json", b"3")])])
    assert reply["body"] == b"3"


def test_a_part_that_calls_others_needs_a_server_that_takes_calls(raw_worker, model, tmp_path):
    settings = {"jitney": {"object": "calling_app:Caller", "directory": str(tmp_path)}}
    one = raw_worker()
    one.load(model(CALLING, "calling_app.py"), "calling_app:Caller", model_yaml_config=settings)
    assert "takes no calls from its workers" in one.read_control(wire.LOAD_FAILED)["message"]
