"""Serves TorchServe's examples from a checkout: `JITNEY_BIN=... python tests/examples/torchserve_examples.py CHECKOUT`.

CHECKOUT is a clone of pytorch/serve. Handlers, model files, configurations and samples are used from there as they are;
only weights are made up (`torchserve_models.py`). The interpreter needs torch, torchvision, transformers, captum,
xgboost, scikit-learn, lru-dict, datasets, soundfile, sentencepiece and requests; transformers before 5, whose
tokenizers have what the examples call.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import requests
from gallery import ROOT, RUNS, checkout, conclude, tell
from torchserve_models import (
    SPEECH,
    TRANSFORMERS,
    Parts,
    bags_of_words,
    boosted_trees,
    clothes,
    speaker,
    stand_in_backbones,
    transformer,
    weights,
)

START_SECONDS = 600.0
QUIET = (
    f"default_workers_per_model=1\ndefault_startup_timeout={START_SECONDS:.0f}\n"
    f"default_response_timeout={START_SECONDS:.0f}\n"
)
"""One worker is enough, and it may take its time to import torch on a machine that others use."""
CLASSIFIERS = "image_classifier"
LABELS = "image_classifier/index_to_name.json"
DIGIT = "image_classifier/mnist/test_data/3.png"
METRICS = (
    "InferenceRequestCount", "InitializeCallCount", "PreprocessCallCount", "PostprocessCallCount", "RequestBatchSize",
    "SizeOfImage", "HandlerMethodTime", "ExamplePercentMetric",
)  # fmt: skip
"""What the page of `custom_metrics` promises."""


def has_five_labels(text: str) -> bool:
    """Whether an answer is five labels with their scores."""
    told = json.loads(text)
    return len(told) == 5 and all(isinstance(score, float) for score in told.values())


def has_boxes(text: str) -> bool:
    """Whether an answer is a list of boxes with their scores."""
    return all(len(box) == 2 and isinstance(box["score"], float) for box in json.loads(text))


def has_classes(text: str) -> bool:
    """Whether every point of a picture has a class and its probability."""
    return all(len(point) == 2 for row in json.loads(text) for point in row)


def has_attributions(text: str) -> bool:
    """Whether every point of a digit has a weight."""
    (picture,) = json.loads(text)
    return len(picture) == 28 and all(len(row) == 28 for row in picture)


def has_words(text: str) -> bool:
    """Whether an explanation names words."""
    return bool(json.loads(text)["words"])


def has_tags(text: str) -> bool:
    """Whether every word has a tag."""
    return all(len(pair) == 2 for pair in json.loads(text))


def is_breed(text: str) -> bool:
    """Whether an answer names breeds, or says that there is none."""
    return text == "It's a cat!" or has_five_labels(text)


def is_jpeg(text: str) -> bool:
    """Whether an answer is a picture."""
    return "JFIF" in text[:20]


def is_wav(text: str) -> bool:
    """Whether an answer is a sound."""
    return text.startswith("RIFF") and "WAVE" in text[:20]


def is_one_of(*answers: str) -> Callable[[str], bool]:
    """Whether an answer is one of a few."""
    return lambda text: text in answers


def frames(picture: bytes) -> Any:
    """Four frames of a video in one request, as the example's client sends them."""
    return {str(number): base64.b64encode(picture).decode() for number in range(4)}


@dataclass(frozen=True)
class Example:
    """What an example is made of, in files of the folder `examples`."""

    model: str = ""
    sample: str = f"{CLASSIFIERS}/kitten.jpg"
    handler: str = "image_classifier"
    fits: Callable[[str], bool] = has_five_labels
    extra: str = LABELS
    config: str = ""
    scripted: bool = False
    requests: int = 1
    parts: Callable[[Path, Path], Parts] | None = None
    """Makes what no model file makes."""
    api: str = "predictions"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[bytes], Any] = bytes
    settings: str = ""
    """The example's config.properties."""
    metrics: tuple[str, ...] = ()
    """Names that the page of metrics has at the end."""


DIGITS = Example(
    "image_classifier/mnist/mnist.py", DIGIT, "image_classifier/mnist/mnist_handler.py", is_one_of("3"), ""
)

NEWS = Example(
    "text_classification/model.py",
    "text_classification/sample_text.txt",
    "text_classifier",
    lambda text: len(json.loads(text)) == 4,
    "text_classification/index_to_name.json",
    parts=bags_of_words,
)


def text_example(mode: str, artifacts: str, fits: Callable[[str], bool], api: str = "predictions") -> Example:
    """The example for transformers in one of its modes."""
    sample = f"{TRANSFORMERS}/{artifacts}_artifacts/sample_text_captum_input.txt"
    handler = f"{TRANSFORMERS}/Transformer_handler_generalized.py"
    return Example("", sample, handler, fits, "", parts=partial(transformer, mode=mode), api=api)


EXAMPLES = {
    "image_classifier/mnist": DIGITS,
    "image_classifier/mnist in TorchScript": replace(DIGITS, scripted=True),
    "image_classifier/mnist with its config.properties": replace(
        DIGITS, settings="image_classifier/mnist/config.properties"
    ),
    "captum, explanations of mnist": replace(DIGITS, api="explanations", fits=has_attributions),
    "custom_metrics": replace(
        DIGITS,
        handler="custom_metrics/mnist_handler.py",
        settings="custom_metrics/config.properties",
        metrics=METRICS,
    ),
    **{
        f"image_classifier/{name}": Example(f"image_classifier/{name}/model.py")
        for name in ("resnet_18", "resnet_152_batch", "alexnet", "squeezenet", "densenet_161")
    },
    "image_classifier/vgg_16": Example(
        "image_classifier/vgg_16/model.py", handler="image_classifier/vgg_16/vgg_handler.py"
    ),
    **{
        f"image_classifier/{name} in TorchScript": Example(f"image_classifier/{name}/model.py", scripted=True)
        for name in ("resnet_18", "alexnet", "squeezenet", "densenet_161", "resnet_152_batch")
    },
    "benchmarking/resnet50": Example(
        "benchmarking/resnet50/model.py", config="benchmarking/resnet50/model-config.yaml"
    ),
    "image_classifier/near_real_time_video": Example(
        "image_classifier/resnet_18/model.py",
        handler="image_classifier/near_real_time_video/near_real_time_video_handler.py",
        body=frames,
        fits=lambda text: len(json.loads(text)) == 4,
    ),
    "micro_batching": Example(
        "image_classifier/resnet_18/model.py",
        handler="micro_batching/micro_batching_handler.py",
        config="micro_batching/config.yaml",
        requests=10,
    ),
    **{
        f"object_detector/{name}": Example(
            f"object_detector/{name}/model.py",
            "object_detector/persons.jpg",
            "object_detector",
            has_boxes,
            "object_detector/index_to_name.json",
        )
        for name in ("fast-rcnn", "maskrcnn")
    },
    "image_segmenter/fcn": Example(
        "image_segmenter/fcn/model.py",
        "image_segmenter/persons.jpg",
        "image_segmenter",
        has_classes,
        "image_segmenter/fcn/fcn.py,image_segmenter/fcn/intermediate_layer_getter.py",
    ),
    "image_segmenter/deeplabv3": Example(
        "image_segmenter/deeplabv3/model.py",
        "image_segmenter/persons.jpg",
        "image_segmenter",
        has_classes,
        ",".join(f"image_segmenter/deeplabv3/{name}.py" for name in ("deeplabv3", "intermediate_layer_getter", "fcn")),
    ),
    "Huggingface_Transformers, sequence classification": text_example(
        "sequence_classification", "Seq_classification", is_one_of("Not Accepted")
    ),
    "Huggingface_Transformers, token classification": text_example(
        "token_classification", "Token_classification", has_tags
    ),
    "Huggingface_Transformers, question answering": text_example("question_answering", "QA", lambda _: True),
    "Huggingface_Transformers, text generation": text_example("text_generation", "Text_gen", bool),
    "Huggingface_Transformers, explanations": text_example(
        "sequence_classification", "Seq_classification", has_words, "explanations"
    ),
    **{
        f"stateful/{kind}": Example(
            "stateful/model.py",
            "stateful/sample/sample2.txt",
            f"stateful/{kind}/stateful_handler.py",
            str.isdigit,
            "",
            f"stateful/{kind}/model-config.yaml",
            requests=5,
            headers=headers,
        )
        # A request without an id begins a sequence, which the second of these handlers wants to be told.
        for kind, headers in (
            ("sequence_batching", {"ts_request_sequence_id": "seq_0"}),
            ("sequence_continuous_batching", {}),
        )
    },
    "text_classification": NEWS,
    "text_classification, explanations": replace(NEWS, api="explanations", fits=has_words),
    "dcgan_fashiongen": Example(
        "",
        handler="dcgan_fashiongen/dcgan_fashiongen_handler.py",
        body=lambda _: {"number_of_images": 4, "input_gender": "Men"},
        fits=is_jpeg,
        extra="",
        parts=clothes,
    ),
    SPEECH: Example("", f"{SPEECH}/sample_input.txt", f"{SPEECH}/text_to_speech_handler.py", is_wav, "", parts=speaker),
    "xgboost_classfication": Example(
        "",
        "xgboost_classfication/sample_input_1.txt",
        "xgboost_classfication/xgboost_iris_handler.py",
        is_one_of("versicolor"),
        "",
        parts=boosted_trees,
    ),
}
BREEDS = "Workflows/dog_breed_classification"
KNOWN: dict[str, str] = {}
"""Examples that do not run, and why."""
TROUBLE = (subprocess.CalledProcessError, RuntimeError, OSError, AssertionError)
"""What an example may end with; requests' errors are OSErrors."""


def main() -> int:
    """Serves all of them, or those that are named, one after the other."""
    source = checkout(sys.argv[1:], "examples")
    if source is None:
        return 0
    wanted = sys.argv[2:]
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        stand_in_backbones(Path(folder))
        runs = {name: partial(serve, source, example) for name, example in EXAMPLES.items()}
        for name, run in {**runs, BREEDS: partial(serve_workflow, source)}.items():
            if not wanted or name in wanted:
                outcomes[name] = run()
                tell(name, outcomes[name])
    text = "It serves {runs} of {all} of TorchServe's examples, with their own handlers and settings."
    return 0 if wanted else conclude("torchserve.md", "count of torchserve_examples.py", text, outcomes, KNOWN)


def serve(source: Path, example: Example) -> str:
    """What goes wrong with an example, in one line."""
    own = (source / example.settings).read_text() if example.settings else ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            pack(Path(os.environ["JITNEY_BIN"]), source, example, Path(folder))
            with running(source, Path(folder), own, "--models", "mnist=mnist.mar") as server:
                outcome = ask(server, source, example)
            return f"{outcome} {last_error(Path(folder))}" if outcome else RUNS
        except TROUBLE as error:
            return told(error)


def serve_workflow(source: Path) -> str:
    """What goes wrong with the example of two models in a row."""
    binary, home = Path(os.environ["JITNEY_BIN"]), source / BREEDS
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in ("cat_dog_classification", "dog_breed_classification"):
                model, handler = f"{BREEDS}/{name}_arch.py", f"{BREEDS}/{name}_handler.py"
                extra = f"{BREEDS}/index_to_name.json" if name.startswith("dog") else ""
                pack(binary, source, Example(model, handler=handler, extra=extra), Path(folder), name)
            spec, handler = (home / f"workflow_dog_breed_classification{end}" for end in (".yaml", "_handler.py"))
            command = ["archive-workflow", "--workflow-name", "breeds", "--export-path", folder]
            command += ["--spec-file", spec, "--handler", handler]
            subprocess.run([binary, *command], check=True, capture_output=True, text=True)
            with running(source, Path(folder), "", "--workflow-store", folder, "--enable-model-api") as server:
                # It is answered when both models have loaded.
                workflows, archive = server.url("/workflows", "management"), {"url": "breeds.war"}
                registered = requests.post(workflows, params=archive, timeout=START_SECONDS)
                pictures = sorted((home / "model_input").iterdir())
                answers = [server.predict("breeds", one.read_bytes(), api="wfpredict") for one in pictures]
                bad = [one for one in (registered, *answers) if not one.ok]
                bad += [one for one in answers if one.ok and not is_breed(one.text)]
                return f"{bad[0].status_code}: {bad[0].text[:300]}" if bad else RUNS
        except TROUBLE as error:
            return told(error)


@contextmanager
def running(source: Path, folder: Path, own: str, *flags: str) -> Iterator[Any]:
    """A server with the archives of a folder, in TorchServe's way, with the settings of the example's own file."""
    sys.path.insert(0, str(ROOT / "tests"))
    from harness.server import FREE_ADDRESSES, Server

    settings = folder / "config.properties"
    settings.write_text(f"{QUIET}{own}\n{FREE_ADDRESSES}python={sys.executable}\n")
    command = ["torchserve", "--start", "--foreground", "--ncs", "--disable-token-auth", "--model-store", folder]
    command += ["--ts-config", settings, *flags]
    logs = {"LOG_LOCATION": str(folder), "METRICS_LOCATION": str(folder)}
    binary = Path(os.environ["JITNEY_BIN"])
    server = Server(binary, folder / "server", command, env=logs, cwd=source.parent, start_seconds=START_SECONDS)
    try:
        yield server.started()
    finally:
        server.end()


def last_error(folder: Path) -> str:
    """The last error in the log of the model."""
    lines = (folder / "model_log.log").read_text().splitlines()
    return next((line[-300:] for line in reversed(lines) if re.search(r"\w+(Error|Exception)\b", line)), "")


def told(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        return f"it cannot be packed: {' '.join(error.stderr.split())[-300:]}"
    return " ".join(str(error).split())[:300]


def ask(server: Any, source: Path, example: Example) -> str:
    """What goes wrong with its requests."""
    body = example.body((source / example.sample).read_bytes())
    for _ in range(example.requests):
        answer = server.predict("mnist", body, headers=example.headers, api=example.api)
        if not answer.ok or not example.fits(answer.text):
            return f"{answer.status_code}: {answer.text[:300]}"
    missing = [name for name in example.metrics if name not in server.metrics()]
    return f"no metrics called {missing}" if missing else RUNS


def pack(binary: Path, source: Path, example: Example, folder: Path, name: str = "mnist") -> Path:
    """Makes the archive as the example's page says. Its name is one that the examples' settings know."""
    handler = source / example.handler if example.handler.endswith(".py") else example.handler
    command = ["archive", "--model-name", name, "--version", "1.0", "--handler", handler, "--export-path", folder]
    command += ["--archive-format", "zip-store"]
    parts = example.parts(source, folder) if example.parts else None
    serialized = parts.serialized if parts else weights(source / example.model, folder, example.scripted)
    if serialized:
        command += ["--serialized-file", serialized]
    if example.model and not example.scripted:
        command += ["--model-file", source / example.model]
    extra = [*(source / name for name in example.extra.split(",") if name), *(parts.extra if parts else ())]
    if extra:
        command += ["--extra-files", ",".join(map(str, extra))]
    config = parts.config if parts else source / example.config if example.config else None
    if config:
        command += ["--config-file", config]
    subprocess.run([binary, *command], check=True, capture_output=True, text=True)
    return folder / f"{name}.mar"


if __name__ == "__main__":
    sys.exit(main())
