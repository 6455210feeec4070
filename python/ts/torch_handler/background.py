"""Compiles a model while it serves, then takes the compiled graphs over."""

from __future__ import annotations

import logging
import threading

from ts.torch_handler.model_graphs import Arguments
from ts.torch_handler.variants import ModelCompiler

logger = logging.getLogger(__name__)


class BackgroundCompilation:
    """One compilation, on a thread that waits for the processes which do it."""

    def __init__(self, compiler: ModelCompiler, given: Arguments) -> None:
        self.compiler, self.given = compiler, given

    def start(self) -> threading.Thread:
        """Returns at once. Whatever goes wrong, the model goes on as it is."""
        thread = threading.Thread(target=self._run, name="compiling", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            variant = self.compiler.variant(self.given, ignored)
            sized = self.compiler.sized
            twin = sized.twin([variant])
            twin.capture(*self.given, ignored)
            taken = sized.take(twin)
            self.compiler.remember()
            logger.info("Compiled the model in the background; %d batch sizes run compiled now", taken)
        except Exception as error:
            logger.warning("The model runs uncompiled, since compiling it in the background failed: %s", error)


def ignored(done: int, of: int, what: str) -> None:
    """Progress of what nobody waits for."""
