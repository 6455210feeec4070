"""Vectors of texts: folders of sentence-transformers with their pooling, and plain encoders, whose vectors are the mean
of their tokens'. sentence-transformers itself is not needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jitney.call.errors import BadInput, DefinitionError
from jitney.definition.decorators import batch
from jitney.gpu.device import device, find_torch
from jitney.http.float_fields import FloatFields
from jitney.loaders.huggingface.folder import MODULES, PretrainedFolder, read_json
from jitney.loaders.huggingface.lengths import TOKENS_PER_BATCH
from jitney.loaders.huggingface.network import TokenRow, load_tensors
from jitney.loaders.huggingface.ranking import Ranking, Scores
from jitney.loaders.huggingface.task import several, text_of
from jitney.loaders.huggingface.text_task import BY_TOKENS, Asked

Step = Callable[[Any, Any], Any]
"""Takes states or vectors and the mask, and gives vectors."""

OLD_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older folders have a key for each kind."""


class SentenceEmbeddings(Ranking):
    """A vector for each text; similarities of sentences; `/v1/embeddings`, `/rerank` and `/v1/score`."""

    auto = "AutoModel"

    steps: Sequence[Step] = ()
    prompt = ""

    def setup(self) -> None:
        """Reads which steps follow the encoder."""
        there = (self.folder.path / MODULES).is_file()
        modules = read_json(self.folder.path / MODULES, list) if there else []
        told = self.folder.document("config_sentence_transformers.json")
        self.prompt = (told.get("prompts") or {}).get(told.get("default_prompt_name") or "", "")
        kinds = [(str(one["type"]).rpartition(".")[2], self.folder.path / one["path"]) for one in modules]
        if modules and kinds[0][0] != "Transformer":
            raise DefinitionError(f"its first module is a {kinds[0][0]}; only Transformer can be served")
        if modules:
            self.folder = PretrainedFolder.read(kinds[0][1], self.folder.task)
        super().setup()
        self.steps = [make_step(kind, path) for kind, path in kinds[1:]] or [pooled(["mean"])]

    @staticmethod
    def outputs_of_each(outputs: Any) -> Sequence[Any]:
        """The vectors in numpy, which share their memory."""
        return list(outputs.numpy())

    def read(self, outputs: Any, ids: Any, mask: Any) -> Any:
        """The vectors."""
        found = outputs.last_hidden_state.float()
        for step in self.steps:
            found = step(found, mask)
        return found

    @batch(openai="embeddings", max_batch_size=TOKENS_PER_BATCH, cost=BY_TOKENS, padded=True)
    def embed(self, text: list[str]) -> list[Any]:
        """A text's vector and the number of its tokens."""

        def asked(text: str) -> Asked:
            told = [self.prompt + text_of(text, "text")]
            return Asked(told, lambda rows, outputs: FloatFields(embedding=outputs[0], tokens=len(rows[0].ids)))

        found: list[Any] = self.answers(asked, text)
        return found

    def asked(self, inputs: Any, parameters: dict[str, Any]) -> Asked:
        """Vectors of texts, or similarities of sentences with one."""
        if isinstance(inputs, dict):
            first = text_of(inputs.get("source_sentence"), "source_sentence")
            others = inputs.get("sentences")
            if not isinstance(others, list):
                raise BadInput("inputs must have source_sentence, a text, and sentences, a list of texts")
            texts, scores = self.compared([(first, text_of(one, "sentences")) for one in several(others)[0]], False)
            return Asked(texts, lambda rows, outputs: {"similarities": scores(outputs)})
        texts, many = several(inputs)
        told = [self.prompt + text_of(one) for one in texts]

        def answer(rows: Sequence[TokenRow], outputs: Sequence[Any]) -> Any:
            return FloatFields(embeddings=list(outputs) if many else outputs[0])

        return Asked(told, answer)

    def compared(self, pairs: Sequence[tuple[str, str]], bare: bool) -> tuple[Sequence[Any], Scores]:
        """Every text is run once; the cosines of their vectors are the scores."""
        texts = list(dict.fromkeys(self.prompt + text for pair in pairs for text in pair))
        place = {text: at for at, text in enumerate(texts)}
        torch = find_torch()

        def scores(outputs: Sequence[Any]) -> list[float]:
            vectors = torch.stack(list(map(torch.from_numpy, outputs)))
            both = [vectors[[place[self.prompt + pair[side]] for pair in pairs]] for side in (0, 1)]
            found: list[float] = torch.nn.functional.cosine_similarity(*both, dim=1).tolist()
            return found

        return texts, scores


def make_step(kind: str, path: Path) -> Step:
    """A module of a sentence-transformers folder behind its encoder."""
    if kind == "Normalize":
        return lambda vectors, mask: find_torch().nn.functional.normalize(vectors, dim=-1)
    if kind == "Pooling":
        return pooled(pooling_modes(read_json(path / "config.json")))
    if kind == "Dense":
        return dense(path)
    if kind == "Dropout":
        return lambda vectors, mask: vectors
    raise DefinitionError(f"it has a module {kind}; only Transformer, Pooling, Dense, Dropout and Normalize are served")


def pooling_modes(config: dict[str, Any]) -> list[str]:
    """Which vectors are made of a text's tokens."""
    if "pooling_mode" in config:
        modes = config["pooling_mode"]
        return [modes] if isinstance(modes, str) else list(modes)
    return [mode for key, mode in OLD_POOLING.items() if config.get(key)] or ["mean"]


def pooled(modes: Sequence[str]) -> Step:
    """From the states of tokens to a vector, or several one behind the other."""
    unknown = [one for one in modes if one not in POOLING]
    if unknown:
        raise DefinitionError(f"its pooling is {unknown[0]!r}; known: {', '.join(POOLING)}")

    def pool(states: Any, mask: Any) -> Any:
        seen = mask[:, :, None].to(states.dtype)
        return find_torch().cat([POOLING[mode](states, seen) for mode in modes], dim=-1)

    return pool


def weighted(states: Any, seen: Any) -> Any:
    """The mean, in which later tokens count for more."""
    weights = seen * find_torch().arange(1, states.shape[1] + 1, device=states.device)[None, :, None]
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def last(states: Any, seen: Any) -> Any:
    """The state of the last token."""
    at = (seen.sum(1, keepdim=True).long() - 1).clamp(min=0).expand(-1, 1, states.shape[2])
    return states.gather(1, at)[:, 0]


POOLING: dict[str, Callable[[Any, Any], Any]] = {
    "cls": lambda states, seen: states[:, 0],
    "mean": lambda states, seen: (states * seen).sum(1) / seen.sum(1).clamp(min=1e-9),
    "max": lambda states, seen: states.masked_fill(seen == 0, -1e9).amax(1),
    "mean_sqrt_len_tokens": lambda states, seen: (states * seen).sum(1) / seen.sum(1).clamp(min=1e-9).sqrt(),
    "weightedmean": weighted,
    "lasttoken": last,
}


def dense(path: Path) -> Step:
    """A linear layer and what follows it."""
    torch = find_torch()
    config, tensors = read_json(path / "config.json"), load_tensors(path / "model.safetensors")
    module, _, name = str(config.get("activation_function", "torch.nn.modules.linear.Identity")).rpartition(".")
    activation = getattr(torch.nn, name, None) if module.startswith("torch.nn") else None
    if not (isinstance(activation, type) and issubclass(activation, torch.nn.Module)):
        raise DefinitionError(f"the activation {name!r} of {path.name} is none of torch.nn")
    weight, bias = (
        tensors[one].to(device()).float() if one in tensors else None for one in ("linear.weight", "linear.bias")
    )
    activate = activation()
    return lambda vectors, mask: activate(torch.nn.functional.linear(vectors, weight, bias))
