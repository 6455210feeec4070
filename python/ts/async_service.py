"""Many batches at a time for asynchronous handlers, for `ts.model_service_worker --async` (see `ts.protocol`)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ts.protocol.otf_message_handler import PREDICT_MSG, retrieve_msg
from ts.service import Service

logger = logging.getLogger(__name__)

BATCHES_AT_A_TIME = 100


class AsyncService:
    """A service whose entry point is a coroutine function."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.cl_socket: Any = None

    def set_cl_socket(self, cl_socket: socket.socket) -> None:
        """Where batches come from and answers go."""
        self.cl_socket = cl_socket
        self.service.set_cl_socket(cl_socket)

    def run(self) -> None:
        """Serves until the frontend has disconnected, which ends the process."""
        asyncio.run(self._serve())

    async def predict(self, batch: list[dict[str, Any]]) -> bytearray:
        """Answers a batch, with a context of its own: others are under way."""
        one = copy.copy(self.service)
        one._context = copy.copy(self.service.context)
        rows = one.bind(batch)
        started = time.perf_counter()
        try:
            outputs = one.handle(rows)
            if inspect.isawaitable(outputs):
                outputs = await outputs
        except Exception as error:
            return one.failed_answer(error)
        return one.answer(outputs, len(rows), started)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(BATCHES_AT_A_TIME)
        tasks: set[asyncio.Task[None]] = set()
        with ThreadPoolExecutor(1) as reader:
            while True:
                await room.acquire()
                batch = await loop.run_in_executor(reader, self._next_batch)
                if batch is None:
                    break
                task = loop.create_task(self._answer(batch, room))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        for task in tasks:  # The frontend is gone.
            task.cancel()

    def _next_batch(self) -> list[dict[str, Any]] | None:
        try:
            command, message = retrieve_msg(self.cl_socket)
        except SystemExit:
            return None
        if command != PREDICT_MSG:
            raise ValueError(f"Received unknown command: {command!r}")
        batch: list[dict[str, Any]] = message
        return batch

    async def _answer(self, batch: list[dict[str, Any]], room: asyncio.Semaphore) -> None:
        try:
            # Whole answers, one after the other: this thread is the only one that writes them.
            self.cl_socket.sendall(await self.predict(batch))
        except OSError as error:
            logger.warning("cannot send an answer to the frontend: %s", error)
        finally:
            room.release()
