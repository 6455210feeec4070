"""What happens between two steps of texts that are written together: the network counts its runs, and no time is
measured."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from harness import pretrained
from harness.package import jitney  # noqa: F401  (finds the package)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.heavy

from jitney.loaders.huggingface import step_loop  # noqa: E402
from jitney.loaders.huggingface.causal import CausalNetwork  # noqa: E402
from jitney.loaders.huggingface.folder import PretrainedFolder  # noqa: E402
from jitney.loaders.huggingface.generation import TextGeneration, TextOrder, TextPiece  # noqa: E402
from jitney.loaders.huggingface.prompts import PromptBudget  # noqa: E402
from jitney.loaders.huggingface.sampling import Sampling  # noqa: E402
from jitney.loaders.huggingface.step_loop import StepLoop, Writing  # noqa: E402

PATIENCE_SECONDS = 300
PART = 16


class CountedNetwork(CausalNetwork):
    """A network that tells its runs, and calls back behind a step."""

    def __init__(self, folder: Path) -> None:
        self.runs: list[tuple[str, int]] = []
        """Each with the number of its tokens."""
        self.behind: dict[int, Callable[[], Any]] = {}
        """What is done behind so many steps."""
        super().__init__(PretrainedFolder.read(folder), False)
        self.runs.clear()

    def begin(self, rows: Any, first: int) -> Any:
        self.runs.append(("begin", len(rows) * max(map(len, rows))))
        return super().begin(rows, first)

    def read(self, row: Any, done: int) -> Any:
        self.runs.append(("read", len(row)))
        return super().read(row, done)

    def step(self, ids: Any, lengths: Any) -> Any:
        self.runs.append(("step", len(ids)))
        found = super().step(ids, lengths)
        self.behind.pop(sum(kind == "step" for kind, _ in self.runs), lambda: None)()
        return found


@pytest.fixture
def network(tmp_path: Path) -> CountedNetwork:
    made = CountedNetwork(pretrained.llama(tmp_path / "writer"))
    made.ends = frozenset()
    return made


def prompt(network: CausalNetwork, size: int) -> list[int]:
    """A prompt of so many tokens."""
    return network.tokens(pretrained.LONG * 9)[:size]


def expected(network: CausalNetwork, ids: list[int], most: int) -> list[int]:
    """What the library writes."""
    rows = torch.tensor([ids])
    made = network.model.generate(rows, attention_mask=torch.ones_like(rows), max_new_tokens=most, do_sample=False)
    return list(made[0, len(ids) :].tolist())


class EqualBudget(PromptBudget):
    """As many tokens at any time: it learns nothing of the clock."""

    tokens = PART

    def __init__(self) -> None:
        pass

    def learn(self, tokens: int, seconds: float) -> None:
        pass

    def left(self, tokens: int) -> int:
        return PART


def writing(ids: list[int], most: int) -> Writing:
    """A text that is wanted whole."""
    return Writing(ids, most, Sampling(), whole=True)


def write(network: CountedNetwork, begin: Callable[[StepLoop], list[Writing]]) -> list[list[int]]:
    """Writes texts, some of which are put later, until all have ended."""

    async def run() -> list[list[int]]:
        loop = StepLoop(network)
        loop._new.budget = EqualBudget()
        try:
            texts = begin(loop)
            for one in texts:
                await asyncio.wait_for(one.news(), PATIENCE_SECONDS)
        finally:
            loop.close()
        return [one.written for one in texts]

    return asyncio.run(run())


def test_a_long_prompt_is_read_in_parts_while_others_are_written(network: CountedNetwork) -> None:
    short, long = prompt(network, 5), prompt(network, 70)

    def begin(loop: StepLoop) -> list[Writing]:
        texts = [writing(short, 20), writing(long, 4)]
        network.behind[3] = lambda: loop.put(texts[1])
        loop.put(texts[0])
        return texts

    assert write(network, begin) == [expected(network, short, 20), expected(network, long, 4)]
    alone, together = ("step", 1), ("step", 2)
    between = [("read", 16), alone] * 4
    assert network.runs == [("begin", 5), *[alone] * 3, *between, ("read", 6), *[together] * 3, *[alone] * 9]


def test_short_prompts_pass_a_long_one_and_do_not_hold_it_up(network: CountedNetwork) -> None:
    first, long = prompt(network, 4), prompt(network, 48)
    others = [prompt(network, size) for size in (3, 8, 6)]

    def begin(loop: StepLoop) -> list[Writing]:
        texts = [writing(first, 12), writing(long, 2), *(writing(one, 2) for one in others)]

        def come() -> None:
            for one in texts[1:]:
                loop.put(one)

        network.behind[2] = come
        loop.put(texts[0])
        return texts

    given = [(first, 12), (long, 2), *((one, 2) for one in others)]
    assert write(network, begin) == [expected(network, *one) for one in given]
    behind = [("begin", 4), ("step", 1), ("step", 1)]
    # Two of the short ones fill a part; the third would not fit beside them, and comes in the next round.
    rounds = [("begin", 16), ("read", 16), ("step", 3), ("begin", 6), ("read", 16), ("step", 2), ("read", 16)]
    assert network.runs[: len(behind + rounds)] == behind + rounds


@pytest.mark.parametrize(("seconds", "told"), [(math.inf, [1, 12]), (0.0, list(range(1, 13)))])
def test_the_first_token_is_told_at_once_and_others_when_it_is_due(
    network: CountedNetwork, monkeypatch: pytest.MonkeyPatch, seconds: float, told: list[int]
) -> None:
    monkeypatch.setattr(step_loop, "TELL_SECONDS", seconds)
    ids, read = prompt(network, 5), threading.Semaphore(0)
    # No step before what was told is read.
    steps = [at for at in range(1, 12) if at in told]
    network.behind = {at: lambda: read.acquire(timeout=PATIENCE_SECONDS) for at in steps}

    async def run() -> list[int]:
        loop = StepLoop(network)
        text, found = Writing(ids, 12, Sampling()), [0]
        try:
            loop.put(text)
            while found[-1] < 12:
                tokens, _ = await asyncio.wait_for(text.news(), PATIENCE_SECONDS)
                found.append(found[-1] + len(tokens))
                read.release()
        finally:
            loop.close()
        assert text.written == expected(network, ids, 12)
        return found[1:]

    assert asyncio.run(run()) == told


def test_pieces_are_told_while_the_text_is_written_and_who_is_late_gets_all(network: CountedNetwork) -> None:
    ids, told, late = prompt(network, 5), threading.Event(), threading.Event()
    network.behind = {5: lambda: told.wait(PATIENCE_SECONDS), 38: late.set}

    async def run() -> list[list[TextPiece]]:
        model = TextGeneration()
        model.network, model.loop = network, StepLoop(network)
        found = []
        try:
            async with aclosing(model.pieces(TextOrder(ids, 40, Sampling(), []))) as pieces:
                async for some in pieces:
                    found.append(some)
                    told.set()
                    assert late.wait(PATIENCE_SECONDS)  # The loop turns no more until nearly all is written.
        finally:
            model.teardown()
        return found

    found = asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS))
    assert all(len(some) == 1 for some in found)
    counts = [some[0].tokens for some in found]
    assert counts[0] <= 5 and counts[1] >= 37 and counts[-1] == 40
    written = network.decoder.decode(expected(network, ids, 40), skip_special_tokens=True)
    assert "".join(some[0].text for some in found) == written and found[-1][0].reason == "length"
