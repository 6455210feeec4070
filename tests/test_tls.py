"""Mutual TLS, versions of TLS, and certificates that change while the server runs; with openssl, curl and grpcio."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from harness.archives import Store
from harness.certificates import Authority, Certificate, self_signed
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until
from test_grpc import INFERENCE, MANAGEMENT, Stub, address
from test_security import torchserve

APIS = [("inference", "/ping"), ("management", "/models"), ("metrics", "/metrics")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The operator's."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    """The server's certificate."""
    return authority.issue("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    """A client's certificate."""
    return authority.issue("client")


def flags(own: Certificate, client_ca: Path | None = None) -> list[str | Path]:
    """The flags of a server with this certificate."""
    asked = ["--client-ca", client_ca] if client_ca else []
    return ["--tls-cert", own.cert, "--tls-key", own.key, *asked]


def serve(start, store: Store, *given: str | Path) -> Server:
    """A server whose one model is ready."""
    server = start("serve", store.mar("echo"), *given, wait_for_workers=False)
    server.logged("model ready")
    return server


def curl(trusted: Authority, shown: Certificate | None, url: str, *more: str) -> str:
    """The status, or the number of curl's error."""
    command = ["curl", "--silent", "--cacert", trusted.cert, *(shown.curl if shown else []), *more]
    command += ["--output", os.devnull, "--write-out", "%{http_code}", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout if done.returncode == 0 else f"error {done.returncode}"


def s_client(url: str, *more: str | Path) -> tuple[bool, str]:
    """Whether openssl gets an answer, and what it says. In TLS 1.3 the client is done before the server is."""
    target = urlsplit(url).netloc
    command = ["openssl", "s_client", "-connect", target, "-ign_eof", *map(str, more)]
    asked = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    done = subprocess.run(command, input=asked, capture_output=True, timeout=120, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    return "HTTP/1.1 200" in said, said


def call(target: str, trusted: Authority, shown: Certificate | None, service: str, method: str) -> object:
    """A call of grpcio: its answer, or the code of its error."""
    pair = (shown.key.read_bytes(), shown.cert.read_bytes()) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(trusted.cert.read_bytes(), *pair)
    with grpc.secure_channel(target, credentials, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            return Stub(channel, service)(method)[0]
        except grpc.RpcError as error:
            return error.code()


# -- certificates of clients ----------------------------------------------------------------------


def test_every_port_lets_only_clients_of_the_authority_in(
    start, tmp_path: Path, store: Store, authority: Authority, own: Certificate, client: Certificate
) -> None:
    server = serve(start, store, *flags(own, authority.cert))
    stranger = Authority(tmp_path / "other", "stranger").issue("client")
    refused = [
        (None, "the client showed no certificate, and one is asked for"),
        (stranger, "the client's certificate is of none of the authorities (client_ca)"),
        (authority.issue("late", valid=False), "the client's certificate has expired"),
    ]
    for api, path in APIS:
        assert curl(authority, client, server.url(path, api)) == "200", api
        assert curl(authority, client, server.url(path, api), "--http2") == "200", api
    for shown, why in refused:
        for api, path in APIS:
            assert curl(authority, shown, server.url(path, api)).startswith("error "), (api, why)
        pair = ["-cert", shown.cert, "-key", shown.key] if shown else []
        agreed, said = s_client(server.urls["inference"], "-CAfile", authority.cert, *pair)
        assert not agreed and "alert" in said, said
        # A line a second says why; the others are counted.
        until(lambda shown=shown, why=why: said_once_more(server, authority, shown, why), f"the log says {why!r}")
    for service, method, api in [(INFERENCE, "Ping", "inference"), (MANAGEMENT, "ListModels", "management")]:
        target = address(server, api)
        assert not isinstance(call(target, authority, client, service, method), grpc.StatusCode), api
        for shown, _ in refused:
            assert call(target, authority, shown, service, method) == grpc.StatusCode.UNAVAILABLE, api


def said_once_more(server: Server, authority: Authority, shown: Certificate | None, why: str) -> bool:
    """Tries once more, and looks into the log."""
    curl(authority, shown, server.url("/ping"))
    return f"TLS handshake failed: {why}" in server.log


def test_commands_show_a_certificate(
    binary: Path, start, store: Store, authority: Authority, own: Certificate, client: Certificate
) -> None:
    server = serve(start, store, *flags(own, authority.cert))
    env = {"PATH": os.environ["PATH"], "SSL_CERT_FILE": str(authority.cert)}
    command = [binary, "models", "--json", "--url", server.urls["management"]]

    def run(*more: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        asked, around = [*command, *more], env | variables
        return subprocess.run(asked, env=around, capture_output=True, text=True, timeout=120, check=False)

    for shown in (run("--client-cert", client.both), run(JITNEY_CLIENT_CERT=str(client.both))):
        assert shown.returncode == 0 and "echo" in shown.stdout, shown.stderr
    without = run()
    assert without.returncode == 77 and "--client-cert FILE shows one" in without.stderr, without.stderr


def test_torchserve_asks_for_certificates_where_it_speaks_tls(
    start, tmp_path: Path, store: Store, authority: Authority, own: Certificate, client: Certificate
) -> None:
    text = FREE_ADDRESSES.replace("inference_address=http:", "inference_address=https:")
    text += f"certificate_file={own.cert}\nprivate_key_file={own.key}\nclient_ca={authority.cert}\n"
    server = torchserve(start, tmp_path / "etc", store, text, "--disable-token-auth")
    assert curl(authority, client, server.url("/ping")) == "200"
    assert curl(authority, None, server.url("/ping")).startswith("error ")


def test_what_cannot_be_used_is_told_before_a_port_opens(
    binary: Path, tmp_path: Path, store: Store, own: Certificate, client: Certificate
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    for given, code, why in [
        (["--client-ca", wrong], 64, "--client-ca needs --tls-cert and --tls-key"),
        (flags(own, wrong), 1, f"{wrong}: cannot read the authorities of clients: the text is not in PEM form"),
        (["--tls-cert", own.cert, "--tls-key", client.key], 1, "the key belongs to another certificate"),
        ([*flags(own), "--tls-min-version", "1.1"], 64, "1.3, 1.2"),
    ]:
        command = [binary, "serve", store.mar("echo"), *map(str, given)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code and why in done.stderr, done.stderr


# -- versions -------------------------------------------------------------------------------------


def test_tls_1_2_is_spoken_only_where_it_is_allowed(
    start, tmp_path: Path, store: Store, authority: Authority, own: Certificate
) -> None:
    config = tmp_path / "jitney.yaml"
    config.write_text("tls_min_version: 1.2\n")
    of_torchserve = FREE_ADDRESSES.replace("inference_address=http:", "inference_address=https:")
    of_torchserve += f"certificate_file={own.cert}\nprivate_key_file={own.key}\n"
    newer = serve(start, store, *flags(own))
    for server, old in [
        (newer, False),
        (serve(start, store, "--config", config, *flags(own)), True),
        (torchserve(start, tmp_path / "a", store, of_torchserve, "--disable-token-auth"), True),
        (
            torchserve(start, tmp_path / "b", store, f"{of_torchserve}tls_min_version=1.3\n", "--disable-token-auth"),
            False,
        ),
    ]:
        url = server.urls["inference"]
        for version, expected in [("-tls1_3", True), ("-tls1_2", old), ("-tls1_1", False)]:
            agreed, said = s_client(url, version, "-CAfile", authority.cert)
            assert agreed == expected, said
        assert curl(authority, None, f"{url}/ping", "--tls-max", "1.2") == ("200" if old else "error 35")
    newer.logged("the client speaks only versions of TLS that are too old here (tls_min_version)")


def status_of(server: Server, url: str, **env: object) -> str:
    """What `jitney status` says of a server that it does not reach."""
    command = [str(server.binary), "status", "--url", url]
    told = {**os.environ, **{name: str(value) for name, value in env.items()}}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=told)
    assert ran.returncode != 0
    return ran.stderr


def test_the_command_line_says_what_is_wrong_with_tls_in_words(
    start, tmp_path: Path, store: Store, own: Certificate
) -> None:
    usual = self_signed(tmp_path / "own")
    server = serve(start, store, *flags(usual))
    url = server.urls["management"]
    said = status_of(server, url, SSL_CERT_FILE=usual.cert)
    assert "made for an authority" in said and "basicConstraints=critical,CA:FALSE" in said, said
    issued = serve(start, store, *flags(own))
    said = status_of(issued, issued.urls["management"])
    assert "that this program does not trust" in said and "SSL_CERT_FILE=cert.pem" in said, said
    plain = status_of(server, url.replace("https:", "http:"))
    assert "Write https:// instead of http://" in plain and "Forbidden" not in plain, plain
    open_server = serve(start, store)
    assert "does not speak HTTPS" in status_of(open_server, open_server.urls["management"].replace("http:", "https:"))


# -- files that change ------------------------------------------------------------------------------


def mount(home: Path, own: Certificate, clients: Authority) -> None:
    """Puts the files where the server reads them, as Kubernetes does with a secret: one link is switched."""
    data = home / f"..{own.cert.stem}"
    data.mkdir()
    for name, file in [("tls.crt", own.cert), ("tls.key", own.key), ("ca.crt", clients.cert)]:
        (data / name).write_bytes(file.read_bytes())
        if not (home / name).is_symlink():
            (home / name).symlink_to(Path("..data") / name)
    (home / "..new").symlink_to(data.name)
    (home / "..new").rename(home / "..data")


def shown_by(server: Server, shown: Certificate) -> str:
    """The certificate that the server shows, in PEM."""
    target = urlsplit(server.urls["inference"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(shown.cert, shown.key)
    plain = socket.create_connection((target.hostname, target.port), timeout=120)
    with context.wrap_socket(plain) as stream:
        return ssl.DER_cert_to_PEM_cert(stream.getpeercert(True) or b"")


def test_changed_files_are_in_force_for_new_connections_only(
    start, tmp_path: Path, store: Store, authority: Authority, own: Certificate, client: Certificate
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    mount(secret, own, authority)
    files = ["--tls-cert", secret / "tls.crt", "--tls-key", secret / "tls.key", "--client-ca", secret / "ca.crt"]
    server = serve(start, store, *files)
    target = urlsplit(server.urls["inference"])
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.load_cert_chain(client.cert, client.key)
    live = http.client.HTTPSConnection(target.hostname, target.port, context=context, timeout=120)

    def asks() -> int:
        live.request("GET", "/ping")
        answer = live.getresponse()
        answer.read()
        return answer.status

    assert asks() == 200
    before = live.sock
    later = Authority(tmp_path / "later", "later")
    other, visitor = later.issue("server"), later.issue("visitor")
    mount(secret, other, later)
    server.logged("the file has changed, and is in force as it is now")
    expected = "".join(other.cert.read_text().split())
    assert "".join(shown_by(server, visitor).split()) == expected
    assert curl(later, visitor, server.url("/ping")) == "200"
    assert curl(later, client, server.url("/ping")).startswith("error "), "its authority has gone"
    assert asks() == 200 and live.sock is before, "a connection that is open goes on"
    live.close()

    (secret / "..data" / "tls.crt").write_text("half a fi")
    server.logged("what was read before stays in force")
    assert "tls.crt: cannot read the certificate" in server.log
    assert curl(later, visitor, server.url("/ping")) == "200"
    assert server.log.count("stays in force") == 1
