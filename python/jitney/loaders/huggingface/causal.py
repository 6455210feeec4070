"""A network that writes texts token by token. Its runs: the tokens of new texts, a part of a long one, and one more
token of each live text. On a GPU the first and the last are a graph for each size and length, so that one thread can
keep the GPU busy while another one tells the tokens."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.gpu.device import device, find_torch
from jitney.gpu.shapes import next_size
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import SIZES, allowed_lengths
from jitney.loaders.huggingface.network import load_network, load_part, quick_tokenizer
from jitney.loaders.huggingface.prompts import PROMPT_SIZES, TOKENS_MAX, prompt_table, split_table
from jitney.loaders.huggingface.slots import SlotCache

logger = logging.getLogger(__name__)

Run = Callable[[Any, int], Any]
"""Takes a table of whole numbers and a length, and gives outputs."""
SLOTS_MAX = SIZES[-1]
LENGTH_MAX = 4096
"""The most tokens of a text with its prompt, where the model would take more."""
CACHE_BYTES = {"cpu": 2 * 2**30, "cuda": 16 * 2**30}
"""Slots take no more than this, unless one alone does."""


class CausalNetwork:
    """A model of one folder and the slots of its texts."""

    def __init__(self, folder: PretrainedFolder, trust: bool) -> None:
        self.tokenizer = load_part("AutoTokenizer", folder, trust)
        self.model = load_network("AutoModelForCausalLM", folder, trust)
        config = self.model.config.get_text_config()
        self.length = min(
            folder.positions or LENGTH_MAX, LENGTH_MAX, getattr(config, "sliding_window", None) or LENGTH_MAX
        )
        self.slots = slot_count(self.model, config, self.length)
        self._cache = SlotCache(config.num_hidden_layers, self.slots + 2, self.length)
        """Behind the slots of texts are one for rows that fill up a graph's size, and one for a text that is read in
        parts."""
        self._place = self._cache.place
        self._keeps = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self._lengths = allowed_lengths(self.length)
        self._steps, self._prompts = StepGraphs("steps"), StepGraphs("prompts")
        ends = self.model.generation_config.eos_token_id
        self.ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._quick = quick_tokenizer(self.tokenizer, None)
        cleans = getattr(self.tokenizer, "clean_up_tokenization_spaces", False)
        self.decoder = self.tokenizer if self._quick is None or cleans else self._quick
        """Makes texts of tokens."""
        self._check()

    def tokens(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, with those that stand around every text."""
        if self._quick is not None:
            quick: list[int] = self._quick.encode(text, add_special_tokens=special).ids
            return quick
        ids: list[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids

    def _check(self) -> None:
        """A step behind a prompt, whole or in parts, must give what the model gives for all of it: some keep another
        kind of state."""
        torch = find_torch()
        row = [1 + at % 7 for at in range(9)]
        with torch.inference_mode():
            ids = torch.tensor([row], device=device())
            expected = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1].float()
        self.begin([row[:-1]], 0)
        self.read(row[:4], 0)
        self.read(row[4:-1], 4)
        self.join(1, len(row) - 1)
        for found in self.step(2 * row[-1:], 2 * [len(row) - 1]).float():
            if not torch.allclose(found, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()) + 1e-4):
                raise DefinitionError(
                    f"{type(self.model).__name__} keeps another state than keys and values: use a definition"
                )

    def begin(self, rows: Sequence[list[int]], first: int) -> Any:
        """Runs new texts in the slots from the first on; the outputs behind their last tokens."""
        shape = len(rows), max(map(len, rows))
        padded = self._prompt_shape(*shape) if self._prompts.work else None
        table = prompt_table(rows, padded or shape, first, self.slots)
        return self._run(self._prompts, table, (padded or shape)[1], self._begin, padded is not None)[: len(rows)]

    def read(self, row: list[int], done: int) -> Any:
        """Runs a part of a text that stands in no slot yet, so many tokens of which were run before; the outputs behind
        its last token."""
        torch = find_torch()
        until = done + len(row)
        table = torch.tensor([row, list(range(done, until))])
        return self._run(self._prompts, table, until, self._read, False)

    def join(self, slot: int, length: int) -> None:
        """Gives the text that was read so far a slot."""
        self.move(self.slots + 1, slot, length)

    def _prompt_shape(self, count: int, length: int) -> tuple[int, int] | None:
        """The shape of the graph that runs so many prompts, if there is one."""
        size, until = next_size(PROMPT_SIZES, count), next_size(self._lengths, length)
        if size is None or until is None or until > GRAPH_LENGTH or size * until > TOKENS_MAX:
            return None
        return size, until

    def step(self, ids: list[int], lengths: list[int]) -> Any:
        """One more token of each live text, which has so many already; the outputs behind it."""
        torch = find_torch()
        count, until = len(ids), max(lengths) + 1
        if self._steps.work:
            count = min(next_size(SIZES, count) or count, self.slots)
            until = next_size(self._lengths, until) or until
        table = torch.zeros(2, count, dtype=torch.int64)
        table[:, : len(ids)] = torch.tensor([ids, lengths])
        return self._run(self._steps, table, until, self._step, True)[: len(ids)]

    def _run(self, graphs: StepGraphs, table: Any, length: int, run: Run, captured: bool) -> Any:
        with find_torch().inference_mode():
            replay = graphs.of(table, length, run) if captured else None
            return run(table.to(device()), length) if replay is None else replay(table)

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a text to another slot."""
        with find_torch().inference_mode():
            self._cache.move(source, target, length)

    def _begin(self, table: Any, length: int) -> Any:
        torch = find_torch()
        ids, columns, slots, empty = split_table(table, length)
        self._place.rows, self._place.until, self._place.columns = slots, None, columns
        at = torch.arange(length, device=table.device)
        seen = (at[None, :] <= at[:, None]) & (at >= empty[:, None])[:, None, :]
        return self._forward(ids, columns, seen[:, None], 1 if self._keeps else None)[:, -1]

    def _read(self, table: Any, until: int) -> Any:
        torch = find_torch()
        ids, columns = table[:1], table[1:]
        place = self._place
        place.first = self.slots + 1
        place.rows, place.until, place.columns = torch.full((1,), place.first, device=table.device), until, columns
        seen = torch.arange(until, device=table.device)[None, :] <= columns[0][:, None]
        return self._forward(ids, columns, seen[None, None], 1 if self._keeps else None)[:, -1]

    def _step(self, table: Any, until: int) -> Any:
        torch = find_torch()
        ids, columns = table[0][:, None], table[1][:, None]
        self._place.first, self._place.rows = 0, torch.arange(table.shape[1], device=table.device)
        self._place.until, self._place.columns = until, columns
        seen = torch.arange(until, device=table.device)[None, :] <= columns
        return self._forward(ids, columns, seen[:, None, None], None)[:, -1]

    def _forward(self, ids: Any, positions: Any, seen: Any, kept: Any) -> Any:
        torch = find_torch()
        kind = self.model.dtype
        # Numbers to add, which every kind of attention takes.
        mask = torch.zeros(seen.shape, dtype=kind, device=ids.device).masked_fill(~seen, torch.finfo(kind).min)
        mask = mask.expand(ids.shape[0], -1, -1, -1)
        more = {} if kept is None else {"logits_to_keep": kept}
        return self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            **more,
        ).logits

    def warm_up(self) -> None:
        """Captures the graphs of texts up to the usual lengths before the first request."""
        zeros = find_torch().zeros
        whole = find_torch().int64
        with find_torch().inference_mode():
            for length in [one for one in self._lengths if one <= GRAPH_LENGTH]:
                for count in sorted({min(one, self.slots) for one in SIZES}, reverse=True):
                    self._steps.of(zeros(2, count, dtype=whole), length, self._step)
                for count in (one for one in reversed(PROMPT_SIZES) if self._prompt_shape(one, length)):
                    self._prompts.of(prompt_table([[0]], (count, length), 0, self.slots), length, self._begin)


GRAPH_LENGTH = 512
"""Graphs are captured at the start up to this length; those of longer steps when they are needed."""


class StepGraphs:
    """The graphs of one kind of run, by the shape of its table and a length. Without a GPU there are none."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._made: dict[tuple[int, int], Any] = {}
        self.work = device().is_gpu
        """Whether there are any."""
        self._pool = find_torch().cuda.graph_pool_handle() if self.work else None
        """Of two graphs one runs at a time, so that they share their memory."""

    def of(self, table: Any, length: int, run: Run) -> Any:
        """The run as a graph, captured when it is first needed; None where that fails."""
        key = (table.numel(), length)
        if self.work and key not in self._made:
            try:
                self._made[key] = captured(lambda told: run(told, length), table, self._pool)
            except Exception as error:
                self.work = False
                logger.warning("%s run without CUDA graphs: %s", self._what, error)
        return self._made.get(key) if self.work else None


def captured(step: Any, first: Any, pool: Any) -> Any:
    """A step that is replayed with other tokens. It is run with the first ones before: what it writes is theirs."""
    torch = find_torch()
    here = torch.device(device())
    told = first.to(here)
    stream = torch.cuda.Stream(here)
    stream.wait_stream(torch.cuda.current_stream(here))
    with torch.cuda.stream(stream):
        for _ in range(2):
            step(told)
    torch.cuda.current_stream(here).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        found = step(told)

    def replay(given: Any) -> Any:
        told.copy_(given)
        graph.replay()
        return found

    return replay


def slot_count(model: Any, config: Any, length: int) -> int:
    """How many texts are written at a time: as many as the memory for keys and values holds."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    one = 2 * config.num_hidden_layers * heads * width * length * model.dtype.itemsize
    return max(1, min(SLOTS_MAX, CACHE_BYTES[device().type] // int(one)))
