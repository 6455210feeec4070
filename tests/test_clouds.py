"""Models from buckets whose keepers check every signature: moto for S3, Azurite for Azure's blobs.

They are programs of others, which `make test-all` installs: CLOUDS_MOTO and CLOUDS_AZURITE name them.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

pytestmark = pytest.mark.heavy

REGION = "us-east-1"
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's documented account; it is no secret."""


@contextmanager
def keeper(variable: str, *flags: str, **env: str) -> Iterator[str]:
    """A keeper of buckets on a free port, for as long as the block lasts."""
    program = os.environ.get(variable, "")
    if not Path(program).is_file():
        pytest.skip(f"{variable} names no program; it is {program!r} (see `make test-clouds`)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, *(flag.format(port=port) for flag in flags)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ | env, **quiet)
    try:
        until(lambda: listens(process, port), f"{program} listens", 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def listens(process: subprocess.Popen, port: int) -> bool:
    assert process.poll() is None, f"it exited with {process.returncode}"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def torchserve(start, tmp_path: Path, name: str, allowed: str, env: dict[str, str]) -> Server:
    """A server that may fetch from there into a store of its own."""
    store = Store(tmp_path / name)
    config = tmp_path / "config.properties"
    config.write_text(f"{FREE_ADDRESSES}allowed_urls={allowed}\n")
    flags = ["--foreground", "--ncs", "--disable-token-auth", "--enable-model-api"]
    arguments = ["torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config]
    return start(*arguments, wait_for_workers=False, env=env)


def rejected(server: Server, url: str) -> None:
    """It cannot be fetched, and the caller hears it."""
    reply = server.manage("POST", "/models", url=url)
    assert (reply.status_code, reply.json()["type"]) == (400, "DownloadArchiveException"), reply.text


# -- S3 -----------------------------------------------------------------------------------------


def bucket_of_a_user(base: str, archive: Path) -> dict[str, str]:
    """A bucket with the archive in it, and the key of the one user who may read it."""
    import boto3

    def client(service: str, key: str, secret: str):
        keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        return boto3.client(service, endpoint_url=base, region_name=REGION, **keys)

    iam = client("iam", "nobody", "yet")
    iam.create_user(UserName="server")
    made = iam.create_access_key(UserName="server")["AccessKey"]
    policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    iam.put_user_policy(UserName="server", PolicyName="reads", PolicyDocument=policy)
    s3 = client("s3", made["AccessKeyId"], made["SecretAccessKey"])
    s3.create_bucket(Bucket="models")
    s3.put_object(Bucket="models", Key="nlp/echo.mar", Body=archive.read_bytes())
    return {
        "AWS_ACCESS_KEY_ID": made["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"],
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": base,
    }


def test_s3_gives_a_model_to_whom_it_knows(start, tmp_path: Path) -> None:
    archive = Store(tmp_path / "made").mar("echo")
    # After the first three requests, which make a user, moto checks signatures.
    with keeper("CLOUDS_MOTO", "-p", "{port}", INITIAL_NO_AUTH_ACTION_COUNT="3") as base:
        env = bucket_of_a_user(base, archive)
        server = torchserve(start, tmp_path, "known", "s3://models/.*", env)
        server.register("s3://models/nlp/echo.mar")
        assert server.predict("echo", b"hi").text == "hi"
        rejected(server, "s3://models/none.mar")
        forged = torchserve(start, tmp_path, "forged", "s3://models/.*", env | {"AWS_SECRET_ACCESS_KEY": "guessed"})
        rejected(forged, "s3://models/nlp/echo.mar")
        forged.logged("SignatureDoesNotMatch")


# -- Azure --------------------------------------------------------------------------------------


def test_azure_gives_a_model_to_whom_it_knows(start, tmp_path: Path) -> None:
    from azure.storage.blob import BlobServiceClient

    archive = Store(tmp_path / "made").mar("echo")
    place = str(tmp_path / "azurite")
    flags = ("--blobPort", "{port}", "--location", place, "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    with keeper("CLOUDS_AZURITE", *flags) as base:
        endpoint = f"{base}/{AZURITE_ACCOUNT}"
        blobs = BlobServiceClient(endpoint, credential=AZURITE_KEY)
        blobs.create_container("models")
        blobs.get_blob_client("models", "echo.mar").upload_blob(archive.read_bytes())
        env = {
            "AZURE_STORAGE_ACCOUNT_NAME": AZURITE_ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
            "AZURE_STORAGE_ENDPOINT": endpoint,
        }
        server = torchserve(start, tmp_path, "known", "az://models/.*", env)
        server.register("az://models/echo.mar")
        assert server.predict("echo", b"hi").text == "hi"
        rejected(server, "az://models/none.mar")
        guess = env | {"AZURE_STORAGE_ACCOUNT_KEY": "Z3Vlc3NlZA=="}
        forged = torchserve(start, tmp_path, "forged", "az://models/.*", guess)
        rejected(forged, "az://models/echo.mar")
        forged.logged("AuthorizationFailure")
