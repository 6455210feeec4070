"""A version that gets copies of requests: clients see nothing of it; answers are compared and counted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import requests

from harness.archives import Store
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_named_keys import bearer, row, write

OLD = """
def handle(data, context):
    return data and [{"answer": row["body"]["x"]} for row in data]
"""
"""Answers with the number that it gets."""
NEW = """
def handle(data, context):
    answers = []
    for at, row in enumerate(data or []):
        asked = row["body"]
        if asked.get("fail"):
            raise ValueError("the new version fails")
        if context.get_request_header(at, "x-jitney-shadow") is None:
            raise ValueError("not a copy")
        answers.append({"answer": asked["x"] + asked.get("more", 0)})
    return answers
"""
"""Answers with the same, or with as much more as the request says; fails where it says so."""
GATE = """
import pathlib
import time

def handle(data, context):
    for row in data or []:
        path = pathlib.Path(bytes(row["body"]).decode())
        path.with_name("began").touch()
        while not path.exists():
            time.sleep(0.01)
    return data and ["2.0"] * len(data)
"""
"""Answers once there is a file of the name that the request brings."""
ANSWER = 'def handle(data, context):\n    return data and ["1.0"] * len(data)\n'
STREAM = """
def handle(data, context):
    if data:
        from ts.handler_utils.utils import send_intermediate_predict_response
        send_intermediate_predict_response(["a"], context.request_ids, "part", 200, context)
    return data and ["b"]
"""
SEQUENCES = (
    "minWorkers: 1\nmaxWorkers: 1\nsequenceBatching: true\nsequenceMaxIdleMSec: 600000\nmaxNumSequence: 64\n"
    "maxSequenceJobQueueSize: 10\n"
)
SHADOW = {"shadow": {"version": "2.0"}}


def serve(
    start: Callable[..., Server], store: Store, old: str, new: str, beside: Sequence[str] = (), **options: Any
) -> Server:
    """A server with the versions 1.0, the default, and 2.0 of the model `m`, and what is served beside it."""
    archives = []
    for version, source in (("1.0", old), ("2.0", new)):
        archive = store.mar("m", source=source, version=version, **options)
        archives.append(archive.rename(archive.with_name(f"m-{version}.mar")))
    server = start("serve", *(f"m={path}" for path in archives), *beside)
    until(lambda: server.ready("m", "1.0") and server.ready("m", "2.0"), "both versions are ready")
    return server


def put(server: Server, split: object) -> requests.Response:
    return requests.put(server.url("/models/m/traffic", "management"), json=split, timeout=ASK_SECONDS)


def ask(server: Server, path: str = "/predictions/m", **body: Any) -> Any:
    answer = requests.post(server.url(path), json=body, timeout=ASK_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.json()


def report(server: Server) -> Any:
    return server.manage("GET", "/models/m/2.0/shadow").json()


def ended(server: Server, copies: int) -> dict[str, int]:
    """How copies ended, once so many have. A copy is sent after the answer, so the next one waits for it."""
    until(lambda: sum(report(server)["outcomes"].values()) == copies, f"{copies} copies have ended")
    outcomes: dict[str, int] = report(server)["outcomes"]
    return outcomes


def entry(server: Server, version: str) -> dict[str, Any]:
    models = server.manage("GET", "/overview").json()["models"]
    found: dict[str, Any] = next(model for model in models if model["version"] == version)
    return found


def test_copies_are_compared_counted_and_seen_by_no_client(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    assert ask(server, x=0) == {"answer": 0}
    assert report(server) == {"share": None, "outcomes": {}, "samples": []}, "without a shadow nothing is copied"
    same = {"version": "2.0", "same": "numbers(0.01)"}
    assert put(server, {"shadow": same, "shadow_samples": 1}).json() == {
        "shares": {"1.0": 100},
        "shadow": {**same, "share": 100},
        "shadow_samples": 1,
    }
    for number, (body, outcome) in enumerate(
        [
            ({"x": 1}, {"same": 1}),
            ({"x": 1, "more": 0.001}, {"same": 2}),
            ({"x": 1, "more": 5}, {"same": 2, "different": 1}),
            ({"x": 1, "more": 7}, {"same": 2, "different": 2}),
            ({"x": 1, "fail": True}, {"same": 2, "different": 2, "failed": 1}),
        ]
    ):
        assert ask(server, **body) == {"answer": 1}, "the client gets the old version's answer"
        assert ended(server, number + 1) == outcome
    [sample] = report(server)["samples"]
    assert (json.loads(sample["old"]), json.loads(sample["new"])) == ({"answer": 1}, {"answer": 6})
    assert sample["id"] and sample["time"]
    shown = entry(server, "2.0")
    assert (shown["shadowShare"], shown["shadowCopies"]["different"]) == (1, 2)
    statistics = server.manage("GET", "/models/m/2.0/statistics").json()[0]
    assert statistics["requests"]["shadowCopies"] == {"same": 2, "different": 2, "failed": 1}
    assert server.metric("jitney_shadow_copies_total", "m", model_version="2.0", outcome="different") == 2
    put(server, {"shares": {"1.0": 1}})
    ask(server, x=1, more=9)
    assert sum(ended(server, 5).values()) == 5, "no shadow, no copies"


def test_requests_that_name_a_version_are_not_copied(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    put(server, SHADOW)
    for _ in range(5):
        ask(server, "/predictions/m/1.0", x=1)
    ask(server, x=1)
    assert ended(server, 1) == {"same": 1}


def test_sequences_are_not_copied(start: Callable[..., Server], store: Store):
    server = serve(start, store, ANSWER, ANSWER, config=SEQUENCES)
    put(server, SHADOW)
    for _ in range(3):
        assert server.predict("m", b"x", headers={"ts_request_sequence_id": "s"}).text == "1.0"
    assert entry(server, "2.0")["totals"]["requests"] == 0


def test_streams_are_not_copied(start: Callable[..., Server], store: Store):
    server = serve(start, store, STREAM, ANSWER)
    put(server, SHADOW)
    for _ in range(3):
        assert server.predict("m", b"x").text == "ab"
    assert entry(server, "2.0")["totals"]["requests"] == 0


def test_copies_for_a_busy_version_are_dropped_and_nobody_waits(
    start: Callable[..., Server], store: Store, tmp_path: Path
):
    server = serve(start, store, ANSWER, GATE)
    put(server, SHADOW)
    gate = str(tmp_path / "open").encode()
    assert server.predict("m", gate).text == "1.0"
    until((tmp_path / "began").exists, "the shadow runs a copy")
    for _ in range(20):
        assert server.predict("m", gate).text == "1.0", "clients are answered while the shadow is stuck"
    assert entry(server, "2.0")["shadowCopies"]["dropped"] >= 18
    (tmp_path / "open").touch()
    outcomes = ended(server, 21)
    assert outcomes["different"] + outcomes["dropped"] == 21


COMPARE = """
import jitney


@jitney.model
def compare(old, new) -> bool:
    if new["answer"] > 100:
        raise ValueError("too large to compare")
    return abs(new["answer"]) == abs(old["answer"])
"""


def test_a_python_function_says_what_is_the_same(start: Callable[..., Server], store: Store, tmp_path: Path):
    source = tmp_path / "comparison.py"
    source.write_text(COMPARE)
    server = serve(start, store, OLD, NEW, beside=[f"{source}:compare"])
    same = {"version": "2.0", "same": "model(compare)"}
    assert put(server, {"shadow": same, "shadow_samples": 3}).json()["shadow"]["same"] == "model(compare)"
    for number, (body, outcome) in enumerate(
        [
            ({"x": 1}, {"same": 1}),
            ({"x": 1, "more": -2}, {"same": 2}),
            ({"x": 1, "more": 1}, {"same": 2, "different": 1}),
            ({"x": 1, "more": 100}, {"same": 2, "different": 1, "uncompared": 1}),
        ]
    ):
        assert ask(server, **body) == {"answer": 1}
        assert ended(server, number + 1) == outcome
    assert [json.loads(sample["new"]) for sample in report(server)["samples"]] == [{"answer": 2}]
    assert server.metric("jitney_shadow_copies_total", "m", model_version="2.0", outcome="uncompared") == 1
    server.manage("DELETE", "/models/compare")
    assert ask(server, x=1, more=1) == {"answer": 1}
    assert ended(server, 5)["uncompared"] == 2, "nobody is there to compare"
    assert ask(server, x=1) == {"answer": 1}
    assert ended(server, 6)["same"] == 3, "equal answers need nobody"


def test_a_share_of_the_clients_is_copied(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    put(server, {"shadow": {"version": "2.0", "share": 30}, "sticky": "header:x-user"})

    def copied(user: str) -> bool:
        before = sum(report(server)["outcomes"].values())
        requests.post(
            server.url("/predictions/m"), json={"x": 1}, headers={"x-user": user}, timeout=ASK_SECONDS
        ).raise_for_status()
        # A copy is counted or under way by the time that its request is answered.
        until(lambda: entry(server, "2.0")["running"] == 0, "no copy is under way")
        return sum(report(server)["outcomes"].values()) > before

    users = [f"user-{number}" for number in range(60)]
    first = [copied(user) for user in users]
    assert 6 <= sum(first) <= 32
    assert [copied(user) for user in users] == first, "a client is copied always or never"


def test_a_shadow_that_differs_too_often_ends(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    rule = {"different": "5%", "after": 20}
    assert put(server, {**SHADOW, "return": rule}).status_code == 200

    def over() -> bool:
        ask(server, x=1, more=1)
        return entry(server, "2.0")["shadowShare"] is None

    until(over, "the shadow has ended", poll=0)
    split = server.manage("GET", "/models/m/traffic").json()
    assert " answers differed (" in split["returned"]["2.0"] and "shadow" not in split
    assert entry(server, "2.0")["returned"] == split["returned"]["2.0"]
    assert server.metric("jitney_traffic_returns_total", "m", model_version="2.0") == 1
    server.logged("shadow ended: ")
    assert server.ready("m", "2.0"), "it stays loaded"


def test_shadows_that_make_no_sense_are_refused(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    for split, status, words in [
        ({"shadow": {"version": "9.9"}}, 404, "9.9"),
        ({"shadow": {"version": "1.0"}}, 400, "answers all requests"),
        ({"shadow": {"version": "2.0", "same": "nearly"}}, 400, "same must be equal, top1, numbers(TOLERANCE)"),
        ({"shadow": {"version": "2.0", "same": "model(nobody)"}}, 404, "nobody"),
        ({"shadow": {"version": "2.0", "share": 101}}, 400, "a percentage above 0, at most 100"),
        ({"shares": {"1.0": 1, "2.0": 1}, **SHADOW}, 400, "it cannot be the shadow as well"),
        ({"shares": {"1.0": 1}, "return": {"different": "5%"}}, 400, "need a shadow"),
    ]:
        answer = put(server, split)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_the_command_sets_a_shadow(start: Callable[..., Server], store: Store):
    server = serve(start, store, OLD, NEW)
    words = ["--shadow", "2.0=50", "--same", "top1", "--shadow-samples", "3", "--return", "different=5%"]
    line = [str(server.binary), "traffic", "m", *words, "--url", server.urls["management"]]
    told = subprocess.run(line, env=server.env, capture_output=True, text=True, timeout=ASK_SECONDS)
    assert told.stdout == "version 1.0: 100 %\nversion 2.0 is the shadow: it gets copies of 50 %\n", told.stderr
    split = server.manage("GET", "/models/m/traffic").json()
    assert split["shadow"] == {"version": "2.0", "share": 50, "same": "top1"}
    assert (split["shadow_samples"], split["return"]["different"]) == (3, "5%")


def test_a_file_names_a_shadow_and_only_managers_see_its_samples(
    start: Callable[..., Server], store: Store, tmp_path: Path
):
    one = store.mar("m", source=OLD, version="1.0")
    one = one.rename(one.with_name("m-1.mar"))
    two = store.mar("m", source=NEW, version="2.0")
    keys = write(tmp_path / "keys.yaml", row("ops", "key-of-ops", "manage"), row("app", "key-of-app", "predict"))
    traffic = {"shadow": {"version": 2.0}, "shadow_samples": 1}
    models = [{"name": "m", "path": str(one), "traffic": traffic}, {"name": "m", "path": str(two)}]
    file = tmp_path / "jitney.yaml"
    file.write_text(json.dumps({"models": models}))
    server = start("serve", "--config", file, "--keys", keys, wait_for_workers=False)
    url = server.url("/models/m/2.0/shadow", "management")

    def read(key: str) -> requests.Response:
        return requests.get(url, headers=bearer(key), timeout=ASK_SECONDS)

    def samples() -> list[Any]:
        body, headers = {"x": 1, "more": 1}, bearer("key-of-app")
        requests.post(server.url("/predictions/m"), json=body, headers=headers, timeout=ASK_SECONDS)
        found: list[Any] = read("key-of-ops").json()["samples"]
        return found

    assert len(until(samples, "a pair is kept")) == 1
    assert read("key-of-app").status_code == 403
