"""Hugging Face folders served, each beside what a program without a server does with the same folder in the same run.

    JITNEY_BIN=target/release/jitney python3 bench/huggingface.py --out huggingface.json
    ... bench/huggingface.py --rows generation --seconds 3 --rounds 1
    ... bench/huggingface.py --tiny --rounds 1 --seconds 2          # small shapes, for a machine without a GPU

The workers use the Python that runs this script; it needs torch and transformers, and for the embeddings' peer
sentence-transformers (PYTHONPATH may name a folder that has them). Weights are made up: only the speed means anything.
Rows: classifier (texts a second, as it is served by itself and with one worker, of a padded loop of 64 and of the
pipeline), embeddings (of `encode`; one text a request, by itself and with one worker, and 32 texts a request; the same
answers without a model are the ceiling of clients and server), generation (tokens a second, of `generate` in batches of
64 and of transformers' own continuous batching; time to the first token).
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from on_gpu import load
from row_options import row_parser
from server import Server

JSON = "application/json"
GPU = torch.cuda.is_available()
PLACE = "cuda:0" if GPU else "cpu"
FLOATS = torch.float16 if GPU else torch.float32
COUNT, BATCH, CLIENTS, NEW_TOKENS = 4096, 64, 64, 128
PEER_BATCHES = (16, 64, 256)
WORDS = 8000
TEXTS_PER_REQUEST = 32
CLIENT_PROCESSES = 4
STREAMS = pathlib.Path(__file__).with_name("first_events.py")


def main() -> None:
    """Runs rows and prints what they gave."""
    options = read_options()
    found: dict[str, Any] = {"torch": torch.__version__, "transformers": transformers.__version__, "place": PLACE}
    with tempfile.TemporaryDirectory(prefix="jitney-hf-") as folder:
        for name in options.rows.split(","):
            found[name] = ROWS[name](pathlib.Path(folder), options)
            print(name, json.dumps(found[name]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = row_parser(__doc__, ROWS)
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


# -- folders and texts ----------------------------------------------------------------------------


def words() -> list[str]:
    """Made-up words of four or five letters, each of which is one token."""
    chance = random.Random(1)
    found = {"".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.choice((4, 5)))) for _ in range(2 * WORDS)}
    return sorted(found)[:WORDS]


def texts(lengths: Callable[[random.Random], int]) -> list[str]:
    """Texts of so many words."""
    chance = random.Random(3)
    known = words()
    return [" ".join(chance.choices(known, k=lengths(chance))) for _ in range(COUNT)]


def tokenizer(folder: pathlib.Path, special: dict[str, str], longest: int, size: int = 0) -> Any:
    """One token for each word; further words up to this number, which only a model says."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = list(dict.fromkeys(special.values()))
    table = {word: at for at, word in enumerate([*names, *words()])}
    table |= {f"w{at}": at for at in range(len(table), size)}
    made = Tokenizer(models.WordLevel(table, unk_token=special["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=longest, **special)
    fast.save_pretrained(folder)
    return fast


def encoder(folder: pathlib.Path, head: str, shape: tuple[int, int, int]) -> pathlib.Path:
    """A BERT of this shape: layers, width, heads."""
    layers, width, heads = shape
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer(folder, special, 512)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
        intermediate_size=4 * width, num_labels=4,
    )  # fmt: skip
    getattr(transformers, head)(config).save_pretrained(folder)
    return folder


def writer(folder: pathlib.Path, tiny: bool) -> pathlib.Path:
    """A GPT-2 that never ends a text by itself."""
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_embd": 64, "n_head": 2} if tiny else {}
    config = transformers.GPT2Config(eos_token_id=None, bos_token_id=None, **shape)
    # Each token is a word: what decodes to nothing makes no event.
    tokenizer(folder, {"unk_token": "<unk>", "pad_token": "<unk>"}, 1024, config.vocab_size)
    model = transformers.GPT2LMHeadModel(config)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    return folder


# -- measuring ------------------------------------------------------------------------------------


@contextmanager
def served(folder: pathlib.Path, *flags: str) -> Iterator[Server]:
    """The folder behind a server."""
    told = ["--python", sys.executable, "--queue", "4096", "--startup-timeout", "600", *flags]
    with Server(folder, *told) as server:
        server.wait_until_ready(600)
        server.wait_for_workers(server.ask("/models/bench")[0]["minWorkers"])
        yield server


def rate(step: Callable[[], int], seconds: float) -> float:
    """Items a second of a loop."""
    step()
    settle()
    started, items = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        items += step()
    settle()
    return items / (time.perf_counter() - started)


def settle() -> None:
    """Waits for the device."""
    if GPU:
        torch.cuda.synchronize()


def bodies(folder: pathlib.Path, told: list[dict[str, Any]]) -> pathlib.Path:
    """Requests as files."""
    folder.mkdir(parents=True)
    for at, one in enumerate(told):
        (folder / f"{at:05}.json").write_text(json.dumps(one))
    return folder


def by_turns(options: argparse.Namespace, loops: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Medians of rounds, in which every loop has its turn."""
    rounds = [{name: loop() for name, loop in loops.items()} for _ in range(options.rounds)]
    return {name: round(statistics.median(one[name] for one in rounds), 1) for name in loops}


def over(server: Server, requests: pathlib.Path, options: argparse.Namespace, clients: int) -> float:
    """Answers a second."""
    return load.closed_loop(server, requests, JSON, clients, options.seconds, 2.0)["per_s"]


# -- rows -----------------------------------------------------------------------------------------


def classifier(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """DistilBERT's shape; lengths are lognormal with the median 24, as in bench/gpu.py."""
    shape = (2, 128, 2) if options.tiny else (6, 768, 12)
    folder = encoder(work / "classifier", "BertForSequenceClassification", shape)
    given = texts(lambda chance: min(500, max(1, round(chance.lognormvariate(math.log(24), 0.8)))))
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=FLOATS).eval().to(PLACE)
    turn = itertools.cycle([given[at : at + BATCH] for at in range(0, COUNT, BATCH)])

    @torch.inference_mode()
    def padded() -> int:
        rows = tokens(next(turn), padding=True, truncation=True, return_tensors="pt").to(PLACE)
        model(**rows).logits.float().softmax(-1).tolist()
        return BATCH

    library = transformers.pipeline("text-classification", model=model, tokenizer=tokens, device=PLACE)
    chunks = itertools.cycle([given[at : at + 512] for at in range(0, COUNT, 512)])

    def piped(batch: int) -> float:
        return rate(lambda: len(library(next(chunks), batch_size=batch, truncation=True)), options.seconds / 3)

    requests = bodies(work / "texts", [{"inputs": one} for one in given])
    clients = 64 if options.tiny else 512
    with served(folder) as server, served(folder, "--workers", "1") as one:
        found = by_turns(options, {
            "padded_loop_per_s": lambda: rate(padded, options.seconds),
            "pipeline_per_s": lambda: max(piped(batch) for batch in PEER_BATCHES),
            "per_s": lambda: over(server, requests, options, clients),
            "one_worker_per_s": lambda: over(one, requests, options, clients),
        })  # fmt: skip
    rates = (("per_s", "of"), ("one_worker_per_s", "one_worker_of"))
    peers = ("padded_loop", "the_loop"), ("pipeline", "the_pipeline")
    return {**found, **{f"{said}_{short}": round(found[name] / found[f"{peer}_per_s"], 2)
                        for name, said in rates for peer, short in peers}}  # fmt: skip


def embeddings(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """MiniLM's shape; 8 to 32 tokens."""
    folder = encoder(work / "embeddings", "BertModel", (2, 64, 2) if options.tiny else (6, 384, 12))
    given = texts(lambda chance: chance.randint(6, 30))
    requests = bodies(work / "sentences", [{"inputs": one} for one in given])
    loops: dict[str, Callable[[], float]] = {}
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(str(folder), device=PLACE, model_kwargs={"dtype": FLOATS})
        chunks = itertools.cycle([given[at : at + 1024] for at in range(0, COUNT, 1024)])

        def encode(batch: int) -> float:
            return rate(lambda: len(peer.encode(next(chunks), batch_size=batch)), options.seconds / 3)

        loops["encode_per_s"] = lambda: max(encode(batch) for batch in PEER_BATCHES)
    else:
        print("sentence-transformers is not installed: no peer", file=sys.stderr)
    lists = [given[at : at + TEXTS_PER_REQUEST] for at in range(0, COUNT, TEXTS_PER_REQUEST)]
    listed = bodies(work / "lists", [{"inputs": one} for one in lists])
    clients, task = 64 if options.tiny else 512, ("--task", "sentence-embeddings")
    with served(folder, *task) as server, served(folder, *task, "--workers", "1") as one:
        found = by_turns(options, {
            **loops,
            "per_s": lambda: over(server, requests, options, clients),
            "one_worker_per_s": lambda: over(one, requests, options, clients),
            "listed_per_s": lambda: TEXTS_PER_REQUEST * over(server, listed, options, 32),
        })  # fmt: skip
    file = work / "constant.py"
    file.write_text(CONSTANT)
    with served(pathlib.Path(f"{file}:constant")) as server:
        found["without_a_model_per_s"] = round(over(server, requests, options, clients), 1)
    rates = ("per_s", "one_worker_per_s", "listed_per_s") if loops else ()
    return {**found, **{f"{name}_of_encode": round(found[name] / found["encode_per_s"], 2) for name in rates}}


CONSTANT = """
import jitney
import numpy

from jitney.http.float_fields import FloatFields

VECTOR = numpy.random.default_rng(0).standard_normal(384).astype("float32")


@jitney.batch(max_batch_size=512)
def constant(inputs: list[str]) -> list:
    return [FloatFields(embeddings=VECTOR) for _ in inputs]
"""


def generation(work: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """GPT-2's shape; 64 clients, prompts of 16 to 64 tokens, 128 new ones, the best token each time."""
    folder = writer(work / "writer", options.tiny)
    given = texts(lambda chance: chance.randint(16, 64))
    tokens = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=FLOATS).eval().to(PLACE)
    turn = itertools.cycle([given[at : at + BATCH] for at in range(0, COUNT, BATCH)])
    count = 16 if options.tiny else NEW_TOKENS

    @torch.inference_mode()
    def static() -> int:
        rows = tokens(next(turn), padding=True, return_tensors="pt", return_token_type_ids=False).to(PLACE)
        model.generate(**rows, max_new_tokens=count, min_new_tokens=count, do_sample=False)
        return BATCH * count

    peers = {"generate_tokens_per_s": static}
    if GPU:  # Without one transformers finds no memory for it.
        peers["continuous_tokens_per_s"] = continuous_batching(folder, tokens(given)["input_ids"], count)
    told = {"parameters": {"max_new_tokens": count, "return_full_text": False}}
    requests = bodies(work / "prompts", [{"inputs": one, **told} for one in given[:512]])
    with served(folder) as server:
        found = by_turns(options, {
            **{name: functools.partial(rate, step, options.seconds) for name, step in peers.items()},
            "tokens_per_s": lambda: count * over(server, requests, options, CLIENTS),
        })  # fmt: skip
        first = first_token_ms(server.port(), given, count)
    attention = model.config._attn_implementation
    ratios = {name.replace("_tokens_per_s", ""): found["tokens_per_s"] / found[name] for name in peers}
    return {**found, **{f"of_{name}": round(ratio, 2) for name, ratio in ratios.items()},
            "first_token_p50_ms": first, "attention": attention}  # fmt: skip


def continuous_batching(folder: pathlib.Path, rows: list[list[int]], count: int) -> Callable[[], int]:
    """Transformers' own continuous batching: what it writes of four times as many texts as there are clients. Its
    manager stays from call to call, so that its graphs are captured once."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=FLOATS).eval().to(PLACE)
    terms = transformers.GenerationConfig(max_new_tokens=count, do_sample=False, eos_token_id=-1, pad_token_id=0)
    size = 4 * CLIENTS
    turn = itertools.cycle([rows[at : at + size] for at in range(0, COUNT, size)])

    def write() -> int:
        made = model.generate_batch(next(turn), terms, persistent_manager=True)
        return sum(len(one.generated_tokens) for one in made.values())

    return write


def first_token_ms(port: int, given: list[str], count: int) -> float:
    """The median time to the first event while 64 clients stream, each four times. They run in a few processes of
    their own, so that they do not wait for each other."""
    told = [{"prompt": one, "max_tokens": count, "temperature": 0, "stream": True} for one in given[: 4 * CLIENTS]]
    clients = str(pathlib.Path(__file__).with_name("first_events.py"))
    begun = [
        subprocess.Popen(
            [sys.executable, clients, str(port), str(CLIENTS // CLIENT_PROCESSES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(CLIENT_PROCESSES)
    ]
    shares = [json.dumps(told[at::CLIENT_PROCESSES]).encode() for at in range(CLIENT_PROCESSES)]
    with ThreadPoolExecutor(CLIENT_PROCESSES) as threads:
        answers = list(threads.map(lambda process, share: process.communicate(share)[0], begun, shares))
    return round(statistics.median(itertools.chain.from_iterable(map(json.loads, answers))), 1)


ROWS: dict[str, Callable[[pathlib.Path, argparse.Namespace], dict[str, Any]]] = {
    row.__name__: row for row in (classifier, embeddings, generation)
}

if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
