"""`bentoml.models`: the models in the store."""

from __future__ import annotations

from typing import Any

from jitney.compat.bentoml.exceptions import NotSupported
from jitney.compat.bentoml.store import StoredModel, Tag, delete, get, list_models

__all__ = ["StoredModel", "Tag", "delete", "get", "list"]

list = list_models
Model = StoredModel

INSTEAD = {
    "HuggingFaceModel": "download it in the service's __init__, for example with huggingface_hub.snapshot_download",
    "BentoModel": "use bentoml.models.get(tag).path in the service's __init__",
    "create": "save it with bentoml.picklable_model.save_model, or of the module of its framework",
    "import_model": "copy the directory into the store (JITNEY_BENTOML_HOME)",
    "export_model": "copy the directory bentoml.models.get(tag).path",
    "push": "there is no cloud; copy the directory bentoml.models.get(tag).path",
    "pull": "there is no cloud; copy the directory into the store (JITNEY_BENTOML_HOME)",
}


def __getattr__(name: str) -> Any:
    if name not in INSTEAD:
        raise AttributeError(f"module 'bentoml.models' has no attribute {name!r}")

    def raise_it(*args: Any, **kwargs: Any) -> Any:
        raise NotSupported(f"bentoml.models.{name} is not in jitney.compat: {INSTEAD[name]}")

    return raise_it
