"""Small helpers handlers import: labels, classes of a module, yaml, the typed prediction error."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import json
import logging
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Callable, TypeVar

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

CLEANUP_REGEX = re.compile("<.*?>")
"""HTML tags, which text handlers remove."""


class PT2Backend(str, enum.Enum):
    """Backends `torch.compile` is known to offer."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    NVFUSER = "nvfuser"
    AOT_NVFUSER = "aot_nvfuser"
    AOT_CUDAGRAPHS = "aot_cudagraphs"
    CUDAGRAPHS = "cudagraphs"
    OFI = "ofi"
    FX2TRT = "fx2trt"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    IPEX = "ipex"
    ONNXRT = "onnxrt"
    TVM = "tvm"
    TORCHXLA_TRACE_ONCE = "torchxla_trace_once"
    OPENXLA = "openxla"
    HPU_BACKEND = "hpu_backend"


class PredictionException(Exception):
    """Raised by a handler to choose the status and message its request fails with."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


def check_valid_pt2_backend(backend: object) -> bool:
    """Whether `backend` names a known compile backend."""
    return isinstance(backend, str) and backend in {known.value for known in PT2Backend}


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """The classes defined in `module` itself, optionally only those derived from `parent_class`."""
    return [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and (parent_class is None or issubclass(cls, parent_class))
    ]


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Reads index_to_name.json; None (and a warning) if there is no such file.

    Values are labels, or lists whose last element is the label; the form
    `{"object_type_names": [...]}` numbers its labels by position.
    """
    if not os.path.isfile(mapping_file_path):
        logger.warning("%s is missing. Inference output will not include class name.", mapping_file_path)
        return None
    with open(mapping_file_path, encoding="utf-8") as file:
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise ValueError('index_to_name mapping should be in "class":"label" json format')
    if isinstance(mapping.get("object_type_names"), list):
        mapping = {str(i): label for i, label in enumerate(mapping["object_type_names"])}
    return {key: _label(value) for key, value in mapping.items()}


def _label(value: Any) -> str:
    label = value[-1] if isinstance(value, list) and value else value
    if not isinstance(label, str):
        raise ValueError("labels in mapping must be either str or list of str")
    return label


def map_class_to_label(
    probs: Sequence[Sequence[Any]],
    mapping: dict[str, str] | None = None,
    lbl_classes: Iterable[Iterable[Any]] | None = None,
) -> list[dict[str, Any]]:
    """One dictionary of label to probability per row; labels are numbers without a mapping."""
    if not (mapping is None or isinstance(mapping, dict)):
        raise ValueError("Mapping must be a dict")
    if lbl_classes is None:
        lbl_classes = itertools.repeat(range(len(probs[0]) if len(probs) else 0))
    return [
        {(mapping[str(cls)] if mapping is not None else str(cls)): prob for cls, prob in zip(classes, row)}
        for classes, row in zip(lbl_classes, probs)
    ]


def get_yaml_config(yaml_file_path: str) -> dict[str, Any]:
    """Reads a yaml file; PyYAML must be installed."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(f"reading {yaml_file_path} needs PyYAML: pip install pyyaml") from error
    with open(yaml_file_path, encoding="utf-8") as file:
        return yaml.safe_load(file) or {}


def deprecated(version: str, replacement: str = "") -> Callable[[F], F]:
    """Marks a function as deprecated since `version`; calling it warns."""

    def decorate(function: F) -> F:
        hint = f", use {replacement} instead" if replacement else ""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            message = f"{function.__qualname__} is deprecated since version {version}{hint}"
            warnings.warn(message, PendingDeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate
