"""What an entry script returns to choose status and headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from werkzeug.wrappers import Response

JSON = "application/json"
RUN_FAILED = "x-ms-run-function-failed"


class AMLResponse(Response):  # type: ignore[misc]
    """A body, a status and headers. Without a body it is an empty object of JSON."""

    default_mimetype = "text/html"

    def __init__(
        self,
        message: Any,
        status_code: int,
        response_headers: Mapping[str, str] | None = None,
        json_str: bool = False,
        run_function_failed: bool = False,
    ) -> None:
        if json_str or message is None:
            super().__init__(json.dumps({} if message is None else message), status=status_code, mimetype=JSON)
        else:
            super().__init__(message, status=status_code)
        self.headers[RUN_FAILED] = str(run_function_failed)
        for name, value in (response_headers or {}).items():
            if name.lower() == "content-type":
                self.headers.remove(name)
            for one in value.split(","):
                self.headers.add(name, one.strip())
