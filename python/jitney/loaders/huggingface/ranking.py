"""How well texts fit a query: `/rerank` and `/v1/score`. Whether a score is computed by a model over pairs, or is the
cosine of two vectors, only the class knows that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jitney.call.errors import BadInput
from jitney.definition.decorators import endpoint
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.network import TokenRow
from jitney.loaders.huggingface.scores import scores_of_each, usual_kind
from jitney.loaders.huggingface.task import several, text_of
from jitney.loaders.huggingface.text_task import Asked, TextTask
from jitney.loaders.huggingface.vllm import VllmRequest

Scores = Callable[[Sequence[Any]], list[float]]


class Ranking(TextTask):
    """Routes of every model that can compare two texts."""

    def compared(self, pairs: Sequence[tuple[str, str]], bare: bool) -> tuple[Sequence[Any], Scores]:
        """The texts to run for these pairs, and what makes the scores of their outputs; bare ones are as the model
        gives them."""
        raise NotImplementedError

    @endpoint(raw=True, route="POST /rerank", route_shared=True)
    def rerank(self, request: HttpRequest) -> Any:
        """Texts in the order in which they fit a query: `{"query": ..., "documents": [...]}` as vLLM, or
        `{"query": ..., "texts": [...]}` as Text Embeddings Inference."""
        return self.answer_alone(lambda one: self._rerank(VllmRequest(one)), request)

    @endpoint(raw=True, route="POST /v1/score", route_shared=True)
    def score(self, request: HttpRequest) -> Any:
        """Scores of pairs, as vLLM's `/v1/score`: `{"text_1": ..., "text_2": ...}`."""
        return self.answer_alone(lambda one: self._score(VllmRequest(one)), request)

    def _rerank(self, request: VllmRequest) -> Asked:
        fields = request.fields
        query, documents = text_of(fields.get("query"), "query"), request.texts("documents", "texts")
        short = fields.get("documents") is None
        texts, scores = self.compared([(query, one) for one in documents], bool(fields.get("raw_scores")))
        most = fields.get("top_n") or len(documents)
        if type(most) is not int or most < 1:
            raise BadInput(f"top_n must be a whole number from 1 on, not {most!r}")

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            found = scores(outputs)
            order = sorted(range(len(found)), key=lambda at: -found[at])[:most]
            if short:
                shown = fields.get("return_text")
                return [{"index": at, "score": found[at], **({"text": documents[at]} if shown else {})} for at in order]
            results = [{"index": at, "document": {"text": documents[at]}, "relevance_score": found[at]} for at in order]
            return request.answer("rerank", rows, results=results)

        return Asked(texts, answer)

    def _score(self, request: VllmRequest) -> Asked:
        first, second = request.texts("text_1", "queries"), request.texts("text_2", "documents")
        if len(first) not in (1, len(second)):
            raise BadInput(f"text_1 has {len(first)} texts and text_2 {len(second)}: give one, or as many")
        pairs = list(zip(first * len(second) if len(first) == 1 else first, second))
        texts, scores = self.compared(pairs, False)

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            data = [{"index": at, "object": "score", "score": one} for at, one in enumerate(scores(outputs))]
            return request.answer("score", rows, object="list", data=data)

        return Asked(texts, answer)


class TextRanking(Ranking):
    """A model over pairs with one output: `{"inputs": [["query", "text"], ...]}` gives `{"scores": [...]}`."""

    auto = "AutoModelForSequenceClassification"
    example: ClassVar = {"inputs": [["a query", "a text"]]}
    outputs_of_each = staticmethod(scores_of_each)

    def setup(self) -> None:
        """Notes what is the same for all requests."""
        super().setup()
        self.kind = usual_kind(self.network.config)

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """The scores of pairs."""
        pairs = [pair_of(one) for one in several(inputs)[0]]
        texts, scores = self.compared(pairs, parameters.get("function_to_apply") == "none")
        return Asked(texts, lambda rows, outputs: {"scores": scores(outputs)})

    def compared(self, pairs: Sequence[tuple[str, str]], bare: bool) -> tuple[Sequence[Any], Scores]:
        """Every pair is run."""
        kind = "none" if bare else self.kind
        return pairs, lambda outputs: [one.of(kind)[-1] for one in outputs]


def pair_of(value: Any) -> tuple[str, str]:
    """A query and a text."""
    if isinstance(value, dict):
        value = [value.get("text"), value.get("text_pair")]
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput('inputs must be pairs of texts: [["query", "text"], ...]')
    return text_of(value[0], "the first of a pair"), text_of(value[1], "the second of a pair")
