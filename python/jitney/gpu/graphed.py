"""`jitney.graphs`: a model or function of tensors that is captured when it is called first, and then replayed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jitney.gpu.device import device, find_torch
from jitney.gpu.shapes import AllowedShapes, current_shapes

if TYPE_CHECKING:
    from jitney.gpu.graphs import SizedModel

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Callable[..., Any])
Progress = Callable[[int, int, str], None]


def graphs(model: T, *, sizes: Sequence[int] | None = None, lengths: Sequence[int] | None = None) -> T:
    """The model, run by CUDA graphs on a GPU: `self.model = jitney.graphs(model)` in `setup`.

    It takes and returns tensors whose first dimension is the batch. Each call is run at the next of `sizes`, and where
    there are `lengths` the second dimension at the next of those, filled up with zeros; what is too many is dropped.
    Both are those of the decorator by default, and sizes without any are 1, 2, 4, 8 and so on up to the largest
    batch. Graphs are captured at the first call, which is one of the warm-up where the decorator has `warm_up` or
    `examples`. A model that cannot be captured runs as it is, and the log says why. Without a GPU this returns the
    model itself.
    """
    here = device()
    torch = find_torch()
    if not here.is_gpu or torch is None:
        return model
    made = GraphedModel(model, torch.device(here), sizes, lengths)
    _made.append(made)
    return made  # type: ignore[return-value]  # It is called like the model, and has its attributes.


class GraphedModel:
    """A model that is captured when it is called first."""

    def __init__(
        self, model: Callable[..., Any], place: Any, sizes: Sequence[int] | None, lengths: Sequence[int] | None
    ) -> None:
        self.model = model
        self._sizes, self._lengths = sizes, lengths
        self.notes: list[str] = []
        self.sized: SizedModel | None = None
        self.was_called = False
        self._place = place
        self._progress: Progress = _no_progress
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model answers."""
        self.was_called = True
        sized = self.sized or self._make()
        replay = sized.find(args, kwargs)
        if replay is None and not self.notes and not sized.knows(args, kwargs):
            self._capture(sized, args, kwargs)
            replay = sized.find(args, kwargs)
        if replay is not None:
            return replay()
        with find_torch().inference_mode():
            return self.model(*args, **kwargs)

    def watch(self, progress: Progress) -> None:
        """Tells `progress` of every capture from here on, and notes whether it is called."""
        self._progress, self.was_called = progress, False

    def _make(self) -> SizedModel:
        from jitney.gpu.sized_shapes import make_sized_model

        with self._lock:
            if self.sized is None:
                self.sized = make_sized_model(self.model, self._shapes(), self._place)
            return self.sized

    def _shapes(self) -> AllowedShapes:
        """Its own, else those of the endpoint that calls it first."""
        shapes = current_shapes()
        if self._lengths is not None:
            shapes = shapes._replace(lengths=tuple(sorted(self._lengths)), most=None)
        if self._sizes is not None:
            shapes = shapes._replace(sizes=tuple(sorted(self._sizes)))
        return shapes

    def _capture(self, sized: SizedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Captures for arguments like these. If that fails it is not tried again."""
        with self._lock:
            if self.notes or sized.knows(args, kwargs):
                return
            try:
                sized.capture(args, kwargs, self._progress)
            except Exception as error:
                name = getattr(self.model, "__name__", type(self.model).__name__)
                self.notes.append(f"{name} runs without CUDA graphs: {error}")
                logger.warning("%s", self.notes[-1])


_made: list[GraphedModel] = []


def graphed_models() -> list[GraphedModel]:
    """Those of this process."""
    return _made


def _no_progress(done: int, of: int, what: str) -> None:
    """Nobody asked."""
