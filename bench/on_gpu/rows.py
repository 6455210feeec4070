"""The rows of the table: each measures a served model and, by turns, the loop without a server."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import pathlib
import random
import shutil
from collections.abc import Callable

from on_gpu import bare, load, nets, pictures
from on_gpu.nets import Form
from on_gpu.session import JPEG, Bench

JSON = "application/json"
HERE = pathlib.Path(__file__).resolve().parent
ON_CPU = Form("cpu", "float32", False)
NUMBERS = 256
"""Different bodies of the definition."""
TEXTS, LENGTH_MAX, TEXTS_CHECKED = 64, 512, 128


def first(bench: Bench) -> dict:
    """TorchScript, large batches."""
    server = bench.script_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    found = bench.by_turns("first", server, bench.alike, JPEG, bench.plan.scaled(384), bench.script_loop)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return found


def many(bench: Bench) -> dict:
    """The same with pictures of many sizes."""
    server = bench.script_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return bench.by_turns("many", server, bench.many_sizes, JPEG, bench.plan.scaled(384), bench.script_loop)


def one(bench: Bench) -> dict:
    """One client."""
    return bench.by_turns("one", bench.script_server(), bench.alike, JPEG, 1, None)


def sixteen(bench: Bench) -> dict:
    """Sixteen clients."""
    return bench.by_turns("sixteen", bench.script_server(), bench.alike, JPEG, 16, None)


def starts(bench: Bench) -> dict:
    """The compiled model from nothing, and again."""
    bench.close()
    shutil.rmtree(bench.plan.work / "store", ignore_errors=True)
    bench.compiled_server()
    first_seconds = bench.started_seconds["compiled"]
    bench.close()
    bench.compiled_server()
    return {"figures": {"first_s": first_seconds, "second_s": bench.started_seconds["compiled"]}}


def compiled(bench: Bench) -> dict:
    """The compiled model, larger batches."""
    server = bench.compiled_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    caches = sorted((bench.plan.work / "store").glob("**/fxgraph"))
    cache = caches[0].parent if caches else None
    net, form = bench.net(bench.plan.net), bench.plan.form
    loop = bare.compiled_loop(net, bench.plan.scaled(256), form, cache)
    found = bench.by_turns("compiled", server, bench.alike, JPEG, bench.plan.scaled(768), loop)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return found


def cpu(bench: Bench) -> dict:
    """ResNet-18 without a GPU, over decoding and model one after another."""
    script = bench.weights("resnet18")[1]
    config = {"batchSize": 8, "jitney": {"device": "cpu"}}
    server = bench.serve("cpu", nets.archive(bench.plan.work / "models" / "cpu", {}, config, script), 8)
    bench.check_pictures(server, "resnet18", ON_CPU)
    loop = bare.decoding_loop(script, pictures.files(bench.alike), 8, ON_CPU)
    return bench.by_turns("cpu", server, bench.alike, JPEG, 16, loop)


def definition(bench: Bench) -> dict:
    """A Python function with 10 ms of work on the device per batch."""
    amount = {"BENCH_BURN_DEVICE": bench.plan.form.device}
    os.environ |= amount
    burn = importlib.import_module("on_gpu.burn")
    amount["BENCH_BURN_ROUNDS"] = str(burn.calibrated())
    os.environ |= amount
    server = bench.serve("definition", HERE / "burn.py:burn", burn.BATCH, amount)
    numbers = [json.dumps({"number": number}).encode() for number in range(NUMBERS)]
    load.check(server, numbers, JSON, lambda at, it: it == at + 1)
    bodies = pictures.write(numbers, bench.plan.work / "bodies" / "numbers", "json")
    loop = bare.Loop(lambda: burn.burn(list(range(burn.BATCH))), burn.BATCH, bench.plan.form.device)
    return bench.by_turns("definition", server, bodies, JSON, 4 * burn.BATCH, loop)


def encoder(bench: Bench) -> dict:
    """Texts of many lengths, over a loop that pads 64 of them as they come."""
    env = {
        "BENCH_ENCODER_DEVICE": bench.plan.form.device,
        "BENCH_ENCODER_LAYERS": "12" if bench.plan.share == 1 else "2",
    }
    os.environ |= env
    module = importlib.import_module("on_gpu.encoder")
    server = bench.serve("encoder", HERE / "encoder.py:Encoder", 1024, env)
    texts = short_texts(module.WORDS)
    bodies = [json.dumps({"ids": text}).encode() for text in texts]
    net = module.load()
    alone = [module.classes(net, [text])[0] for text in texts[:TEXTS_CHECKED]]
    # Half precision may decide a close call the other way in another batch.
    wrong = sum(ours != theirs for ours, theirs in zip(load.answers(server, bodies[:TEXTS_CHECKED], JSON), alone))
    assert wrong <= TEXTS_CHECKED // 20, f"{wrong} of {TEXTS_CHECKED} classes are wrong"
    turn = itertools.cycle(texts[at : at + TEXTS] for at in range(0, len(texts), TEXTS))
    loop = bare.Loop(lambda: module.classes(net, next(turn)), TEXTS, bench.plan.form.device)
    folder = pictures.write(bodies, bench.plan.work / "bodies" / "texts", "json")
    return bench.by_turns("encoder", server, folder, JSON, bench.plan.scaled(512), loop)


def short_texts(words: int) -> list[list[int]]:
    """Ids of texts whose lengths are lognormal, as those of questions, titles and messages are."""
    chance = random.Random(3)
    lengths = [min(LENGTH_MAX, max(3, round(chance.lognormvariate(math.log(24), 0.8)))) for _ in range(64 * TEXTS)]
    return [[chance.randrange(1, words) for _ in range(length)] for length in lengths]


ROWS: dict[str, Callable[[Bench], dict]] = {
    row.__name__: row for row in (first, many, one, sixteen, starts, compiled, encoder, definition, cpu)
}
"""In the order in which they run: those with the same server follow each other."""
