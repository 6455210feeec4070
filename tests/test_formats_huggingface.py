"""Hugging Face folders are served by one command, and answer as the libraries that made them: `make test-formats`."""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from harness import pretrained
from harness.client import together
from harness.server import ASK_SECONDS, Server

pytest.importorskip("transformers")
pytestmark = pytest.mark.heavy

TEXTS = ["I liked the film", "Paris is the capital of France and London is the capital", "dog", pretrained.LINES[5]]
Start = Callable[..., Server]
LOAD_SECONDS = 600
"""Workers import torch and transformers, which takes minutes beside busy processes."""


@pytest.fixture
def start(start: Start) -> Start:
    """Starts servers whose workers have time to load."""
    patient = ("--startup-timeout", str(LOAD_SECONDS))
    return lambda *words, **options: start(*words, *patient, start_seconds=LOAD_SECONDS, **options)


def near(found: Any, expected: Any, where: str = "answer") -> None:
    """Compares answers; numbers may differ by what sums in another order make."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=5e-5), where
    elif isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), where
        for key, value in expected.items():
            near(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), where
        for at, value in enumerate(expected):
            near(found[at], value, f"{where}[{at}]")
    else:
        assert found == expected, where


def plain(value: Any) -> Any:
    """A pipeline's answer as JSON has it."""
    return json.loads(json.dumps(value, default=lambda one: one.item()))


def pipeline(task: str, folder: Path) -> Any:
    """The library's own."""
    import torch
    import transformers

    return transformers.pipeline(task, model=str(folder), device="cpu", dtype=torch.float32)


def ask(server: Server, path: str, body: Any, status: int = 200, **options: Any) -> Any:
    """Posts JSON, or bytes as they are."""
    content = {"data": body} if isinstance(body, bytes) else {"json": body}
    reply = requests.post(server.url(path), timeout=ASK_SECONDS, **content, **options)
    assert reply.status_code == status, f"{reply.status_code}: {reply.text}\n{server.log[-3000:]}"
    return reply.json()


def compare(server: Server, name: str, library: Any, texts: list[str], **parameters: Any) -> None:
    """Each text by itself, and all of them as one request."""
    for text in texts:
        told = {"inputs": text, "parameters": parameters}
        expected = library(text, **parameters) if parameters else library([text])
        expected = expected if parameters or not is_nested(expected) else expected[0]
        near(ask(server, f"/{name}", told), plain(expected))
    near(ask(server, f"/{name}", {"inputs": texts, "parameters": parameters}), plain(library(texts, **parameters)))


def is_nested(found: Any) -> bool:
    """Whether the answer for a list of one text is a list in a list."""
    return isinstance(found, list) and isinstance(found[0], list)


def test_a_classifier_answers_as_the_pipeline_and_as_vllm(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "mood", "BertForSequenceClassification", pretrained.LABELS["text"])
    server, library = start("serve", folder), pipeline("text-classification", folder)
    compare(server, "mood", library, TEXTS)
    compare(server, "mood", library, TEXTS, top_k=2)
    near(ask(server, "/mood", {"inputs": TEXTS[0]}), plain(library([TEXTS[0]])))
    all_labels = {one["label"]: one["score"] for one in library(TEXTS[2], top_k=None)}
    answer = ask(server, "/classify", {"model": "mood", "input": TEXTS})
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3] and answer["usage"]["total_tokens"] > 0
    near(answer["data"][2]["probs"], [all_labels[name] for name in pretrained.LABELS["text"]])
    assert answer["data"][2]["label"] == max(all_labels, key=all_labels.get)
    assert "is answered by the model 'mood'" in ask(server, "/classify", {"model": "x", "input": "a"}, 404)["message"]
    assert "inputs must be a text, not int" in ask(server, "/mood", {"inputs": 3}, 400)["message"]
    assert "top_k must be" in ask(server, "/mood", {"inputs": "a", "parameters": {"top_k": 0}}, 400)["message"]
    long = " ".join(TEXTS * 40)
    near(ask(server, "/mood", {"inputs": long}), plain(library([long], truncation=True, max_length=64)))


def test_labels_of_the_request(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "nli", "BertForSequenceClassification", pretrained.LABELS["nli"])
    server = start("serve", folder, "--task", "zero-shot-classification")
    library = pipeline("zero-shot-classification", folder)
    labels = ["a film", "the city", "dog"]
    compare(server, "nli", library, TEXTS, candidate_labels=labels)
    compare(server, "nli", library, TEXTS[:1], candidate_labels=labels, multi_label=True)
    assert "candidate_labels" in ask(server, "/nli", {"inputs": "a"}, 400)["message"]


def test_words_and_their_classes(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "names", "BertForTokenClassification", pretrained.TAGS)
    server, library = start("serve", folder), pipeline("token-classification", folder)
    compare(server, "names", library, TEXTS, ignore_labels=[])
    assert ask(server, "/names", {"inputs": TEXTS[1], "parameters": {"ignore_labels": []}})
    grouped = {"aggregation_strategy": "simple", "ignore_labels": []}
    near(
        ask(server, "/names", {"inputs": TEXTS[1], "parameters": grouped}),
        plain(pipeline("token-classification", folder)(TEXTS[1], **grouped)),
    )
    wrong = {"inputs": "a", "parameters": {"aggregation_strategy": "x"}}
    assert "one of none, simple" in ask(server, "/names", wrong, 400)["message"]


def test_masked_words(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "gaps", "BertForMaskedLM")
    server, library = start("serve", folder), pipeline("fill-mask", folder)
    masked = ["Paris is the [MASK] of France", "the [MASK] brown [MASK] jumps over"]
    for text in masked:
        near(ask(server, "/gaps", {"inputs": text}), plain(library(text)))
    told = {"targets": ["dog", "fox"]}
    near(ask(server, "/gaps", {"inputs": masked[0], "parameters": told}), plain(library(masked[0], **told)))
    assert "[MASK]" in ask(server, "/gaps", {"inputs": "no mask"}, 400)["message"]


def test_answers_to_questions(start: Start, tmp_path: Path) -> None:
    """transformers 5 has no pipeline for it: the model itself says which span is best."""
    import torch
    import transformers

    folder = pretrained.bert(tmp_path / "answers", "BertForQuestionAnswering")
    server = start("serve", folder)
    question, context = "what is the capital?", pretrained.LINES[2]
    found = ask(server, "/answers", {"inputs": {"question": question, "context": context}})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)
    rows = tokenizer(question, context, return_tensors="pt")
    with torch.inference_mode():
        outputs = model(**rows)
    inside = torch.tensor([one == 1 for one in rows.encodings[0].sequence_ids])
    begin, end = (
        one[0].masked_fill(~inside, -10000.0).softmax(0) * inside for one in (outputs.start_logits, outputs.end_logits)
    )
    pairs = [(float(begin[a] * end[b]), a, b) for a in range(len(begin)) for b in range(a, min(a + 15, len(end)))]
    score, first, last = max(pairs)
    words = rows.encodings[0]
    start_at, end_at = words.offsets[first][0], words.offsets[last][1]
    assert found["score"] == pytest.approx(score, abs=1e-5)
    assert found["start"] <= start_at and found["end"] >= end_at  # Whole words.
    assert found["answer"] == context[found["start"] : found["end"]]
    several = {"inputs": {"question": question, "context": pretrained.LONG * 3}, "parameters": {"top_k": 3}}
    best = ask(server, "/answers", several)
    assert len(best) == 3 and best[0]["score"] >= best[2]["score"]
    assert "context must be a text" in ask(server, "/answers", {"inputs": {"question": "a"}}, 400)["message"]


def test_states_of_tokens(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "states", "BertModel")
    server, library = start("serve", folder), pipeline("feature-extraction", folder)
    for text in TEXTS[:3]:
        near(ask(server, "/states", {"inputs": text}), library(text))
    near(ask(server, "/states", {"inputs": TEXTS[:2]}), [library(text) for text in TEXTS[:2]])


@pytest.mark.parametrize(
    ("pooling", "dense", "normalize"), [("mean", False, True), ("cls", True, False), ("lasttoken", False, True)]
)
def test_vectors_are_those_of_sentence_transformers(
    start: Start, tmp_path: Path, pooling: str, dense: bool, normalize: bool
) -> None:
    from sentence_transformers import SentenceTransformer, util

    folder = pretrained.sentences(tmp_path / "vectors", pooling, dense, normalize)
    server, library = start("serve", folder), SentenceTransformer(str(folder), device="cpu")
    expected = library.encode(TEXTS).tolist()
    near(ask(server, "/vectors", {"inputs": TEXTS})["embeddings"], expected)
    near(ask(server, "/vectors", {"inputs": TEXTS[0]})["embeddings"], expected[0])
    alike = ask(server, "/vectors", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}})
    near(alike["similarities"], util.cos_sim(expected[:1], expected)[0].tolist())
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server.url("/v1"), api_key="none")
    answer = client.embeddings.create(model="vectors", input=TEXTS)
    near([one.embedding for one in answer.data], expected)
    assert answer.usage.prompt_tokens == sum(map(len, library.tokenizer(TEXTS)["input_ids"]))
    ranked = ask(server, "/rerank", {"query": TEXTS[0], "documents": TEXTS, "top_n": 2})
    assert ranked["results"][0]["index"] == 0 and len(ranked["results"]) == 2
    near(ranked["results"][0]["relevance_score"], 1.0)


def test_pairs_are_ranked_as_vllm_and_text_embeddings_inference_spell_it(start: Start, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    folder = pretrained.bert(tmp_path / "ranks", "BertForSequenceClassification", pretrained.LABELS["one"])
    server = start("serve", folder)
    expected = CrossEncoder(str(folder), device="cpu").predict([(TEXTS[0], one) for one in TEXTS]).tolist()
    order = sorted(range(len(TEXTS)), key=lambda at: -expected[at])
    told = ask(server, "/rerank", {"model": "ranks", "query": TEXTS[0], "documents": TEXTS})
    assert [one["index"] for one in told["results"]] == order
    near([one["relevance_score"] for one in told["results"]], [expected[at] for at in order])
    assert told["results"][0]["document"]["text"] == TEXTS[order[0]]
    short = ask(server, "/rerank", {"query": TEXTS[0], "texts": TEXTS, "return_text": True})
    near(short, [{"index": at, "score": expected[at], "text": TEXTS[at]} for at in order])
    scores = ask(server, "/v1/score", {"text_1": TEXTS[0], "text_2": TEXTS})
    near([one["score"] for one in scores["data"]], expected)
    near(ask(server, "/ranks", {"inputs": [[TEXTS[0], one] for one in TEXTS]})["scores"], expected)
    other = {"model": "other", "query": TEXTS[0], "texts": TEXTS}
    assert "call /other/rerank" in ask(server, "/rerank", other, 404)["message"]


def test_of_several_models_with_a_route_the_body_chooses(start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "ranks", "BertForSequenceClassification", pretrained.LABELS["one"])
    server = start("serve", f"first={folder}", f"second={folder}")
    ranking = {"query": TEXTS[0], "documents": TEXTS}
    for name in ("first", "second"):
        assert ask(server, "/rerank", {**ranking, "model": name})["model"] == name
    assert ask(server, "/rerank", {**ranking, "model": "third"}, 404)["error"]["code"] == "model_not_found"


def test_summaries(start: Start, tmp_path: Path) -> None:
    import torch
    import transformers

    own = {"summarization": {"prefix": "summarize: ", "max_length": 12}}
    folder = pretrained.t5(tmp_path / "short", task_specific_params=own)
    server = start("serve", folder, "--task", "summarization")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    for text in TEXTS:
        made = model.generate(**tokenizer("summarize: " + text, return_tensors="pt"), max_length=12)
        expected = tokenizer.batch_decode(made, skip_special_tokens=True)
        near(ask(server, "/short", {"inputs": text}), [{"summary_text": expected[0]}])
    wrong = {"inputs": "a", "parameters": {"max_tokens": 3}}
    assert "max_tokens" in ask(server, "/short", wrong, 400)["message"]


def test_pictures(start: Start, tmp_path: Path) -> None:
    from PIL import Image

    folder = pretrained.vit(tmp_path / "things")
    server, library = start("serve", folder), pipeline("image-classification", folder)
    picture = Image.effect_noise((50, 40), 90).convert("RGB")
    file = io.BytesIO()
    picture.save(file, "PNG")
    expected = plain(library(picture))
    near(ask(server, "/things", file.getvalue(), headers={"content-type": "image/png"}), expected)
    encoded = {"inputs": base64.b64encode(file.getvalue()).decode(), "parameters": {"top_k": 2}}
    near(ask(server, "/things", encoded), expected[:2])
    assert "picture" in ask(server, "/things", {"inputs": "no picture"}, 400)["message"]


def test_places_of_classes_in_a_picture(start: Start, tmp_path: Path) -> None:
    from PIL import Image, ImageChops

    folder = pretrained.segformer(tmp_path / "places")
    server, library = start("serve", folder), pipeline("image-segmentation", folder)
    picture = Image.effect_noise((50, 40), 90).convert("RGB")
    file = io.BytesIO()
    picture.save(file, "PNG")
    answer = ask(server, "/places", file.getvalue(), headers={"content-type": "image/png"})
    expected = library(picture)
    assert len(expected) > 1 and [one["label"] for one in answer] == [one["label"] for one in expected]
    for one, other in zip(answer, expected):
        mask = Image.open(io.BytesIO(base64.b64decode(one["mask"])))
        assert mask.size == picture.size and one["score"] is None
        assert ImageChops.difference(mask, other["mask"]).getbbox() is None


def test_what_is_wrong_with_a_folder_is_said_before_it_is_served(binary: Path, start: Start, tmp_path: Path) -> None:
    folder = pretrained.bert(tmp_path / "odd", "BertForSequenceClassification", pretrained.LABELS["text"])
    config = json.loads((folder / "config.json").read_text())

    def told(*flags: str, **changes: Any) -> str:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        server = Server(binary, tmp_path / f"failed-{len(list(tmp_path.iterdir()))}", ["serve", folder, *flags])
        with pytest.raises(AssertionError):
            server.started()
        return server.log

    assert "tells no task: say one with --task" in told(architectures=["BertForNextSentencePrediction"])
    assert "the task 'painting' is not known" in told("--task", "painting")
    assert "names code of its own" in told(auto_map={"AutoModel": "code.Model"})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "loading a pickle runs whatever it says" in told()


HANDLER = """
import helper


class EndpointHandler:
    def __init__(self, path=""):
        self.path = path

    def __call__(self, data):
        if data["inputs"] == "fail":
            raise ValueError("it is wrong")
        if not isinstance(data["inputs"], str):
            return {"size": data["inputs"].size, "mode": data["inputs"].mode}
        return [{"text": helper.shout(data["inputs"]), "told": data.get("parameters")}]
"""


def test_an_endpoint_handler_wants_trust_and_answers_in_its_own_form(
    binary: Path, start: Start, tmp_path: Path
) -> None:
    from PIL import Image

    folder = tmp_path / "handled"
    folder.mkdir()
    (folder / "handler.py").write_text(HANDLER)
    (folder / "helper.py").write_text("def shout(text):\n    return text.upper()\n")
    failed = Server(binary, tmp_path / "failed", ["serve", folder])
    with pytest.raises(AssertionError):
        failed.started()
    assert "handler.py is a program" in failed.log and "--trust" in failed.log
    server = start("serve", folder, "--trust")
    assert ask(server, "/handled", {"inputs": "a"}) == [{"text": "A", "told": None}]
    assert ask(server, "/predict?x=1", {"inputs": "a"}) == [{"text": "A", "told": {"x": "1"}}]
    looped = ask(server, "/handled", {"instances": ["a", "b"], "parameters": 3})
    assert looped == {"predictions": [[{"text": "A", "told": 3}], [{"text": "B", "told": 3}]]}
    assert ask(server, "/handled", {"inputs": "fail"}, 400) == {"error": "it is wrong"}
    assert "inputs" in ask(server, "/handled", {"x": 1}, 400)["error"]
    file = io.BytesIO()
    Image.new("L", (4, 3)).save(file, "PNG")
    answer = ask(server, "/handled", file.getvalue(), headers={"content-type": "image/png"})
    assert answer == {"size": [4, 3], "mode": "RGB"}


def test_texts_are_written_token_by_token(start: Start, tmp_path: Path) -> None:
    """Greedy texts are those of `generate`, alone and among others; OpenAI's client reads the rest."""
    import torch
    import transformers

    folder = pretrained.llama(tmp_path / "writer")
    server = start("serve", folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def written(prompt: str, tokens: int) -> str:
        rows = tokenizer(prompt, return_tensors="pt")
        made = model.generate(**rows, max_new_tokens=tokens, do_sample=False)
        return tokenizer.decode(made[0, rows["input_ids"].shape[1] :], skip_special_tokens=True)

    prompts = [pretrained.LONG[: 5 + 9 * at] for at in range(12)]
    expected = [written(one, 16) for one in prompts]
    told = {"inputs": prompts, "parameters": {"max_new_tokens": 16}}
    assert ask(server, "/writer", told) == [[{"generated_text": a + b}] for a, b in zip(prompts, expected)]
    short = {"inputs": prompts[3], "parameters": {"max_new_tokens": 16, "return_full_text": False}}
    assert ask(server, "/writer", short) == [{"generated_text": expected[3]}]

    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server.url("/v1"), api_key="none")
    best = {"model": "writer", "temperature": 0}
    answer = client.completions.create(prompt=prompts[2:4], max_tokens=16, **best)
    assert [one.text for one in answer.choices] == expected[2:4]
    assert answer.usage.completion_tokens == 32 and answer.choices[0].finish_reason == "length"
    pieces = list(client.completions.create(prompt=prompts[5], max_tokens=16, stream=True, **best))
    assert "".join(one.choices[0].text for one in pieces) == expected[5]
    stop = expected[5][len(expected[5]) // 2 :][:2]
    stopped = client.completions.create(prompt=prompts[5], max_tokens=16, stop=[stop], **best).choices[0]
    assert stopped.text == expected[5][: expected[5].index(stop)] and stopped.finish_reason == "stop"
    chat = [{"role": "user", "content": "the lazy dog"}]
    wanted = written(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), 12)
    said = client.chat.completions.create(messages=chat, max_tokens=12, **best)
    assert said.choices[0].message.content == wanted and said.choices[0].message.role == "assistant"
    events = list(
        client.chat.completions.create(
            messages=chat, max_tokens=12, stream=True, stream_options={"include_usage": True}, n=2, **best
        )
    )
    for at in (0, 1):
        told = [one.choices[0] for one in events if one.choices and one.choices[0].index == at]
        assert "".join(one.delta.content or "" for one in told) == wanted and told[-1].finish_reason == "length"
    assert events[-1].usage.completion_tokens == 24
    seeded = [
        client.completions.create(model="writer", prompt="the dog", max_tokens=12, seed=seed).choices[0].text
        for seed in (1, 1, 2)
    ]
    assert seeded[0] == seeded[1] != seeded[2]
    with pytest.raises(openai.BadRequestError, match="temperature must be a number from 0 to 100"):
        client.completions.create(model="writer", prompt="a", temperature=-1)
    with pytest.raises(openai.BadRequestError, match="it must have 1 to 255"):
        client.completions.create(model="writer", prompt=pretrained.LONG * 9)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="a")


def recording(seconds: float, hertz: int = 16000) -> bytes:
    """A tone that goes up and down, with noise, as a WAV file."""
    import numpy as np

    times = np.arange(int(seconds * hertz)) / hertz
    sound = 0.3 * np.sin(2 * np.pi * (200 + 100 * np.sin(times)) * times)
    sound += np.random.default_rng(0).normal(0, 0.05, times.size)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, hertz, 0, "NONE", ""))
        writer.writeframes((sound * 32767).astype("<i2").tobytes())
    return file.getvalue()


def heard(library: Any, content: bytes, **options: Any) -> Any:
    """What the pipeline makes of a recording."""
    import numpy as np

    samples = np.frombuffer(content[44:], "<i2").astype(np.float32) / 32768
    found = library({"raw": samples, "sampling_rate": 16000}, **{"chunk_length_s": 30, **options})
    return plain(found)


@pytest.mark.parametrize("kind", ["hearing", "listening"])
def test_speech_in_chunks(start: Start, tmp_path: Path, kind: str) -> None:
    folder = getattr(pretrained, kind)(tmp_path / "words")
    server, library = start("serve", folder), pipeline("automatic-speech-recognition", folder)
    short, long = recording(2), recording(31)
    wav = {"Content-Type": "audio/wav"}
    assert ask(server, "/words", short, headers=wav) == heard(library, short)
    assert ask(server, "/words", long, headers=wav) == heard(library, long)
    coded = base64.b64encode(short).decode()
    near(ask(server, "/words", {"inputs": coded}), heard(library, short))
    timed = {"return_timestamps": "char" if kind == "hearing" else True, "chunk_length_s": 12, "stride_length_s": 2}
    expected = heard(library, long, **timed)
    assert len(expected["chunks"]) > 1
    coded = base64.b64encode(long).decode()
    near(ask(server, "/words", {"inputs": coded, "parameters": timed}), expected)
    words = {"return_timestamps": "word"}
    told = {"inputs": base64.b64encode(short).decode(), "parameters": words}
    expected = heard(library, short, **words)
    assert expected["chunks"]
    near(ask(server, "/words", told), expected)
    wrong = {"inputs": coded, "parameters": {"chunk_length_s": 300}}
    assert "chunk_length_s must be a number from 1 to 30" in ask(server, "/words", wrong, 400)["message"]
    assert "not known here" in ask(server, "/words", {"inputs": coded, "parameters": {"x": 1}}, 400)["message"]
    wrong = {"inputs": coded, "parameters": {"return_timestamps": "char" if kind == "listening" else "line"}}
    assert "return_timestamps" in ask(server, "/words", wrong, 400)["message"]
    assert "no WAV file: send a WAV file" in ask(server, "/words", b"nothing", 400, headers=wav)["message"]
    assert "no base64 of a recording" in ask(server, "/words", {"inputs": "%"}, 400)["message"]


def test_recordings_share_batches(start: Start, tmp_path: Path) -> None:
    folder = pretrained.listening(tmp_path / "words")
    flags = ["--max-batch-delay-ms", "600000", "--batch-size", "3"]
    server, library = start("serve", folder, *flags), pipeline("automatic-speech-recognition", folder)
    sent = [recording(1), recording(3), b"nothing"]
    url, wav = server.url("/words"), {"Content-Type": "audio/wav"}
    answers = together([lambda one=one: requests.post(url, data=one, headers=wav, timeout=ASK_SECONDS) for one in sent])
    assert [one.status_code for one in answers] == [200, 200, 400]
    assert [one.json() for one in answers[:2]] == [heard(library, one) for one in sent[:2]]
