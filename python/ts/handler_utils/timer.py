"""The decorator that measures a handler's stages, for handlers that import it from here."""

from ts.torch_handler.stage_times import timed as timed
