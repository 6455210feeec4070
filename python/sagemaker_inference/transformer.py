"""Runs the user's functions: once to load the model, then request by request.

A function may take one more parameter than it must, the context. In a batch each call sees the context of its own
request, and a request that fails leaves the others alone.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from inspect import signature
from typing import Any

from jitney.torchserve.context import Context
from jitney.torchserve.failures import ClientsLeft, PredictionException, mentions_cuda
from jitney.torchserve.row_context import RowContext
from sagemaker_inference import content_types, environment, utils
from sagemaker_inference.default_inference_handler import DefaultInferenceHandler
from sagemaker_inference.errors import BaseInferenceToolkitError, GenericInferenceToolkitError
from sagemaker_inference.logging import get_logger

INTERNAL_ERROR = 500
Function = Callable[..., Any]


class Transformer:
    """The user's functions and the model that they loaded."""

    def __init__(self, default_inference_handler: Any = None) -> None:
        self._default_inference_handler = default_inference_handler or DefaultInferenceHandler()
        self._initialized = False
        self._environment: Any = None
        self._model: Any = None
        self._pre_model_fn: Any = None
        self._model_warmup_fn: Any = None
        self._model_fn: Any = None
        self._transform_fn: Any = None
        self._input_fn: Any = None
        self._predict_fn: Any = None
        self._output_fn: Any = None
        self._context: Any = None

    def validate_and_initialize(self, model_dir: str = environment.model_dir, context: Any = None) -> None:
        """Finds the functions and loads the model, once."""
        if self._initialized:
            return
        self._context = context
        self._environment = environment.Environment()
        self._validate_user_module_and_set_functions()
        if self._pre_model_fn is not None:
            self._run_handler_function(self._pre_model_fn, model_dir)
        self._model = self._run_handler_function(self._model_fn, model_dir)
        if self._model_warmup_fn is not None:
            self._run_handler_function(self._model_warmup_fn, model_dir, self._model)
        self._initialized = True

    def _validate_user_module_and_set_functions(self) -> None:
        default, name = self._default_inference_handler, self._environment.module_name
        module = importlib.import_module(name) if find_spec(name) is not None else None

        def chosen(function: str) -> Any:
            return getattr(module, function, None) or getattr(default, f"default_{function}", None)

        transform = getattr(module, "transform_fn", None)
        if transform and any(getattr(module, step, None) for step in ("input_fn", "predict_fn", "output_fn")):
            raise ValueError(
                "Cannot use transform_fn implementation in conjunction with input_fn, predict_fn, and/or output_fn "
                "implementation"
            )
        self._transform_fn = transform or self._default_transform_fn
        self._pre_model_fn, self._model_warmup_fn = chosen("pre_model_fn"), chosen("model_warmup_fn")
        self._model_fn, self._input_fn = chosen("model_fn"), chosen("input_fn")
        self._predict_fn, self._output_fn = chosen("predict_fn"), chosen("output_fn")

    def transform(self, data: Any, context: Any) -> list[Any]:
        """The answers to the requests of a batch, in their order."""
        return [self._answer(row, context, at, len(data)) for at, row in enumerate(data)]

    def _answer(self, row: Any, context: Any, at: int, count: int) -> Any:
        try:
            self.validate_and_initialize(model_dir=context.system_properties.get("model_dir"), context=context)
            # A request alone has the batch's own context.
            self._context = RowContext(context, at) if count > 1 and isinstance(context, Context) else context
            return self._run(row, context, at)
        except (MemoryError, ClientsLeft):
            raise
        except Exception as error:
            if mentions_cuda(error):
                raise  # The worker says that memory is short.
            return self._failed(error, context, at)

    def _run(self, row: Any, context: Any, at: int) -> Any:
        processors = context.request_processor
        headers = processors[min(at, len(processors) - 1)].get_request_properties()
        content_type = without_parameters(utils.retrieve_content_type_header(headers))
        accept = headers.get("Accept") or headers.get("accept")
        if not accept or accept == content_types.ANY:
            accept = self._environment.default_accept
        body = row.get("body")
        if content_type in content_types.UTF8_TYPES:
            body = body.decode("utf-8")
        result = self._run_handler_function(self._transform_fn, self._model, body, content_type, accept)
        answer, answer_type = result if isinstance(result, tuple) else (result, accept)
        context.set_response_content_type(at, answer_type)
        return answer

    def _failed(self, error: Exception, context: Any, at: int) -> Any:
        if isinstance(error, BaseInferenceToolkitError):
            known = error
        elif isinstance(error, PredictionException):
            known = GenericInferenceToolkitError(error.error_code, error.message)
        else:
            known = GenericInferenceToolkitError(INTERNAL_ERROR, str(error) or type(error).__name__)
        get_logger().error("a request failed with status %s", known.status_code, exc_info=error)
        self.handle_error(context, known, at)
        if has_begun(context, at):  # Its status has left already. The stream breaks off, which clients notice.
            return PredictionException(str(known.message), known.status_code)
        shown = getattr(context, "debug_errors", False) is True
        return f"{known.message}\n{trace_of(error)}" if shown else str(known.message)

    @staticmethod
    def handle_error(context: Any, inference_exception: BaseInferenceToolkitError, at: int = 0) -> None:
        """Sets the status of a request that failed."""
        place = {"idx": at} if at else {}
        phrase = utils.remove_crlf(str(inference_exception.phrase))
        context.set_response_status(code=inference_exception.status_code, phrase=phrase, **place)

    def _default_transform_fn(
        self, model: Any, input_data: Any, content_type: Any, accept: Any, context: Any = None
    ) -> Any:
        data = self._run_handler_function(self._input_fn, input_data, content_type)
        prediction = self._run_handler_function(self._predict_fn, data, model)
        return self._run_handler_function(self._output_fn, prediction, accept)

    def _run_handler_function(self, func: Function, *argv: Any) -> Any:
        taken = len(signature(func).parameters)
        if taken == len(argv):
            return func(*argv)
        if taken == len(argv) + 1:
            return func(*argv, self._context)
        name = getattr(func, "__name__", "the function")
        raise TypeError(f"{name} takes {taken} arguments but {len(argv)} were given.")


def without_parameters(content_type: Any) -> Any:
    """A content type without its parameters, such as its character set."""
    return content_type.partition(";")[0].strip() if isinstance(content_type, str) else content_type


def has_begun(context: Any, at: int) -> bool:
    """Whether a piece of this request's answer was sent."""
    streamed = getattr(context, "streamed", None)
    return isinstance(streamed, set) and at in streamed


def trace_of(error: Exception) -> str:
    """The traceback as text."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
