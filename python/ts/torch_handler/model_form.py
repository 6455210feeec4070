"""The form in which a model is fastest on its GPU, where its settings leave that open: measured while it is loaded.

Channels-last is another order of the same numbers, so a model of images gets it where it is faster. Half precision
computes other numbers, so it is only told what it would bring.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from jitney.gpu.capture import Capture
from jitney.gpu.graphs import RunShape, first_rows
from jitney.gpu.inputs import ModelInput
from jitney.gpu.trees import difference, rebuilt
from ts.torch_handler.devices import shaped_input, shaped_model
from ts.torch_handler.settings import HandlerSettings, need

logger = logging.getLogger(__name__)

torch: Any = need("torch", "a torch handler")

HALF = "float16"
WORTH = 0.97
"""Another form must leave no more than this of the time; less cannot be told from noise."""


class Trial(NamedTuple):
    """What a batch takes in one form, and the first rows of its answer."""

    microseconds: int
    answer: Any


class ModelForm:
    """Tries forms of a model with a batch of the largest size. Every form is captured as it would be to serve."""

    def __init__(self, model: Any, batch: Any, size: int, capture: Callable[[], Capture | None]) -> None:
        self.model, self.size, self.capture = model, size, capture
        self.sample = ModelInput((batch,), {})
        self.notes: list[str] = []

    def chosen(self, settings: HandlerSettings, tell_half: bool) -> HandlerSettings:
        """The settings with the memory format where they leave it open; the model is in that form."""
        choose = settings.channels_last is None and self._has_convolutions()
        usual = self._tried(self.model, settings) if choose or tell_half else None
        if usual is not None and choose:
            settings, usual = self._with_layout(settings, usual)
        if usual is not None and tell_half:
            self._tell_half(settings, usual)
        torch.cuda.empty_cache()
        return settings

    def _has_convolutions(self) -> bool:
        """Whether there are some, for images, and their author has not chosen another layout himself."""
        images = all(tensor.dim() == 4 and tensor.is_floating_point() for tensor in self.sample.tensors)
        weights = [weight for weight in self.model.parameters() if weight.dim() == 4]
        return images and bool(weights) and all(weight.is_contiguous() for weight in weights)

    def _with_layout(self, settings: HandlerSettings, usual: Trial) -> tuple[HandlerSettings, Trial]:
        other = settings._replace(channels_last=True)
        trial = self._tried(self.model, other)
        if trial is not None and trial.microseconds <= WORTH * usual.microseconds:
            differs = difference(trial.answer, usual.answer, other_way=True)
            told = self._compared(trial, usual)
            if differs is None:
                self.notes.append(f"The model runs in channels-last, which takes {told} (jitney.channels_last: false)")
                return other, trial
            self.notes.append(f"Channels-last would take {told}, but its answers differ: {differs}")
        self.model.to(memory_format=torch.contiguous_format)
        return settings, usual

    def _tell_half(self, settings: HandlerSettings, usual: Trial) -> None:
        """Of a copy, since rounded weights cannot be turned back."""
        try:
            half = copy.deepcopy(self.model)
        except Exception as error:  # No memory for two, or something that cannot be copied.
            logger.debug("half precision was not tried: %s", error)
            return
        trial = self._tried(half, settings._replace(precision=HALF))
        if trial is not None and trial.microseconds <= WORTH * usual.microseconds:
            told = self._compared(trial, usual)
            self.notes.append(
                f"Half precision would take {told}; to have it, add to model-config.yaml: jitney: {{precision: {HALF}}}"
            )

    def _compared(self, trial: Trial, usual: Trial) -> str:
        ours, theirs = trial.microseconds / 1e3, usual.microseconds / 1e3
        return f"{ours:.2f} ms instead of {theirs:.2f} for a batch of {self.size}"

    def _tried(self, model: Any, settings: HandlerSettings) -> Trial | None:
        """None if the model cannot be captured in that form."""
        try:
            model = shaped_model(model, settings)
            with torch.inference_mode():
                return self._trial(model, settings)
        except Exception as error:
            logger.debug("a form of the model was not tried: %s", error)
            return None

    def _trial(self, model: Any, settings: HandlerSettings) -> Trial | None:
        capture = self.capture()  # With memory of its own, which is free again when the trial is over.
        if capture is None:
            return None
        given = ModelInput(*self.sample.with_tensors([shaped_input(one, settings) for one in self.sample.tensors]))
        room = given.room(self.size, None)
        given.sample_into(room)
        args, kwargs = given.with_tensors(room)

        def call() -> Any:
            return model(*args, **kwargs)

        capture.warm(call)
        captured = capture.record(call)
        taken = capture.microseconds(captured.replay)
        answer = rebuilt(first_rows(captured.outputs, RunShape(self.size)), lambda tensor: tensor.clone())
        return Trial(taken, answer)
