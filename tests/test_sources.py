"""Models from other machines: web servers and buckets, cables that break, sums that do not match, limits."""

from __future__ import annotations

import hashlib
import json
import random
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


# -- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "status", "words"),
    [
        ("max_download_size=100KiB", 400, "it is larger than 102400 bytes"),
        ("max_unpacked_size=100KiB", 500, "it unpacks to more than 102400 bytes"),
        ("max_unpacked_files=2", 500, "it has more than 2 files and directories"),
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
