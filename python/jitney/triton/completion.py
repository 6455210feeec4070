"""What a `model.py` adds to its configuration, told to the server before a worker is there: `python -m
jitney.triton.completion FILE CONFIGURATION ANSWER`, the second in JSON, the third a file that gets JSON.

The model is imported and not made: `auto_complete_config` is a static method.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jitney.triton import types
from jitney.triton.model import completed, model_class


def tensors(config: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a whole configuration, as the server reads those of a definition."""
    batched = config.get("max_batch_size", 0) > 0

    def packed(one: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": one["name"],
            "datatype": types.from_config(one["data_type"]),
            "shape": [-1] * batched + [int(size) for size in one["dims"]],
            "required": not one.get("optional", False),
            "rows": batched and not one.get("allow_ragged_batch", False),
            "checked": True,
        }

    inputs, outputs = ([packed(one) for one in config.get(kind) or ()] for kind in ("input", "output"))
    items = "rows" if batched else "whole"
    return {"inputs": inputs, "outputs": outputs, "items": items, "takes_any": not inputs}


def main(file: str, config: str, answer: str) -> None:
    """Writes down what the model completes."""
    whole = completed(model_class(file), json.loads(config))
    told = {"tensors": tensors(whole), "max_batch_size": whole.get("max_batch_size", 0)}
    Path(answer).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
