"""Results that lie on a GPU, on their way to the host: the copy is started where the function ran, and waited for
where the answers are written, so that the function can begin with the next batch in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitney.gpu.device import loaded_torch


class Fetching:
    """A result whose tensors are being copied."""

    def __init__(self, torch: Any, result: Any) -> None:
        self._result = _map(torch, result, lambda tensor: tensor.detach().to("cpu", non_blocking=True))
        # Without a busy loop, which would keep a core from the other threads.
        self._done = torch.cuda.Event(blocking=True)
        self._done.record(torch.cuda.current_stream(_first(torch, result).device))
        self._source = result
        """Kept until it is copied."""

    def wait(self) -> Any:
        """The result with its tensors on the host."""
        self._done.synchronize()
        self._source = None
        return self._result


class FetchingFirst(Fetching):
    """What is made of a result that has to come first."""

    def __init__(self, torch: Any, result: Any, make: Callable[[Any], Any]) -> None:
        super().__init__(torch, result)
        self._make = make

    def wait(self) -> Any:
        """What is made of it, in the thread that waits."""
        return self._make(super().wait())


def made_of(result: Any, make: Callable[[Any], Any]) -> Any:
    """What is made of a result on the host: at once if it is there, else where it is waited for."""
    torch = loaded_torch()
    if torch is None or _first(torch, result) is None:
        return make(result)
    return FetchingFirst(torch, result, make)


def start_fetching(result: Any) -> Any:
    """Starts to copy what lies on a GPU; anything else is returned as it is."""
    torch = loaded_torch()
    if torch is None or _first(torch, result) is None:
        return result
    return Fetching(torch, result)


def fetched(result: Any) -> Any:
    """The result on the host."""
    return result.wait() if isinstance(result, Fetching) else result


def _first(torch: Any, result: Any) -> Any:
    """A tensor of the result that lies on a GPU."""
    if isinstance(result, torch.Tensor):
        return result if result.is_cuda else None
    inside = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    return next((one for one in inside if isinstance(one, torch.Tensor) and one.is_cuda), None)


def _map(torch: Any, result: Any, copy: Any) -> Any:
    if isinstance(result, dict):
        return {key: _map(torch, one, copy) for key, one in result.items()}
    if isinstance(result, (list, tuple)):
        return [copy(one) if isinstance(one, torch.Tensor) and one.is_cuda else one for one in result]
    return copy(result) if isinstance(result, torch.Tensor) and result.is_cuda else result
