"""A handler's model on a GPU: captured at its batch sizes while it is loaded, and replayed for its batches.

The shape of a batch comes from a sample. Where there is none it comes from the first batches: when a second one of
the same shape comes, the model is captured for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from jitney.gpu.capture import Capture, CudaCapture
from jitney.gpu.graphs import Progress, SizedModel, Variant
from jitney.gpu.inputs import CannotCapture, ModelInput
from ts.torch_handler.devices import shaped_input
from ts.torch_handler.settings import HandlerSettings, need

logger = logging.getLogger(__name__)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

SHAPES_WATCHED = 16
"""Where there is no sample: of so many shapes it is remembered that they came once."""


def capture_for(device: Any, stream: Any) -> Capture | None:
    """What captures models on a device; None where there is no such thing."""
    return CudaCapture(device, stream) if getattr(device, "type", None) == "cuda" else None


class ModelGraphs:
    """The graphs of one handler's model, and the shapes that may become some."""

    def __init__(
        self,
        model: Any,
        capture: Capture,
        sizes: Sequence[int],
        lengths: Sequence[int],
        settings: HandlerSettings,
    ) -> None:
        to_single = settings.precision != "float32"
        self.sized = SizedModel(model, capture, sizes, lengths, to_single)
        self.settings = settings
        self.seen: set[Any] | None = None
        """The shapes that came once; None: shapes are not watched."""

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
        """How to answer a batch by replaying; None if the model has to run."""
        replay = self.sized.find(args, kwargs)
        if replay is None and self.seen is not None and self._came_before(args, kwargs):
            self._capture_now(args, kwargs)
            replay = self.sized.find(args, kwargs)
        return replay

    def capture(self, given: Arguments, progress: Progress) -> None:
        """Captures the model for such arguments, shaped for it; raises CannotCapture."""
        self.sized.capture(*given, progress)

    def add(self, variants: Sequence[Variant]) -> None:
        """More ways to compute the model, to be tried when it is captured."""
        self.sized.variants += variants

    def watch(self) -> None:
        """From now on shapes of batches that come again are captured."""
        self.seen = set()

    def shaped(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Arguments of the model on its device, in its precision and memory format."""
        torch = need("torch", "a torch handler")
        device = getattr(self.sized.recorder, "device", None)
        given = ModelInput(args, kwargs)
        with torch.inference_mode():
            tensors = [shaped_input(tensor.to(device or tensor.device), self.settings) for tensor in given.tensors]
        return given.with_tensors(tensors)

    def _came_before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        given = ModelInput(args, kwargs, bool(self.sized.lengths))
        signature, seen = given.signature(), self.seen
        if seen is None or signature is None or self.sized.shape_for(given) is None:
            return False
        if signature in seen:
            return True
        if len(seen) >= SHAPES_WATCHED:
            self._end_watch("its batches have too many different shapes")
        else:
            seen.add(signature)
        return False

    def _capture_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """While requests wait, and other threads use the device."""
        if self.sized.knows(args, kwargs):
            self._end_watch("its batches have too many different shapes")
            return
        try:
            self.sized.capture(*self.shaped(args, kwargs), lambda done, of, what: None)
        except CannotCapture as error:
            self._end_watch(str(error))
            return
        logger.info(
            "Captured CUDA graphs for the shape of the first batches, %d in all; a file jitney_sample.* in the archive "
            "has that done before the model is ready",
            len(self.sized),
        )

    def _end_watch(self, why: str) -> None:
        self.seen = None
        if not len(self.sized):
            logger.info("The model runs without CUDA graphs: %s", why)

    def describe(self) -> dict[str, Any]:
        """What `describe_handle` shows."""
        lengths = {"lengths": self.sized.lengths} if self.sized.lengths else {}
        about = {"count": len(self.sized), "sizes": self.sized.captured_sizes(), **lengths, "bytes": self.sized.bytes}
        return {"cudaGraphs": about} if len(self.sized) else {}
