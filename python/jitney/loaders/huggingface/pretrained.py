"""The loader of Hugging Face folders, and the table of tasks: which class serves which."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from jitney.call.errors import DefinitionError
from jitney.loaders.huggingface.folder import CONFIG, MODULES, PretrainedFolder, read_json
from jitney.loaders.huggingface.task import FolderTask
from jitney.loaders.loader import Loader

HERE = "jitney.loaders.huggingface"
TASKS: Mapping[str, str] = {
    "text-classification": "classification:TextClassification",
    "zero-shot-classification": "classification:ZeroShotClassification",
    "token-classification": "classification:TokenClassification",
    "question-answering": "encoding:QuestionAnswering",
    "fill-mask": "encoding:FillMask",
    "feature-extraction": "encoding:FeatureExtraction",
    "sentence-embeddings": "embedding:SentenceEmbeddings",
    "text-ranking": "ranking:TextRanking",
    "summarization": "writing:TextToText",
    "translation": "writing:TextToText",
    "text2text-generation": "writing:TextToText",
    "text-generation": "generation:TextGeneration",
    "image-classification": "images:ImageClassification",
    "object-detection": "images:ObjectDetection",
    "image-segmentation": "images:ImageSegmentation",
    "automatic-speech-recognition": "speech:SpeechRecognition",
}
"""The class of each task, by module."""


class HuggingFaceLoader(Loader):
    """Folders with a `config.json`, as `save_pretrained` writes them, and those of sentence-transformers."""

    format = "Hugging Face"
    needs: ClassVar[Mapping[str, str]] = {"torch": "torch", "transformers": "transformers", "PIL": "pillow"}

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By a `config.json` that names a kind of model, or the modules of sentence-transformers."""
        if (path / MODULES).is_file():
            return True
        try:
            return (path / CONFIG).is_file() and bool({"model_type", "architectures"} & read_json(path / CONFIG).keys())
        except DefinitionError:
            return False

    @classmethod
    def runs_code(cls, path: Path) -> str | None:
        """Pickles do, and models that are code of the folder."""
        if not any(path.rglob("*.safetensors")) and any(path.rglob("pytorch_model*.bin")):
            return "its weights are pickles and no safetensors, and loading a pickle runs whatever it says"
        own = (path / CONFIG).is_file() and "auto_map" in read_json(path / CONFIG)
        return "its config.json names code of its own, which runs when it is loaded" if own else None

    def describe(self, path: Path) -> dict[str, Any]:
        """Its task."""
        folder = PretrainedFolder.read(path, self.options.task)
        class_name(folder)
        return {"task": folder.task}

    def definition(self, path: Path, description: Mapping[str, Any]) -> type:
        """The class of its task, for this folder."""
        folder = PretrainedFolder.read(path, description["task"])
        module, _, name = class_name(folder).partition(":")
        target: type[FolderTask] = getattr(import_module(f"{HERE}.{module}"), name)
        return target.for_folder(folder, self.options.trust)


def class_name(folder: PretrainedFolder) -> str:
    """The class of a folder's task; one output over a text, or a pair, is a rank."""
    task = folder.kind
    if task not in TASKS:
        raise DefinitionError(f"the task {folder.task!r} is not known; --task may be: {', '.join(TASKS)}")
    labels = folder.config.get("id2label")
    if task == "text-classification" and isinstance(labels, dict) and len(labels) == 1:
        task = "text-ranking"
    return TASKS[task]
