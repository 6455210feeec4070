"""`bentoml.models`: the models in the store, and references to models as attributes of a service."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitney.compat.absent import absent_names
from jitney.compat.bentoml import store
from jitney.compat.bentoml.exceptions import MissingDependencyException, NotSupported
from jitney.compat.bentoml.store import StoredModel, Tag, delete, get, list_models

__all__ = ["BentoModel", "HuggingFaceModel", "StoredModel", "Tag", "create", "delete", "get", "list"]

list = list_models
Model = StoredModel
KEPT = ("signatures", "labels", "metadata", "options")
"""What is known of a model beside its files."""


class ModelReference:
    """A model that an object of a service finds in its attribute; it is looked for when it is first read."""

    _found: Any = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._found is None:
            self._found = self.resolve()
        return self._found

    def resolve(self, base_path: Any = None) -> Any:
        """The model itself."""
        raise NotImplementedError


@dataclass
class HuggingFaceModel(ModelReference):
    """The path of a model of the Hugging Face hub: a folder of this name, or what `huggingface_hub` downloads."""

    model_id: str
    revision: str = "main"
    endpoint: str | None = field(default_factory=lambda: os.getenv("HF_ENDPOINT"))
    include: Any = None
    exclude: Any = None

    def resolve(self, base_path: Any = None) -> str:
        """The path of its folder."""
        if os.path.isdir(self.model_id):
            return os.path.abspath(self.model_id)
        try:
            hub = importlib.import_module("huggingface_hub")
        except ImportError:
            text = f"put {self.model_id} into a folder of this name, or: pip install huggingface_hub"
            raise MissingDependencyException(text) from None
        found: str = hub.snapshot_download(
            self.model_id, revision=self.revision, endpoint=self.endpoint, local_dir=base_path,
            cache_dir=os.getenv("BENTOML_HF_CACHE_DIR"), allow_patterns=self.include, ignore_patterns=self.exclude,
        )  # fmt: skip
        return found


class BentoModel(ModelReference):
    """A model of the store."""

    def __init__(self, tag: str | Tag) -> None:
        self.tag = Tag.from_taglike(tag)

    @property
    def stored(self) -> StoredModel:
        """The model in the store."""
        return get(self.tag)

    def resolve(self, base_path: Any = None) -> StoredModel:
        """The same."""
        return self.stored


@contextlib.contextmanager
def create(name: str | Tag, *, module: str = "", **description: Any) -> Iterator[StoredModel]:
    """A new model: what the block writes into its `path` is kept in the store."""
    with tempfile.TemporaryDirectory() as directory:
        yield StoredModel(Tag.from_taglike(name), directory, module)

        def write(path: Path) -> None:
            shutil.copytree(directory, path, dirs_exist_ok=True)

        store.save(name, module, write, {key: one for key, one in description.items() if key in KEPT})


INSTEAD = {
    "import_model": "copy the directory into the store (JITNEY_BENTOML_HOME)",
    "export_model": "copy the directory bentoml.models.get(tag).path",
    "push": "there is no cloud; copy the directory bentoml.models.get(tag).path",
    "pull": "there is no cloud; copy the directory into the store (JITNEY_BENTOML_HOME)",
}

__getattr__ = absent_names("bentoml.models", INSTEAD, error=NotSupported)
