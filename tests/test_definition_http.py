"""What definitions can do over HTTP beside answering under their names: paths of their own, requests as they came,
several files, metrics of their own."""

from __future__ import annotations

import subprocess

import pytest
import requests

import jitney
from harness.server import ASK_SECONDS, FREE_PORTS, Server
from harness.wait import until

APP = """
import prometheus_client

import jitney


@jitney.model(mount="/", health_routes={"/livez": "live", "/readyz": "ready"})
class Shop:
    async def setup(self):
        self.sold = 0

    @jitney.endpoint(raw=True)
    async def http(self, request: jitney.HttpRequest):
        if request.path == "/stream":
            async def pieces():
                for at in range(3):
                    yield f"piece {at} "
            cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
            return jitney.Response(pieces(), 201, cookies, "text/plain")
        if request.path == "/cached":
            return jitney.Response(b"x", headers={"Cache-Control": "max-age=60"}, media_type="text/css")
        if request.path == "/bad":
            return request.json()
        return [request.method, request.path, request.query, request.text(), request.headers.get_all("x-a")]

    @jitney.batch(route="POST /sum", max_batch_size=12, metric_names=[("shop_batch_size", {"service": "shop"})])
    def sum(self, x: list[float], y: list[float]) -> list[float]:
        return [one + other for one, other in zip(x, y)]


@jitney.endpoint(raw=True)
def echo(request):
    return jitney.Response([request.root_path, request.path, request.body.decode()], 202)


asked = prometheus_client.Counter("asked", "Texts", ["lang"])
lengths = prometheus_client.Histogram("asked_length", "Letters", buckets=(1, 4))
words = jitney.Counter("words_total", "Words seen", labels=("lang",))
sizes = jitney.Histogram("word_sizes", "Letters", buckets=(1, 4))


@jitney.model(workers=2)
class Words:
    @jitney.endpoint
    def count(self, text: str) -> int:
        words.inc(len(text.split()), lang="en")
        sizes.observe(len(text))
        asked.labels("en").inc()
        lengths.observe(len(text))
        return len(text.split())

    @jitney.endpoint
    def join(self, f: list[bytes]) -> str:
        return " ".join(one.decode() for one in f)


@jitney.model(mount="/")
class Other:
    @jitney.endpoint(raw=True)
    def http(self, request):
        return "other"
"""


MODELS = ["app.py:Shop", "app.py:echo", "app.py:Words"]


def test_a_mount_gets_every_request_that_the_server_has_no_use_for(served: Server):
    url = served.urls["inference"]
    sent = requests.delete(f"{url}/a%20b/c/?q=1", data="hi", headers={"X-A": "1"})
    assert sent.json() == ["DELETE", "/a b/c/", {"q": "1"}, "hi", ["1"]]
    assert [requests.get(url + path).json()[1] for path in ("/", "/docs", "/v1/chat", "/Shop")] == [
        "/", "/docs", "/v1/chat", "/Shop",
    ]  # fmt: skip
    assert requests.get(f"{url}/ping").json()["status"] == "Healthy"
    assert requests.post(f"{url}/predictions/Shop/1.0/sum", json={"x": 1, "y": 2}).json() == 3.0
    assert requests.head(f"{url}/x").headers["content-length"] != "0"


def test_its_answers_go_out_as_they_are(served: Server):
    stream = requests.get(f"{served.urls['inference']}/stream")
    assert (stream.status_code, stream.text) == (201, "piece 0 piece 1 piece 2 ")
    assert (stream.headers["content-type"], stream.raw.headers.getlist("set-cookie")) == ("text/plain", ["a=1", "b=2"])
    cached = requests.get(f"{served.urls['inference']}/cached")
    assert (cached.headers["cache-control"], cached.headers["content-type"]) == ("max-age=60", "text/css")
    bad = requests.post(f"{served.urls['inference']}/bad", data="{")
    assert (bad.status_code, "not JSON" in bad.json()["message"]) == (400, True)


def test_a_route_calls_its_endpoint_and_health_needs_no_worker(served: Server):
    url = served.urls["inference"]
    assert requests.post(f"{url}/sum", json={"x": 1, "y": 2}).json() == 3.0
    assert requests.get(f"{url}/sum").json()[:2] == ["GET", "/sum"], "the mount has the other methods"
    assert requests.get(f"{url}/livez").json() == {"live": True}
    assert requests.get(f"{url}/readyz").status_code == 200


def test_a_raw_function_without_a_mount_is_found_below_its_name(served: Server):
    answer = requests.put(f"{served.urls['inference']}/echo/x/y", data="hi")
    assert (answer.status_code, answer.json()) == (202, ["/echo", "/x/y", "hi"])
    assert requests.put(f"{served.urls['inference']}/echo", data="hi").json() == ["/echo", "/", "hi"]


def ask(served: Server, path: str, **sent) -> requests.Response:
    """Asks by a path that no mount takes."""
    return requests.post(f"{served.urls['inference']}/predictions/{path}", **sent)


def metrics(served: Server) -> list[str]:
    return requests.get(f"{served.urls['metrics']}/metrics").text.splitlines()


def test_metrics_of_a_models_own_are_added_up_over_its_workers(served: Server):
    for text in ("a b", "c", "d e f") * 4:
        assert ask(served, "Words/1.0/count", data=text).status_code == 200

    def counted() -> list[str]:
        labels = 'model_name="Words",model_version="1.0",'
        lines = [line for line in metrics(served) if labels in line and "jitney_" not in line]
        found = [line.partition("{")[0] + " " + line.rpartition(" ")[2] for line in lines]
        last = ("words_total 24.0", "word_sizes_count 12.0", "asked_total 12.0", "asked_length_count 12.0")
        return found if all(one in found for one in last) else []

    shown = until(counted, "all workers have told what they counted")
    for name in ("word_sizes", "asked_length"):  # Ours, and that of prometheus_client.
        buckets = [line for line in shown if f"{name}_bucket" in line]
        assert buckets == [f"{name}_bucket 4.0", f"{name}_bucket 8.0", f"{name}_bucket 12.0"]
    assert not any(line.startswith(("python_", "asked_created")) for line in metrics(served))
    assert "# HELP words_total Words seen" in metrics(served)


def test_items_per_batch_are_shown_by_the_names_of_others(served: Server):
    assert ask(served, "Shop/1.0/sum", json={"x": 1, "y": 2}).json() == 3.0
    lines = [line for line in metrics(served) if line.startswith("shop_batch_size_bucket")]
    assert [line.partition('le="')[2].partition('"')[0] for line in lines] == [
        "1.0",
        "2.0",
        "4.0",
        "8.0",
        "12.0",
        "+Inf",
    ]
    shown = "".join(metrics(served))
    assert all(f"jitney_endpoint_{name}_seconds_count" in shown for name in ("queue", "compute", "latency"))


def test_several_files_are_a_list(served: Server):
    files = [("f", ("a.txt", b"one")), ("f", ("b.txt", b"two"))]
    assert ask(served, "Words/1.0/join", files=files).text == "one two"
    assert ask(served, "Words/1.0/join", files=files[:1]).text == "one"


def test_an_endpoint_that_is_not_there_is_not_found(served: Server):
    for path, known in (("echo/1.0/nope", "call"), ("Words/1.0/nope", "count, join")):
        answer = ask(served, path)
        assert (answer.status_code, answer.json()["type"]) == (404, "ResourceNotFoundException")
        assert f"no endpoint 'nope'; it has: {known}" in answer.json()["message"]
    session = jitney.connect(served.urls["inference"])
    with session, pytest.raises(jitney.NotFound, match="no endpoint 'nope'"):
        session.model("echo").nope.remote("x").result()


def test_a_number_that_is_none_is_refused(served: Server):
    answer = requests.put(f"{served.urls['management']}/models/Words?batch_size=none")
    assert (answer.status_code, answer.json()["message"]) == (400, 'batch_size must be a whole number, not "none"')


def test_two_models_cannot_have_the_same_path(served: Server):
    twice = subprocess.run(
        [served.binary, "serve", *FREE_PORTS, "app.py:Shop", "app.py:Other"],
        cwd=served.cwd,
        env=served.env,
        capture_output=True,
        text=True,
        timeout=ASK_SECONDS,
        check=False,
    )
    assert twice.returncode != 0
    assert "Model Other wants to answer /, which model Shop does" in twice.stderr + twice.stdout


SHARING = """
import jitney


class Ranks:
    @jitney.endpoint(raw=True, route="POST /rank", route_shared=True)
    def rank(self, request):
        return [jitney.context().model, request.root_path, len(request.body)]


first = jitney.model(name="first")(type("First", (Ranks,), {}))
second = jitney.model(name="second")(type("Second", (Ranks,), {}))
"""


def test_of_a_path_of_several_models_the_body_names_one(start, tmp_path):
    (tmp_path / "sharing.py").write_text(SHARING)
    server = start("serve", "sharing.py:first", "sharing.py:second", cwd=tmp_path)

    def ask(**body):
        reply = requests.post(server.url("/rank"), json=body, timeout=ASK_SECONDS)
        return reply.status_code, reply.json()

    for name in ("first", "second"):
        assert ask(model=name) == (200, [name, "/rank", len(name) + 13])
    status, absent = ask(text="x")
    assert (status, absent["error"]["type"], absent["error"]["code"]) == (400, "invalid_request_error", None)
    assert "the body needs the field model. They are first, second." in absent["error"]["message"]
    status, unknown = ask(model="third")
    assert (status, unknown["error"]["code"]) == (404, "model_not_found")
    assert unknown["error"]["message"] == 'The model "third" does not answer /rank. Those that do are first, second.'
    bad = requests.post(server.url("/rank"), data="no", timeout=ASK_SECONDS)
    assert (bad.status_code, "no JSON object" in bad.json()["error"]["message"]) == (400, True)
    assert requests.get(server.url("/rank"), timeout=ASK_SECONDS).status_code == 405
    assert server.manage("DELETE", "/models/second").status_code == 200
    assert ask(text="x")[0] == 200, "one model needs no name"
