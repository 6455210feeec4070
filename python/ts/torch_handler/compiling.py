"""Compilation as model-config.yaml configures it.

`pt2: inductor`, `pt2: {backend, mode, ...}` (the old forms) and `pt2: {compile: {enable: true, backend, mode, ...}}`;
what is not ours goes to torch.compile as it is. With `background: true` beside `enable`, or `pt2: {compile:
background}`, a model on a GPU serves as it is until it is compiled.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from ts.torch_handler.formats import is_script
from ts.torch_handler.settings import import_for_effect, need
from ts.utils.util import check_valid_pt2_backend

logger = logging.getLogger(__name__)

DEFAULT_BACKEND = "inductor"
BACKGROUND = "background"
OURS = ("enable", BACKGROUND)
REGISTERED_BY = {"openvino": "openvino.torch"}
"""Backends whose modules are imported only where they are asked for: OpenVINO's takes seconds."""


class CompilePlan(NamedTuple):
    """What is to be compiled when the model is warmed up, at its batch sizes."""

    mode: str | None
    options: dict[str, Any]
    background: bool


def section_of(pt2: Any) -> dict[str, Any] | None:
    """The part of the settings that is about compiling, if it asks for that."""
    if isinstance(pt2, str):
        return {"backend": pt2}
    if not isinstance(pt2, dict):
        return None
    section = pt2.get("compile", pt2 if "export" not in pt2 else None)
    if section == BACKGROUND:
        return {"enable": True, BACKGROUND: True}
    if not isinstance(section, dict) or not section or section.get("enable", "compile" not in pt2) is not True:
        return None
    return section


def compile_options(pt2: Any) -> dict[str, Any] | None:
    """The arguments of torch.compile, or None where it is not configured."""
    section = section_of(pt2)
    if section is None:
        return None
    options = {name: value for name, value in section.items() if name not in OURS}
    options.setdefault("backend", DEFAULT_BACKEND)
    return options if known(options["backend"]) else None


def compile_plan(pt2: Any) -> CompilePlan | None:
    """What to compile at batch sizes; None where nothing is, or by another backend than torch's own."""
    options = compile_options(pt2)
    if options is None or options["backend"] != DEFAULT_BACKEND:
        return None
    return CompilePlan(options.get("mode"), options.get("options") or {}, bool((section_of(pt2) or {}).get(BACKGROUND)))


def known(backend: Any) -> bool:
    """Whether torch.compile has such a backend; an unknown one leaves the model as it is."""
    if not check_valid_pt2_backend(backend):
        logger.warning("pt2: torch.compile backend %r is unknown, the model is not compiled", backend)
        return False
    if backend in REGISTERED_BY:
        import_for_effect(REGISTERED_BY[backend])
    return True


def wants_aot(pt2: Any) -> bool:
    """Whether `pt2: {export: {aot_compile: true}}` marks the file as a compiled library."""
    section = pt2.get("export") if isinstance(pt2, dict) else None
    return isinstance(section, dict) and section.get("aot_compile") is True


def compiled(model: Any, pt2: Any) -> Any:
    """The model, compiled if that is configured and torch can."""
    options = compile_options(pt2)
    if options is None:
        return model
    torch = need("torch", "pt2")
    if is_script(model):
        logger.warning("pt2: %s", SCRIPT_NOTE)
        return model
    if not hasattr(torch, "compile"):
        logger.warning("pt2: torch %s has no torch.compile, the model is not compiled", torch.__version__)
        return model
    try:
        model = torch.compile(model, **options)
    except Exception as error:
        logger.warning("pt2: compiling the model with %s failed, it runs uncompiled: %s", options, error)
        return model
    more = ", ".join(f"{name} {value}" for name, value in options.items() if name != "backend")
    logger.info("Compiled model with backend %s%s", options["backend"], f", {more}" if more else "")
    return model


SCRIPT_NOTE = (
    "A TorchScript program cannot be compiled; pack the model as a model file with its weights, or as an exported "
    "program (.pt2)"
)
