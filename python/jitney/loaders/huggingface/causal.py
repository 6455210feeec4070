"""A network that writes texts token by token. Its two runs: the tokens of new texts, and one more token of each live
text. On a GPU the second one is a graph for each size and length."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.gpu.device import device, find_torch
from jitney.gpu.shapes import next_size
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import SIZES, allowed_lengths
from jitney.loaders.huggingface.network import load_network, load_part
from jitney.loaders.huggingface.slots import SlotCache

logger = logging.getLogger(__name__)

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
        self._cache = SlotCache(config.num_hidden_layers, self.slots, self.length)
        self._place = self._cache.place
        self._keeps = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self._lengths = allowed_lengths(self.length)
        self._graphs: dict[tuple[int, int], Any] = {}
        self._captures = device().is_gpu
        ends = self.model.generation_config.eos_token_id
        self.ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._check()

    def _check(self) -> None:
        """A step behind a prompt must give what the model gives for all of it: some keep another kind of state."""
        torch = find_torch()
        row = [1 + at % 7 for at in range(9)]
        with torch.inference_mode():
            ids = torch.tensor([row], device=device())
            expected = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1].float()
        self.begin([row[:-1]], 0)
        found = self.step(row[-1:], [len(row) - 1]).float()[0]
        if not torch.allclose(found, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()) + 1e-4):
            raise DefinitionError(
                f"{type(self.model).__name__} keeps another state than keys and values: use a definition"
            )

    def begin(self, rows: Sequence[list[int]], first: int) -> Any:
        """Runs new texts in the slots from the first on; the outputs behind their last tokens."""
        torch = find_torch()
        here = torch.device(device())
        longest = max(map(len, rows))
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
        columns = torch.arange(longest, device=here)
        ends = torch.tensor([len(row) - 1 for row in rows], device=here)
        seen = columns[None, :] <= columns[:, None]
        self._place.first, self._place.until = first, None
        self._place.columns = columns.expand(len(rows), -1)
        with torch.inference_mode():
            kept, places = ends.unique(return_inverse=True)
            found = self._forward(ids.to(here), self._place.columns, seen[None, None], kept if self._keeps else None)
            return found[torch.arange(len(rows), device=here), places if self._keeps else ends]

    def step(self, ids: list[int], lengths: list[int]) -> Any:
        """One more token of each live text, which has so many already; the outputs behind it."""
        torch = find_torch()
        count, until = len(ids), max(lengths) + 1
        if self._captures:
            count = min(next_size(SIZES, count) or count, self.slots)
            until = next_size(self._lengths, until) or until
        told = torch.zeros(2, count, dtype=torch.int64)
        told[:, : len(ids)] = torch.tensor([ids, lengths])
        with torch.inference_mode():
            run = self._graph(told, until) if self._captures else None
            found = self._step(told.to(device()), until) if run is None else run(told)
            return found[: len(ids)]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a text to another slot."""
        with find_torch().inference_mode():
            self._cache.move(source, target, length)

    def _step(self, told: Any, until: int) -> Any:
        torch = find_torch()
        ids, columns = told[0][:, None], told[1][:, None]
        self._place.first, self._place.until, self._place.columns = 0, until, columns
        seen = torch.arange(until, device=told.device)[None, :] <= columns
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

    def _graph(self, told: Any, until: int) -> Any:
        """The step as a graph, captured when it is first needed; None where that fails."""
        count = told.shape[1]
        if (count, until) not in self._graphs:
            try:
                self._graphs[count, until] = captured(lambda told: self._step(told, until), told)
            except Exception as error:
                self._captures = False
                logger.warning("steps run without CUDA graphs: %s", error)
                return None
        return self._graphs[count, until]

    def warm_up(self) -> None:
        """Captures the graphs of texts up to the usual lengths before the first request."""
        if not self._captures:
            return
        with find_torch().inference_mode():
            for until in [one for one in self._lengths if one <= WARM_LENGTH]:
                for count in sorted({min(one, self.slots) for one in SIZES}, reverse=True):
                    self._graph(find_torch().zeros(2, count, dtype=find_torch().int64), until)


WARM_LENGTH = 512


def captured(step: Any, first: Any) -> Any:
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
    with torch.cuda.graph(graph):
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
