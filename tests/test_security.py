"""Who may come in, and how the way is protected: tokens, TLS, models from other machines; with curl, as users do."""

from __future__ import annotations

import functools
import http.server
import json
import re
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.archives import Store
from harness.certificates import openssl, self_signed
from harness.client import Reply, curl
from harness.server import FREE_ADDRESSES, FREE_PORTS, Server
from harness.wait import until

HTTPS_ONLY = "This TorchServe instance only accepts HTTPS requests"


def keys(server: Server) -> dict[str, str]:
    """The keys in the directory that the server was started in, by role."""
    found = json.loads((server.cwd / "key_file.json").read_text())
    return {role: entry["key"] for role, entry in found.items()}


def ask(url: str, key: str | None, *more: str) -> Reply:
    """curl with a token, or without one."""
    header = ["-H", f"Authorization: Bearer {key}"] if key else []
    return curl(*header, *more, url)


def torchserve(start, home: Path, store: Store, text: str, *flags: str) -> Server:
    """A server that reads this config.properties."""
    home.mkdir(exist_ok=True)
    config = home / "config.properties"
    config.write_text(text)
    arguments = ["torchserve", "--start", "--foreground", "--ncs", "--model-store", store.path, "--ts-config", config]
    return start(*arguments, *flags, wait_for_workers=False)


# -- tokens -------------------------------------------------------------------------------------


def test_tokens_are_on_by_default_and_each_opens_its_own_port(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path / "etc", store, FREE_ADDRESSES)
    found = keys(server)
    mode = (server.cwd / "key_file.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    for api, path in [("inference", "/ping"), ("management", "/models")]:
        for role in ["inference", "management", "API", None]:
            reply = ask(server.url(path, api), found.get(role))
            assert reply.status_code == (200 if role == api else 400), (api, role, reply.text)
    rejected = ask(server.url("/ping"), None)
    assert rejected.json()["type"] == "InvalidKeyException"
    assert ask(server.url("/metrics", "metrics"), None).status_code == 200
    assert not any(key in server.log for key in found.values()), "keys are not for the log"


def test_the_api_key_renews_a_token(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path / "etc", store, FREE_ADDRESSES)
    old = keys(server)
    renewed = ask(server.url("/token?type=inference", "management"), old["API"])
    assert (renewed.status_code, renewed.text) == (200, "\n")
    assert ask(server.url("/ping"), old["inference"]).status_code == 400
    assert ask(server.url("/ping"), keys(server)["inference"]).status_code == 200
    assert keys(server)["management"] == old["management"]


def test_serve_asks_for_tokens_when_told_to(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--token-auth", wait_for_workers=False)
    found = keys(server)
    assert ask(server.url("/predictions/echo"), None).status_code == 400
    models = server.url("/models/echo", "management")
    until(lambda: "READY" in ask(models, found["management"]).text, "the worker is ready")
    assert ask(server.url("/ping"), None).status_code == 200, "health needs no token"
    body = ["-H", "Content-Type: text/plain", "--data-binary", "hello"]
    reply = ask(server.url("/predictions/echo"), found["inference"], *body)
    assert (reply.status_code, reply.text) == (200, "hello")


def test_a_start_that_fails_leaves_the_keys_of_the_running_server(binary: Path, start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--token-auth", wait_for_workers=False)
    before = keys(server)
    port = server.urls["inference"].rpartition(":")[2]
    ports = [*FREE_PORTS[2:], "--port", port]
    command = [str(binary), "serve", str(store.path / "echo.mar"), *ports, "--token-auth"]
    second = subprocess.run(command, cwd=server.cwd, capture_output=True, timeout=120, check=False)
    assert second.returncode == 1 and b"cannot listen on" in second.stderr
    assert keys(server) == before


# -- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, and its key in the old form (PKCS1)."""
    made = self_signed(tmp_path_factory.mktemp("certificate"))
    old = made.key.with_suffix(".pkcs1")
    openssl("rsa", "-traditional", "-in", made.key, "-out", old)
    assert "BEGIN RSA PRIVATE KEY" in old.read_text()
    return made.cert, old


SECURE = FREE_ADDRESSES.replace("inference_address=http:", "inference_address=https:").replace(
    "management_address=http:", "management_address=https:"
)


def secure(server: Server, api: str) -> str:
    """Where an API listens with TLS."""
    found = re.search(rf"{api} API bind to: (https://127\.0\.0\.1:\d+)", server.stdout)
    assert found, server.stdout
    return found[1]


def test_https_with_a_certificate_that_curl_verifies(start, tmp_path: Path, store: Store, certificate) -> None:
    cert, key = certificate
    store.mar("echo")
    text = f"{SECURE}certificate_file={cert}\nprivate_key_file={key}\nload_models=echo.mar\n"
    server = torchserve(start, tmp_path / "etc", store, text, "--disable-token-auth")
    trust = ["--cacert", cert]
    models = secure(server, "Management") + "/models/echo"
    until(lambda: "READY" in curl(*trust, models).text, "the worker is ready")
    body = "x" * 100_000
    (tmp_path / "body").write_text(body)
    reply = curl(*trust, "-T", tmp_path / "body", secure(server, "Inference") + "/predictions/echo")
    assert (reply.status_code, reply.text) == (200, body)
    assert curl(server.url("/metrics", "metrics")).status_code == 200


def test_plain_http_to_an_https_port_is_told_so(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path / "etc", store, SECURE, "--disable-token-auth")
    plain = secure(server, "Inference").replace("https:", "http:")
    reply = curl(plain + "/ping")
    assert (reply.status_code, reply.json()) == (403, {"status": HTTPS_ONLY})


def test_without_a_certificate_the_server_makes_one_and_says_so(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path / "etc", store, SECURE)
    assert "has no certificate" in server.log
    url = secure(server, "Inference") + "/ping"
    assert ask(url, keys(server)["inference"], "--insecure").status_code == 200


def test_a_keystore_is_rejected_with_the_way_to_convert_it(binary: Path, tmp_path: Path, store: Store) -> None:
    config = tmp_path / "config.properties"
    config.write_text(f"{SECURE}keystore=keystore.p12\nkeystore_pass=changeit\nkeystore_type=PKCS12\n")
    command = [binary, "torchserve", "--start", "--foreground", "--model-store", store.path, "--ts-config", config]
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "openssl pkcs12 -in keystore.p12" in done.stdout


# -- models from other machines -------------------------------------------------------------------


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Store, str]]:
    """A little file server: its files and its address."""
    files = Store(tmp_path / "web")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            """Files; `/elsewhere/x` leads to `/x`."""
            if self.path.startswith("/elsewhere/"):
                self.send_response(302)
                self.send_header("Location", self.path.removeprefix("/elsewhere"))
                self.end_headers()
            else:
                super().do_GET()

    handler = functools.partial(Quiet, directory=str(files.path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield files, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def open_server(start, tmp_path: Path, store: Store, text: str = "") -> Server:
    """Anyone may register models."""
    flags = ["--disable-token-auth", "--enable-model-api"]
    return torchserve(start, tmp_path / "etc", store, FREE_ADDRESSES + text, *flags)


def test_a_model_is_downloaded_served_and_leaves_the_store_again(start, tmp_path: Path, store: Store, web) -> None:
    files, base = web
    files.mar("echo")
    server = open_server(start, tmp_path, store)
    server.register(f"{base}/echo.mar?signature=secret")
    assert server.predict("echo", b"hi").text == "hi"
    assert [path.name for path in store.path.iterdir()] == ["echo.mar"]
    server.logged("downloaded")
    lines = [line for line in server.log.splitlines() if "download" in line]
    assert not any("secret" in line for line in lines), lines
    assert server.manage("DELETE", "/models/echo").status_code == 200
    until(lambda: not list(store.path.iterdir()), "the store is empty again")


def test_a_failed_download_leaves_nothing(start, tmp_path: Path, store: Store, web) -> None:
    files, base = web
    files.raw("broken.mar", b"this is no archive")
    server = open_server(start, tmp_path, store)
    missing = server.manage("POST", "/models", url=f"{base}/none.mar")
    assert (missing.status_code, missing.json()["type"]) == (400, "DownloadArchiveException")
    broken = server.manage("POST", "/models", url=f"{base}/broken.mar")
    assert broken.status_code >= 400
    assert list(store.path.iterdir()) == []


def test_a_redirect_has_to_pass_the_allow_list(start, tmp_path: Path, store: Store, web) -> None:
    files, base = web
    files.mar("echo")
    server = open_server(start, tmp_path, store, f"allowed_urls={base}/elsewhere/.*\n")
    rejected = server.manage("POST", "/models", url=f"{base}/elsewhere/echo.mar")
    assert (rejected.status_code, rejected.json()["type"]) == (400, "DownloadArchiveException")
    server.logged("it redirects to a URL that is not allowed")
    direct = server.manage("POST", "/models", url=f"{base}/echo.mar")
    assert direct.status_code == 404 and "does not match any allowed URL(s)" in direct.text


def test_a_restart_finds_what_was_downloaded(start, tmp_path: Path, store: Store, web) -> None:
    files, base = web
    archive = files.mar("echo")
    for _ in range(2):
        server = start("serve", f"{base}/echo.mar", "--model-store", store.path)
        assert server.predict("echo", b"hi").text == "hi"
        server.terminate()
        assert server.wait() == 0
        assert [path.name for path in store.path.iterdir()] == ["echo.mar"]
        archive.unlink(missing_ok=True)
