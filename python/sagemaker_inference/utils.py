"""Small functions that user code may import: files, and the headers of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE_REGEX = re.compile("^[Cc]ontent-?[Tt]ype")


def read_file(path: str, mode: str = "r") -> Any:
    """The content of a file."""
    with open(path, mode) as file:
        return file.read()


def write_file(path: str, data: Any, mode: str = "w") -> None:
    """Writes a file."""
    with open(path, mode) as file:
        file.write(data)


def retrieve_content_type_header(request_property: Mapping[str, Any]) -> Any:
    """The content type among the headers of a request, in any of its spellings, or None."""
    return next((value for key, value in request_property.items() if CONTENT_TYPE_REGEX.match(key)), None)


def parse_accept(accept: str) -> list[str]:
    """The types of an Accept header, in their order."""
    return accept.replace(" ", "").split(",")


def remove_crlf(illegal_string: str) -> str:
    """The text in one line, as a reason phrase has to be."""
    return illegal_string.replace("\r", " ").replace("\n", " ")
