"""Writes several texts at a time, one token of each per step, in a thread of its own. Texts join and leave between two
steps. New prompts are run a few at a time, so that those who are being answered do not wait long for them."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence
from typing import Any

from jitney.gpu.device import device, enter_device, find_torch
from jitney.loaders.huggingface.causal import CausalNetwork
from jitney.loaders.huggingface.sampling import Sampling, TokenChoice, choose

logger = logging.getLogger(__name__)

PROMPTS_PER_STEP, PROMPT_TOKENS_PER_STEP = 16, 2048
END_SECONDS = 30.0


class Writing:
    """A text that is being written: its tokens come out as they are chosen, then why it ended."""

    def __init__(self, prompt: list[int], most: int, terms: Sampling) -> None:
        self.most = most
        """New tokens, at most."""
        generator = None
        if terms.seed is not None:
            generator = find_torch().Generator(device()).manual_seed(terms.seed)
        self.prompt = prompt
        self.written: list[int] = []
        self.choice = TokenChoice(terms, prompt, self.written, generator)
        self.left = False
        """Nobody reads it any more: it ends before the next step."""
        self._loop = asyncio.get_running_loop()
        self._tokens: asyncio.Queue[int | str | Exception] = asyncio.Queue()

    async def next(self) -> int | str:
        """The next token, or why there is none: `stop` or `length`."""
        told = await self._tokens.get()
        if isinstance(told, Exception):
            raise told
        return told

    def tell(self, *told: int | str | Exception) -> None:
        """Called by the thread that writes."""
        self._loop.call_soon_threadsafe(self._put, told)

    def _put(self, told: Sequence[int | str | Exception]) -> None:
        for one in told:
            self._tokens.put_nowait(one)


class StepLoop:
    """The thread that writes."""

    def __init__(self, network: CausalNetwork) -> None:
        self._network = network
        self._waiting: queue.SimpleQueue[Writing | None] = queue.SimpleQueue()
        """At most as many as the worker has calls under way."""
        self._live: list[Writing] = []
        """In the order of their slots."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="writes texts", daemon=True)
        self._thread.start()

    def put(self, writing: Writing) -> None:
        """Begins a text as soon as there is a slot."""
        self._waiting.put(writing)

    def close(self) -> None:
        """Ends the thread."""
        self._waiting.put(None)
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        enter_device()
        while not self._closing:
            batch: list[Writing] = []
            try:
                batch = self._joining()
                if batch:
                    self._begin(batch)
                if self._live:
                    self._step()
            except Exception as error:
                logger.exception("a step failed")
                for one in {id(one): one for one in (*self._live, *batch)}.values():
                    one.tell(error)
                self._live = []

    def _joining(self) -> list[Writing]:
        """Texts to begin with this step; waits for one if nothing else is to be done."""
        self._drop_left()
        found: list[Writing] = []
        longest = 0
        free = self._network.slots - len(self._live)
        while len(found) < min(free, PROMPTS_PER_STEP) and longest * (len(found) + 1) <= PROMPT_TOKENS_PER_STEP:
            try:
                one = self._waiting.get(block=not self._live and not found)
            except queue.Empty:
                break
            if one is None:
                self._closing = True
                break
            if not one.left:
                found.append(one)
                longest = max(longest, len(one.prompt))
        return found

    def _begin(self, new: list[Writing]) -> None:
        outputs = self._network.begin([one.prompt for one in new], len(self._live))
        self._live += new
        self._tell(new, outputs)

    def _step(self) -> None:
        live = list(self._live)
        if not all(one.written for one in live):
            return
        lengths = [len(one.prompt) + len(one.written) - 1 for one in live]
        self._tell(live, self._network.step([one.written[-1] for one in live], lengths))

    def _tell(self, rows: list[Writing], outputs: Any) -> None:
        """Tells each its token; those that are complete leave."""
        for one, token in zip(rows, choose(outputs, [one.choice for one in rows])):
            if token in self._network.ends:
                self._end(one, "stop")
                continue
            one.written.append(token)
            if len(one.written) >= one.most:
                self._end(one, token, "length")
            else:
                one.tell(token)

    def _end(self, one: Writing, *told: int | str) -> None:
        one.left = True
        one.tell(*told)

    def _drop_left(self) -> None:
        """Gives the slots of those that left to the last ones."""
        for at in reversed(range(len(self._live))):
            if not self._live[at].left:
                continue
            last = self._live.pop()
            if at < len(self._live):
                self._network.move(len(self._live), at, len(last.prompt) + len(last.written))
                self._live[at] = last
