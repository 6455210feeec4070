"""Local mode: the archive is unpacked, the variables are set, and the server runs until the endpoint is deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import requests

from sagemaker.deserializers import NumpyDeserializer
from sagemaker.serializers import NumpySerializer

URL = "http://127.0.0.1:8080"
START_SECONDS = 300.0


class Predictor:
    """An endpoint: a server and the way to ask it."""

    def __init__(self, process: subprocess.Popen[bytes], base: Path) -> None:
        self.process, self.base = process, base
        self.serializer: Any = NumpySerializer()
        self.deserializer: Any = NumpyDeserializer()

    def predict(self, data: Any) -> Any:
        """One request."""
        headers = {"Content-Type": self.serializer.CONTENT_TYPE, "Accept": self.deserializer.ACCEPT}
        body = self.serializer.serialize(data)
        reply = requests.post(f"{URL}/invocations", data=body, headers=headers, timeout=START_SECONDS)
        assert reply.ok, f"{reply.status_code} {reply.text}"
        return self.deserializer.deserialize(reply.content)

    def delete_endpoint(self) -> None:
        """Ends the server as SageMaker does."""
        self.process.terminate()
        assert self.process.wait(START_SECONDS) == 0
        shutil.rmtree(self.base)


class PyTorchModel:
    """A model of the SDK's, with those arguments that the tests give."""

    def __init__(
        self,
        model_data: str,
        role: str,
        entry_point: str,
        model_server_workers: int | None = None,
        env: dict[str, str] | None = None,
        **_unused: Any,
    ) -> None:
        del role  # Whose model it is; nobody asks here.
        self.archive, self.script = Path(model_data.removeprefix("file://")), Path(entry_point)
        self.env = {**(env or {}), "SAGEMAKER_PROGRAM": self.script.name}
        if model_server_workers:
            self.env["SAGEMAKER_MODEL_SERVER_WORKERS"] = str(model_server_workers)

    def deploy(self, _count: int, _instance_type: str) -> Predictor:
        """Starts the server and waits for /ping."""
        base = Path(tempfile.mkdtemp(prefix="ml-"))
        code = base / "model" / "code"
        code.mkdir(parents=True)
        with tarfile.open(self.archive) as archive:
            archive.extractall(base / "model", filter="data")
        shutil.copy(self.script, code)
        env = {**os.environ, **self.env, "SAGEMAKER_BASE_DIR": str(base)}
        process = subprocess.Popen([os.environ["JITNEY_BIN"], "serve"], env=env, cwd=base)
        deadline = time.monotonic() + START_SECONDS
        while not is_there(process):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.2)
        return Predictor(process, base)


def is_there(process: subprocess.Popen[bytes]) -> bool:
    """Whether /ping says that the model is loaded."""
    assert process.poll() is None, "the server ended"
    try:
        return requests.get(f"{URL}/ping", timeout=START_SECONDS).ok
    except requests.ConnectionError:
        return False
