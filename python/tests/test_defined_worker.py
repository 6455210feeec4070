"""A definition inside the real worker loop: what is on the wire for it."""

from __future__ import annotations

import struct

import wire

from jitney.worker.protocol import CHUNK, REPLY, REPLY_META

SOURCE = """
import jitney

@jitney.model(name="m")
class Model:
    @jitney.batch(max_batch_size=8)
    def half(self, x: list[int], request: list[jitney.Request]) -> list[int]:
        for one in request:
            one.response_headers["X-Who"] = one.headers["who"]
        return [one // 2 if one % 2 == 0 else jitney.BadInput(f"{one} is odd") for one in x]

    @jitney.endpoint
    def spell(self, word: str):
        yield from word
"""


def load(worker, model):
    directory = model(SOURCE, "defined_app.py")
    settings = {"jitney": {"object": "defined_app:Model", "directory": str(directory)}}
    return worker(SOURCE, "defined_app.py", model_yaml_config=settings)


def item(path: str, body: bytes, who: str = "me") -> wire.Item:
    return wire.Item([wire.Param("body", body, "application/json")], headers={"who": who, "url_path": path})
