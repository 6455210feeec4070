"""Versions that share the requests of a model: who gets which, over every protocol, and over a restart."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from harness.archives import Store
from harness.http2 import grpc_address
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_named_keys import row, write

ANSWER = 'def handle(data, context):\n    return data and ["{0}"] * len(data)\n'
SEQUENCES = (
    "minWorkers: 1\nmaxWorkers: 1\nsequenceBatching: true\nsequenceMaxIdleMSec: 600000\nmaxNumSequence: 64\n"
    "maxSequenceJobQueueSize: 10\n"
)
SOMETIMES = """
import itertools

numbers = itertools.count()

def handle(data, context):
    for row in data or []:
        if bytes(row["body"]) == b"bad day" and next(numbers) % 5 == 0:
            raise ValueError("one of five")
    return data and ["2.0"] * len(data)
"""
"""On a bad day one of five requests fails."""
RULE = {"errors": "+1%", "p99": "20x", "after": 50}
USERS = [f"user-{number}" for number in range(300)]
ROWS = {"instances": ["x"]}
PREDICTIONS = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
MESSAGE = b"\x0a\x01m\x1a\x09\x0a\x04data\x12\x01x"
"""A `PredictionsRequest` for the model `m`."""
SPLIT = {"shares": {"1.0": 70, "2.0": 30}, "sticky": "header:x-user"}


def versions(store: Store, *, config: str | None = None) -> list[Path]:
    """Archives of the versions 1.0 and 2.0 of the model `m`, which answer with their versions."""
    archives = []
    for version in ("1.0", "2.0"):
        archive = store.mar("m", source=ANSWER.format(version), version=version, config=config)
        archives.append(archive.rename(archive.with_name(f"m-{version}.mar")))
    return archives


@pytest.fixture
def server(start: Callable[..., Server], store: Store) -> Server:
    return both_ready(start("serve", *(f"m={path}" for path in versions(store))))


def both_ready(server: Server) -> Server:
    """A version that is not loaded gets no request, so the tests wait for both."""
    until(lambda: server.ready("m", "1.0") and server.ready("m", "2.0"), "both versions are ready")
    return server


def put(server: Server, split: object, model: str = "m") -> requests.Response:
    return requests.put(server.url(f"/models/{model}/traffic", "management"), json=split, timeout=ASK_SECONDS)


def end_traffic(server: Server) -> None:
    assert requests.delete(server.url("/models/m/traffic", "management"), timeout=ASK_SECONDS).status_code == 200


def asked(server: Server, user: str, path: str = "/predictions/m") -> str:
    answer = requests.post(server.url(path), data=b"x", headers={"x-user": user}, timeout=ASK_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.text


def of_users(server: Server) -> dict[str, str]:
    return {user: asked(server, user) for user in USERS}


def test_a_user_stays_at_a_version_and_shares_are_what_was_asked_for(server: Server):
    assert set(of_users(server).values()) == {"1.0"}
    assert put(server, SPLIT).json()["shares"] == {"1.0": 70, "2.0": 30}
    before = of_users(server)
    share = Counter(before.values())["2.0"] / len(USERS)
    assert 0.2 < share < 0.4
    assert of_users(server) == before
    assert {asked(server, user, "/predictions/m/1.0") for user in USERS[:20]} == {"1.0"}
    put(server, {**SPLIT, "shares": {"1.0": 40, "2.0": 60}})
    after = of_users(server)
    assert all(after[user] == "2.0" for user in USERS if before[user] == "2.0"), "a larger share gives nobody back"
    entries = {model["version"]: model["share"] for model in server.manage("GET", "/overview").json()["models"]}
    assert entries == {"1.0": 0.4, "2.0": 0.6}
    assert server.metric("jitney_traffic_share", "m", model_version="2.0") == 0.6
    requests.delete(server.url("/models/m/traffic", "management"), timeout=ASK_SECONDS)
    assert set(of_users(server).values()) == {"1.0"}
    assert server.manage("GET", "/models/m/traffic").json() == {"shares": {"1.0": 100}}


def test_every_protocol_gives_a_user_the_same_version(server: Server):
    put(server, SPLIT)
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
    host, port = grpc_address(server)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        predictions = channel.unary_unary(PREDICTIONS)
        for user in USERS[:40]:
            own, headers = asked(server, user), {"x-user": user}
            v2 = requests.post(server.url("/v2/models/m/infer"), json=body, headers=headers, timeout=ASK_SECONDS)
            v1 = requests.post(server.url("/v1/models/m:predict"), json=ROWS, headers=headers, timeout=ASK_SECONDS)
            message = predictions(MESSAGE, metadata=[("x-user", user)], timeout=ASK_SECONDS)
            assert (v2.json()["model_version"], message[2:].decode()) == (own, own), user
            assert own in str(v1.json()["predictions"]), user


def test_a_version_without_workers_gets_nothing(server: Server):
    put(server, {"shares": {"1.0": 10, "2.0": 90}, "sticky": "header:x-user"})
    assert set(of_users(server).values()) == {"1.0", "2.0"}
    server.manage("PUT", "/models/m/2.0", min_worker=0, max_worker=0, synchronous="true")
    assert set(of_users(server).values()) == {"1.0"}


def test_shares_that_make_no_sense_are_refused(server: Server):
    for split, status, words in [
        ({"shares": {"1.0": 50, "9.9": 50}}, 404, "9.9"),
        ({"shares": {}}, 400, "one of them above 0"),
        ({"shares": {"1.0": 1}, "sticky": "moon"}, 400, "sticky must be header:NAME"),
        ({"share": {"1.0": 1}}, 400, "unknown field `share`"),
    ]:
        answer = put(server, split)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert put(server, SPLIT, "nobody").status_code == 404


def sequences(server: Server, ids: list[str]) -> dict[str, str]:
    """The version that answers each of these sequences."""
    return {one: server.predict("m", b"x", headers={"ts_request_sequence_id": one}).text for one in ids}


IDS = [f"sequence-{number}" for number in range(24)]


@pytest.fixture
def keeps(start: Callable[..., Server], store: Store) -> Server:
    """A server whose two versions keep sequences and share them."""
    server = both_ready(start("serve", *(f"m={path}" for path in versions(store, config=SEQUENCES))))
    put(server, {"shares": {"1.0": 50, "2.0": 50}})
    return server


def test_sequences_stay_where_they_began(keeps: Server):
    began = sequences(keeps, IDS)
    assert set(began.values()) == {"1.0", "2.0"}
    put(keeps, {"shares": {"1.0": 0, "2.0": 100}})
    assert sequences(keeps, IDS) == began
    assert set(sequences(keeps, ["a new one"]).values()) == {"2.0"}
    end_traffic(keeps)
    assert sequences(keeps, IDS) == began, "without shares"
    assert set(sequences(keeps, ["a newer one"]).values()) == {"1.0"}
    keeps.manage("PUT", "/models/m/2.0/set-default")
    assert sequences(keeps, IDS) == began, "with another default"
    assert set(sequences(keeps, ["the newest one"]).values()) == {"2.0"}


def test_sequences_stay_where_they_began_over_grpc_and_v2(keeps: Server):
    began = sequences(keeps, IDS)
    end_traffic(keeps)
    host, port = grpc_address(keeps)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        predictions = channel.unary_unary(PREDICTIONS)
        for sequence in IDS[:12]:
            own, headers = began[sequence], {"ts_request_sequence_id": sequence}
            named = b"\x22" + bytes([len(sequence)]) + sequence.encode()
            assert predictions(MESSAGE + named, timeout=ASK_SECONDS)[2:].decode().startswith(own), "gRPC"
            inputs = [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["x"]}]
            for more, sent in [({"parameters": {"sequence_id": sequence}}, {}), ({}, headers)]:
                v2 = requests.post(
                    keeps.url("/v2/models/m/infer"), json={"inputs": inputs, **more}, headers=sent, timeout=ASK_SECONDS
                ).json()
                assert (v2["outputs"][0]["data"], v2["model_version"]) == ([own], own), (sequence, v2)


def test_sequences_stay_when_a_version_was_promoted(keeps: Server):
    rules = {"return": {"errors": "+100%", "after": 1}, "promote": "100% every 0.1s"}
    put(keeps, {"shares": {"1.0": 50, "2.0": 50}, **rules})
    began = sequences(keeps, IDS)

    def is_default() -> bool:
        sequences(keeps, IDS)
        return entry(keeps, "2.0")["isDefault"]

    until(is_default, "version 2.0 is the default")
    assert sequences(keeps, IDS) == began


def test_sequences_stay_with_another_model(start: Callable[..., Server], store: Store):
    first, _ = versions(store, config=SEQUENCES)
    other = store.mar("other", source=ANSWER.format("other"), config=SEQUENCES)
    server = start("serve", f"m={first}", f"other={other}")
    until(lambda: server.ready("m") and server.ready("other"), "both models are ready")
    put(server, {"shares": {"1.0": 50, "other": 50}})
    began = sequences(server, IDS)
    assert set(began.values()) == {"1.0", "other"}
    # Every request has an id of its own, by which it would belong to the one or the other.
    assert [sequences(server, IDS) for _ in range(3)] == [began] * 3
    put(server, {"shares": {"1.0": 100}})
    assert sequences(server, IDS) == began
    end_traffic(server)
    assert sequences(server, IDS) == began
    assert set(sequences(server, [f"new-{number}" for number in range(8)]).values()) == {"1.0"}


def test_a_model_that_is_replaced_keeps_the_shares_as_they_are_by_now(
    start: Callable[..., Server], store: Store, tmp_path: Path
):
    one, two = versions(store)
    file = tmp_path / "jitney.yaml"
    models = [{"name": "m", "path": str(one), "traffic": SPLIT}, {"name": "m", "path": str(two)}]
    file.write_text(json.dumps({"models": models}))
    server = both_ready(start("serve", "--config", file, "--model-store", store.path, "--watch"))
    assert server.manage("GET", "/models/m/traffic").json() == SPLIT
    sent_back = {**SPLIT, "shares": {"1.0": 100, "2.0": 0}}
    put(server, sent_back)
    store.mar("m", source=ANSWER.format("newer"), version="1.0").rename(one)
    until(lambda: asked(server, "ann") == "newer", "the file was loaded again")
    assert server.manage("GET", "/models/m/traffic").json() == sent_back
    register = {"url": two.name, "initial_workers": 1, "synchronous": "true", "replace": "true"}
    assert server.manage("POST", "/models", **register, traffic=json.dumps(SPLIT)).status_code == 200
    assert server.manage("GET", "/models/m/traffic").json() == sent_back, "version 1.0 brought these shares before"
    other = {"shares": {"1.0": 50, "2.0": 50}}
    assert server.manage("POST", "/models", **register, traffic=json.dumps(other)).status_code == 200
    assert server.manage("GET", "/models/m/traffic").json() == other


def test_rules_beside_another_model_are_refused_from_a_file_too(
    start: Callable[..., Server], store: Store, tmp_path: Path
):
    one, two = versions(store)
    split = {"shares": {"1.0": 50, "other": 50}, "return": RULE}
    file = tmp_path / "jitney.yaml"
    models = [{"name": "other", "path": str(two)}, {"name": "m", "path": str(one), "traffic": split}]
    file.write_text(json.dumps({"models": models}))
    with pytest.raises(AssertionError, match="compare versions of one model, and other is another model"):
        start("serve", "--config", file)


def test_the_command_shows_and_changes_shares(server: Server):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(server.binary), "traffic", "m", *words, "--url", server.urls["management"]]
        return subprocess.run(line, env=server.env, capture_output=True, text=True, timeout=ASK_SECONDS)

    assert run("1.0=90", "2.0=10", "--sticky", "header:x-user").stdout == (
        "version 1.0: 90 %, version 2.0: 10 %; clients are known by header:x-user\n"
    )
    assert json.loads(run("--json").stdout)["sticky"] == "header:x-user"
    assert run("2.0=x").returncode == 64
    assert run("--off").stdout == "version 1.0: 100 %\n"


def test_two_servers_with_the_same_file_agree(start: Callable[..., Server], store: Store, tmp_path: Path):
    one, two = versions(store)
    file = tmp_path / "jitney.yaml"
    models = [{"name": "m", "path": str(one), "traffic": SPLIT}, {"name": "m", "path": str(two)}]
    file.write_text(json.dumps({"models": models}))
    first, second = (both_ready(start("serve", "--config", file)) for _ in range(2))
    assert of_users(first) == of_users(second)
    assert set(of_users(first).values()) == {"1.0", "2.0"}


def test_python_sets_and_shows_shares(server: Server):
    with jitney.Client(server.url(""), server.url("", "management")) as client:
        told = client.set_traffic("m", {"1.0": 70, "2.0": 30}, sticky="header:x-user")
        assert told == client.traffic("m") == SPLIT
        assert set(of_users(server).values()) == {"1.0", "2.0"}
        assert client.set_traffic("m") == {"shares": {"1.0": 100}}
        with pytest.raises(jitney.NotFound, match=r"9\.9"):
            client.set_traffic("m", {"9.9": 1})


def second_fails(start: Callable[..., Server], store: Store) -> Server:
    one, two = versions(store)
    two.unlink()
    two = store.mar("m", source=SOMETIMES, version="2.0").rename(two)
    return both_ready(start("serve", f"m={one}", f"m={two}"))


def entry(server: Server, version: str) -> dict[str, Any]:
    models = server.manage("GET", "/overview").json()["models"]
    return next(model for model in models if model["version"] == version)


def test_a_version_that_begins_to_fail_is_sent_back_and_stays_loaded(start: Callable[..., Server], store: Store):
    server = second_fails(start, store)
    put(server, {"shares": {"1.0": 70, "2.0": 30}, "return": RULE})
    ask, failed = requests.Session(), 0
    for _ in range(300):
        assert ask.post(server.url("/predictions/m"), data=b"good day", timeout=ASK_SECONDS).status_code == 200
    assert entry(server, "2.0")["share"] == 0.3

    def returned() -> bool:
        nonlocal failed
        for _ in range(20):
            failed += ask.post(server.url("/predictions/m"), data=b"bad day", timeout=ASK_SECONDS).status_code != 200
        return entry(server, "2.0")["share"] == 0

    until(returned, "version 2.0 has no share any more", poll=0)
    assert failed > 5
    why = server.manage("GET", "/models/m/traffic").json()["returned"]["2.0"]
    assert " requests failed (" in why
    assert entry(server, "2.0")["returned"] == why and entry(server, "1.0")["share"] == 1
    assert server.metric("jitney_traffic_returns_total", "m", model_version="2.0") == 1
    server.logged("version returned: ")
    assert {asked(server, user) for user in USERS[:50]} == {"1.0"}
    assert asked(server, "anybody", "/predictions/m/2.0") == "2.0"


def test_a_version_that_is_not_worse_becomes_the_default_step_by_step(start: Callable[..., Server], store: Store):
    server = second_fails(start, store)
    split = {"shares": {"1.0": 90, "2.0": 10}, "return": {**RULE, "after": 5}, "promote": "10% 50% 100% every 0.1s"}
    assert put(server, split).status_code == 200

    def is_default() -> bool:
        for user in USERS[:50]:
            asked(server, user)
        return entry(server, "2.0")["isDefault"]

    until(is_default, "version 2.0 is the default")
    server.logged("version promoted: it gets 50 % of the requests")
    assert server.manage("GET", "/models/m/traffic").json() == {"shares": {"2.0": 100}}
    server.logged("version promoted: it is the default")


def test_shares_name_other_models_over_every_protocol(start: Callable[..., Server], store: Store):
    others = []
    for version in ("1.0", "2.0"):
        archive = store.mar("other", source=ANSWER.format(f"other {version}"), version=version)
        others.append(archive.rename(archive.with_name(f"other-{version}.mar")))
    server = both_ready(start("serve", *(f"m={path}" for path in versions(store)), *(f"other={one}" for one in others)))
    until(lambda: server.ready("other", "1.0") and server.ready("other", "2.0"), "the others are ready")
    shares = {"1.0": 40, "other": 30, "other/2.0": 30}
    assert put(server, {"shares": shares, "sticky": "header:x-user"}).json()["shares"] == shares
    before = of_users(server)
    counted = Counter(before.values())
    assert {answer: 0.1 < count / len(USERS) < 0.6 for answer, count in counted.items()} == dict.fromkeys(
        ("1.0", "other 1.0", "other 2.0"), True
    )
    assert {asked(server, user, "/predictions/m/2.0") for user in USERS[:20]} == {"2.0"}, "who names a version gets it"
    assert {asked(server, user, "/predictions/other") for user in USERS[:20]} == {"other 1.0"}, "it is itself"
    host, port = grpc_address(server)
    with grpc.insecure_channel(f"{host}:{port}") as channel, jitney.connect(server.urls["inference"]) as session:
        predictions = channel.unary_unary(PREDICTIONS)
        for user in USERS[:20]:
            headers = {"x-user": user}
            v1 = requests.post(server.url("/v1/models/m:predict"), json=ROWS, headers=headers, timeout=ASK_SECONDS)
            message = predictions(MESSAGE, metadata=[("x-user", user)], timeout=ASK_SECONDS)
            assert message[2:].decode() == before[user] and before[user] in str(v1.json()["predictions"])
            handle = session.model("m", encoding="bytes").options(headers=headers)
            assert handle.remote(b"x").result().decode() == before[user]
    requests.delete(server.url("/models/other/2.0", "management"), timeout=ASK_SECONDS)
    after = of_users(server)
    assert all(after[user] == before[user] for user in USERS if before[user] != "other 2.0")
    assert set(after.values()) == {"1.0", "other 1.0"}, "those of a model that went spread over the others"


def test_shares_of_models_that_are_not_there_are_refused(server: Server):
    for share, status, said in [("none/1.0", 404, "none"), ("m/9.9", 404, "9.9"), ("none", 404, "none")]:
        refused = put(server, {"shares": {"1.0": 1, share: 1}})
        assert (refused.status_code, said in refused.text) == (status, True), refused.text
    assert put(server, {"shares": {"1.0": 1, "m/2.0": 1}}).status_code == 200, "its own version by its whole name"
    rules = put(server, {"shares": {"1.0": 1, "m/2.0": 1}, "return": RULE})
    assert (rules.status_code, "compare versions of one model" in rules.text) == (400, True)


def test_a_cookie_or_a_key_keeps_a_client_at_a_version(start: Callable[..., Server], store: Store, tmp_path: Path):
    names = [f"client-{number}" for number in range(24)]
    keys = tmp_path / "keys.yaml"
    rows = [
        row("all", "all", "predict", "manage", "metrics"),
        *(row(name, f"key-{name}", "predict") for name in names),
    ]
    models = [f"m={path}" for path in versions(store)]
    server = start("serve", *models, "--keys", write(keys, *rows), wait_for_workers=False)
    server.headers = {"Authorization": "Bearer all"}
    both_ready(server)

    def shares(sticky: str) -> None:
        split = {"shares": {"1.0": 50, "2.0": 50}, "sticky": sticky}
        url = server.url("/models/m/traffic", "management")
        assert requests.put(url, json=split, headers=server.headers, timeout=ASK_SECONDS).status_code == 200

    def of(headers: Callable[[str], dict[str, str]]) -> dict[str, str]:
        url = server.url("/predictions/m")
        sent = {name: {"Authorization": "Bearer all", **headers(name)} for name in names}
        return {name: requests.post(url, data=b"x", headers=sent[name], timeout=ASK_SECONDS).text for name in names}

    shares("header:x-user")
    by_header = of(lambda name: {"x-user": name})
    assert set(by_header.values()) == {"1.0", "2.0"}
    shares("cookie:user")
    assert of(lambda name: {"cookie": f"other=1; user={name}"}) == by_header, "the same value, the same version"
    shares("key")
    assert of(lambda name: {"Authorization": f"Bearer key-{name}"}) == by_header


EMBEDDER = """
import jitney


@jitney.batch(openai="embeddings")
def embed(text: list[str]) -> list[dict]:
    return [{"embedding": [{0}, len(one)], "tokens": 1} for one in text]
"""


def of_code(folder: Path, source: str, name: str) -> Path:
    """A configuration with two versions of the model `m`, whose code tells them apart by what stands for {0}."""
    models = []
    for version in ("1.0", "2.0"):
        path = folder / f"code_{version[0]}.py"
        path.write_text(source.replace("{0}", version))
        models.append({"name": "m", "version": version, "path": f"{path}:{name}"})
    file = folder / "jitney.yaml"
    file.write_text(json.dumps({"models": models}))
    return file


def test_embeddings_are_of_the_version_of_a_user(start: Callable[..., Server], tmp_path: Path):
    server = both_ready(start("serve", "--config", of_code(tmp_path, EMBEDDER, "embed")))
    put(server, SPLIT)
    answered = set()
    for user in USERS[:40]:
        headers = {"x-user": user}
        own = requests.post(server.url("/m"), json={"text": "a"}, headers=headers, timeout=ASK_SECONDS).json()
        body = {"model": "m", "input": ["a", "b"]}
        answer = requests.post(server.url("/v1/embeddings"), json=body, headers=headers, timeout=ASK_SECONDS).json()
        assert [one["embedding"] for one in answer["data"]] == [own["embedding"]] * 2
        answered.add(own["embedding"][0])
    assert answered == {1.0, 2.0}


APPLICATION = """
import jitney


@jitney.model
class Part:
    @jitney.endpoint
    def tell(self, x: str) -> str:
        return "part of {0}"


@jitney.model
class Root:
    def __init__(self, part: jitney.Handle = jitney.depends(Part)) -> None:
        self.part = part

    @jitney.endpoint
    def ask(self, x: str) -> str:
        return "root {0}, " + self.part.tell.remote(x).result()
"""


def test_the_parts_of_an_application_follow_the_version_of_its_root(start: Callable[..., Server], tmp_path: Path):
    server = both_ready(start("serve", "--config", of_code(tmp_path, APPLICATION, "Root")))
    put(server, SPLIT)
    answers = set()
    with jitney.connect(server.urls["inference"]) as session:
        for user in USERS[:40]:
            headers = {"x-user": user}
            answer = requests.post(server.url("/m/ask"), json={"x": "x"}, headers=headers, timeout=ASK_SECONDS).text
            assert session.model("m").options(headers=headers).ask.remote("x").result() == answer
            answers.add(answer)
    assert answers == {f"root {version}, part of {version}" for version in ("1.0", "2.0")}
