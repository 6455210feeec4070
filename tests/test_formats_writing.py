"""What happens between two steps of texts that are written together: the network counts its runs, and no time is
measured."""

from __future__ import annotations

import asyncio
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

from jitney.loaders.huggingface.causal import CausalNetwork  # noqa: E402
from jitney.loaders.huggingface.folder import PretrainedFolder  # noqa: E402
from jitney.loaders.huggingface.generation import TextGeneration, TextOrder, TextPiece  # noqa: E402
from jitney.loaders.huggingface.sampling import Sampling  # noqa: E402
from jitney.loaders.huggingface.step_loop import StepLoop  # noqa: E402

PATIENCE_SECONDS = 300


class CountedNetwork(CausalNetwork):
    """A network that tells its runs, and calls back behind a step."""

    def __init__(self, folder: Path) -> None:
        self.runs: list[tuple[str, int]] = []
        """Each with the number of its tokens."""
        self.behind: dict[int, Callable[[], Any]] = {}
        """What is done behind so many steps."""
        super().__init__(PretrainedFolder.read(folder), False)
        self.runs.clear()

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
