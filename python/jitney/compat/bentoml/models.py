"""`bentoml.models`: the models in the store."""

from __future__ import annotations

from jitney.compat.absent import absent_names
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

__getattr__ = absent_names("bentoml.models", INSTEAD, error=NotSupported)
