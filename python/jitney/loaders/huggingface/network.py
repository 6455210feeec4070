"""A tokenizer and a network over texts, as `transformers` loads them. Rows of like length are run together, on a GPU by
graphs and in half precision. What a task makes of the outputs is not known here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jitney.gpu.device import device, find_torch
from jitney.gpu.graphed import graphs
from jitney.gpu.padding import pad
from jitney.gpu.shapes import ANY_SHAPE, AllowedShapes
from jitney.loaders.huggingface.folder import PretrainedFolder
from jitney.loaders.huggingface.lengths import SIZES, allowed_lengths, groups

Reader = Callable[[Any, Any, Any], Any]
"""Takes the tensor that is wanted out of a model's outputs, token ids and mask; it runs where the model does."""


class TokenRow(NamedTuple):
    """One text, or a pair of them, in tokens."""

    ids: list[int]
    types: list[int] | None
    """None where all are 0."""
    encoding: Any
    """The tokenizer's own; with offsets where options were given."""


class GroupedOutputs(NamedTuple):
    """The outputs of rows, which ran in groups."""

    groups: list[list[int]]
    """The places of their rows."""
    outputs: list[Any]
    """In single precision. They may be longer than a row where each token has one."""

    def by_row(self, found: list[Sequence[Any]]) -> list[Any]:
        """What was made of the outputs of each group, one for each row, in the order of the rows."""
        rows: list[Any] = [None] * sum(map(len, self.groups))
        for group, outputs in zip(self.groups, found):
            for at, one in zip(group, outputs):
                rows[at] = one
        return rows


class TextNetwork:
    """A model of one folder."""

    def __init__(self, folder: PretrainedFolder, auto: str, read: Reader, trust: bool = False) -> None:
        self.folder = folder
        self.tokenizer = load_part("AutoTokenizer", folder, trust)
        self.model = load_network(auto, folder, trust)
        self.config = self.model.config
        self.longest = folder.longest
        self._read = read
        self._place = device()
        self._empty = self.tokenizer.pad_token_id or 0
        self._has_types = "token_type_ids" in self.tokenizer.model_input_names
        self._quick = quick_tokenizer(self.tokenizer, self.longest)
        self._shapes = AllowedShapes(SIZES, allowed_lengths(self.longest)) if self._place.is_gpu else ANY_SHAPE
        self._run = graphs(self._forward, sizes=SIZES, lengths=allowed_lengths(self.longest))

    def tokens(self, texts: Sequence[str], pairs: Sequence[str] | None = None, **options: Any) -> list[TokenRow]:
        """Texts as rows; what is longer than the model takes is cut."""
        if self._quick is not None and pairs is None and not options:
            return [TokenRow(one.ids, None, one) for one in self._quick.encode_batch_fast(list(texts))]
        told = {"truncation": True, "max_length": self.longest, **options}
        encoded = self.tokenizer(list(texts), None if pairs is None else list(pairs), **told)
        types = encoded.get("token_type_ids") if self._has_types else None
        rows = enumerate(encoded["input_ids"])
        whole = encoded.encodings or [None] * len(encoded["input_ids"])
        return [TokenRow(ids, types[at] if types else None, whole[at]) for at, ids in rows]

    def begin(self, rows: Sequence[TokenRow]) -> GroupedOutputs:
        """Gives rows to the model, which may still be at work on them."""
        begun = GroupedOutputs(groups([len(row.ids) for row in rows], self._shapes), [])
        with find_torch().inference_mode():
            for group in begun.groups:
                ids, mask = pad([rows[at].ids for at in group], value=self._empty, device=self._place)
                begun.outputs.append(self._run(ids, mask, *self._types([rows[at] for at in group], ids)).float())
        return begun

    def _types(self, rows: Sequence[TokenRow], ids: Any) -> list[Any]:
        """The third tensor of models that take one."""
        if not self._has_types:
            return []
        if all(row.types is None for row in rows):
            return [ids.new_zeros(ids.shape)]
        return [pad([row.types or [] for row in rows], device=self._place).values]

    def _forward(self, ids: Any, mask: Any, *types: Any) -> Any:
        given = {"token_type_ids": types[0]} if types else {}
        seen = mask.long()
        return self._read(self.model(input_ids=ids, attention_mask=seen, **given), ids, seen)


def quick_tokenizer(tokenizer: Any, longest: int | None) -> Any:
    """The tokenizer's own tokenizer, for single texts: a copy that nobody changes, so that threads may share it, which
    cuts texts at the longest. It costs half as much, most of all without offsets. None where it would give other
    tokens, or types of them."""
    try:
        own = tokenizer.backend_tokenizer
        copy = type(own).from_str(own.to_str())
        copy.encode_special_tokens = own.encode_special_tokens
        copy.no_padding()
        copy.no_truncation()
        if longest is not None:
            copy.enable_truncation(longest, direction=tokenizer.truncation_side)
        samples = ["A text, with 2 numbers: 3.5!", "", "Many words " * (longest or 16)]
        found = copy.encode_batch_fast(samples)
    except Exception:  # Not all tokenizers are of this kind, or can be copied.
        return None
    expected = tokenizer(samples, truncation=longest is not None, max_length=longest)
    types = expected.get("token_type_ids", [])
    same = [one.ids for one in found] == expected["input_ids"] and not any(map(any, types))
    return copy if same else None


def load_part(auto: str, folder: PretrainedFolder, trust: bool, **options: Any) -> Any:
    """What one of `transformers`' Auto classes makes of the folder. The network is never asked."""
    import transformers

    transformers.utils.logging.disable_progress_bar()  # Its letters would be lines of the log.
    return getattr(transformers, auto).from_pretrained(
        str(folder.path), trust_remote_code=trust, local_files_only=True, **options
    )


def load_network(auto: str, folder: PretrainedFolder, trust: bool) -> Any:
    """The network on the worker's device."""
    safe = {} if trust else {"use_safetensors": True}
    return load_part(auto, folder, trust, dtype=precision(folder), **safe).eval().to(device())


def load_tensors(path: Path) -> dict[str, Any]:
    """The tensors of one file."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(path)
    return tensors


def precision(folder: PretrainedFolder) -> Any:
    """Half precision on a GPU, in the kind that the folder names; single on the processor."""
    torch = find_torch()
    if not device().is_gpu:
        return torch.float32
    named = str(folder.config.get("dtype") or folder.config.get("torch_dtype"))
    return torch.bfloat16 if named.endswith("bfloat16") else torch.float16
