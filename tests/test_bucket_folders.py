"""Folders of buckets, by the identity that a machine has in its cloud; buckets and metadata are the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.archives import Store
from harness.clouds import ROLE, Cloud, one_cloud
from harness.server import Server


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Buckets and metadata servers."""
    with one_cloud() as cloud:
        yield cloud


def identities(cloud: Cloud, tmp_path: Path) -> dict[str, tuple[str, dict[str, str], str]]:
    """By name: a folder, the variables of the machine, and where its token comes from."""
    jwt, pod = tmp_path / "jwt", tmp_path / "pod"
    jwt.write_text("jwt")
    pod.write_text("pod")
    s3 = {"AWS_ENDPOINT_URL": cloud.base, "AWS_DEFAULT_REGION": "eu-west-1", "AWS_ALLOW_HTTP": "true"}
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ENDPOINT": cloud.base, "AZURE_ALLOW_HTTP": "true"}
    pod_identity = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{cloud.base}/pod-identity",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(pod),
    }
    service_account = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(jwt),
        "AWS_ROLE_ARN": ROLE,
        "AWS_ENDPOINT_URL_STS": f"{cloud.base}/sts",
    }
    task = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/of-the-task"}
    return {
        "EC2": ("s3://models/echo/", s3, "169.254.169.254/latest/api/token"),
        "ECS": ("s3://models/echo/", s3 | task, "169.254.170.2/v2/credentials/of-the-task"),
        "EKS pod": ("s3://models/echo/", s3 | pod_identity, "/pod-identity"),
        "IRSA": ("s3://models/echo/", s3 | service_account, "/sts"),
        "GCE": ("gs://models/echo/", {"GOOGLE_BASE_URL": cloud.base}, "metadata.google.internal/"),
        "Azure": ("az://models/echo/", azure, "169.254.169.254/metadata/identity/oauth2/token"),
    }


@pytest.mark.parametrize("who", ["EC2", "ECS", "EKS pod", "IRSA", "GCE", "Azure"])
def test_a_folder_comes_by_the_identity_of_the_machine(
    who: str, start: Callable[..., Server], cloud: Cloud, tmp_path: Path
) -> None:
    files = {
        "echo.mar": Store(tmp_path / "made").mar("echo").read_bytes(),
        "a/one.txt": b"1",
        "a/two.txt": b"2",
        "a/": b"",
    }
    cloud.put("models/echo", files)
    cloud.put("models/echo-of-others", {"x.mar": b"not ours"})
    url, env, place = identities(cloud, tmp_path)[who]
    server = start("serve", url, env=env | cloud.proxied)
    assert server.predict("echo", b"hi").text == "hi"
    assert any(told.startswith(place) for told in cloud.told), cloud.told


def refused(binary: Path, url: str, **env: str) -> str:
    """What a start says that ends by itself, with an error."""
    env = {"PATH": os.environ["PATH"], **env}
    command = [str(binary), "serve", "--port", "0", url]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_folder_that_is_empty_or_climbs_is_said(binary: Path, cloud: Cloud, tmp_path: Path) -> None:
    env = {"GOOGLE_BASE_URL": cloud.base, "TMPDIR": str(tmp_path), **cloud.proxied}
    assert "cannot fetch gs://models/none/: there is nothing below it" in refused(binary, "gs://models/none/", **env)
    cloud.put("models/evil", {"../../escaped.txt": b"x"})
    assert "cannot fetch gs://models/evil/" in refused(binary, "gs://models/evil/", **env)
    assert not list(tmp_path.parent.rglob("escaped.txt"))
    cloud.put("models/echo", {"echo.mar": b"1"})
    limited = refused(binary, "gs://models/echo/", JITNEY_MAX_UNPACKED_FILES="0", **env)
    assert "it holds more than 0 files" in limited or "max_unpacked_files" in limited
    nobody = refused(binary, "gs://models/echo/", **{**env, "GOOGLE_BEARER_TOKEN": "of somebody else"})
    assert "cannot fetch gs://models/echo/" in nobody
