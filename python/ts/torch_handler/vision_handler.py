"""The base of image handlers: decodes and transforms images side by side, and explains answers with captum."""

from __future__ import annotations

import abc
import functools
import logging
from typing import Any

from jitney.gpu.streams import NO_STREAMS
from ts.torch_handler.base_handler import BaseHandler, is_ours
from ts.torch_handler.device_images import BatchForm, DeviceImages, batch_form
from ts.torch_handler.device_trial import device_images
from ts.torch_handler.images import HostBatch, Image, Recipe
from ts.torch_handler.profiling import profiler_enabled, stage, timed, wants_profile
from ts.torch_handler.settings import HandlerSettings, installed, need
from ts.torch_handler.threads import ItemPool, preprocess_threads
from ts.torch_handler.warm_up import picture
from ts.utils.util import PredictionException

logger = logging.getLogger(__name__)

EXPLAIN_STEPS = 15


class VisionHandler(BaseHandler, abc.ABC):
    """Images in, whatever `postprocess` makes of the model's answer out.

    Subclasses set `image_processing`, a function from a PIL image to a tensor.
    """

    image_processing: Any = None
    colour_processing: Any = ()
    """The transform of a stock handler, which is for colour images."""

    # Until `initialize` has run, also for handlers whose `__init__` does not call ours.
    ig: Any = None
    pool = ItemPool(1)
    on_device: DeviceImages | None = None

    def initialize(self, context: Any) -> None:
        """Also starts the threads that prepare images."""
        super().initialize(context)
        if not context.system_properties.get("limit_max_image_pixels", True):
            Image.MAX_IMAGE_PIXELS = None
        self.pool.close()
        self.pool = ItemPool(preprocess_threads(self.handler_settings))
        self.on_device = device_images(self.device, self.handler_settings)
        if self.handler_settings.decode_processes:
            logger.info("jitney.decode_processes has no effect any more: threads decode images (preprocess_threads)")
        self.settle_threads()
        if installed("captum"):
            self.ig = need("captum.attr", "explanations").IntegratedGradients(self.model)

    def settle_threads(self) -> None:
        """Gives torch its threads back: starting the pool had set them to one."""
        need("torch", "an image handler").set_num_threads(self.torch_threads)

    def image_is_rgb(self) -> bool:
        """Whether images are to be turned into RGB first. A handler with a transform of its own gets what was sent."""
        return self.image_processing is self.colour_processing

    def recipe(self) -> Recipe:
        """The transform in force now; handlers may replace `image_processing` at any time."""
        return Recipe(self.image_processing, self.image_is_rgb())

    @timed
    def preprocess(self, data: Any) -> Any:
        """Rows to one tensor on the device; raises if any of them is no image."""
        _, batch, failures = self._prepare_items(data, batch_form(HandlerSettings()))
        for failure in failures.values():
            raise failure
        return batch

    def assemble(self, recipe: Recipe, items: list[Any]) -> Any:
        """Prepared images to the batch the model is given."""
        return recipe.stack(items, self.device)

    def prepare(self, data: Any) -> tuple[Any, Any, dict[int, Any]]:
        """Like `preprocess`, but an image that cannot be read fails alone."""
        if not self._prepares_items():
            return super().prepare(data)
        with stage(self, "preprocess"):
            own = not is_ours(self.inference)
            return self._prepare_items(data, batch_form(HandlerSettings() if own else self.handler_settings))

    def _prepare_items(self, data: Any, form: BatchForm) -> tuple[Any, Any, dict[int, Any]]:
        """The batch comes in the form that is asked for where it is made on a GPU, else in torch's usual one."""
        recipe = self.recipe()
        found = None if self.on_device is None else self.on_device.prepare(recipe, data, form, self.pool)
        if found is not None:
            batch, failures = found
            rows = [row for place, row in enumerate(data) if place not in failures] if failures else data
            return rows, batch if rows else None, failures
        host = self._host_batch(recipe, data)
        items = self._read_all(recipe, data) if host is None else host.read(self.pool)
        failures = {place: item for place, item in enumerate(items) if isinstance(item, PredictionException)}
        for place, item in enumerate(items):
            if isinstance(item, Exception) and place not in failures:
                raise item
        good = [place for place in range(len(items)) if place not in failures]
        if not good:
            return [], None, failures
        batch = self._assembled(recipe, [items[place] for place in good]) if host is None else host.of(items, good)
        return [data[place] for place in good] if failures else data, batch, failures

    def _read_all(self, recipe: Recipe, data: Any) -> list[Any]:
        """Rows to prepared images; a row that cannot be read is its exception."""
        found = None if self.on_device is None else self.on_device.pictures(recipe, data, self.pool)
        return self.pool.map(recipe.read, data) if found is None else found

    def _host_batch(self, recipe: Recipe, data: Any) -> HostBatch | None:
        """A batch that threads fill, where images come out in one size and the model runs on the CPU."""
        here = self.device is not None and self.device.type == "cpu"
        framing = recipe.framing() if here and is_ours(self.assemble) and len(data) else None
        return None if framing is None else HostBatch(recipe, framing, data)

    def _assembled(self, recipe: Recipe, items: list[Any]) -> Any:
        """On a thread where torch starts no others; for a GPU on this one, whose stream is the right one."""
        if self.device is not None and self.device.type == "cuda":
            return self.assemble(recipe, items)
        return self.pool.call(self.assemble, recipe, items)

    def _prepares_items(self) -> bool:
        """Whether `preprocess` is the one above, not replaced."""
        return getattr(self.preprocess, "__func__", None) is VisionHandler.preprocess

    def takes_views(self) -> bool:
        """Whether values may be views of the memory that a batch came in: no code of the user's gets to see them."""
        seen_by = (self.handle, self.begin, self.prepare, self.preprocess, self.explain_handle, self.get_insights)
        return all(map(is_ours, seen_by))

    def batches_at_a_time(self) -> int:
        """Decoding overlaps the model where both are as the stock handlers have them."""
        plain = getattr(self.handle, "__func__", None) is BaseHandler.handle
        measured = wants_profile(self) or profiler_enabled()
        return self.slots() if plain and self._prepares_items() and not measured else 1

    def describe_handle(self) -> Any:
        """Also has the number of threads that prepare images, and the GPU that does if one does."""
        device = {} if self.on_device is None else {"decodesOn": str(self.on_device.device)}
        return {**super().describe_handle(), "preprocessThreads": self.pool.threads, **device}

    def sample_rows(self, count: int) -> list[Any] | None:
        """Pictures, where they are prepared as the stock handlers do it."""
        if not self._prepares_items():
            return super().sample_rows(count)
        return [{"body": self.sample_picture} for _ in range(count)]

    def makes_up_samples(self) -> bool:
        """Where images are prepared as the stock handlers do it. Without a GPU no code of the user's gets to see a
        picture that nobody sent: it could count them."""
        stages = (self.handle, self.begin, self.prepare, self.launch, self.inference, self.finish, self.postprocess)
        if not self._prepares_items() or profiler_enabled():
            return False
        return self.streams is not NO_STREAMS or all(map(is_ours, stages))

    @functools.cached_property
    def sample_picture(self) -> bytes:
        """A picture to warm the model up with."""
        return picture()

    def get_insights(self, tensor_data: Any, raw_data: Any, target: Any = 0) -> Any:
        """Integrated gradients of the target class for every pixel."""
        if self.ig is None:
            raise PredictionException("explanations need captum in the workers' Python: pip install captum", 501)
        return self.ig.attribute(tensor_data, target=target, n_steps=EXPLAIN_STEPS).tolist()
