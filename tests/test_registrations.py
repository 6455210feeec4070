"""`--registrations`: models from a list that several servers share, followed while requests run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import requests

from harness import onnx
from harness.server import ASK_SECONDS, Server
from harness.wait import until

Start = Callable[..., Server]


def adder(path: Path, add: float) -> Path:
    """`y = x + add`."""
    row = [onnx.value(name, onnx.FLOAT, ["n", 1]) for name in "xy"]
    weight = onnx.tensor(onnx.FLOAT, [1], struct.pack("<f", add), "b")
    return onnx.write(path, [onnx.node("Add", ["x", "b"], "y")], row[:1], row[1:], [weight])


def listed(path: Path, *models: dict[str, Any]) -> Path:
    """Writes the list; JSON is YAML."""
    path.write_text(json.dumps({"models": models}))
    return path


def answer(server: Server, model: str) -> float | int:
    """What the model adds to 0, or the status that says why it does not."""
    body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}
    reply = requests.post(server.url(f"/v2/models/{model}/infer"), json=body, timeout=ASK_SECONDS)
    return reply.json()["outputs"][0]["data"][0] if reply.status_code == 200 else reply.status_code


def ready(server: Server) -> bool:
    return requests.get(server.url("/v2/health/ready"), timeout=ASK_SECONDS).status_code == 200


def registrations(server: Server) -> dict[str, Any]:
    return server.manage("GET", "/overview").json()["registrations"]


def test_a_list_is_followed(start: Start, tmp_path: Path) -> None:
    for add in (1, 2, 5):
        adder(tmp_path / f"add-{add}.onnx", add)
    one = {"name": "one", "path": "add-1.onnx"}
    path = listed(tmp_path / "models.yaml", one)
    server = start("serve", "--registrations", path, "--registrations-every", "0.1s", wait_for_workers=False)
    until(lambda: ready(server), "the models of the list are loaded")
    assert answer(server, "one") == 1
    hand = server.manage("POST", "/models", url=(tmp_path / "add-5.onnx").as_uri(), model_name="hand")
    assert hand.status_code in (400, 403, 404), "a file that nobody named is still refused"

    # Another file takes the place of the first one; one that cannot be loaded changes nothing.
    listed(path, one | {"path": "add-2.onnx"}, {"name": "lost", "path": "nowhere.onnx"})
    until(lambda: answer(server, "one") == 2, "the other file is served")
    until(lambda: any(model["state"] == "failed" for model in registrations(server)["models"]), "it is told")
    told = {model["name"]: model for model in registrations(server)["models"]}
    assert told["one"]["state"] == "loaded" and "nowhere.onnx" in told["lost"]["reason"]
    assert ready(server) and answer(server, "lost") == 404
    assert (
        'jitney_registrations_models{state="failed"' in requests.get(server.url("/metrics", "metrics"), timeout=9).text
    )

    # A list that cannot be read changes nothing either.
    revision = registrations(server)["revision"]
    path.write_text("models:\n- {name: one, pth: x}\n")
    until(lambda: "unknown key `pth`" in (registrations(server)["error"] or ""), "the mistake is told")
    assert answer(server, "one") == 2 and registrations(server)["revision"] == revision

    # Settings change on the running model, and what leaves the list goes.
    worker = server.describe("one")["workers"][0]["id"]
    listed(path, one | {"path": "add-2.onnx", "queue": 7, "batching": {"max_batch_size": 3}})
    until(lambda: server.describe("one")["batchSize"] == 3, "the setting changed")
    assert server.describe("one")["workers"][0]["id"] == worker
    listed(path)
    until(lambda: answer(server, "one") == 404, "the model is gone")
    assert registrations(server)["models"] == [] and registrations(server)["error"] is None


class ListServer(BaseHTTPRequestHandler):
    """A web server with a list and its models; it counts who has the list already."""

    files: ClassVar[dict[str, bytes]] = {}
    unchanged = 0

    def do_GET(self) -> None:
        content = self.files.get(self.path)
        tag = f'"{hash(content)}"'
        same = content is not None and self.headers.get("If-None-Match") == tag
        ListServer.unchanged += same
        self.send_response(404 if content is None else 304 if same else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(0 if same else len(content or b"")))
        self.end_headers()
        if not same:
            self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


def test_a_list_on_a_web_server_brings_its_models_along(start: Start, tmp_path: Path) -> None:
    web = ThreadingHTTPServer(("127.0.0.1", 0), ListServer)
    Thread(target=web.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{web.server_port}/shared/models.yaml"
        arguments = ("--registrations", url, "--registrations-every", "0.1s")
        server = start("serve", *arguments, wait_for_workers=False)
        until(lambda: registrations(server)["error"], "it is told that the list is not there")
        assert not ready(server), "without a list it is not ready"
        assert answer(server, "m") == 503, "a load balancer may ask another one"
        # Two files of one name, from two folders.
        for add in (1, 2):
            ListServer.files[f"/shared/{add}/m.onnx"] = adder(tmp_path / f"{add}.onnx", add).read_bytes()
        ListServer.files["/shared/models.yaml"] = b"models: [{name: m, path: 1/m.onnx}]"
        until(lambda: ready(server), "the model of the list is loaded")
        assert answer(server, "m") == 1
        until(lambda: ListServer.unchanged > 1, "the list is not sent again")
        ListServer.files["/shared/models.yaml"] = b"models: [{name: m, path: 2/m.onnx}]"
        until(lambda: answer(server, "m") == 2, "the other file is served")
    finally:
        web.shutdown()
        web.server_close()
