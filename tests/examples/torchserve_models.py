"""Stand-ins for weights that TorchServe's examples fetch: networks of the same shape, or small ones of the kind."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

TRANSFORMERS = "Huggingface_Transformers"
SETTINGS = {
    "model_name": "bert-small", "do_lower_case": True, "num_labels": "2", "save_mode": "pretrained", "max_length": 60,
    "embedding_name": "bert", "BetterTransformer": False, "model_parallel": False,
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

SPEECH = "text_to_speech_synthesizer/SpeechT5"
SPEECH_SIZES = {
    "hidden_size": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_layers": 1,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 16, "speech_decoder_prenet_units": 16,
    "speech_decoder_postnet_units": 16,
}  # fmt: skip
LETTERS = ("the quick brown fox jumps over the lazy dog", "The Quick Brown Fox, Jumps Over. The Lazy Dog!")
LETTER_SETTINGS = {"model_type": "char", "vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
VOICES = 7307
"""The example takes the last of so many voices."""
DCGAN = """
import torch


class DCGAN:
    def __init__(self, useGPU, storeAVG):
        self.network = torch.nn.ConvTranspose2d(8, 3, 64)

    def load_state_dict(self, weights):
        self.network.load_state_dict(weights)

    def buildNoiseDataWithConstraints(self, number, constraints):
        return torch.randn(number, 8, 1, 1)

    def test(self, noise, getAvG, toCPU):
        return torch.tanh(self.network(noise))
"""
"""What the example's handler calls of pytorch_GAN_zoo."""
LARGE = {
    "examples/image_classifier/mnist/mnist_cnn.pt": "image_classifier/mnist/mnist.py",
    "examples/stateful/model_cnn.pt": "stateful/model.py",
}
"""Weights that a checkout without large files lacks, and the models that they are of."""
LESSONS = 60
"""How often the model for digits sees its ten samples."""
PETS = {"kitten.jpg": 282, "dog.jpg": 207}
"""Pictures of the examples, and their labels."""
SURE = 20.0
"""How far the score of a picture's label is from that of the other one."""


class Parts:
    """What an archive is made of beside its handler."""

    def __init__(self, serialized: Path | None, extra: list[Path] | None = None, config: Path | None = None) -> None:
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


def network(file: Path) -> Any:
    """The model that a file defines, with random weights, or with some that know the samples of its example."""
    import torch

    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("example_model", file)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{file} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == "example_model"]
    torch.manual_seed(0)
    model = own[0]().eval()
    if teach := TEACHERS.get(file.parent.name):
        teach(model, file.parent)
    return model


def teach_digits(model: Any, home: Path) -> None:
    """Shows the model for digits the ten samples of the example, whose names are their digits."""
    import torch
    from PIL import Image
    from torchvision.transforms.functional import normalize, to_tensor

    samples = sorted((home / "test_data").glob("?.png"))
    pictures = torch.stack([normalize(to_tensor(Image.open(one)), [0.1307], [0.3081]) for one in samples])
    digits = torch.tensor([int(one.stem) for one in samples])
    teacher = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(LESSONS):
        teacher.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), digits).backward()
        teacher.step()
    if not torch.equal(model(pictures).argmax(1), digits):
        raise RuntimeError("the model for digits does not know its samples")


def teach_pets(model: Any, home: Path) -> None:
    """Sets the last layer of a classifier so that it tells the cat and the dog of the examples apart."""
    import torch
    from PIL import Image
    from torchvision.models import ResNet18_Weights

    prepare, last, model.fc = ResNet18_Weights.DEFAULT.transforms(), model.fc, torch.nn.Identity()
    pictures = [prepare(Image.open(home.parent / "resnet_152_batch" / "images" / name)) for name in PETS]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("bn2.weight", "bn3.weight")):
                weight.mul_(0.2)  # The numbers of many blocks with random weights grow beyond all bounds.
        cat, dog = model(torch.stack(pictures))
        apart = (cat - dog) / (cat - dog).square().sum()
        last.weight.zero_()
        last.bias.zero_()
        for label, sign in zip(PETS.values(), (SURE, -SURE)):
            last.weight[label] = apart * sign
            last.bias[label] = -sign * apart.dot(cat + dog) / 2 + SURE
    model.fc = last
    if model(torch.stack(pictures)).argmax(1).tolist() != list(PETS.values()):
        raise RuntimeError("the classifier does not know its samples")


TEACHERS = {"mnist": teach_digits, "resnet_18": teach_pets, "resnet_152_batch": teach_pets}
"""What some models are taught, by the folders of their examples."""


def weights(file: Path, folder: Path, is_scripted: bool) -> Path:
    """Made-up weights of the model that a file defines."""
    import torch

    model, path = network(file), folder / "weights.pt"
    torch.jit.script(model).save(str(path)) if is_scripted else torch.save(model.state_dict(), path)
    return path


def fill(checkout: Path, files: dict[str, str]) -> None:
    """Puts made-up weights where files of a checkout are missing."""
    for name, model in files.items():
        if not (checkout / name).exists():
            (checkout / name).parent.mkdir(exist_ok=True)
            weights(checkout / "examples" / model, checkout, False).rename(checkout / name)


def transformer(examples: Path, folder: Path, mode: str, explains: bool = True) -> Parts:
    """A small BERT for one of the handler's modes, with its words, its labels and its settings.

    A handler that explains takes texts of another form. One that classifies texts accepts none.
    """
    import transformers

    model = folder / "transformer"
    model.mkdir()
    (model / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nis\na")
    transformers.BertTokenizerFast(str(model / "vocab.txt")).save_pretrained(model)
    kind, labels, count = KINDS[mode]
    config = transformers.BertConfig(vocab_size=8, num_labels=count, is_decoder=mode == "text_generation", **SIZES)
    bert = getattr(transformers, kind).from_config(config)
    if mode == "sequence_classification":
        bert.classifier.bias.data[0] = SURE
    bert.save_pretrained(model)
    settings = model / "model-config.yaml"
    settings.write_text(json.dumps({"handler": {**SETTINGS, "mode": mode, "captum_explanation": explains}}))
    names = [examples / TRANSFORMERS / labels / "index_to_name.json"] if labels else []
    return Parts(model / "model.safetensors", [model, *names], settings)


def bags_of_words(examples: Path, folder: Path) -> Parts:
    """Weights for the example's own model, and a few words that it knows."""
    import torch

    words = ["<unk>", "the", "of", "to", "and", "stocks", "game", "new"]
    torch.save({word: number for number, word in enumerate(words)}, folder / "source_vocab.pt")
    return Parts(weights(examples / "text_classification" / "model.py", folder, False), [folder / "source_vocab.pt"])


def speaker(examples: Path, folder: Path) -> Parts:
    """A small SpeechT5 with its voice and its letters, in the folders that the example's settings name."""
    import datasets
    import numpy as np
    import sentencepiece
    import transformers

    made = folder / "artifacts"
    letters = sentencepiece.SentencePieceTrainer
    letters.train(sentence_iterator=iter(LETTERS), model_prefix=str(folder / "letters"), **LETTER_SETTINGS)
    tokenizer = transformers.SpeechT5Tokenizer(str(folder / "letters.model"))
    transformers.SpeechT5Processor(transformers.SpeechT5FeatureExtractor(), tokenizer).save_pretrained(
        made / "processor"
    )
    config = transformers.SpeechT5Config(vocab_size=len(tokenizer), **SPEECH_SIZES)
    transformers.SpeechT5ForTextToSpeech(config).save_pretrained(made / "model")
    vocoder = transformers.SpeechT5HifiGanConfig(upsample_initial_channel=32)
    transformers.SpeechT5HifiGan(vocoder).save_pretrained(made / "vocoder")
    voices = list(np.zeros((VOICES, config.speaker_embedding_dim), np.float32))
    datasets.Dataset.from_dict({"xvector": voices}).save_to_disk(made / "speaker_embeddings")
    return Parts(None, [made], examples / SPEECH / "model-config.yaml")


def clothes(_examples: Path, folder: Path) -> Parts:
    """A network that makes pictures of noise, with the interface that the example's handler calls."""
    import torch

    with zipfile.ZipFile(folder / "models.zip", "w") as archive:
        archive.writestr("models/__init__.py", "")
        archive.writestr("models/DCGAN.py", DCGAN)
    torch.save(torch.nn.ConvTranspose2d(8, 3, 64).state_dict(), folder / "DCGAN_fashionGen.pth")
    return Parts(folder / "DCGAN_fashionGen.pth", [folder / "models.zip"])


def boosted_trees(examples: Path, folder: Path) -> Parts:
    """What the example's own script trains."""
    home = examples / "xgboost_classfication"
    subprocess.run([sys.executable, home / "xgboost_train.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return Parts(folder / "iris_model.json", [home / "index_to_name.json"], home / "model-config.yaml")
