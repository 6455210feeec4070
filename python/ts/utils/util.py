"""Small helpers handlers import: labels, classes of a module, yaml, the typed prediction error."""

from __future__ import annotations

import enum
import functools
import itertools
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from jitney.torchserve.failures import PredictionException
from jitney.torchserve.loading import get_yaml_config, list_classes_from_module

__all__ = [
    "CLEANUP_REGEX", "PT2Backend", "PredictionException", "check_valid_pt2_backend", "deprecated", "get_yaml_config",
    "list_classes_from_module", "load_label_mapping", "map_class_to_label",
]  # fmt: skip

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

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


def check_valid_pt2_backend(backend: object) -> bool:
    """Whether `backend` names a known compile backend."""
    return isinstance(backend, str) and backend in {known.value for known in PT2Backend}


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


def deprecated(version: str, replacement: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a function as deprecated since `version`; calling it warns."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        hint = f", use {replacement} instead" if replacement else ""

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            message = f"{function.__qualname__} is deprecated since version {version}{hint}"
            warnings.warn(message, PendingDeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return wrapper

    return decorate
