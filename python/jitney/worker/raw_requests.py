"""Requests of raw endpoints: what the server says about them in headers that no client can send."""

from __future__ import annotations

import urllib.parse

from jitney.call.errors import BadInput
from jitney.http.request import HttpRequest
from jitney.worker.batch import Row, TensorRow
from jitney.worker.headers import read_pairs, read_request_id

BODY = "body"
METHOD, PATH, MOUNT, QUERY, CLIENT = "jitney method", "jitney path", "jitney mount", "jitney query", "jitney client"


def raw_request(row: Row, meta: bytes, endpoint: str) -> HttpRequest:
    """The request of an item."""
    pairs = read_pairs(meta)
    told = dict(pair for pair in pairs if " " in pair[0])
    if METHOD not in told or isinstance(row, TensorRow):
        raise BadInput(f"{endpoint} takes requests as they came: call it by the path where it is mounted", status=404)
    raw_path, root_path = told[PATH], told[MOUNT]
    whole = urllib.parse.unquote(raw_path)
    request = HttpRequest(
        told[METHOD],
        whole[len(root_path) :] or "/",
        query_string=told[QUERY],
        headers=(pair for pair in pairs if " " not in pair[0] and pair[0] != "url_path"),
        body=row.get(BODY, b""),
        root_path=root_path,
        client=_client(told.get(CLIENT, "")),
        id=read_request_id(meta),
        endpoint=endpoint,
    )
    request.raw_path = raw_path
    return request


def _client(address: str) -> tuple[str, int] | None:
    host, _, port = address.lstrip("/").rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None
