"""Precision and memory format: one place that changes a model and its inputs the same way."""

from __future__ import annotations

from typing import Any

from ts.torch_handler.settings import HandlerSettings, need


def shaped_model(model: Any, settings: HandlerSettings) -> Any:
    """The model in the configured precision and memory format."""
    torch = need("torch", "a torch handler")
    if settings.precision != "float32":
        model = model.to(getattr(torch, settings.precision))
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def shaped_input(value: Any, settings: HandlerSettings) -> Any:
    """Tensors, also a list of them, as the model wants them; anything else, and integers, as they are."""
    torch = need("torch", "a torch handler")
    if type(value) is list:
        return [shaped_input(part, settings) for part in value]
    if not torch.is_tensor(value) or not value.is_floating_point():
        return value
    value = value.to(getattr(torch, settings.precision)) if settings.precision != "float32" else value
    if settings.channels_last and value.dim() == 4:
        value = value.contiguous(memory_format=torch.channels_last)
    return value


def plain_output(value: Any, settings: HandlerSettings) -> Any:
    """The model's answer in single precision, whatever it computed in."""
    if settings.precision == "float32":
        return value
    torch = need("torch", "a torch handler")
    if torch.is_tensor(value):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)((name, plain_output(part, settings)) for name, part in value.items())
    if type(value) in (list, tuple):
        return type(value)(plain_output(part, settings) for part in value)
    return value
