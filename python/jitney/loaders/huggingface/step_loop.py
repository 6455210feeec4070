"""Writes several texts at a time, one token of each per step, in a thread of its own. Texts join and leave between two
steps. New prompts are run a few at a time and long ones in parts, so that those who are being answered do not wait
long for them."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from jitney.gpu.device import device, enter_device, find_torch
from jitney.loaders.huggingface.causal import CausalNetwork
from jitney.loaders.huggingface.prompts import NewTexts, padded
from jitney.loaders.huggingface.sampling import Sampling, TokenChoice, choose

logger = logging.getLogger(__name__)

END_SECONDS = 30.0
SWITCH_SECONDS = 0.0002
"""The thread that writes gives the interpreter up many times in a step, and gets it back from a busy one so soon."""
TELL_SECONDS = 0.0003
"""Live texts are told no more often than after so long for each of them. To tell one takes the event loop up to a fifth
of it, and a loop that does nothing else lets new requests wait."""
Reason = str | Exception | None


class Writing:
    """A text that is being written: its tokens come out a few at a time, the first one by itself, unless they are
    wanted `whole`; then why it ended."""

    def __init__(self, prompt: list[int], most: int, terms: Sampling, whole: bool = False) -> None:
        self.whole = whole
        """Nobody asks for single tokens: they are in `written` at the end."""
        self.most = most
        """New tokens, at most."""
        generator = None
        if terms.seed is not None:
            generator = find_torch().Generator(device()).manual_seed(terms.seed)
        self.prompt = prompt
        self.written: list[int] = []
        self._told = 0
        """How many of them were told."""
        self.choice = TokenChoice(terms, prompt, self.written, generator)
        self.end: int | None = None
        """The token by which the model ended it, which is not in `written`."""
        self.left = False
        """Nobody reads it any more: it ends before the next step."""
        self.loop = asyncio.get_running_loop()
        self._tokens: list[int] = []
        """Those that nobody has read."""
        self._reason: Reason = None
        self._news = asyncio.Event()

    async def news(self) -> tuple[list[int], str | None]:
        """The tokens that came since the last time, and at the end why there are no more: `stop` or `length`. Waits
        for one of them. Whoever is late gets all at once and is no longer late."""
        await self._news.wait()
        self._news.clear()
        if isinstance(self._reason, Exception):
            raise self._reason.with_traceback(None)  # Others raise it, too, and each adds its own way.
        tokens, self._tokens = self._tokens, []
        return tokens, self._reason

    def untold(self) -> list[int]:
        """What was written since this was asked the last time."""
        first, self._told = self._told, len(self.written)
        return self.written[first:]

    def put(self, tokens: list[int], reason: Reason) -> None:
        """Adds what is next; on its loop."""
        self._tokens += tokens
        self._reason = reason
        self._news.set()


News = Sequence[tuple[Writing, list[int], Reason]]
"""What some texts are told: tokens, and at the end why there are no more."""


def deliver(news: News) -> None:
    """Tells texts what is next, all with one call of the loop that they share."""
    if news:
        news[0][0].loop.call_soon_threadsafe(_put_all, news)


def _put_all(news: News) -> None:
    for writing, tokens, reason in news:
        writing.put(tokens, reason)


class StepLoop:
    """The thread that writes."""

    def __init__(self, network: CausalNetwork) -> None:
        self._network = network
        self._waiting: queue.SimpleQueue[Writing | None] = queue.SimpleQueue()
        """At most as many as the worker has calls under way."""
        self._new: NewTexts[Writing] = NewTexts()
        self._live: list[Writing] = []
        """In the order of their slots."""
        self._read: Writing | None = None
        """The text whose prompt is read in parts."""
        self._done = 0
        """How many of its tokens were."""
        self._told = 0.0
        """When live texts were told the last time."""
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
        sys.setswitchinterval(SWITCH_SECONDS)
        while not self._closing:
            batch: list[Writing] = []
            try:
                self._drop_left()
                self._take_in()
                batch = self._new.together(self._free())
                if batch:
                    self._begin(batch)
                self._read_on(self._new.budget.left(padded(batch)))
                if self._live:
                    self._step()
            except Exception as error:
                logger.exception("a step failed")
                read = [] if self._read is None else [self._read]
                failed = {id(one): one for one in (*self._live, *read, *batch)}
                deliver([(one, [], error) for one in failed.values()])
                self._live, self._read = [], None

    def _take_in(self) -> None:
        """Takes what has come; waits for it if nothing else is to be done."""
        waits = not (self._live or self._new or self._read)
        while True:
            try:
                one = self._waiting.get(block=waits)
            except queue.Empty:
                return
            if one is None:
                self._closing = True
                return
            self._new.put(one)
            waits = False

    def _free(self) -> int:
        """How many texts there is room for; that of the long one is kept."""
        return self._network.slots - len(self._live) - (self._read is not None)

    def _begin(self, new: list[Writing]) -> None:
        started = time.perf_counter()
        outputs = self._network.begin([one.prompt for one in new], len(self._live))
        self._live += new
        self._tell(new, outputs)
        self._new.budget.learn(padded(new), time.perf_counter() - started)

    def _read_on(self, tokens: int) -> None:
        """Runs the next part of a long prompt. Behind its last part the text is one like the others."""
        if self._read is None and self._free() > 0:
            self._read, self._done = self._new.long(), 0
        one = self._read
        if one is None:
            return
        started = time.perf_counter()
        part = one.prompt[self._done : self._done + tokens]
        outputs = self._network.read(part, self._done)
        self._done += len(part)
        if self._done == len(one.prompt):
            self._network.join(len(self._live), self._done)
            self._live.append(one)
            self._read = None
            self._tell([one], outputs)
        else:
            outputs[0, 0].item()  # Until here it is measured.
        self._new.budget.learn(len(part), time.perf_counter() - started)

    def _step(self) -> None:
        live = list(self._live)
        if not all(one.written for one in live):
            return
        lengths = [len(one.prompt) + len(one.written) - 1 for one in live]
        outputs = self._network.step([one.written[-1] for one in live], lengths)
        due = time.perf_counter() >= self._told + TELL_SECONDS * sum(not one.whole for one in live)
        self._tell(live, outputs, due)
        if due:
            self._told = time.perf_counter()

    def _tell(self, rows: list[Writing], outputs: Any, due: bool = False) -> None:
        """Gives each its token. Those that are complete leave and are told so, new ones their first token, and where
        it is due the others theirs."""
        news: list[tuple[Writing, list[int], Reason]] = []
        for one, token in zip(rows, choose(outputs, [one.choice for one in rows])):
            reason = None
            if token in self._network.ends:
                one.end, reason = token, "stop"
            else:
                one.written.append(token)
                reason = "length" if len(one.written) >= one.most else None
            one.left = one.left or reason is not None
            if reason or (not one.whole and (due or len(one.written) == 1)):
                news.append((one, one.untold(), reason))
        deliver(news)

    def _drop_left(self) -> None:
        """Gives the slots of those that left to the last ones."""
        if self._read is not None and self._read.left:
            self._read = None
        for at in reversed(range(len(self._live))):
            if not self._live[at].left:
                continue
            last = self._live.pop()
            if at < len(self._live):
                self._network.move(len(self._live), at, len(last.prompt) + len(last.written))
                self._live[at] = last
