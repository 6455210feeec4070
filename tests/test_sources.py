"""Models from other machines: web servers and buckets, cables that break, sums that do not match, limits."""

from __future__ import annotations

import hashlib
import json
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.archives import Store
from harness.remote import RemoteFiles, remote_files
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

AWS = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret-key", "AWS_DEFAULT_REGION": "eu-west-1"}
NO_KEY = ("client_email", "private_key", "private_key_id")


@pytest.fixture
def there() -> Iterator[RemoteFiles]:
    """Another machine."""
    with remote_files() as machine:
        yield machine


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    """An archive of a few hundred kilobytes that do not compress."""
    noise = random.Random(7).randbytes(150_000).hex()
    return Store(tmp_path / "made").mar("echo", files={"noise.txt": noise}).read_bytes()


def torchserve(
    start, tmp_path: Path, store: Store, text: str = "", env: dict[str, str] | None = None, *, snapshots: bool = False
) -> Server:
    """A server where anyone may register models."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + text)
    flags = ["--foreground", "--disable-token-auth", "--enable-model-api", *([] if snapshots else ["--ncs"])]
    arguments = ["torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config]
    return start(*arguments, wait_for_workers=False, env=env)


def content(store: Store) -> list[str]:
    """The names in the store, hidden ones included."""
    return sorted(path.name for path in store.path.iterdir())


# -- cables that break --------------------------------------------------------------------------


def test_a_download_goes_on_where_it_broke_off(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/echo.mar"] = archive
    there.breaks = [100_000, 50_000]
    server = torchserve(start, tmp_path, store)
    server.register(f"{there.base}/echo.mar")
    assert server.predict("echo", b"hi").text == "hi"
    assert (store.path / "echo.mar").read_bytes() == archive
    ranges = [asked.get("range") for asked in there.asked]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert there.asked[1]["if-range"] == there.tag("/echo.mar")
    server.logged("the download broke off and is tried again")


def test_a_file_that_changed_meanwhile_begins_anew(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/echo.mar"] = b"an older version, just as long as it needs to be" * 10_000
    there.after_break["/echo.mar"] = archive
    there.breaks = [100_000]
    server = torchserve(start, tmp_path, store)
    server.register(f"{there.base}/echo.mar")
    assert (store.path / "echo.mar").read_bytes() == archive
    assert there.asked[1]["range"] == "bytes=100000-"


def test_under_torchserve_a_download_stays_when_its_registration_conflicts(
    start, tmp_path: Path, store: Store, there, archive
) -> None:
    there.files["/again.mar"] = archive
    store.mar("echo")
    server = torchserve(start, tmp_path, store)
    server.register("echo.mar")
    for url in (f"{there.base}/again.mar", "again.mar"):
        rejected = server.manage("POST", "/models", url=url, model_name="echo")
        assert (rejected.status_code, rejected.json()["type"]) == (409, "ConflictStatusException"), rejected.text
    assert content(store) == ["again.mar", "echo.mar"]


# -- sums ---------------------------------------------------------------------------------------


def test_a_file_must_have_the_sum_that_the_caller_gave(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/echo.mar"] = archive
    sum_, wrong = hashlib.sha256(archive).hexdigest(), hashlib.sha256(b"").hexdigest()
    server = torchserve(start, tmp_path, store)
    rejected = server.manage("POST", "/models", url=f"{there.base}/echo.mar", sha256=wrong)
    assert (rejected.status_code, rejected.json()["type"]) == (400, "DownloadArchiveException")
    assert sum_ in rejected.text and wrong in rejected.text
    assert content(store) == []
    strange = server.manage("POST", "/models", url=f"{there.base}/echo.mar", sha256="12ab")
    assert strange.status_code == 400 and "64 hexadecimal digits" in strange.text
    server.register(f"{there.base}/echo.mar", sha256=sum_.upper())
    assert server.predict("echo", b"hi").text == "hi"


def test_sums_hold_for_local_files_and_in_configuration(start, tmp_path: Path, store: Store, binary) -> None:
    local = store.mar("echo")
    wrong = hashlib.sha256(b"").hexdigest()
    server = torchserve(start, tmp_path, store, f'models={{"echo": {{"1.0": {{"sha256": "{wrong}"}}}}}}\n')
    rejected = server.manage("POST", "/models", url=local.name)
    assert rejected.status_code == 400 and wrong in rejected.text
    listed = tmp_path / "jitney.yaml"
    listed.write_text(f"models:\n  - path: {local}\n    sha256: {hashlib.sha256(local.read_bytes()).hexdigest()}\n")
    assert start("serve", "--config", listed).predict("echo", b"hi").text == "hi"


def test_a_snapshot_keeps_the_sum_that_was_asked_for(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/echo.mar"] = archive
    server = torchserve(start, tmp_path, store, snapshots=True)
    server.register(f"{there.base}/echo.mar", sha256=hashlib.sha256(archive).hexdigest())
    until(lambda: any("sha256" in file.read_text() for file in snapshots_of(server)), "a snapshot has it")
    server.end()
    (store.path / "echo.mar").write_bytes(archive + b" ")
    flags = ["--start", "--foreground", "--disable-token-auth", "--model-store", store.path]
    again = start("torchserve", *flags, "--ts-config", snapshots_of(server)[-1], wait_for_workers=False)
    again.logged("Checksum mismatch")
    assert again.manage("GET", "/models").json()["models"] == []


def snapshots_of(server: Server) -> list[Path]:
    """The snapshots it wrote, the newest last."""
    return sorted((server.cwd / "logs/config").glob("*.cfg"))


def test_a_file_url_leaves_a_copy_in_the_store_while_its_model_is_registered(
    start, tmp_path: Path, store: Store, archive
) -> None:
    elsewhere = tmp_path / "elsewhere.mar"
    elsewhere.write_bytes(archive)
    server = torchserve(start, tmp_path, store)
    server.register(elsewhere.as_uri())
    assert server.predict("echo", b"hi").text == "hi" and content(store) == ["elsewhere.mar"]
    taken = server.manage("POST", "/models", url=elsewhere.as_uri(), model_name="second")
    assert (taken.status_code, taken.json()["message"]) == (500, "Model file already exists elsewhere.mar")
    assert server.manage("DELETE", "/models/echo").status_code == 200
    assert content(store) == [] and elsewhere.exists()
    absent = server.manage("POST", "/models", url="file:///no/such.mar")
    assert (absent.status_code, absent.json()["type"]) == (400, "DownloadArchiveException")


# -- paths ----------------------------------------------------------------------------------------

FOREIGN = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\ndef handle(data, context): return data\n"
"""A handler that leaves a mark when it is imported."""


def foreign_directory(tmp_path: Path) -> Path:
    """A directory of another user of the machine, with code in it."""
    home = tmp_path / "foreign"
    home.mkdir()
    (home / "evil.py").write_text(FOREIGN)
    return home


def test_clients_of_serve_name_paths_below_the_store_only(start, tmp_path: Path, store: Store) -> None:
    home = foreign_directory(tmp_path)
    named = Store(tmp_path / "named").directory("named", "echo")
    (store.path / "out").symlink_to(home)
    below = Store(store.path / "deep").directory("below", "echo")
    store.mar("echo")
    server = start("serve", named, "--model-store", store.path)
    for url in (home, f"{home}/", tmp_path / "absent", store.path / "out", "out", store.path):
        query = {"url": str(url), "handler": "evil.py", "model_name": "le", "initial_workers": 1}
        rejected = server.manage("POST", "/models", **query)
        assert (rejected.status_code, rejected.json()["type"]) == (404, "ModelNotFoundException"), rejected.text
        assert f"Put it below the model store {store.path}" in rejected.json()["message"]
        flow = server.manage("POST", "/workflows", url=str(url))
        assert flow.status_code == 404 and "below the model store" in flow.text
    for handler in (str(home / "evil.py"), "../foreign/evil.py:handle", f"{home}/evil"):
        rejected = server.manage("POST", "/models", url="echo.mar", handler=handler, initial_workers=1)
        assert rejected.status_code == 400 and "handler points outside the model" in rejected.text
    assert not (home / "ran").exists()
    server.register(str(below))
    server.register(str(named), model_name="twice")
    assert server.predict("below", b"hi").text == server.predict("twice", b"hi").text == "hi"


def test_under_torchserve_a_path_is_matched_as_a_file_url(start, tmp_path: Path, store: Store) -> None:
    home = foreign_directory(tmp_path)
    good = Store(tmp_path / "good").directory("good", "echo")
    server = torchserve(start, tmp_path, store, f"allowed_urls=file://{tmp_path}/good/.*\n")
    (tmp_path / "good/link").symlink_to(home)
    for path in (home, tmp_path / "good/link"):
        query = {"url": str(path), "handler": "evil.py", "model_name": "le", "initial_workers": 1}
        rejected = server.manage("POST", "/models", **query)
        assert rejected.status_code == 404 and "in allowed_urls" in rejected.text
    assert not (home / "ran").exists()
    server.register(str(good))
    assert server.predict("good", b"hi").text == "hi"


def test_a_file_url_is_no_window_to_other_files(start, tmp_path: Path, store: Store, archive) -> None:
    secret, private = tmp_path / "secret", tmp_path / "private.mar"
    secret.write_text("root:x")
    private.write_bytes(archive)
    private.chmod(0o600)
    server = torchserve(start, tmp_path, store)
    answers = [server.manage("POST", "/models", url=path.as_uri()) for path in (secret, tmp_path / "absent")]
    assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {(400, "DownloadArchiveException")}
    assert {answer.json()["message"].rpartition("/")[0] for answer in answers} == {
        f"Failed to download archive from: file://{tmp_path}"
    }
    server.register(private.as_uri())
    assert stat.S_IMODE((store.path / "private.mar").stat().st_mode) == 0o600


# -- URLs -----------------------------------------------------------------------------------------


def test_the_allow_list_sees_the_url_that_is_fetched(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/x.example.com/echo.mar"] = there.files["/echo.mar"] = archive
    server = torchserve(start, tmp_path, store, r"allowed_urls=https?://[^/]*\\.example\\.com/.*" + "\n")
    host = there.base.removeprefix("http://")
    for url, words in [
        (f"http://{host}\\x.example.com/echo.mar", "backslash"),
        (f"http://{host}\t.example.com/echo.mar", "control character"),
        (f"http://a.example.com/\n@{host}/echo.mar", "control character"),
        (f"http://.example.com@{host}/echo.mar", "user name"),
    ]:
        rejected = server.manage("POST", "/models", url=url)
        assert (rejected.status_code, rejected.json()["type"]) == (400, "BadRequestException"), rejected.text
        assert words in rejected.json()["message"]
    closed = server.manage("POST", "/models", url=f"http://{host}?.example.com/echo.mar")
    assert closed.status_code == 404, closed.text
    assert there.asked == [] and content(store) == []


def test_link_local_addresses_are_closed_by_default(start, tmp_path: Path, store: Store, there) -> None:
    server = torchserve(start, tmp_path, store)
    hosts = ["169.254.169.254", "2852039166", "0xa9.0xfe.0xa9fe", "[fe80::1]", "[::ffff:169.254.169.254]"]
    for count, host in enumerate(hosts):
        closed = server.manage("POST", "/models", url=f"http://{host}/latest/meta-data.mar")
        assert (closed.status_code, closed.json()["type"]) == (404, "ModelNotFoundException"), host
        assert "does not match any allowed URL(s)" in closed.json()["message"]
        there.redirects[f"/{count}.mar"] = f"http://{host}/latest/meta-data.mar"
        led = server.manage("POST", "/models", url=f"{there.base}/{count}.mar")
        assert (led.status_code, led.json()["type"]) == (400, "DownloadArchiveException"), host
    reason = "it redirects to a URL that is not allowed"
    until(lambda: server.log.count(reason) == len(hosts), "the log has the reasons")


def test_credentials_in_urls_reach_no_log_no_answer_and_no_snapshot(
    start, tmp_path: Path, store: Store, there, archive
) -> None:
    there.files["/echo.mar"] = there.files["/first.mar"] = archive
    first = f"load_models=one={there.base}/first.mar?sig=SECRETSIG\n"
    server = torchserve(start, tmp_path, store, first, snapshots=True)
    host = there.base.removeprefix("http://")
    replies = [
        server.manage("POST", "/models", url=f"http://bob:hunter2@{host}/echo.mar?sig=SECRETSIG"),
        server.manage("POST", "/models", url=f"{there.base}/none.mar?sig=SECRETSIG"),
        server.manage("POST", "/models", url="ftp://bob:hunter2@host/none.mar?sig=SECRETSIG"),
        server.manage("POST", "/workflows", url=f"{there.base}/none.war?sig=SECRETSIG"),
        server.manage("POST", "/models", url=f"{there.base}/echo.mar?sig=SECRETSIG", model_name="two"),
        server.manage("GET", "/models/two"),
        server.manage("GET", "/models/one"),
        server.manage("GET", "/models"),
    ]
    assert [reply.status_code for reply in replies] == [400, 400, 404, 400, 200, 200, 200, 200]
    assert replies[5].json()[0]["modelUrl"] == f"{there.base}/echo.mar?…"
    until(lambda: any('"two"' in file.read_text() for file in snapshots_of(server)), "a snapshot has it")
    server.end()
    logs = [path for path in (server.cwd / "logs").rglob("*") if path.is_file()]
    assert {"access_log.log", "ts_log.log"} <= {path.name for path in logs}
    told = [reply.text for reply in replies] + [path.read_text() for path in logs] + [server.log]
    for secret in ("SECRETSIG", "hunter2", "bob"):
        assert not [text for text in told if secret in text], secret
    flags = ["--start", "--foreground", "--disable-token-auth", "--model-store", store.path]
    again = start("torchserve", *flags, "--ts-config", snapshots_of(server)[-1], wait_for_workers=False)
    assert {model["modelName"] for model in again.manage("GET", "/models").json()["models"]} == {"one", "two"}


# -- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "status", "words"),
    [
        ("max_download_size=100KiB", 400, "it is larger than 102400 bytes"),
        ("max_unpacked_size=100KiB", 400, "it unpacks to more than 102400 bytes"),
        ("max_unpacked_files=2", 400, "it has more than 2 files and directories"),
    ],
)
def test_limits_can_be_set(
    start, tmp_path: Path, store: Store, there, archive, setting: str, status: int, words: str
) -> None:
    there.files["/echo.mar"] = archive
    server = torchserve(start, tmp_path, store, setting + "\n")
    rejected = server.manage("POST", "/models", url=f"{there.base}/echo.mar")
    assert rejected.status_code == status
    server.logged(words)
    assert content(store) == []


# -- buckets ------------------------------------------------------------------------------------


def test_a_model_comes_from_s3_with_the_servers_credentials(start, tmp_path, store: Store, there, archive) -> None:
    there.files["/models/nlp/echo.mar"] = archive
    there.breaks = [100_000]
    env = AWS | {"AWS_ENDPOINT_URL": there.base, "AWS_ALLOW_HTTP": "true"}
    server = torchserve(start, tmp_path, store, "allowed_urls=s3://models/.*\n", env)
    rejected = server.manage("POST", "/models", url="s3://private/echo.mar")
    assert rejected.status_code == 404 and "does not match any allowed URL(s)" in rejected.text
    missing = server.manage("POST", "/models", url="s3://models/none.mar")
    assert (missing.status_code, missing.json()["type"]) == (400, "DownloadArchiveException")
    server.register("s3://models/nlp/echo.mar", sha256=hashlib.sha256(archive).hexdigest())
    assert server.predict("echo", b"hi").text == "hi"
    assert content(store) == ["echo.mar"]
    signed = [asked for asked in there.asked if "authorization" in asked]
    assert signed == there.asked
    assert "Credential=an-id/" in signed[0]["authorization"] and "/eu-west-1/s3/" in signed[0]["authorization"]
    rests = [asked for asked in there.asked if "range" in asked]
    assert [rest["range"].split("-")[0] for rest in rests] == ["bytes=100000"]
    assert "a-secret-key" not in server.log


def test_serve_takes_models_from_buckets(start, store: Store, there, archive) -> None:
    there.files["/models/echo.mar"] = archive
    env = AWS | {"AWS_ENDPOINT_URL": there.base}
    sum_ = hashlib.sha256(archive).hexdigest()
    server = start("serve", f"s3://models/echo.mar#sha256={sum_}", "--model-store", store.path, env=env)
    assert server.predict("echo", b"hi").text == "hi"


def test_a_model_comes_from_azure(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/devstoreaccount1/models/echo.mar"] = archive
    env = {
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0",
        "AZURE_STORAGE_ENDPOINT": f"{there.base}/devstoreaccount1",
    }
    server = torchserve(start, tmp_path, store, "allowed_urls=az://models/.*\n", env)
    server.register("az://models/echo.mar")
    assert server.predict("echo", b"hi").text == "hi"
    assert there.asked[0]["authorization"].startswith("SharedKey devstoreaccount1:")


def test_a_model_comes_from_google(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/models/echo%2Emar"] = archive  # The client spells dots so, and Google reads them.
    account = tmp_path / "account.json"
    account.write_text(json.dumps({"gcs_base_url": there.base, "disable_oauth": True} | dict.fromkeys(NO_KEY, "")))
    env = {"GOOGLE_SERVICE_ACCOUNT": str(account)}
    server = torchserve(start, tmp_path, store, "allowed_urls=gs://models/.*\n", env)
    missing = server.manage("POST", "/models", url="gs://models/none.mar")
    assert (missing.status_code, missing.json()["type"]) == (400, "DownloadArchiveException")
    server.register("gs://models/echo.mar", sha256=hashlib.sha256(archive).hexdigest())
    assert server.predict("echo", b"hi").text == "hi"


def test_s3_sse_kms_needs_an_address_of_s3(start, tmp_path: Path, store: Store, there, archive) -> None:
    there.files["/echo.mar"] = archive
    server = torchserve(start, tmp_path, store, env=AWS)
    rejected = server.manage("POST", "/models", url=f"{there.base}/echo.mar", s3_sse_kms="true")
    assert (rejected.status_code, there.asked) == (400, [])
    server.logged("s3_sse_kms needs an address of S3")
