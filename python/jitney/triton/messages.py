"""What a model of the Python backend gets and gives: tensors, requests, responses, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from jitney.triton import types
from jitney.values.tensor import RawTensor

SEQUENCE_START, SEQUENCE_END = 1, 2
"""Flags of a request."""
COMPLETE_FINAL = 1
"""The flag of a last response."""


class TritonModelException(Exception):  # Triton's name.
    """What a model raises."""


class TritonError:
    """Why a request failed."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = str(message), code

    def message(self) -> str:
        """What went wrong."""
        return self._message

    def code(self) -> int:
        """Its kind."""
        return self._code

    def __str__(self) -> str:
        return self._message


class BackendTensor:
    """A named array."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self._held = array
        """An array of numpy, what came over the wire, or any object with DLPack."""

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> BackendTensor:
        """A tensor in the memory of another library's."""
        if not hasattr(tensor, "__dlpack__"):  # A capsule, as `to_dlpack` gives it.
            tensor = _Capsule(tensor)
        return BackendTensor(name, tensor)

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Any:
        """Its elements; texts are bytes."""
        import numpy

        held = self._held
        if isinstance(held, RawTensor):
            self._held = held.array()
        elif not isinstance(held, numpy.ndarray) and hasattr(held, "__dlpack__"):
            self._held = held.cpu().numpy() if hasattr(held, "cpu") else numpy.from_dlpack(held)
        elif not isinstance(held, numpy.ndarray):
            self._held = numpy.asarray(held)
        return self._held

    def triton_dtype(self) -> int:
        """The number of its type."""
        held = self._held
        return types.NUMBERS[held.datatype if isinstance(held, RawTensor) else types.of_array(self.as_numpy())]

    def shape(self) -> list[int]:
        """Its shape."""
        return list(self._held.shape if isinstance(self._held, RawTensor) else self.as_numpy().shape)

    def is_cpu(self) -> bool:
        """Whether its memory is the processor's."""
        device = getattr(self._held, "__dlpack_device__", None)
        return device is None or int(device()[0]) in (1, 3)

    def to_dlpack(self) -> Any:
        """A capsule for other libraries."""
        return self.__dlpack__()

    def __dlpack__(self, stream: Any = None, **options: Any) -> Any:
        held = self._held if hasattr(self._held, "__dlpack__") else self.as_numpy()
        return held.__dlpack__() if stream is None else held.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> Any:
        held = self._held if hasattr(self._held, "__dlpack_device__") else self.as_numpy()
        return held.__dlpack_device__()

    @property
    def raw(self) -> Any:
        """What came over the wire, if nobody has looked at it, or its elements."""
        return self._held if isinstance(self._held, RawTensor) else self.as_numpy()


class _Capsule:
    """A capsule of the processor's memory, as an object that libraries take."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class InferenceResponse:
    """What a model answers, or why it cannot."""

    def __init__(
        self,
        output_tensors: Sequence[BackendTensor] | None = None,
        error: TritonError | str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._tensors = list(output_tensors or ())
        self._error = TritonError(error) if isinstance(error, str) else error
        self._parameters = dict(parameters or {})

    def output_tensors(self) -> list[BackendTensor]:
        """Its tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it failed."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Why it failed."""
        return self._error

    def parameters(self) -> str:
        """Its parameters in JSON."""
        return json.dumps(self._parameters)

    @property
    def has_parameters(self) -> bool:
        """Whether it has any."""
        return bool(self._parameters)


class ResponseSender:
    """Where the responses of a decoupled model go."""

    def __init__(
        self, send: Callable[[InferenceResponse | None, bool], None], is_cancelled: Callable[[], bool]
    ) -> None:
        self._send, self.is_cancelled = send, is_cancelled
        self._closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends a response; with the flag of a last one there are no more."""
        if self._closed:
            raise TritonModelException("a response was sent after the final one")
        if response is None and not flags & COMPLETE_FINAL:
            raise TritonModelException("a response is missing, or the flag of the final one")
        self._closed = bool(flags & COMPLETE_FINAL)
        self._send(response, self._closed)


class InferenceRequest:
    """A request to the model, or one of the model to another."""

    caller: ClassVar[Any] = None
    """What calls other models, in a worker."""

    def __init__(
        self,
        model_name: str | bytes = "",
        requested_output_names: Sequence[str] = (),
        inputs: Sequence[BackendTensor] = (),
        request_id: str = "",
        correlation_id: int | str = 0,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Any = None,
        trace: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model_name.decode() if isinstance(model_name, bytes) else str(model_name)
        self._outputs, self._inputs = list(requested_output_names), list(inputs)
        self._id, self._sequence, self._version = request_id, correlation_id, model_version
        self._flags, self._timeout, self._trace = flags, timeout, trace
        self._parameters = dict(parameters or {})
        self.sender: ResponseSender | None = None
        """Where the answers of a decoupled model go."""

    def inputs(self) -> list[BackendTensor]:
        """Its tensors."""
        return self._inputs

    def request_id(self) -> str:
        """The client's id of it."""
        return self._id

    def correlation_id(self) -> int | str:
        """The id of its sequence; 0 if it has none."""
        return self._sequence

    def requested_output_names(self) -> list[str]:
        """The outputs that are asked for."""
        return self._outputs

    def model_name(self) -> str:
        """The model that it is for."""
        return self._model

    def model_version(self) -> int:
        """Its version; -1 for the newest."""
        return self._version

    def flags(self) -> int:
        """Whether a sequence begins or ends."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Says whether a sequence begins or ends."""
        self._flags = flags

    def set_release_flags(self, flags: int) -> None:
        """A request is always released."""

    def timeout(self) -> int:
        """The client's timeout in microseconds; 0 without one."""
        return self._timeout

    def parameters(self) -> str:
        """The client's own parameters in JSON."""
        return json.dumps(self._parameters)

    def trace(self) -> Any:
        """What was given as its trace."""
        return self._trace

    def get_response_sender(self) -> ResponseSender:
        """Where the responses of a decoupled model go."""
        if self.sender is None:
            raise TritonModelException("the model is not decoupled: execute returns its responses")
        return self.sender

    def is_cancelled(self) -> bool:
        """Whether its client has left."""
        return self.sender is not None and self.sender.is_cancelled()

    def exec(self, decoupled: bool = False, execution_timeout: int | None = None) -> Any:
        """Calls the model that it names and waits: for its response, or for an iterator of them. A call that
        has no answer after `execution_timeout` microseconds ends with an error; a stream has to have begun by then."""
        return self._calls().call(self, decoupled, execution_timeout or 0)

    async def async_exec(self, decoupled: bool = False, execution_timeout: int | None = None) -> Any:
        """The same inside an event loop."""
        return await self._calls().call_async(self, decoupled, execution_timeout or 0)

    def _calls(self) -> Any:
        if self.caller is None:
            raise TritonModelException("only a worker of the server can call other models")
        return self.caller
