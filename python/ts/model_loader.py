"""Loads a model directory into a `ts.service.Service`, for `ts.model_service_worker` (see `ts.protocol`)."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from typing import Any

from jitney.torchserve.loading import in_envelope, load_entry_point
from ts.service import Service
from ts.utils.util import get_yaml_config

MANIFEST = os.path.join("MAR-INF", "MANIFEST.json")


class ModelLoader(ABC):
    """Something that makes a service of a model directory."""

    @abstractmethod
    def load(self, *args: Any, **kwargs: Any) -> Service:
        """Imports the handler, initialises it once and returns it with its context."""


class ModelLoaderFactory:
    """Where loaders come from."""

    @staticmethod
    def get_model_loader() -> ModelLoader:
        """The loader of TorchServe's archives."""
        return TsModelLoader()


class TsModelLoader(ModelLoader):
    """Loads unpacked archives."""

    def load(
        self,
        model_name: str,
        model_dir: str,
        handler: str | None = None,
        gpu_id: int | None = None,
        batch_size: int | None = None,
        envelope: str | None = None,
        limit_max_image_pixels: bool = True,
        metrics_cache: Any = None,
    ) -> Service:
        """Imports the handler, initialises it once and returns it with its context."""
        manifest = read_manifest(model_dir)
        settings = read_settings(model_dir, manifest)
        if metrics_cache is not None:
            metrics_cache.set_model_name(model_name)
        service = Service(
            model_name, model_dir, manifest, None, gpu_id, batch_size or 1,
            limit_max_image_pixels, metrics_cache, settings,
        )  # fmt: skip
        if model_dir not in sys.path:
            sys.path.append(model_dir)
        entry_point: Any = load_entry_point(handler or "", service.context)
        if envelope:
            entry_point = in_envelope(envelope, entry_point)
        service._entry_point = entry_point
        return service


def read_manifest(model_dir: str) -> dict[str, Any]:
    """The manifest of an unpacked archive; empty if it has none."""
    path = os.path.join(model_dir, MANIFEST)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        manifest: dict[str, Any] = json.load(file)
    return manifest


def read_settings(model_dir: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The yaml file the manifest names, if it names one that is there."""
    name = (manifest.get("model") or {}).get("configFile")
    path = os.path.join(model_dir, name) if name else ""
    return get_yaml_config(path) if path and os.path.exists(path) else {}
