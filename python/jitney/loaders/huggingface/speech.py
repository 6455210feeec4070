"""Texts of speech. A long recording is cut into chunks that overlap. The chunks of a batch of requests run together,
and each request's are put together again by the rules of `transformers`, which its pipeline holds."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, ClassVar, NamedTuple

from jitney.call.errors import BadInput, Error
from jitney.definition.decorators import batch
from jitney.files.limits import FileRejected
from jitney.files.sounds import open_sound
from jitney.gpu.device import device, find_torch
from jitney.loaders.huggingface.network import load_network, load_part
from jitney.loaders.huggingface.task import NOT_GIVEN, FolderTask, checked, or_error
from jitney.loaders.huggingface.writing import GENERATE, NEW_TOKENS_MAX

REQUESTS_MAX = 16
CHUNKS_MAX = 16
"""Chunks that the model is given at a time."""
CHUNK_SECONDS = 30
"""The longest chunk, and the usual one: what Whisper was trained with."""
OWN = ("return_timestamps", "chunk_length_s", "stride_length_s", "return_language", "language", "task")
"""Parameters beside those of `generate`."""


class SpeechPlan(NamedTuple):
    """What one request asks for, as the pipeline has it."""

    chunks: list[dict[str, Any]]
    forward: dict[str, Any]
    """How the model is run."""
    after: dict[str, Any]
    """How its tokens become an answer."""


class SpeechRecognition(FolderTask):
    """The text of a recording: `{"text": ...}`, with `return_timestamps` also `chunks` with a `timestamp` each."""

    example_file: ClassVar = ("audio/wav", "recording.wav")

    def setup(self) -> None:
        """Once per worker."""
        from transformers import AutomaticSpeechRecognitionPipeline

        architectures = self.folder.config.get("architectures") or []
        ctc = any(str(one).endswith("ForCTC") for one in architectures)
        model = load_network("AutoModelForCTC" if ctc else "AutoModelForSpeechSeq2Seq", self.folder, self.trust)
        self.rules = AutomaticSpeechRecognitionPipeline(
            model=model,
            tokenizer=load_part("AutoTokenizer", self.folder, self.trust),
            feature_extractor=load_part("AutoFeatureExtractor", self.folder, self.trust),
            device=str(device()),
        )
        self.hertz = self.rules.feature_extractor.sampling_rate

    @batch(max_batch_size=REQUESTS_MAX)
    def predict(self, inputs: list[Any], parameters: list[Any] = NOT_GIVEN) -> list[Any]:
        """Answers as the task's pipeline gives them."""
        plans = [or_error(self._plan, *one) for one in zip(inputs, parameters)]
        good = [one for one in plans if isinstance(one, SpeechPlan)]
        alike: dict[str, list[dict[str, Any]]] = {}
        for plan in good:
            for chunk in plan.chunks:  # What differs in shape or in how it is run cannot be run together.
                shape = tuple(chunk[self.rules.model.main_input_name].shape)
                alike.setdefault(f"{shape} {json.dumps(plan.forward, sort_keys=True)}", []).append(chunk)
        forwards = {id(chunk): plan.forward for plan in good for chunk in plan.chunks}
        wrong: dict[int, Error] = {}
        for chunks in alike.values():
            for at in range(0, len(chunks), CHUNKS_MAX):
                wrong |= self._run(chunks[at : at + CHUNKS_MAX], forwards[id(chunks[0])])
        return [self._answer(one, wrong) if isinstance(one, SpeechPlan) else one for one in plans]

    def _plan(self, value: Any, parameters: Any) -> SpeechPlan:
        told = checked(parameters)
        told = {**told, **checked(told.get("generate_parameters"))}
        told.pop("generate_parameters", None)
        if unknown := [one for one in told if one not in (*OWN, *GENERATE)]:
            raise BadInput(f"parameters has {unknown[0]!r}, which is not known here; known: {', '.join(OWN)}, "
                           f"{', '.join(GENERATE)}")  # fmt: skip
        length = _seconds(told.pop("chunk_length_s", CHUNK_SECONDS), "chunk_length_s", 1, CHUNK_SECONDS)
        stride = _seconds(told.pop("stride_length_s", length / 6), "stride_length_s", 0, length / 3)
        if type(told.get("max_new_tokens", 1)) is not int or not 1 <= told.get("max_new_tokens", 1) <= NEW_TOKENS_MAX:
            raise BadInput(f"max_new_tokens must be a whole number from 1 to {NEW_TOKENS_MAX}")
        if told.get("return_timestamps") is False:
            del told["return_timestamps"]
        try:
            _, forward, after = self.rules._sanitize_parameters(**told)
        except ValueError as error:
            raise BadInput(str(error)) from None
        samples = _samples(value, self.hertz)
        return SpeechPlan(list(self.rules.preprocess(samples, length, stride)), forward, after)

    def _run(self, chunks: list[dict[str, Any]], forward: dict[str, Any]) -> dict[int, Error]:
        """Runs chunks of one shape, each of which gets its tokens; the error of those that cannot be run."""
        torch = find_torch()
        names = [name for name in chunks[0] if name not in ("is_last", "stride")]
        together = {name: torch.cat([chunk.pop(name) for chunk in chunks]).to(device()) for name in names}
        strides = [chunk.pop("stride") for chunk in chunks]
        try:
            with torch.inference_mode():
                found = self.rules._forward({**together, "stride": strides, "is_last": False}, **forward)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            failed = BadInput(f"the model cannot be run with these parameters: {error}")
            return {id(chunk): failed for chunk in chunks}
        for at, chunk in enumerate(chunks):
            for name in ("tokens", "token_timestamps"):
                if name in found:
                    chunk[name] = found[name][at].cpu()[None]
            if "stride" in found:
                chunk["stride"] = found["stride"][at]
        return {}

    def _answer(self, plan: SpeechPlan, wrong: dict[int, Error]) -> Any:
        failed = next((wrong[id(chunk)] for chunk in plan.chunks if id(chunk) in wrong), None)
        return failed or self.rules.postprocess(plan.chunks, **plan.after)


def _seconds(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadInput(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


def _samples(value: Any, hertz: int) -> Any:
    """The recording of a request: the body, or base64 in `inputs`."""
    content = value
    if isinstance(value, str):
        try:
            content = base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
        except binascii.Error:
            raise BadInput("inputs is no base64 of a recording; send it as the body, or encode it") from None
    if not isinstance(content, bytes | bytearray | memoryview):
        raise BadInput("send a recording as the body, or as base64 in inputs")
    try:
        return open_sound(content, hertz)
    except FileRejected as error:
        raise BadInput(f"the recording cannot be read: {error}") from None
