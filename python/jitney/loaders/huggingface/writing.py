"""Texts that a model with an encoder writes of others: summaries, translations and the like. Texts of like length and
the same parameters are written together."""

from __future__ import annotations

import json
from typing import Any

from jitney.call.errors import BadInput
from jitney.definition.decorators import batch
from jitney.gpu.device import device, find_torch
from jitney.gpu.padding import pad
from jitney.loaders.huggingface.lengths import TOKENS_PER_BATCH, groups
from jitney.loaders.huggingface.network import load_network, load_part
from jitney.loaders.huggingface.task import NOT_GIVEN, FolderTask, checked, or_error, several, text_of
from jitney.loaders.huggingface.text_task import BY_TOKENS

WORDS = {"summarization": "summary_text", "translation": "translation_text"}
"""The key of the text in an answer, by the task; else it is `generated_text`."""
GENERATE = (
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "do_sample", "num_beams", "temperature", "top_k",
    "top_p", "repetition_penalty", "no_repeat_ngram_size", "length_penalty", "early_stopping",
)  # fmt: skip
"""Parameters that go to `generate`."""
NEW_TOKENS_MAX = 4096


class TextToText(FolderTask):
    """A text for each text: `[{"generated_text": ...}]`, or `summary_text` or `translation_text` by the task."""

    batching = f"requests share batches of up to {TOKENS_PER_BATCH} tokens, and texts of like length run together"

    def setup(self) -> None:
        """Once per worker. The folder may have words that stand before every text of a task (T5)."""
        self.tokenizer = load_part("AutoTokenizer", self.folder, self.trust)
        self.model = load_network("AutoModelForSeq2SeqLM", self.folder, self.trust)
        self.longest = self.folder.longest
        own = (self.folder.config.get("task_specific_params") or {}).get(self.folder.task) or {}
        self.prefix = str(own.get("prefix", ""))
        self.usual = {key: value for key, value in own.items() if key in GENERATE}

    @batch(max_batch_size=TOKENS_PER_BATCH, cost=BY_TOKENS, padded=True)
    def predict(self, inputs: list[Any], parameters: list[Any] = NOT_GIVEN) -> list[Any]:
        """The texts that are written."""
        asked = [or_error(self._asked, *one) for one in zip(inputs, parameters)]
        alike: dict[str, list[tuple[int, str]]] = {}
        for at, one in enumerate(asked):
            if not isinstance(one, Exception):
                texts, told = one
                alike.setdefault(json.dumps(told, sort_keys=True), []).extend((at, text) for text in texts)
        written: list[Any] = [one if isinstance(one, Exception) else [] for one in asked]
        key = WORDS.get(self.folder.kind, "generated_text")
        for told, texts in alike.items():
            for (at, _), text in zip(texts, self._written([text for _, text in texts], json.loads(told))):
                written[at].append({key: text})
        return written

    def _asked(self, inputs: Any, parameters: Any) -> tuple[list[str], dict[str, Any]]:
        told = checked(parameters)
        told = {**told, **checked(told.get("generate_parameters"))}
        told.pop("generate_parameters", None)
        clean_up = told.pop("clean_up_tokenization_spaces", False)
        unknown = [one for one in told if one not in GENERATE]
        if unknown or clean_up:
            name = unknown[0] if unknown else "clean_up_tokenization_spaces"
            raise BadInput(f"parameters has {name!r}, which is not known here; known: {', '.join(GENERATE)}")
        for name in ("max_length", "max_new_tokens"):
            if name in told and not (type(told[name]) is int and 1 <= told[name] <= NEW_TOKENS_MAX):
                raise BadInput(f"{name} must be a whole number from 1 to {NEW_TOKENS_MAX}, not {told[name]!r}")
        return [self.prefix + text_of(one) for one in several(inputs)[0]], {**self.usual, **told}

    def _written(self, texts: list[str], options: dict[str, Any]) -> list[str]:
        torch = find_torch()
        rows = self.tokenizer(texts, truncation=True, max_length=self.longest)["input_ids"]
        found: list[str] = [""] * len(texts)
        with torch.inference_mode():
            for group in groups([len(row) for row in rows]):
                ids, mask = pad([rows[at] for at in group], value=self.tokenizer.pad_token_id or 0, device=device())
                try:
                    made = self.model.generate(input_ids=ids, attention_mask=mask.long(), **options)
                except (ValueError, TypeError) as error:
                    raise BadInput(f"the model cannot write with these parameters: {error}") from None
                for at, text in zip(group, self.tokenizer.batch_decode(made, skip_special_tokens=True)):
                    found[at] = text
        return found
