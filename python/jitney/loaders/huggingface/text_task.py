"""What tasks over texts share: a request becomes texts, all texts of a batch are tokenised and run together, and each
request makes its answer of its own outputs. A request that is wrong fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from jitney.definition.decorators import batch, model
from jitney.gpu.device import gpu_in_sight
from jitney.gpu.fetching import fetched, made_of
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import CHARACTERS_PER_TOKEN, TOKENS_PER_BATCH
from jitney.loaders.huggingface.network import TextNetwork, TokenRow
from jitney.loaders.huggingface.task import NOT_GIVEN, FolderTask, checked, or_error

Text = str | tuple[str, str] | TokenRow
"""A text, a pair of them, or one that is in tokens already."""
BY_TOKENS = f"len // {CHARACTERS_PER_TOKEN}"
"""The server batches texts by a guess of their tokens."""
GPU_WORKERS = 2
"""Reading, tokenising and answering take Python's one thread longer than a GPU takes for a small model, so that one
worker leaves it idle half of the time."""
SMALL_BYTES = 2**30
"""The weights of which a GPU has a second copy without being asked."""


class Asked(NamedTuple):
    """What one request asks for."""

    texts: Sequence[Text]
    answer: Callable[[Sequence[TokenRow], Sequence[Any]], Any]
    """Makes the answer of the texts' tokens and outputs."""


class TextTask(FolderTask):
    """A model over texts, in the form of Hugging Face's endpoints: `{"inputs": ..., "parameters": {...}}`."""

    auto = ""
    """The class of `transformers` that loads it."""
    batching = f"requests share batches of up to {TOKENS_PER_BATCH} tokens, and texts of like length run together"
    token_options: ClassVar[dict[str, Any]] = {}

    @classmethod
    def for_folder(cls, folder: PretrainedFolder, trust: bool) -> type:
        """The same; a small model on a GPU has two workers where nobody says how many."""
        made = super().for_folder(folder, trust)
        is_small = folder.weight_bytes <= SMALL_BYTES
        return model(workers=GPU_WORKERS)(made) if gpu_in_sight() and is_small else made

    def setup(self) -> None:
        """Once per worker."""
        self.network = TextNetwork(self.folder, self.auto, self.read, self.trust)

    def read(self, outputs: Any, ids: Any, mask: Any) -> Any:
        """The tensor of the model's outputs that is wanted; it is computed where the model runs."""
        return outputs.logits

    @staticmethod
    def outputs_of_each(outputs: Any) -> Sequence[Any]:
        """The outputs of each row, of those of rows that ran together and are where the processor reads them."""
        return list(outputs)

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """What a request asks for."""
        raise NotImplementedError

    @batch(max_batch_size=TOKENS_PER_BATCH, cost=BY_TOKENS, padded=True)
    def predict(self, inputs: list[Any], parameters: list[Any] = NOT_GIVEN) -> list[Any]:
        """Answers as the task's pipeline gives them."""
        found: list[Any] = self.answers(lambda one, told: self.asked(one, checked(told)), inputs, parameters)
        return found

    def answers(self, read: Callable[..., Asked], *columns: list[Any]) -> Any:
        """The answers of several requests, whose texts are run together; `read` tells what one asks for. On a GPU they
        are made where the outputs are waited for, so that the texts of the next batch are tokenised meanwhile."""
        asked = [or_error(read, *one) for one in zip(*columns)]
        rows = self.tokens([text for one in asked if isinstance(one, Asked) for text in one.texts])
        begun = self.network.begin(rows)

        def make(found: list[Any]) -> list[Any]:
            return made_answers(asked, rows, begun.by_row(list(map(self.outputs_of_each, found))))

        return made_of(begun.outputs, make)

    def answer_alone(self, read: Callable[[HttpRequest], Asked], request: HttpRequest) -> Any:
        """The answer of one request, which may bring many texts."""
        found = fetched(self.answers(read, [request]))[0]
        if isinstance(found, Exception):
            raise found
        return found

    def tokens(self, texts: Sequence[Text]) -> list[TokenRow]:
        """Texts and pairs of texts as rows."""
        rows: list[Any] = list(texts)
        for kind in (str, tuple):
            chosen = [at for at, text in enumerate(texts) if type(text) is kind]
            if not chosen:
                continue
            told: Any = [texts[at] for at in chosen]
            columns = [told] if kind is str else list(zip(*told))
            for at, row in zip(chosen, self.network.tokens(*columns, **self.token_options)):
                rows[at] = row
        return rows


def made_answers(asked: Sequence[Asked | Exception], rows: Sequence[TokenRow], outputs: Sequence[Any]) -> list[Any]:
    """Each request's own answer, or its error."""
    answers: list[Any] = []
    at = 0
    for one in asked:
        if isinstance(one, Exception):
            answers.append(one)
            continue
        end = at + len(one.texts)
        answers.append(or_error(one.answer, rows[at:end], outputs[at:end]))
        at = end
    return answers
