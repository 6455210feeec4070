"""Stand-ins for weights that TorchServe's examples fetch: networks of the same shape, or small ones of the kind."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TRANSFORMERS = "Huggingface_Transformers"
SETTINGS = {
    "model_name": "bert-small", "do_lower_case": True, "num_labels": "2", "save_mode": "pretrained", "max_length": 60,
    "captum_explanation": True, "embedding_name": "bert", "BetterTransformer": False, "model_parallel": False,
}  # fmt: skip
"""What the handler for transformers asks its model-config.yaml for."""
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
KINDS = {
    "sequence_classification": ("AutoModelForSequenceClassification", "Seq_classification_artifacts", 2),
    "token_classification": ("AutoModelForTokenClassification", "Token_classification_artifacts", 9),
    "question_answering": ("AutoModelForQuestionAnswering", "", 2),
    "text_generation": ("AutoModelForCausalLM", "", 2),
}
"""The modes of the handler: the class of its model, the folder of its labels, and how many there are."""


class Parts:
    """What an archive is made of beside its handler."""

    def __init__(self, serialized: Path, extra: list[Path] | None = None, config: Path | None = None) -> None:
        self.serialized = serialized
        self.extra = extra or []
        self.config = config


def stand_in_backbones(folder: Path) -> None:
    """Random weights for the networks that models fetch while they are made, where torch looks for them first."""
    import torch
    from torchvision import models

    os.environ["TORCH_HOME"] = str(folder)
    checkpoints = folder / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("resnet50", "resnet101"):
        file = Path(models.get_model_weights(name).IMAGENET1K_V1.url).name
        torch.save(models.get_model(name, weights=None).state_dict(), checkpoints / file)


def weights(file: Path, folder: Path, is_scripted: bool) -> Path:
    """Random weights of the model that a file defines."""
    import torch

    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("example_model", file)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{file} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == "example_model"]
    torch.manual_seed(0)
    network = own[0]().eval()
    path = folder / "weights.pt"
    torch.jit.script(network).save(str(path)) if is_scripted else torch.save(network.state_dict(), path)
    return path


def transformer(examples: Path, folder: Path, mode: str) -> Parts:
    """A small BERT for one of the handler's modes, with its words, its labels and its settings."""
    import transformers

    model = folder / "transformer"
    model.mkdir()
    (model / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nis\na")
    transformers.BertTokenizerFast(str(model / "vocab.txt")).save_pretrained(model)
    kind, labels, count = KINDS[mode]
    config = transformers.BertConfig(vocab_size=8, num_labels=count, is_decoder=mode == "text_generation", **SIZES)
    getattr(transformers, kind).from_config(config).save_pretrained(model)
    settings = model / "model-config.yaml"
    settings.write_text(json.dumps({"handler": {**SETTINGS, "mode": mode}}))
    names = [examples / TRANSFORMERS / labels / "index_to_name.json"] if labels else []
    return Parts(model / "model.safetensors", [model, *names], settings)


def bags_of_words(examples: Path, folder: Path) -> Parts:
    """Weights for the example's own model, and a few words that it knows."""
    import torch

    words = ["<unk>", "the", "of", "to", "and", "stocks", "game", "new"]
    torch.save({word: number for number, word in enumerate(words)}, folder / "source_vocab.pt")
    return Parts(weights(examples / "text_classification" / "model.py", folder, False), [folder / "source_vocab.pt"])


def boosted_trees(examples: Path, folder: Path) -> Parts:
    """What the example's own script trains."""
    home = examples / "xgboost_classfication"
    subprocess.run([sys.executable, home / "xgboost_train.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return Parts(folder / "iris_model.json", [home / "index_to_name.json"], home / "model-config.yaml")
