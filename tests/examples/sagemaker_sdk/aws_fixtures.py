"""The fixtures of AWS's conftest.py, for a machine without GPUs and docker, and the one picture that a test fetches."""

from __future__ import annotations

import importlib.util
import io
import sys
from types import ModuleType
from typing import Any

import pytest
import requests
from PIL import Image

PICTURE = "cat.jpg"
SDKS = ("boto3", "botocore")
"""Imported by what asks AWS, which no test here does."""
GET = requests.get


@pytest.fixture(scope="session")
def use_gpu() -> bool:
    """There is none."""
    return False


@pytest.fixture(scope="session")
def image_uri() -> str:
    """The name of an image; nothing is fetched."""
    return "jitney:cpu"


@pytest.fixture(scope="session")
def docker_image(image_uri: str) -> str:
    """The same, as the tests of the images call it."""
    return image_uri


@pytest.fixture(scope="session")
def framework_version() -> str:
    """The torch of AWS's last images with TorchServe."""
    return "2.6.0"


@pytest.fixture(autouse=True)
def skip_without_gpu(request: pytest.FixtureRequest) -> None:
    """As AWS's conftest.py reads its mark."""
    if request.node.get_closest_marker("skip_cpu"):
        pytest.skip("Skipping the test on CPU")


@pytest.fixture(scope="session")
def instance_type() -> str:
    """SageMaker's word for this machine."""
    return "local"


@pytest.fixture(scope="session")
def sagemaker_local_session() -> None:
    """Not needed."""


def get(url: str, **options: Any) -> Any:
    """As requests does, but for the picture."""
    if not url.endswith(PICTURE):
        return GET(url, **options)
    file, reply = io.BytesIO(), requests.Response()
    Image.new("RGB", (300, 280), (120, 90, 60)).save(file, "JPEG")
    reply.status_code, reply._content = 200, file.getvalue()
    return reply


requests.get = get
for name in SDKS:
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = ModuleType(name)
