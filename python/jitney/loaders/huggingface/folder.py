"""A folder as Hugging Face's libraries write it: what it holds, and which task it is for. It reads JSON and nothing
else, so that looking at a folder needs neither torch nor transformers and runs none of its code."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitney.call.errors import DefinitionError

CONFIG, MODULES, HANDLER = "config.json", "modules.json", "handler.py"
JSON_BYTES_MAX = 64 * 2**20

TASK_OF_ARCHITECTURE = (
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
    ("ForMaskedLM", "fill-mask"),
    ("ForCausalLM", "text-generation"),
    ("LMHeadModel", "text-generation"),
    ("ForConditionalGeneration", "text2text-generation"),
    ("MTModel", "translation"),
    ("ForImageClassification", "image-classification"),
    ("ForObjectDetection", "object-detection"),
    ("ForSemanticSegmentation", "image-segmentation"),
    ("ForCTC", "automatic-speech-recognition"),
    ("Model", "feature-extraction"),
)
"""How the name of an architecture ends, and its task; the first that fits counts."""

ALIASES = {
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "sentence-similarity": "sentence-embeddings",
    "sentence-ranking": "text-ranking",
}
"""Other words for a task."""

SPEECH_WRITERS = ("whisper", "speech_to_text", "moonshine")
"""Kinds of models that write texts, but not of texts."""


@dataclass(frozen=True)
class PretrainedFolder:
    """A folder with a `config.json`."""

    path: Path
    config: dict[str, Any] = field(repr=False)
    task: str

    @classmethod
    def read(cls, path: Path, task: str | None = None) -> PretrainedFolder:
        """The folder, for the given task or the one that its files tell."""
        config = read_json(path / CONFIG)
        given = task or told_task(path, config)
        return cls(path, config, ALIASES.get(given, given))

    @property
    def kind(self) -> str:
        """The task without languages: `translation` of `translation_en_to_de`."""
        return self.task.partition("_")[0]

    def document(self, name: str) -> dict[str, Any]:
        """Another JSON file of the folder; empty where there is none."""
        found: dict[str, Any] = read_json(self.path / name) if (self.path / name).is_file() else {}
        return found

    @property
    def longest(self) -> int:
        """The most tokens of a text that the model takes; longer ones are cut."""
        told = [
            self.document("sentence_bert_config.json").get("max_seq_length"),
            self.document("tokenizer_config.json").get("model_max_length"),
            self.positions,
        ]
        lengths = [int(one) for one in told if isinstance(one, int | float) and 0 < one < TOKENS_MAX]
        return min(lengths, default=512)

    @property
    def weight_bytes(self) -> int:
        """The size of its weights; where there are safetensors and pickles, of the former."""
        kinds = (list(self.path.rglob(pattern)) for pattern in ("*.safetensors", "pytorch_model*.bin"))
        return sum(one.stat().st_size for one in next(filter(None, kinds), ()))

    @property
    def positions(self) -> int | None:
        """The model's own positions. Those of RoBERTa's kind begin behind the padding's number."""
        known = ("max_position_embeddings", "n_positions", "seq_length")
        positions: int | None = next((self.config[one] for one in known if isinstance(self.config.get(one), int)), None)
        if positions is None or not re.search("roberta|camembert|longformer|mpnet", self.config.get("model_type", "")):
            return positions
        return positions - int(self.config.get("pad_token_id") or 0) - 1


TOKENS_MAX = 2**20
"""Tokenizers without a limit say a far larger number."""


def told_task(path: Path, config: dict[str, Any]) -> str:
    """The task that the files tell."""
    if (path / MODULES).is_file():
        return "sentence-embeddings"
    architectures = config.get("architectures") or []
    if config.get("model_type") in SPEECH_WRITERS:
        return "automatic-speech-recognition"
    for name in architectures:
        for ending, task in TASK_OF_ARCHITECTURE:
            if str(name).endswith(ending):
                return task
    named = ", ".join(map(str, architectures)) or "nothing"
    raise DefinitionError(f"its config.json names {named} as architectures, which tells no task: say one with --task")


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON object of the folder, or what else one is."""
    try:
        if path.stat().st_size > JSON_BYTES_MAX:
            raise DefinitionError(f"{path.name} is larger than {JSON_BYTES_MAX >> 20} MiB, which no such file is")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DefinitionError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(found, kind):
        raise DefinitionError(f"{path.name} is no JSON {'object' if kind is dict else 'list'}")
    return found
