"""Tasks that read the states of single tokens: masked words, answers to questions, and the states themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jitney.call.errors import BadInput, DefinitionError
from jitney.gpu.device import find_torch
from jitney.gpu.fetching import fetched
from jitney.loaders.huggingface.network import TokenRow
from jitney.loaders.huggingface.task import several, text_of, whole
from jitney.loaders.huggingface.text_task import Asked, TextTask


class FeatureExtraction(TextTask):
    """The states of all tokens: nested lists."""

    auto = "AutoModel"

    def read(self, outputs: Any, ids: Any, mask: Any) -> Any:
        """The states behind the last layer."""
        return outputs.last_hidden_state

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """One table for each text, in a list of one as the pipeline gives it."""
        texts, many = several(inputs)

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            found = [[one[: len(row.ids)].tolist()] for row, one in zip(rows, outputs)]
            return found if many else found[0]

        return Asked([text_of(one) for one in texts], answer)


class FillMask(TextTask):
    """Words for a mask: `{"inputs": "Paris is the [MASK] of France."}`."""

    auto = "AutoModelForMaskedLM"
    masks_max = 8

    @classmethod
    def example_request(cls) -> dict[str, Any]:
        """A text with the mask of the folder's tokenizer."""
        names = ("tokenizer_config.json", "special_tokens_map.json")
        told = next(filter(None, (cls.folder.document(name).get("mask_token") for name in names)), "[MASK]")
        mask = told.get("content") if isinstance(told, dict) else told
        return {"inputs": f"Paris is the {mask} of France."}

    def setup(self) -> None:
        """The tokenizer must have a mask."""
        super().setup()
        if self.network.tokenizer.mask_token_id is None:
            raise DefinitionError("fill-mask needs a tokenizer with a mask token; this one has none")

    def read(self, outputs: Any, ids: Any, mask: Any) -> Any:
        """The outputs of the first few masks alone, since those of all tokens are large."""
        masked = (ids == self.network.tokenizer.mask_token_id).int()
        places = masked.argsort(dim=1, descending=True, stable=True)[:, : self.masks_max]
        return outputs.logits.gather(1, places[:, :, None].expand(-1, -1, outputs.logits.shape[2]))

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """The `top_k` best words for each mask; with `targets` among these only."""
        texts, many = several(inputs)
        targets = self._targets(parameters.get("targets"))
        count = whole(parameters, "top_k", 5, len(targets) if targets else self.network.config.vocab_size)

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            found = [self._filled(row, one, count, targets) for row, one in zip(rows, outputs)]
            return found if many else found[0]

        return Asked([text_of(one) for one in texts], answer)

    def answers(self, read: Callable[..., Asked], *columns: list[Any]) -> Any:
        """Made at once: they use the tokenizer, which tokenises the next batch else."""
        return fetched(super().answers(read, *columns))

    def _targets(self, given: Any) -> list[int] | None:
        if given is None:
            return None
        tokenizer = self.network.tokenizer
        known = tokenizer.get_vocab()
        words = [text_of(one, "targets") for one in (given if isinstance(given, list) else [given])]
        ids = [known[one] if one in known else next(iter(self._first_token(one)), None) for one in words]
        found = sorted({one for one in ids if one is not None})
        if not found:
            raise BadInput("targets must have at least one word that the model knows")
        return found

    def _first_token(self, word: str) -> list[int]:
        ids: list[int] = self.network.tokenizer(word, add_special_tokens=False)["input_ids"]
        return ids[:1]

    def _filled(self, row: TokenRow, logits: Any, count: int, targets: list[int] | None) -> Any:
        tokenizer = self.network.tokenizer
        places = [at for at, one in enumerate(row.ids) if one == tokenizer.mask_token_id]
        if not 1 <= len(places) <= self.masks_max:
            raise BadInput(f"the text must have 1 to {self.masks_max} times {tokenizer.mask_token}, not {len(places)}")
        answers = []
        for at, one in zip(places, logits.softmax(-1)):
            scores, best = (one if targets is None else one[targets]).topk(count)
            tokens = best.tolist() if targets is None else [targets[each] for each in best.tolist()]
            answers.append([self._word(row.ids, at, *each, len(places) == 1) for each in zip(tokens, scores.tolist())])
        return answers[0] if len(answers) == 1 else answers

    def _word(self, ids: list[int], at: int, token: int, score: float, alone: bool) -> dict[str, Any]:
        decode = self.network.tokenizer.decode
        sequence = decode([*ids[:at], token, *ids[at + 1 :]], skip_special_tokens=alone)
        return {"score": score, "token": token, "token_str": decode([token]), "sequence": sequence}


class QuestionAnswering(TextTask):
    """The part of a text that answers a question: `{"inputs": {"question": ..., "context": ...}}`."""

    auto = "AutoModelForQuestionAnswering"
    example: ClassVar = {"inputs": {"question": "Who?", "context": "A text."}}

    def read(self, outputs: Any, ids: Any, mask: Any) -> Any:
        """How well an answer begins, and ends, at each token."""
        return find_torch().stack([outputs.start_logits, outputs.end_logits], dim=-1)

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """The best answer, or with `top_k` several. A long context is read in parts that overlap."""
        if not isinstance(inputs, dict):
            raise BadInput("inputs must be an object with question and context")
        question, context = (text_of(inputs.get(one), one) for one in ("question", "context"))
        longest = whole(parameters, "max_answer_len", 15, 512)
        count = whole(parameters, "top_k", 1, 100)
        rows = self._parts(question, context, parameters)

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            found = [one for row, logits in zip(rows, outputs) for one in spans(row, logits, longest, count, context)]
            best = sorted(found, key=lambda one: -one["score"])[:count]
            return best if "top_k" in parameters and count > 1 else best[0]

        return Asked(rows, answer)

    def _parts(self, question: str, context: str, parameters: dict[str, Any]) -> list[TokenRow]:
        most = whole(parameters, "max_seq_len", 384, self.network.longest)
        asked = len(self.network.tokens([question])[0].ids)
        if not context.strip() or asked + ROOM_FOR_CONTEXT > most:
            raise BadInput(
                f"question and context must not be empty, and a question has at most {most} tokens with them"
            )
        stride = min(whole(parameters, "doc_stride", min(most // 2, 128), most), most - asked - ROOM_FOR_CONTEXT + 1)
        told = {"truncation": "only_second", "max_length": most, "stride": max(stride, 0)}
        return self.network.tokens([question], [context], return_overflowing_tokens=True, **told)


ROOM_FOR_CONTEXT = 8
"""Tokens of the context that a part must have room for."""


def spans(row: TokenRow, logits: Any, longest: int, count: int, context: str) -> list[dict[str, Any]]:
    """The best answers in one part of the context. Answers are whole words."""
    torch = find_torch()
    encoding = row.encoding
    inside = torch.tensor([one == 1 for one in encoding.sequence_ids])
    begin, end = logits[: len(row.ids)].masked_fill(~inside[:, None], -10000.0).softmax(0).unbind(-1)
    table = (begin[:, None] * end[None, :]).triu().tril(longest - 1)
    table = table * inside[:, None] * inside[None, :]
    scores, places = table.flatten().topk(min(count, table.numel()))
    found = []
    for score, place in zip(scores.tolist(), places.tolist()):
        first, last = (encoding.token_to_word(at) for at in divmod(place, len(row.ids)))
        start, stop = encoding.word_to_chars(first, 1)[0], encoding.word_to_chars(last, 1)[1]
        found.append({"score": score, "start": start, "end": stop, "answer": context[start:stop]})
    return found
