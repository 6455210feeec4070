"""What we call of vLLM, all of it: reading its options, starting its engine, making its application.

Written against the sources of vLLM 0.10.2 and 0.33.0, which have these functions in different places and with different
parameters; parameters are given by their names, so that versions between them are likely to work. A version that has
moved on is an error that says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

READ = "0.10.2 and 0.33.0"


class VllmModules(NamedTuple):
    """Where a version has its functions."""

    engine: str
    app: str
    state: str
    options: str
    parser: str


KNOWN = (
    VllmModules(
        engine="vllm.entrypoints.launchers.api_server.entry",
        app="vllm.entrypoints.launchers.app",
        state="vllm.entrypoints.launchers.api_server.app_state",
        options="vllm.entrypoints.common.cli_args",
        parser="vllm.utils.argparse_utils",
    ),
    VllmModules(
        engine="vllm.entrypoints.openai.api_server",
        app="vllm.entrypoints.openai.api_server",
        state="vllm.entrypoints.openai.api_server",
        options="vllm.entrypoints.openai.cli_args",
        parser="vllm.utils",
    ),
)
"""The newest first."""


class VllmInterface:
    """The functions of the vLLM that is installed."""

    def __init__(self) -> None:
        try:
            version = importlib.import_module("vllm.version").__version__
        except ModuleNotFoundError as error:
            raise ImportError("vllm_handler needs vLLM in the workers' Python: pip install vllm==0.33.0") from error
        modules = next((one for one in KNOWN if _is_there(one.options)), None)
        if modules is None:
            raise unknown(version, "vllm.entrypoints.common.cli_args is not there")
        self._version = version
        self.engine: Callable[[Any], Any] = self._function(modules.engine, "build_async_engine_client")
        self._build_app = self._function(modules.app, "build_app")
        self._init_state = self._function(modules.state, "init_app_state")
        self._add_options = self._function(modules.options, "make_arg_parser")
        self._check_options = self._function(modules.options, "validate_parsed_serve_args")
        self._parser = self._function(modules.parser, "FlexibleArgumentParser")

    def _function(self, module: str, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(importlib.import_module(module), name, None)
        if found is None:
            raise unknown(self._version, f"{module} has no {name}")
        return found

    def arguments(self, words: list[str], flags: Mapping[str, bool]) -> Any:
        """The options of vLLM's server, from words of its command line and flags by name."""
        try:
            arguments = self._add_options(self._parser()).parse_args(words)
        except SystemExit:
            raise ValueError(
                f"vLLM {self._version} does not take these options of vllm_engine_config: {' '.join(words)} "
                "(what it says about them is in the worker's log)"
            ) from None
        for name, value in flags.items():
            if not hasattr(arguments, name):
                raise ValueError(f"vLLM {self._version} has no option {name!r} for vllm_engine_config")
            setattr(arguments, name, value)
        self._check_options(arguments)
        return arguments

    async def application(self, engine: Any, arguments: Any) -> Any:
        """vLLM's application over an engine that runs."""
        known: dict[str, Any] = {"args": arguments, "engine_client": engine}
        asked = {*_parameters(self._build_app), *_parameters(self._init_state)}
        if "supported_tasks" in asked:
            known["supported_tasks"] = await engine.get_supported_tasks()
        if "model_config" in asked:
            known["model_config"] = engine.model_config
        if "vllm_config" in asked:
            known["vllm_config"] = await engine.get_vllm_config()
        app = self._build_app(**self._given(self._build_app, known))
        known["state"] = app.state
        await self._init_state(**self._given(self._init_state, known))
        return app

    def _given(self, function: Callable[..., Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments for a function, by the names of its parameters."""
        parameters = _parameters(function)
        strange = [name for name, one in parameters.items() if name not in known and one.default is one.empty]
        if strange:
            raise unknown(self._version, f"{function.__name__} asks for {', '.join(strange)}")
        return {name: known[name] for name in parameters if name in known}


def vllm_arguments(interface: VllmInterface, handler: Mapping[str, Any], model_dir: str, name: str) -> Any:
    """The options of vLLM's server for the section `handler` of TorchServe's model-config.yaml.

    The model answers to its own name, to what the file calls it, and to `served_model_name`.
    """
    given = {key: value for key, value in (handler.get("vllm_engine_config") or {}).items() if value is not None}
    model = given.pop("model", None) or handler.get("model_path")
    if not model:
        raise ValueError(
            "model-config.yaml names no model: set handler.model_path to a folder of the archive, or to a name at "
            "Hugging Face's hub"
        )
    names = given.pop("served_model_name", [])
    names = [name, str(model), *([names] if isinstance(names, str) else names)]
    given |= {"model": _inside(model_dir, model), "served_model_name": list(dict.fromkeys(names))}
    adapters = handler.get("adapters") or {}
    if adapters:
        given["lora_modules"] = [f"{key}={_inside(model_dir, path)}" for key, path in adapters.items()]
        given.setdefault("enable_lora", True)
    if handler.get("chat_template"):
        given.setdefault("chat_template", _inside(model_dir, handler["chat_template"]))
    flags = {key: value for key, value in given.items() if isinstance(value, bool)}
    words: list[str] = []
    for key, value in given.items():
        if key not in flags:
            words += [f"--{key.replace('_', '-')}", *_spelt(value)]
    return interface.arguments(words, flags)


def _inside(model_dir: str, path: str) -> str:
    """A file or folder of the archive, or what vLLM is to find by itself."""
    inside = Path(model_dir, path)
    return str(inside) if inside.exists() else str(path)


def _spelt(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [word for one in value for word in _spelt(one)]
    return [json.dumps(value) if isinstance(value, dict) else str(value)]


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def unknown(version: str, what: str) -> ImportError:
    """What is raised for a vLLM that has moved on."""
    return ImportError(
        f"vLLM {version} is not known here: {what}. vllm_handler was written against {READ}: pip install vllm==0.33.0"
    )
