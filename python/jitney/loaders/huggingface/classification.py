"""Classes of texts, of their tokens, and of labels that nobody trained; answers have the form of the pipelines of
`transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jitney.call.errors import BadInput, DefinitionError
from jitney.definition.decorators import endpoint
from jitney.http.request import HttpRequest
from jitney.loaders.huggingface.network import TokenRow
from jitney.loaders.huggingface.scores import ItemScores, ranked, score_kind, scores_of_each, usual_kind
from jitney.loaders.huggingface.task import several, text_of, whole
from jitney.loaders.huggingface.text_task import Asked, Text, TextTask
from jitney.loaders.huggingface.vllm import VllmRequest


class TextClassification(TextTask):
    """A label for each text: `{"inputs": "I liked it"}` gives `[{"label": ..., "score": ...}]`."""

    auto = "AutoModelForSequenceClassification"
    outputs_of_each = staticmethod(scores_of_each)

    def setup(self) -> None:
        """Notes what is the same for all requests."""
        super().setup()
        self.kind = usual_kind(self.network.config)
        self.labels: dict[int, str] = self.network.config.id2label

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """The best label of each text; `top_k` labels, or all of them with null."""
        texts, many = several(inputs)
        kind = score_kind(parameters.get("function_to_apply"), self.kind)
        labels = self.labels
        best = "top_k" not in parameters
        most = len(labels)
        count = most if parameters.get("top_k", 1) is None else whole(parameters, "top_k", 1, most)

        def answer(rows: Sequence[TokenRow], outputs: Sequence[ItemScores]) -> Any:
            found = [ranked(one.of(kind), labels, count) for one in outputs]
            if best:
                return [one[0] for one in found]
            return found if many else found[0]

        return Asked([one_or_pair(one) for one in texts], answer)

    @endpoint(raw=True, route="POST /classify", route_shared=True)
    def classify(self, request: HttpRequest) -> Any:
        """Probabilities of all classes, as vLLM's `/classify` gives them for `{"input": ...}`."""
        return self.answer_alone(lambda one: self._classify(VllmRequest(one)), request)

    def _classify(self, request: VllmRequest) -> Asked:
        texts = request.texts("input")
        labels = self.labels

        def answer(rows: Sequence[TokenRow], outputs: Sequence[ItemScores]) -> Any:
            scores = [one.of(self.kind) for one in outputs]
            data = [
                {"index": at, "label": labels[one.index(max(one))], "probs": one, "num_classes": len(labels)}
                for at, one in enumerate(scores)
            ]
            return request.answer("classify", rows, object="list", data=data)

        return Asked(texts, answer)


def one_or_pair(value: Any) -> Text:
    """A text, or the pair of texts of `{"text": ..., "text_pair": ...}`."""
    if not isinstance(value, dict):
        return text_of(value)
    text, pair = text_of(value.get("text"), "text"), value.get("text_pair")
    return text if pair is None else (text, text_of(pair, "text_pair"))


class ZeroShotClassification(TextTask):
    """Labels of the request's choice: `{"inputs": text, "parameters": {"candidate_labels": ["a", "b"]}}`."""

    auto = "AutoModelForSequenceClassification"
    token_options: ClassVar = {"truncation": "only_first"}
    example: ClassVar = {"inputs": "A text.", "parameters": {"candidate_labels": ["a", "b"]}}

    def setup(self) -> None:
        """The model must be one that tells whether a sentence follows from another."""
        super().setup()
        labels = self.network.config.label2id
        found = next((at for name, at in labels.items() if name.lower().startswith("entail")), None)
        if found is None:
            raise DefinitionError(
                f"zero-shot-classification needs a model with a label that begins with 'entail'; it has {list(labels)}"
            )
        self.entails = found

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """Every label is a sentence that follows from the text, or does not."""
        texts, many = several(inputs)
        labels = candidate_labels(parameters)
        template = text_of(parameters.get("hypothesis_template", "This example is {}."), "hypothesis_template")
        if template.format(labels[0]) == template:
            raise BadInput("hypothesis_template must have {} where the label goes")
        alone = bool(parameters.get("multi_label")) or len(labels) == 1
        pairs = [(text_of(text), template.format(label)) for text in texts for label in labels]

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            of_each = [outputs[at : at + len(labels)] for at in range(0, len(outputs), len(labels))]
            found = [self._labelled(text, labels, one, alone) for text, one in zip(texts, of_each)]
            return found if many else found[0]

        return Asked(pairs, answer)

    def _labelled(self, text: str, labels: list[str], logits: Sequence[Any], alone: bool) -> dict[str, Any]:
        import torch

        table = torch.stack(list(logits))
        against = -1 if self.entails == 0 else 0
        if alone:
            scores = table[:, [against, self.entails]].softmax(-1)[:, 1].tolist()
        else:
            scores = table[:, self.entails].softmax(-1).tolist()
        order = sorted(range(len(labels)), key=lambda at: -scores[at])
        return {"sequence": text, "labels": [labels[at] for at in order], "scores": [scores[at] for at in order]}


def candidate_labels(parameters: dict[str, Any]) -> list[str]:
    """The labels of a request: a list, or a text with commas."""
    given = parameters.get("candidate_labels")
    labels = [one.strip() for one in given.split(",") if one.strip()] if isinstance(given, str) else given
    if not isinstance(labels, list) or not labels or not all(isinstance(one, str) for one in labels):
        raise BadInput('parameters must have candidate_labels: a list of texts, or one text with commas ("a, b")')
    return labels


class TokenClassification(TextTask):
    """Classes of words: `[{"entity": ..., "score": ..., "index": ..., "word": ..., "start": ..., "end": ...}]`."""

    auto = "AutoModelForTokenClassification"
    token_options: ClassVar = {"return_offsets_mapping": True, "return_special_tokens_mask": True}

    def setup(self) -> None:
        """Words are put together by the rules of `transformers`, which its pipeline holds; it runs no model."""
        super().setup()
        from transformers import TokenClassificationPipeline

        self.rules = TokenClassificationPipeline(model=self.network.model, tokenizer=self.network.tokenizer)

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """The tokens that have a label, or with `aggregation_strategy` the words."""
        from transformers.pipelines.token_classification import AggregationStrategy

        texts, many = several(inputs)
        named = parameters.get("aggregation_strategy", "none")
        known = {one.value: one for one in AggregationStrategy}
        if named not in known:
            raise BadInput(f"aggregation_strategy must be one of {', '.join(known)}, not {named!r}")
        ignored = parameters.get("ignore_labels", ["O"])

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            found = [self._words(*one, known[named], ignored) for one in zip(texts, rows, outputs)]
            return found if many else found[0]

        return Asked([text_of(one) for one in texts], answer)

    def _words(self, text: str, row: TokenRow, logits: Any, strategy: Any, ignored: list[str]) -> list[dict[str, Any]]:
        import torch

        told = {
            "sentence": text,
            "logits": logits[None, : len(row.ids)],
            "input_ids": torch.tensor([row.ids]),
            "offset_mapping": torch.tensor([row.encoding.offsets]),
            "special_tokens_mask": torch.tensor([row.encoding.special_tokens_mask]),
            "word_ids": row.encoding.word_ids,
        }
        found = self.rules.postprocess([told], aggregation_strategy=strategy, ignore_labels=ignored)
        return [{key: plain(value) for key, value in one.items()} for one in found]


def plain(value: Any) -> Any:
    """A number of numpy's or torch's as one of Python's."""
    return value.item() if hasattr(value, "item") else value
