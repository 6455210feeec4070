"""A store of models: `NAME/VERSION` below a directory, with what is known of each in `model.json`.

The directory is what `JITNEY_BENTOML_HOME` names, or `~/.jitney/bentoml`. It is ours: BentoML's own store is neither
read nor written. Loading a model may run what is pickled in it, as in BentoML: the store holds what its owner saved.
"""

from __future__ import annotations

import datetime
import json
import os
import pickle
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.exceptions import InvalidArgument, NotFound

HOME = "JITNEY_BENTOML_HOME"
DESCRIPTION, LATEST = "model.json", "latest"
CUSTOM_OBJECTS = "custom_objects.pkl"
FRAMEWORKS: dict[str, Any] = {}
"""What saved a model also loads and runs it; they are in `jitney.compat.bentoml.frameworks`."""
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


def home() -> Path:
    """The directory of all models."""
    named = os.environ.get(HOME)
    return (Path(named) if named else Path.home() / ".jitney" / "bentoml") / "models"


@dataclass(frozen=True)
class Tag:
    """The name of a model and its version; without a version the latest is meant."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}:{self.version}"

    @classmethod
    def from_taglike(cls, given: str | Tag) -> Tag:
        """A tag of a text such as `iris_clf:latest`."""
        if isinstance(given, Tag):
            return given
        name, _, version = given.lower().partition(":")
        for part in (name, version or LATEST):
            if not NAME.fullmatch(part):
                raise InvalidArgument(f"{given!r} is no tag: letters, digits, '_', '-' and '.', as in iris_clf:v1")
        return cls(name, version or None)


@dataclass(frozen=True)
class StoredModel:
    """A model in the store."""

    tag: Tag
    path: str
    module: str
    signatures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    creation_time: str = ""

    @property
    def info(self) -> StoredModel:
        """What is known of it."""
        return self

    @property
    def custom_objects(self) -> Mapping[str, Any]:
        """What was saved beside it."""
        file = Path(self.path) / CUSTOM_OBJECTS
        found: Mapping[str, Any] = pickle.loads(file.read_bytes()) if file.is_file() else {}
        return found

    def path_of(self, item: str) -> str:
        """The path of one of its files."""
        return str(Path(self.path) / item)

    def to_runner(
        self, name: str = "", *, max_batch_size: int | None = None, max_latency_ms: float | None = None,
        method_configs: Any = None, embedded: bool = False,
    ) -> Any:  # fmt: skip
        """A runner of its methods, as the signatures say."""
        return FRAMEWORKS[self.module].runner_of(
            self, name or self.tag.name, max_batch_size=max_batch_size, max_latency_ms=max_latency_ms,
            method_configs=method_configs,
        )  # fmt: skip

    def load_model(self, *args: Any, **options: Any) -> Any:
        """The model itself."""
        return FRAMEWORKS[self.module].load_model(self, *args, **options)


def save(tag: str | Tag, module: str, write: Callable[[Path], None], description: Mapping[str, Any]) -> StoredModel:
    """Keeps a model: `write` puts its files into a directory, which appears in the store when it is complete."""
    asked = Tag.from_taglike(tag)
    version = asked.version if asked.version not in (None, LATEST) else _new_version()
    target = home() / asked.name / str(version)
    if target.exists():
        raise InvalidArgument(f"there is a model {asked.name}:{version} already")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        write(made)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        content = {"module": module, "creation_time": now, **description}
        (made / DESCRIPTION).write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    (target.parent / LATEST).write_text(f"{version}\n", encoding="utf-8")
    return get(Tag(asked.name, version))


def get(tag: str | Tag | StoredModel) -> StoredModel:
    """A model of the store."""
    if isinstance(tag, StoredModel):
        return tag
    asked = Tag.from_taglike(tag)
    directory = home() / asked.name
    version = asked.version
    if version in (None, LATEST):
        file = directory / LATEST
        version = file.read_text(encoding="utf-8").strip() if file.is_file() else None
    found = directory / str(version)
    if version is None or not (found / DESCRIPTION).is_file():
        raise NotFound(f"there is no model {asked} in {home()}; bentoml.models.list() tells which there are")
    content = json.loads((found / DESCRIPTION).read_text(encoding="utf-8"))
    return StoredModel(Tag(asked.name, version), str(found), **content)


def list_models(tag: str | Tag | None = None) -> list[StoredModel]:
    """All models, or all versions of one."""
    asked = Tag.from_taglike(tag) if tag is not None else None
    files = sorted(home().glob(f"{asked.name if asked else '*'}/*/{DESCRIPTION}"))
    found = [get(Tag(file.parts[-3], file.parts[-2])) for file in files if not file.parts[-2].startswith(".")]
    wanted = asked.version if asked else None
    return [one for one in found if wanted is None or one.tag.version == wanted]


def delete(tag: str | Tag) -> None:
    """Removes a model; the newest of its other versions becomes the latest."""
    model = get(tag)
    shutil.rmtree(model.path)
    left = sorted(list_models(model.tag.name), key=lambda one: one.creation_time)
    latest = Path(model.path).parent / LATEST
    if left:
        latest.write_text(f"{left[-1].tag.version}\n", encoding="utf-8")
    else:
        shutil.rmtree(latest.parent)


def _new_version() -> str:
    """Versions that sort by time, as file names do."""
    return f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%d%H%M%S}-{secrets.token_hex(3)}"
