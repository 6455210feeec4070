"""Folders with a `handler.py` that has an `EndpointHandler`, as Hugging Face's Inference Endpoints run them: one call
at a time, `{"inputs": ...}` in, JSON out, and every failure is a 400 with `{"error": ...}`."""

from __future__ import annotations

import base64
import importlib.util
import io
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jitney.call.errors import BadInput, DefinitionError
from jitney.definition.decorators import endpoint
from jitney.files.images import open_image
from jitney.files.limits import FileRejected
from jitney.http.request import HttpRequest
from jitney.http.response import Response, encode_json
from jitney.loaders.loader import Loader
from jitney.packing.pack import REQUIREMENTS

logger = logging.getLogger(__name__)

FILE, CLASS, MODULE = "handler.py", "EndpointHandler", "handler"
SOURCE_BYTES_MAX = 4 * 2**20


class EndpointHandlerLoader(Loader):
    """Serves the class of a `handler.py`."""

    format = "EndpointHandler"

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By the class in the file, which is read and not run."""
        file = path / FILE
        if not file.is_file() or file.stat().st_size > SOURCE_BYTES_MAX:
            return False
        return f"class {CLASS}" in file.read_text(encoding="utf-8", errors="replace")

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Always."""
        return f"its {FILE} is a program, which runs when it is loaded"

    def describe(self, path: Path) -> dict[str, Any]:
        """Nothing is known before it is loaded."""
        return {}

    def definition(self, path: Path, description: Mapping[str, Any]) -> type:
        """The class that calls it."""
        needed = path / "requirements.txt"
        return type("HandledModel", (HandledModel,), {"path": path, REQUIREMENTS: needed if needed.is_file() else None})


class HandledModel:
    """A model behind an `EndpointHandler`."""

    path: Path

    def setup(self) -> None:
        """Imports the file, with its folder first among the places to import from, and makes its object."""
        sys.path.insert(0, str(self.path))
        found = importlib.util.spec_from_file_location(MODULE, self.path / FILE)
        if found is None or found.loader is None:
            raise DefinitionError(f"{FILE} cannot be imported")
        module = sys.modules[MODULE] = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        self.handler = getattr(module, CLASS)(str(self.path))

    @endpoint(raw=True, route="POST /predict", route_shared=True)
    def predict(self, request: HttpRequest) -> Response:
        """What the handler answers."""
        try:
            data = read_data(request)
            if "instances" in data and "inputs" not in data:
                told = {name: value for name, value in data.items() if name != "instances"}
                return answer_of({"predictions": [self.handler({"inputs": one, **told}) for one in data["instances"]]})
            return answer_of(self.handler(data), request.headers.get("accept", ""))
        except Exception as error:
            logger.warning("the handler failed", exc_info=True)
            return Response({"error": str(error) or type(error).__name__}, status=400)


def read_data(request: HttpRequest) -> dict[str, Any]:
    """What a handler is called with."""
    data: dict[str, Any]
    if request.media_type.startswith("image/"):
        data = {"inputs": picture_of(request.body)}
    elif request.media_type.startswith("audio/"):
        data = {"inputs": request.body}
    else:
        data = request.json()
    if not isinstance(data, dict) or not {"inputs", "instances"} & data.keys():
        raise BadInput('the body must be a JSON object with "inputs", or an image or audio')
    if request.query and "parameters" not in data:
        data["parameters"] = dict(request.query)
    return data


def picture_of(body: bytes) -> Any:
    """A picture as handlers get it."""
    import PIL.Image  # noqa: F401 - `open_image` looks for it.

    try:
        return open_image(body).convert("RGB")
    except FileRejected as error:
        raise BadInput(f"the picture cannot be read: {error}") from None


def answer_of(found: Any, accept: str = "") -> Response:
    """An answer; a picture is a PNG, in base64 where JSON is wanted."""
    if type(found).__module__.startswith("PIL."):
        buffer = io.BytesIO()
        found.save(buffer, "PNG")
        if accept.startswith("image/"):
            return Response(buffer.getvalue(), media_type="image/png")
        found = base64.b64encode(buffer.getvalue()).decode()
    return Response(encode_json(found), media_type="application/json")
