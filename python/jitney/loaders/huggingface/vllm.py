"""Requests and answers of the routes that vLLM and Text Embeddings Inference added to OpenAI's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from jitney.call.errors import BadInput
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.network import TokenRow
from jitney.loaders.huggingface.task import fields_of, several, text_of


class VllmRequest:
    """The JSON of one request."""

    def __init__(self, request: HttpRequest) -> None:
        self.fields = fields_of(request)
        self.id = request.id

    def texts(self, *names: str) -> list[str]:
        """The text, or the texts, of the first of these fields that is there."""
        name = next((one for one in names if self.fields.get(one) is not None), None)
        if name is None:
            raise BadInput(f"{' or '.join(names)} is missing: a text or a list of texts")
        given, _ = several(self.fields[name])
        return [text_of(one, name) for one in given]

    def answer(self, kind: str, rows: Sequence[TokenRow], **more: Any) -> dict[str, Any]:
        """An answer with the fields that all have."""
        tokens = sum(len(row.ids) for row in rows)
        head = {"id": f"{kind}-{self.id}", "created": int(time.time()), "model": self.fields["model"]}
        return {**head, **more, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
