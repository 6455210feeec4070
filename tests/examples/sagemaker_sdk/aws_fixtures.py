"""The fixtures of AWS's conftest.py, for a machine without GPUs and docker, and the one picture that a test fetches."""

from __future__ import annotations

import io
from typing import Any

import pytest
import requests
from PIL import Image

PICTURE = "cat.jpg"
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
