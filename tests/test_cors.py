"""Pages of other origins: what browsers ask before they send a request, and what they may read of its answer.

The requests are those that browsers send; no browser is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.client import curl
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server

APP, OPS, OTHER = "https://app.example", "http://ops.example:3000", "https://other.example"
LISTENERS = {"inference": "/predictions/echo", "management": "/models/echo", "metrics": "/metrics"}


@pytest.fixture(scope="module")
def listed(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that names two origins and asks for tokens."""
    home = tmp_path_factory.mktemp("listed")
    (home / "jitney.yaml").write_text(f"cors_allowed_origin: [{APP}, {OPS}]\ntoken_auth: true\n")
    models = Store(home / "store").mar("echo")
    arguments = ["serve", models, "--config", home / "jitney.yaml"]
    server = Server(binary, home / "server", arguments, cwd=home, wait_for_workers=False)
    yield server.started()
    server.end()


def preflight(url: str, origin: str, method: str = "POST", headers: str = "content-type,x-mine") -> requests.Response:
    """What a browser asks before a page's request that is not simple."""
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return requests.options(url, headers=asked | {"Sec-Fetch-Site": "cross-site"}, timeout=ASK_SECONDS)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("origin", [APP, OPS])
def test_a_preflight_of_a_named_origin_is_answered_on_every_listener_without_a_token(listed, listener, origin):
    reply = preflight(listed.url(LISTENERS[listener], listener), origin)
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["access-control-allow-methods"] == "POST"
    assert reply.headers["access-control-allow-headers"] == "content-type,x-mine"
    assert int(reply.headers["access-control-max-age"]) > 0 and reply.headers["vary"] == "origin"


@pytest.mark.parametrize("listener", LISTENERS)
def test_any_other_origin_is_told_nothing(listed, listener):
    url = listed.url(LISTENERS[listener], listener)
    for origin in (OTHER, APP + ".evil.example", "null", "https://app.example:8443"):
        for reply in (preflight(url, origin), requests.get(url, headers={"Origin": origin}, timeout=ASK_SECONDS)):
            assert "access-control-allow-origin" not in reply.headers and reply.status_code != 204


def test_answers_and_errors_can_be_read_by_the_page(listed):
    headers = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    reply = requests.post(listed.url("/predictions/echo"), b"x", headers=headers, timeout=ASK_SECONDS)
    assert reply.json()["type"] == "InvalidKeyException", "the request itself needs its token"
    assert reply.headers["access-control-allow-origin"] == APP
    assert "x-request-id" in reply.headers["access-control-expose-headers"]


def test_http2_says_the_same(listed):
    asked = ["-H", f"Origin: {OPS}", "-H", "Access-Control-Request-Method: PUT"]
    reply = curl("--http2-prior-knowledge", "-X", "OPTIONS", *asked, listed.url("/predictions/echo"))
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (204, OPS)


def test_a_star_is_everybody_but_not_where_models_are_managed(start: Callable[..., Server], store: Store):
    flags = ["--cors-allowed-origin", "*", "--cors-allowed-methods", "POST", "--cors-allowed-headers", "x-one"]
    server = start("serve", store.mar("echo"), *flags)
    reply = preflight(server.url("/predictions/echo"), OTHER, method="PUT")
    allowed = [reply.headers[f"access-control-allow-{what}"] for what in ("origin", "methods", "headers")]
    assert (reply.status_code, allowed) == (204, [OTHER, "POST", "x-one"])
    managed = server.url("/models/echo", "management")
    for reply in (preflight(managed, OTHER), requests.get(managed, headers={"Origin": OTHER}, timeout=ASK_SECONDS)):
        assert "access-control-allow-origin" not in reply.headers
    change = requests.put(managed, headers={"Origin": OTHER}, timeout=ASK_SECONDS)
    assert change.status_code == 403


def test_without_the_setting_there_is_no_preflight(shared: Server):
    reply = preflight(shared.url("/predictions/echo"), APP)
    assert reply.status_code == 200 and reply.json()["openapi"], "OPTIONS describes the model"
    assert not any(name.lower().startswith("access-control") for name in reply.headers)


def test_torchserve_sends_what_is_configured_with_every_answer(start: Callable[..., Server], tmp_path, store: Store):
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "cors_allowed_origin=https://a.example\ncors_allowed_methods=GET, PUT\n")
    flags = ["--foreground", "--ncs", "--disable-token-auth"]
    server = start(
        "torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config, wait_for_workers=False
    )
    plain = requests.get(server.url("/ping"), timeout=ASK_SECONDS)
    asked = preflight(server.url("/"), OTHER)
    for reply in (plain, asked):
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "https://a.example"
        assert reply.headers["access-control-allow-methods"] == "GET, PUT"
        assert "vary" not in reply.headers
