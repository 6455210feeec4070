"""Decodes the JPEGs of a batch on the GPU, and makes the batch there.

nvJPEG, through torchvision, takes a list of files at once; what the head of a file says decides who gets it. What
nvJPEG does not read, PNG or CMYK for example, and every file that it refuses, is read by Pillow on the worker's
threads: the client of a broken file gets Pillow's error, and the others get their answers.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

from jitney.files.images import pixel_limit
from jitney.gpu.nvjpeg import STREAM_PRIORITY, DevicePicture, JpegFile
from ts.torch_handler.framing import Framing, ImageFrame
from ts.torch_handler.images import Recipe, pixels, plain_rgb, torch
from ts.torch_handler.jpeg import look
from ts.torch_handler.resizing import LEVELS, Picture, Resizer, Shades, shades_of
from ts.torch_handler.settings import HandlerSettings
from ts.torch_handler.threads import ItemPool
from ts.utils.util import PredictionException

logger = logging.getLogger(__name__)

Decode = Callable[[list[JpegFile]], list[DevicePicture]]
"""Files of the host to pictures on the device; all or none."""

PIXELS_AT_ONCE = 1 << 27
"""Pictures are decoded in groups of no more pixels (384 MB on the device)."""
PIXELS_MAX = 1 << 26
TAPS_MAX = 129
"""A picture that is made more than 64 times smaller is left to Pillow."""
RESIZED_MAX = 1 << 24
"""Nor is one resized on the device that would have more pixels then, before it is cropped."""
WHOLE = ImageFrame(0, 0, 0, 0, 0)
"""For a picture that is taken as it is."""
HELD_GROUPS = 2
"""How many groups of pictures stay on the device until they are no longer read."""
SHADES_MAX = 16
FAILURES_MAX = 8
"""After so many failed batches no more is tried on the device."""


class BatchForm(NamedTuple):
    """The precision and memory format in which the model wants its batch."""

    dtype: Any
    memory_format: Any


class Candidate(NamedTuple):
    """A file that nvJPEG can read, as far as its head tells."""

    place: int
    content: Any
    height: int
    width: int
    frame: ImageFrame

    @property
    def size(self) -> int:
        """Its pixels."""
        return self.height * self.width


class DeviceImages:
    """Reads batches on one device; any thread may."""

    def __init__(
        self, device: Any, decode: Decode, resizer: Resizer, samplings: Container[tuple[int, int]] | None = None
    ) -> None:
        self.device = device
        self.samplings = samplings
        """The samplings of colours that are decoded here; None if all are."""
        self.decode = decode
        self.resizer = resizer
        self._own_stream = torch.cuda.Stream(device, priority=STREAM_PRIORITY) if device.type == "cuda" else None
        self._lock = threading.Lock()
        self._held: deque[tuple[Any, list[Picture]]] = deque()
        self._shades: dict[Any, Shades] = {}
        self._failures_left = FAILURES_MAX

    def prepare(
        self, recipe: Recipe, rows: Sequence[Any], form: BatchForm, pool: ItemPool
    ) -> tuple[Any, dict[int, PredictionException]] | None:
        """The batch of the good rows and the failures of the others; None if the device is not the place for them."""
        framing = recipe.framing()
        candidates = [] if framing is None else self._candidates(recipe, rows, framing)
        if framing is None or not candidates:
            return None
        try:
            return self._prepare(recipe, framing, rows, candidates, form, pool)
        except RuntimeError as error:  # Torch's, CUDA's and ours; the worker's own processors take over.
            self._fail(error)
            return None

    def pictures(self, recipe: Recipe, rows: Sequence[Any], pool: ItemPool) -> list[Any] | None:
        """What `recipe.read` gives for every row, on the device where that decodes it, for transforms that turn
        pictures into numbers and do nothing else; None if the device is not the place for them."""
        candidates = self._candidates(recipe, rows) if recipe.is_plain() else []
        if not candidates:
            return None
        try:
            found: dict[int, Any] = {}
            for group in groups(candidates):
                pictures = self._decoded(group)
                found.update((picture.place, picture.decoded.pixels().float().div_(LEVELS - 1)) for picture in pictures)
                self._hold(pictures)
        except RuntimeError as error:
            self._fail(error)
            return None
        others = [place for place in range(len(rows)) if place not in found]
        found.update(zip(others, pool.map(recipe.read, [rows[place] for place in others])))
        return [found[place] for place in range(len(rows))]

    def _fail(self, error: RuntimeError) -> None:
        self._failures_left -= 1
        what = "and no more are tried there" if self._failures_left <= 0 else "and Pillow reads this batch"
        logger.warning("Images could not be prepared on %s %s: %s", self.device, what, error)

    def _candidates(self, recipe: Recipe, rows: Sequence[Any], framing: Framing | None = None) -> list[Candidate]:
        """The rows that the device decodes, as far as their heads tell."""
        most = min(pixel_limit() or PIXELS_MAX, PIXELS_MAX) if self._failures_left > 0 else 0
        found = []
        for place, row in enumerate(rows):
            content = recipe.content_of(row)
            head = None if content is None else look(content)
            if head is None or head.width * head.height > most or not (head.components == 3 or recipe.to_rgb):
                continue
            if self.samplings is not None and head.sampling not in self.samplings:
                continue
            frame = WHOLE if framing is None else framing.frame(head.height, head.width)
            if frame is not None and frame.taps <= TAPS_MAX and frame.size <= RESIZED_MAX:
                found.append(Candidate(place, content, head.height, head.width, frame))
        return found

    def _prepare(
        self,
        recipe: Recipe,
        framing: Framing,
        rows: Sequence[Any],
        candidates: list[Candidate],
        form: BatchForm,
        pool: ItemPool,
    ) -> tuple[Any, dict[int, PredictionException]] | None:
        ours = {candidate.place for candidate in candidates}
        others = [place for place in range(len(rows)) if place not in ours]
        reading = pool.start(recipe.read, [rows[place] for place in others])
        shape = (len(rows), 3, framing.height, framing.width)
        batch = torch.empty(shape, dtype=form.dtype, device=self.device, memory_format=form.memory_format)
        shades = self._shades_for(recipe, form)
        refused: list[int] = []
        for group in groups(candidates):
            refused += self._read_group(group, framing, shades, batch)
        items = reading() + pool.map(recipe.read, [rows[place] for place in refused])
        return self._fill_in(dict(zip(others + refused, items)), shades, batch)

    def _read_group(self, group: list[Candidate], framing: Framing, shades: Shades, batch: Any) -> list[int]:
        """Decodes and resizes some files; returns the places of those that nvJPEG refused."""
        pictures = self._decoded(group)
        if pictures:
            self.resizer.resize(pictures, framing, shades, batch)
            self._hold(pictures)
        if len(pictures) == len(group):
            return []
        read = {picture.place for picture in pictures}
        return [candidate.place for candidate in group if candidate.place not in read]

    def _decoded(self, group: list[Candidate]) -> list[Picture]:
        """The pictures of some files, but for those that nvJPEG refuses."""
        self._let_go(HELD_GROUPS - 1)
        with self._decoding():
            decoded = self._decode_all([JpegFile(bytes_of(file.content), file.height, file.width) for file in group])
        return [
            Picture(found, frame, place)
            for (place, _, height, width, frame), found in zip(group, decoded)
            if found is not None and found.height == height and found.width == width
        ]

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        """Inside, memory for pictures is taken from a stream that nothing else uses: nvJPEG writes into it at once,
        so it must not be memory that another stream's kernels still read."""
        if self._own_stream is None:
            yield
            return
        with torch.cuda.stream(self._own_stream):
            yield
        torch.cuda.current_stream(self.device.index or 0).wait_stream(self._own_stream)

    def _decode_all(self, files: list[JpegFile]) -> Sequence[DevicePicture | None]:
        """One picture or None per file; a list with a bad one is halved until that one is alone."""
        try:
            return self.decode(files)
        except (RuntimeError, ValueError):
            if len(files) == 1:
                return [None]
        half = len(files) // 2
        return [*self._decode_all(files[:half]), *self._decode_all(files[half:])]

    def _hold(self, pictures: list[Picture]) -> None:
        """Keeps pictures until the device has read them."""
        if self._own_stream is None:
            return
        done = torch.cuda.Event(blocking=True)
        done.record()
        with self._lock:
            self._held.append((done, pictures))

    def _let_go(self, most: int) -> None:
        """Waits until no more groups than this are held."""
        while True:
            with self._lock:
                if len(self._held) <= most:
                    return
                done, pictures = self._held.popleft()
            done.synchronize()
            del pictures

    def _shades_for(self, recipe: Recipe, form: BatchForm) -> Shades:
        key = (*map(float, recipe.normalize.mean), *map(float, recipe.normalize.std), form.dtype)
        found = self._shades.get(key)
        if found is None:
            if len(self._shades) >= SHADES_MAX:
                self._shades.clear()
            found = self._shades[key] = Shades(recipe.normalize, form.dtype, self.device)
        return found

    def _fill_in(
        self, items: dict[int, Any], shades: Shades, batch: Any
    ) -> tuple[Any, dict[int, PredictionException]] | None:
        """Puts what Pillow read into its places."""
        if not items:
            return batch, {}
        failures = {place: item for place, item in sorted(items.items()) if isinstance(item, PredictionException)}
        read = {place: item for place, item in items.items() if place not in failures}
        height, width = batch.shape[2:]
        images = {place: item for place, item in read.items() if plain_rgb(item) and item.size == (width, height)}
        for place, item in read.items():
            if isinstance(item, Exception):
                raise item
            if place not in images:
                if not torch.is_tensor(item) or item.shape != batch.shape[1:]:
                    return None
                batch[place] = item.to(self.device)
        if images:
            levels = torch.stack([pixels(item) for item in images.values()]).to(self.device).permute(0, 3, 1, 2)
            batch[torch.tensor(list(images), device=self.device)] = shades_of(shades, levels.long())
        if failures:
            good = [place for place in range(len(batch)) if place not in failures]
            kept = batch[torch.tensor(good, dtype=torch.long, device=self.device)]
            batch = kept.contiguous(memory_format=format_of(batch))
        return batch, failures


def groups(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Files in order, in groups of no more than so many pixels."""
    group: list[Candidate] = []
    size = 0
    for candidate in candidates:
        if group and size + candidate.size > PIXELS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(candidate)
        size += candidate.size
    yield group


def bytes_of(content: Any) -> Any:
    """A body as a tensor, where it lies."""
    return torch.frombuffer(content, dtype=torch.uint8)


def format_of(batch: Any) -> Any:
    """The memory format of a batch of images."""
    return torch.contiguous_format if batch.is_contiguous() else torch.channels_last


def batch_form(settings: HandlerSettings) -> BatchForm:
    """The form of batches for a model with these settings."""
    return BatchForm(
        getattr(torch, settings.precision),
        torch.channels_last if settings.channels_last else torch.contiguous_format,
    )
