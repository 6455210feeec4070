"""Paths that definitions answer beside those of their names, and requests that reach them as they came."""

from __future__ import annotations

import subprocess

import requests

from harness.server import ASK_SECONDS, FREE_PORTS, Server

APP = """
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

    @jitney.batch(route="POST /sum")
    def sum(self, x: list[float], y: list[float]) -> list[float]:
        return [one + other for one, other in zip(x, y)]


@jitney.endpoint(raw=True)
def echo(request):
    return jitney.Response([request.root_path, request.path, request.body.decode()], 202)


@jitney.model(mount="/")
class Other:
    @jitney.endpoint(raw=True)
    def http(self, request):
        return "other"
"""


MODELS = ["app.py:Shop", "app.py:echo"]


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
