"""The decorator that measures a handler's stages, for handlers that import it from here."""

from ts.torch_handler.profiling import timed as timed
